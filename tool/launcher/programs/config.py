# SPDX-License-Identifier: BSD-3-Clause
"""What the launcher needs to know about an algorithm's config. The program itself checks it (--check), so there is only one
checker and one parser. For a program without a schema, start_scheduler reads the config."""
import os

from ..common.exit_status import CONFIG, USAGE, Failure
from .program import Query, command_of, output_of

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


def facts_in(answer):
    """The facts that a program has printed, or None if it has printed something else. Raises Failure with its error."""
    import json
    try:
        found = json.loads(answer)
        if "error" in found:
            raise Failure(int(found.get("status", CONFIG)), str(found["error"]))
        return Facts(found)
    except (ValueError, TypeError, KeyError):
        return None


class Check:
    """A job's config while the program checks it. A context; meanwhile the caller has other things to do, such as loading the
    modules for the job."""

    def __init__(self, framework, program, publishes, linked, options, check_files):
        """`publishes`: whether the program has a schema. `linked`: whether it is written in C++. Raises Failure."""
        self.framework, self.program, self.linked, self.options = framework, program, linked, options
        self.query = None
        if publishes:
            self.query = Query([*command_of(program), f"--check={options.cfg_file}", *overriding(options.set)]
                               + ([] if check_files else ["--no_files"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.query is not None:
            self.query.__exit__()

    def facts(self):
        """The facts of the config, after the program has accepted it. Raises Failure."""
        path, overrides = self.options.cfg_file, self.options.set
        if self.query is not None:
            facts = facts_in(self.query.output(LIMIT))
            if facts is not None:
                if facts.standard_input and os.isatty(0):
                    raise Failure(CONFIG, f"{facts.standard_input}: standard input is a terminal, want a file or a pipe")
                return facts
        if overrides and self.linked:
            raise Failure(USAGE, f"--set {overrides[0]}: {self.program} reads its config itself, without a schema: want the key "
                                 "in the config")
        if not path:
            if overrides:
                raise Failure(USAGE, f"--set {overrides[0]}: no config file is given: want -c FILE")
            return Facts({"plugins": []})
        import json
        reader = os.path.join(self.framework, "start_scheduler")
        facts = facts_in(output_of([reader, f"--print_config={path}"]
                                   + ([f"--overrides={json.dumps(overrides)}"] if overrides else []), LIMIT))
        if facts is None:
            raise Failure(CONFIG, f"{path}: cannot be read by {reader}: is it of another version?")
        return facts


def check_config(framework, program, publishes, linked, options, check_files):
    """The facts of a job's config, after the program has accepted it. Arguments as of Check. Raises Failure."""
    with Check(framework, program, publishes, linked, options, check_files) as check:
        return check.facts()


def overriding(overrides):
    """The same options for a program."""
    return [word for text in overrides for word in ("--set", text)]
