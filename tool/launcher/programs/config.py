# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher needs to know about an algorithm's config. The program itself checks it (--check), so there is only one
checker and one parser. For a program without a schema, start_scheduler reads the config."""
import os

from ..common.exit_status import CONFIG, USAGE, Failure
from .program import command_of, output_of

LIMIT = 30.0  # seconds


class Facts:
    """Facts about a job's config; src/config/launch_facts.hpp describes them."""

    def __init__(self, found):
        self.plugins = [str(name) for name in found["plugins"]]
        self.standard_input = str(found.get("standard_input", ""))  # the key that names it
        self.program = str(found.get("program", ""))                # as its schema names it
        self.resumable = found.get("resumable") is not False
        self.output = str(found.get("output", ""))                  # the folder of the results
        self.remarks = [str(text) for text in found.get("remarks", [])]  # on what the config has, but probably does not mean
        self.not_resumable_key = str(found.get("not_resumable_key", ""))

    def plugin_folders(self):
        """The folders of plug-ins that the config names by path."""
        return list(dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in self.plugins if "/" in path))


def answer_of(command):
    """The facts printed by a command, or None if it prints something else. Raises Failure with the error that it prints."""
    import json
    try:
        found = json.loads(output_of(command, LIMIT))
        if "error" in found:
            raise Failure(int(found.get("status", CONFIG)), str(found["error"]))
        return Facts(found)
    except (ValueError, TypeError, KeyError):
        return None


def check_config(framework, program, publishes, linked, options, check_files):
    """The facts of a job's config, after the program has accepted it. `publishes`: whether the program has a schema. `linked`:
    whether it is written in C++. Raises Failure."""
    path, overrides = options.cfg_file, options.set
    if publishes:
        facts = answer_of([*command_of(program), f"--check={path}", *overriding(overrides)]
                          + ([] if check_files else ["--no_files"]))
        if facts is not None:
            if facts.standard_input and os.isatty(0):
                raise Failure(CONFIG, f"{facts.standard_input}: standard input is a terminal, want a file or a pipe")
            return facts
    if overrides and linked:
        raise Failure(USAGE, f"--set {overrides[0]}: {program} reads its config itself, without a schema: want the key in the "
                             "config")
    if not path:
        if overrides:
            raise Failure(USAGE, f"--set {overrides[0]}: no config file is given: want -c FILE")
        return Facts({"plugins": []})
    reader = os.path.join(framework, "start_scheduler")
    import json
    facts = answer_of([reader, f"--print_config={path}"] + ([f"--overrides={json.dumps(overrides)}"] if overrides else []))
    if facts is None:
        raise Failure(CONFIG, f"{path}: cannot be read by {reader}: is it of another version?")
    return facts


def overriding(overrides):
    """The same options for a program."""
    return [word for text in overrides for word in ("--set", text)]
