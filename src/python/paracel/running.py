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
from paracel.errors import Error, UsageError
from paracel.paralg import Paralg

INTERRUPTED = 130


def run(algorithm: Callable[[], Any], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a program: reads its config, makes `algorithm()`, calls its `solve()`, leaves the job, and exits.

    The command line is `--cfg_file FILE`, a JSON object that becomes `Paralg.config`, and `--set KEY=VALUE`, which replaces one of
    its keys (VALUE is JSON, or else a text; OUTER.INNER is a key of an object in it); prun adds `--server_info`. The key
    "include" names files whose keys it has, too. An exception ends the process with one line on stderr, `program: error: ...`, and its exit status (`errors.Error.status`, otherwise 1);
    what is not an Error has its traceback above.

    Parameters
    ----------
    algorithm : callable
        A subclass of Paralg, or a function that returns an object with `solve`; or None, after doing all the work.
    arguments : list of str
        Instead of sys.argv[1:].
    """
    program = os.path.basename(sys.argv[0]) or "python"
    words, status = "", 0
    try:
        config_file, overrides = options_in(sys.argv[1:] if arguments is None else arguments)
        Paralg.config = read_config(config_file, overrides) if config_file else {}
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


def options_in(arguments):
    """The value of --cfg_file, or "", and those of --set. Raises UsageError for other options."""
    found, overrides = "", []
    at = iter(arguments)
    for word in at:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in ("cfg_file", "set", "server_info"):
            raise UsageError(f"found {word}, want --cfg_file FILE")
        value = value if equals else next(at, None)
        if value is None:
            raise UsageError(f"found {word} without its value, want --cfg_file FILE")
        if name == "cfg_file":
            found = value
        elif name == "set":
            overrides.append(value)
    if overrides and not found:
        raise UsageError(f"--set {overrides[0]}: no config file is given, want --cfg_file FILE")
    return found, overrides


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
