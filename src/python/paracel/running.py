# SPDX-License-Identifier: BSD-3-Clause
"""The main of a program in Python."""
import atexit
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from paracel import _core
from paracel._settings import Schema
from paracel.errors import Error, UsageError
from paracel.paralg import Paralg

INTERRUPTED = 130


def run(algorithm: Callable[[], Any], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a program: reads its config, makes `algorithm()`, calls its `solve()`, leaves the job, and exits.

    The command line is `--cfg_file FILE`, a JSON object that becomes `Paralg.config`, and `--set KEY=VALUE`, which replaces one
    of its keys (VALUE is JSON, or else a text; OUTER.INNER is a key of an object in it); prun adds `--server_info`. The key
    "include" names files whose keys it has, too. With `Paralg.settings` the config is checked, and there are `--help`,
    `--schema` and `--check FILE`, as of programs in C++. An exception ends the process with one line on stderr,
    `program: error: ...`, and its exit status (`errors.Error.status`, otherwise 1); what is not an Error has its traceback
    above.

    Parameters
    ----------
    algorithm : callable
        A subclass of Paralg, or a function that returns an object with `solve`; or None, after doing all the work.
    arguments : list of str
        Instead of sys.argv[1:].
    """
    program = os.path.basename(sys.argv[0]) or "python"
    words, status, asked = "", 0, False
    try:
        settings = getattr(algorithm, "settings", None)
        flags = () if settings is None else ("help", "h", "schema", "no_files")
        options = options_in(sys.argv[1:] if arguments is None else arguments, flags)
        config_file, overrides = options["cfg_file"], options["set"]
        if settings is None:
            Paralg.config = read_config(config_file, overrides) if config_file else {}
        else:
            schema = Schema(program, algorithm, settings)
            if asked := answer(schema.schema, options):
                sys.exit(0)
            Paralg.config = schema.accept(config_file, overrides)
        _core._host(program, plugin_folders(config_file, Paralg.config))
        made = algorithm()
        if made is not None:
            made.solve()
            if isinstance(made, Paralg):
                made.close()
        _core._leave()
    except KeyboardInterrupt:
        words, status = "interrupted", INTERRUPTED
    except SystemExit as request:
        if asked:
            raise
        words, status = "error: exit() before the algorithm had ended", request.code if isinstance(request.code, int) else 1
        status = status or 1
    except Error as error:
        words, status = f"error: {error}", error.status
    except Exception as error:
        traceback.print_exc()
        words, status = f"error: {type(error).__name__}: {error}", 1
    if words:
        sys.stdout.flush()
        print(f"{program}: {words}", file=sys.stderr, flush=True)
        _core._leave(failed=True)
    sys.exit(status)


def options_in(arguments, flags=()):
    """The options by name, without values True; "set" is a list. Raises UsageError for others than --cfg_file, --set,
    --server_info, and, if there are flags, these and --check."""
    valued = ("cfg_file", "set", "server_info", *(("check",) if flags else ()))
    found = {"cfg_file": "", "set": []}
    at = iter(arguments)
    for word in at:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in (*valued, *flags) or equals and name in flags:
            import difflib
            near = difflib.get_close_matches(name, (*valued, *flags), 1) if word.startswith("-") else []
            raise UsageError(f"found {word}, want --cfg_file FILE" + (f": did you mean --{near[0]}?" if near else "")
                             + ("; see --help" if flags else ""))
        if name in flags:
            found[name] = True
            continue
        value = value if equals else next(at, None)
        if value is None:
            raise UsageError(f"found {word} without its value, want --cfg_file FILE")
        if name == "set":
            found["set"].append(value)
        else:
            found[name] = value
    if found["set"] and not (found["cfg_file"] or "check" in found):
        raise UsageError(f"--set {found['set'][0]}: no config file is given, want --cfg_file FILE")
    return found


def answer(schema, options):
    """Prints what is asked about the program. Returns: whether something is. Raises ConfigError."""
    if "help" in options or "h" in options:
        print(schema.help_text(), end="")
    elif "schema" in options:
        print(schema.to_json(), end="")
    elif "check" in options:
        try:
            print(schema.check_answer(options["check"], "no_files" not in options, options["set"]))
        except Error as error:
            print(json.dumps({"error": str(error), "status": error.status}))
            raise
    else:
        return False
    sys.stdout.flush()
    return True


def read_config(path, overrides=()):
    """A JSON object, with what it includes. Raises ConfigError."""
    return json.loads(_core._read_config(os.fspath(path), list(overrides)))


def plugin_folders(config_file, config):
    """Where a server inside this process finds plug-ins, as prun's servers do: the folders of paths in the config, those of the
    config and of the program."""
    named = [value for value in config.values() if isinstance(value, str) and value.endswith(".so") and os.sep in value]
    folders = [os.path.dirname(os.path.abspath(path)) for path in named + [config_file, sys.argv[0]] if path]
    return list(dict.fromkeys(folder for folder in folders if os.path.isdir(folder)))


@atexit.register
def leave():
    """For a program without run(): a failure is what the interpreter has printed last."""
    if not _core._entered():
        return
    failed = hasattr(sys, "last_value")
    try:
        _core._leave(failed=failed)
    except Error as error:
        print(f"{os.path.basename(sys.argv[0]) or 'python'}: error: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(error.status)
