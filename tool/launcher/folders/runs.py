# SPDX-License-Identifier: BSD-3-Clause
"""The folders of runs below paracel_runs/: listing them, and removing old ones. A folder is removed only if it is certain to be
that of a finished run: it has the name and the note that prun.py gives it, contains nothing but files of a run, and its launcher
has recorded the end or no longer exists."""
import fcntl
import json
import os
import re
import stat

from ..common.command_line import name_given, new_parser
from ..common.exit_status import MEANING, OK, USAGE, Failure
from ..common.numbers import whole_number
from ..common.output import write_out
from ..common.printable import in_a_line
from .folder_lock import OF_RUN
from .run_directory import NOTE, table
from .run_folder import MOST_NOTE_BYTES, is_written_by_runs

FOLDER = "paracel_runs"
NAME = r"\d{8}-\d{6}-\d+"
OTHERS = r"run\.lock|core(\.\d+)?"  # the scheduler and the servers dump core there


class Run:
    """A folder that prun.py created for a run, held open. Raises OSError or ValueError for anything else."""

    def __init__(self, parent, name):
        self.name = name
        self.fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            if not re.fullmatch(NAME, name) or os.fstat(self.fd).st_uid != os.geteuid():
                raise ValueError(name)
            with open(os.open(NOTE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise ValueError(name)
                self.note = json.loads(file.read(MOST_NOTE_BYTES))
            if not isinstance(self.note, dict) or not isinstance(self.note.get("job"), str):
                raise ValueError(name)
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def lock(self):
        """A descriptor that holds the run's lock; None if its launcher holds it, or the lock cannot be tested."""
        try:
            fd = os.open(OF_RUN, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644, dir_fd=self.fd)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            os.close(fd)
            return None

    def state(self):
        """running, unknown, killed (the launcher, before it could record the end), or how the job ended."""
        if "status" not in self.note:
            if self.note.get("host") != os.uname().nodename:
                return "unknown"
            return "running" if is_alive(self.note.get("pid")) else "killed"
        status = self.note["status"]
        return f"{status} ({MEANING[status]})" if isinstance(status, int) and status in MEANING else str(status)

    def is_over(self):
        return self.state() not in ("running", "unknown")

    def bytes(self):
        return sum(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size for name in os.listdir(self.fd))

    def is_file(self, name):
        return stat.S_ISREG(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode)

    def remove(self, parent):
        """Returns whether the folder was removed."""
        names = os.listdir(self.fd)
        if not all((is_written_by_runs(name) or re.fullmatch(OTHERS, name, re.ASCII)) and self.is_file(name) for name in names):
            return False
        lock = self.lock()
        if lock is None:
            return False
        try:
            # The note is removed next to last, before the lock: an interrupted removal can still be recognised and repeated.
            for name in sorted(set(names) - {OF_RUN}, key=lambda n: n == NOTE) + [OF_RUN]:
                os.unlink(name, dir_fd=self.fd)
            os.rmdir(self.name, dir_fd=parent)
        finally:
            os.close(lock)
        return True


def is_alive(pid):
    return isinstance(pid, int) and os.path.exists(f"/proc/{pid}")


def each_run(folder):
    """Yields (descriptor of the folder, Run) for each run, newest first."""
    try:
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for name in sorted(os.listdir(parent), reverse=True):
            try:
                run = Run(parent, name)
            except (OSError, ValueError, RecursionError):
                continue
            with run:
                yield parent, run
    finally:
        os.close(parent)


def sweep(folder, keep):
    """Removes all finished runs in this folder but the `keep` newest. Returns the number removed."""
    try:
        if len(os.listdir(folder)) <= keep:
            return 0
    except OSError:
        return 0
    over = removed = 0
    for parent, run in each_run(folder):
        if not run.is_over():
            continue
        over += 1
        try:
            removed += over > keep and run.remove(parent)
        except OSError:  # another launcher is removing it, or it may not be removed
            continue
    return removed


def parse_command(arguments):
    parser = new_parser(prog="prun.py runs", description=f"Lists the runs below {FOLDER}/, the newest first.")
    parser.add_argument("--output-dir", type=name_given, default=".", metavar="DIR",
                        help=f"where {FOLDER}/ is (default .)")
    parser.add_argument("--keep", type=whole_number, default=None, metavar="N",
                        help="first remove finished runs except the N newest")
    return parser.parse_args(arguments)


def runs_command(arguments):
    """`prun.py runs ...`. Returns the exit status."""
    options = parse_command(arguments)
    folder = os.path.join(options.output_dir, FOLDER)
    if not os.path.isdir(folder):
        raise Failure(USAGE, f"{folder}: no such folder")
    if options.keep is not None:
        sweep(folder, options.keep)
    rows = []
    for _, run in each_run(folder):
        try:
            size = str(run.bytes())
        except OSError:  # it is being removed
            continue
        rows.append([run.name, in_a_line(run.state()), in_a_line(run.note.get("program", "-")), size,
                     in_a_line(run.note.get("cause") or "")])
    write_out("\n".join(table(["run", "state", "program", "bytes", "cause"], rows)) + "\n")
    return OK
