# SPDX-License-Identifier: BSD-3-Clause
"""The user's program and the framework's programs: finding and querying them."""
import os
import select
import signal
import sys
import time

from ..common.exit_status import USAGE, Failure
from .elf import needed_libraries

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", ".."))
# A program that contains these bytes supports --check and --schema: in C++, and in Python.
SCHEMA_MARK, PYTHON_SCHEMA_MARK = b"paracel-schema-v1", b"paracel.setting("
LIBRARY, PS_LIBRARY = "libparacel.so", "libparacel_ps.so"  # a program linked with the second is written for ps-lite
# Of prun.py.
COMMANDS = ("status", "join", "tell", "runs", "top", "report", "compare", "export", "trace", "checkpoint", "sweep", "new",
            "doctor")
MOST_OUTPUT_BYTES = 1 << 26
# Python ignores SIGPIPE; its children must not.
DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD]


def find_program(name):
    """The path of the user's program: given as one, on the PATH, or one of the framework's. Raises Failure."""
    if os.sep in name or os.path.exists(name):
        path = name
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep) + own_folders()
        candidates = (os.path.join(folder, name) for folder in folders)
        path = next((p for p in candidates if os.access(p, os.X_OK) and os.path.isfile(p)), name)
    if not os.path.exists(path):
        raise Failure(USAGE, f"{name}: no such program" + suggestion_for(name))
    if os.path.isdir(path):
        raise Failure(USAGE, f"{name} is a folder, want a program")
    if not os.access(path, os.X_OK) and not path.endswith(".py"):
        raise Failure(USAGE, f"{name} is not executable")
    return os.path.abspath(path)


def suggestion_for(name):
    """A command of prun.py or a program of the framework whose name is like this one."""
    import difflib
    folder = next((f for f in own_folders() if os.path.isdir(f)), "")
    known = [*COMMANDS, *(os.listdir(folder) if folder and os.sep not in name else ())]
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f": did you mean {near[0]}?" if near else ""


def command_of(program):
    """How it is started: a Python program that is not executable by itself by the interpreter of this launcher."""
    return [program] if os.access(program, os.X_OK) else [sys.executable, program]


def own_folders():
    """Where the framework's programs are: the folder in PARACEL_FRAMEWORK, the build folder of this source tree, bin/ of the
    installed one, the folder of prun.py in the Python package."""
    named = os.environ.get("PARACEL_FRAMEWORK")
    return ([named] if named else []) + [os.path.join(TOP, "build", "bin"), os.path.join(TOP, "..", "bin"), TOP]


def own_program(name):
    """The path of a program of the framework that belongs to this launcher: never taken from a run or the working folder. Raises
    Failure."""
    folders = own_folders()
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise Failure(USAGE, f"{name} is not built: looked in {', '.join(map(os.path.normpath, folders))}; "
                         "PARACEL_FRAMEWORK can name another folder")


def find_framework(program):
    """The folder with start_server and start_scheduler: that of the program first, so that all programs come from the same build
    folder; then the launcher's own."""
    tried = [os.path.dirname(os.path.realpath(program))] + own_folders()
    for folder in tried:
        if all(os.access(os.path.join(folder, name), os.X_OK) for name in ("start_server", "start_scheduler")):
            return os.path.abspath(folder)
    raise Failure(USAGE, "start_server and start_scheduler are not built: looked in "
                         + ", ".join(map(os.path.normpath, tried)))


def marks_in(path):
    """(has a schema, is linked with the framework, is written for ps-lite), from the bytes of the program. A script counts as
    linked with nothing; one in Python has a schema if it declares settings."""
    import mmap
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            needed = needed_libraries(content)
            linked, for_ps = (any(n == name or n.startswith(name + ".") for n in needed) for name in (LIBRARY, PS_LIBRARY))
            publishes = content.find(PYTHON_SCHEMA_MARK if path.endswith(".py") else SCHEMA_MARK) >= 0
            return publishes, linked or for_ps, for_ps
    except (OSError, ValueError):  # unreadable or empty
        return False, False, False


def dies_with_us(command, how="KILL"):
    """The command wrapped so that the kernel signals it when its parent dies (this launcher, or the mpirun of a rank), by setpriv
    (util-linux) if available."""
    setpriv = "/usr/bin/setpriv"
    return [setpriv, "--pdeathsig", how] + command if os.access(setpriv, os.X_OK) else command


class Query:
    """A program that is run for its standard output. A context: at its end the program is killed, also after a Ctrl-C."""

    def __init__(self, command):
        """Starts it. Raises Failure."""
        self.out, into = os.pipe()
        devnull = os.open(os.devnull, os.O_RDWR)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
        words = dies_with_us(command)
        try:
            self.pid = os.posix_spawn(words[0], words, environment, setpgroup=0, setsigdef=DEFAULT_SIGNALS,
                                      file_actions=[(os.POSIX_SPAWN_DUP2, devnull, 0), (os.POSIX_SPAWN_DUP2, into, 1),
                                                    (os.POSIX_SPAWN_DUP2, devnull, 2)])
        except OSError as error:
            os.close(self.out)
            raise Failure(USAGE, f"{command[0]} cannot be run: {error.strerror}") from None
        finally:
            os.close(into)
            os.close(devnull)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)
        os.close(self.out)

    def output(self, limit):
        """All of it, until the program closes it or `limit` seconds have passed."""
        text = bytearray()
        end = time.monotonic() + limit
        poll = select.poll()
        poll.register(self.out, select.POLLIN)
        while (left := end - time.monotonic()) > 0 and len(text) < MOST_OUTPUT_BYTES:
            if poll.poll(left * 1000):
                chunk = os.read(self.out, 1 << 16)
                if not chunk:
                    break
                text += chunk
        return bytes(text)


def output_of(command, limit):
    """A program's standard output, until it closes it or `limit` seconds have passed. Raises Failure."""
    with Query(command) as query:
        return query.output(limit)
