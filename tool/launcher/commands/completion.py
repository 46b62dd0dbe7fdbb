# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py __complete CURSOR WORD ...`: what may stand at word number CURSOR of a command line, for the completions of bash and
zsh (tool/completion). One candidate a line; FILES asks the shell for file names; a candidate that ends in = wants more."""
import json
import os
import re

from ..common import command_line
from ..common.command_line import ParserWanted
from ..common.exit_status import OK, Failure
from ..common.output import write_out
from ..programs.program import COMMANDS, SCHEMA_MARK, find_program, output_of, own_folders

FILES = "__files__"
PROGRAM_OPTIONS = ("--cfg_file", "--set", "--check", "--help", "--schema")  # of paracel::run
OF_KEYS = ("--set", "--grid", "--random")
OF_CONFIGS = ("-c", "--cfg_file", "--check")
METHODS = ("local", "mpi", "ssh", "slurm", "k8s", "external")
OF_VALUES = {"--m_server": METHODS, "-m": METHODS, "--method": METHODS,
             "--on-worker-death": ("abort", "eject", "wait:")}
OTHERS = re.compile(r"test_|bench_|start_|send_|.*\.|paracel_|.*_tests?$")  # programs without a config
LIMIT = 5.0  # seconds for a program's schema


def parser_of(command):
    """The parser of a command of prun.py; of None: that of a job."""
    from ..engines import join
    from ..folders import run_directory, runs
    from ..job import options
    from . import doctor, new_project, sweep, tell
    from .views import VIEWS, view_command
    parse = {None: lambda: options.parse_command_line([]), "status": lambda: run_directory.parse_command([]),
             "join": lambda: join.parse_command([]), "tell": lambda: tell.parse_command([]),
             "runs": lambda: runs.parse_command([]),
             "sweep": lambda: sweep.parse_command([]), "new": lambda: new_project.new_command([]),
             "doctor": lambda: doctor.doctor_command([]),
             **{name: lambda name=name: view_command([name]) for name in VIEWS}}.get(command)
    if parse is None:
        return None
    command_line.only_parsers = True
    try:
        parse()
    except ParserWanted as wanted:
        return wanted.args[0]
    finally:
        command_line.only_parsers = False
    return None


def options_of(parser):
    """{name: its action}, without those that have no help."""
    import argparse
    return {name: action for name, action in parser._option_string_actions.items() if action.help != argparse.SUPPRESS}


def schema_of(name):
    """The keys of a program's schema; none if it has none."""
    try:
        path = find_program(name)
        with open(path, "rb") as file:
            if SCHEMA_MARK not in file.read():
                return []
        return json.loads(output_of([path, "--schema"], LIMIT))["keys"]
    except (Failure, OSError, ValueError, KeyError):
        return []


def programs():
    """Those of the framework that have a config."""
    names = set()
    for folder in own_folders():
        if os.path.isdir(folder):
            names |= {entry.name for entry in os.scandir(folder) if entry.is_file() and os.access(entry.path, os.X_OK)
                      and not OTHERS.match(entry.name)}
    return sorted(names)


def key_candidates(keys, word):
    """For --set: KEY=, or once the key is there its values."""
    name, equals, _ = word.partition("=")
    if not equals:
        return [key["name"] + "=" for key in keys]
    key = next((key for key in keys if key["name"] == name), {})
    values = key.get("choices") or (("true", "false") if key.get("type") == "bool" else
                                    (json.dumps(key["default"]).strip('"'),) if "default" in key else ())
    if not values and key.get("type") in ("file", "files", "plugin", "folder_out"):
        return [FILES]
    return [f"{name}={value}" for value in values]


def candidates(words, at):
    """What may be words[at]; words[0] is prun.py, or a program."""
    word, before = words[at] if at < len(words) else "", words[at - 1] if at else ""
    if not os.path.basename(words[0]).startswith("prun"):  # a program itself
        if before in ("--set", "-set"):
            return key_candidates(schema_of(words[0]), word)
        return list(PROGRAM_OPTIONS) if word.startswith("-") else [FILES]
    command = words[1] if len(words) > 1 and words[1] in COMMANDS and at > 1 else None
    if command == "checkpoint":
        return ["list", "verify"] if at == 2 else [FILES]
    known = options_of(parser_of(command))
    # The program is the first word that is neither an option nor the value of one; in a sweep the second.
    rest, value_of = [], {}
    for i in range(2 if command else 1, min(at, len(words))):
        option = known.get(words[i - 1])
        if option is not None and option.nargs is None and i - 1 not in value_of:
            value_of[i] = words[i - 1]
        elif not words[i].startswith("-"):
            rest.append(i)
    place = 1 if command == "sweep" else 0
    program = words[rest[place]] if command in (None, "sweep") and len(rest) > place else ""
    is_value = before in known and known[before].nargs is None and at - 1 not in value_of
    if before in OF_KEYS and (is_value or program):
        if not program:  # it follows the cursor
            program = next((w for w in words[at + 1:] if schema_of(w)), "")
        return key_candidates(schema_of(program), word)
    if is_value:
        if before in OF_VALUES or known[before].choices:
            return list(OF_VALUES.get(before) or known[before].choices)
        return [FILES]
    if program:
        return list(PROGRAM_OPTIONS[:2]) if word.startswith("-") and before not in OF_CONFIGS else [FILES]
    if word.startswith("-"):
        return sorted(name for name in known if name.startswith("--") or not word.startswith("--"))
    if command is None:
        return [FILES, *programs(), *(COMMANDS if at == 1 else ())]
    return [FILES, *(programs() if command == "sweep" and len(rest) == place else ())]


def complete_command(arguments):
    """Prints the candidates that begin with the word, and nothing on a strange command line. Returns the exit status."""
    try:
        at, words = int(arguments[0]), arguments[1:]
        word = words[at] if at < len(words) else ""
        found = [c for c in candidates(words, at) if c == FILES or c.startswith(word)] if words else []
    except (ValueError, IndexError):
        found = []
    write_out("".join(c + "\n" for c in dict.fromkeys(found)))
    return OK
