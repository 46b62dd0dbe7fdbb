# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a run. It belongs to one job at a time, of whichever kind. Only files that a launcher and its processes have
written are ever removed from it: the user may have named a folder that holds something else."""
import json
import os
import re

from ..common.exit_status import USAGE, Failure
from ..job.timeline import KEPT_METRICS, REPORT, TIMELINE
from .folder_lock import OF_RUN, FolderLock
from .own_folder import NotOwn, OwnFolder
from .run_directory import KEY, NOTE

MOST_NOTE_BYTES = 1 << 20
LOGS = r"(scheduler|server_\d+|worker_\d+|mpirun_(workers|servers|server_\d+))\.log"
KEPT = r"worker-\d+\.(kept[01]|clients)"  # as in src/worker/job/recovery_file.hpp
NOTES = rf"({re.escape(NOTE)}|{re.escape(KEY)}|{re.escape(REPORT)})(\.tmp)?|{re.escape(TIMELINE)}|{re.escape(KEPT_METRICS)}"
TRACES = r"(worker|server)_\d+\.\d+\.trace|trace\.(json|pftrace)"  # as in src/net/trace_file.hpp, traces/command.py


def is_written_by_runs(name):
    return re.fullmatch(f"{LOGS}|{KEPT}|{NOTES}|{TRACES}", name, re.ASCII) is not None


def take_folder(path, named, and_name):
    """Creates the folder if need be, locks it, and removes what an earlier run has left there. `named`: by the user. `and_name`:
    the option that names another one. Returns (OwnFolder, FolderLock). Raises Failure."""
    try:
        above = os.path.dirname(path)
        os.makedirs(above, exist_ok=True)
        if not named:
            OwnFolder(above).close()  # its owner could replace what is in it
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        folder = OwnFolder(path)
        try:
            had_run = is_of_run(folder)
            lock = FolderLock(folder, OF_RUN, lambda who: (
                f"the run folder {path} belongs to a job that is running ({who}): name another one with --run-dir"))
            try:
                remove_earlier(folder, had_run)
            except BaseException:
                lock.release()
                raise
        except BaseException:
            folder.close()
            raise
        return folder, lock
    except NotOwn as error:
        raise Failure(USAGE, f"{error.filename} {error.strerror}: name another place with {and_name}") from None
    except OSError as error:
        raise Failure(USAGE, f"the run folder {path} cannot be created: {error.strerror}") from None


def release_folder(folder, lock):
    """The opposite of take_folder. A run that could not write its note leaves the lock file, so that a later run may remove
    what it has left."""
    keeps_lock = False
    if lock is not None and folder is not None:
        try:
            keeps_lock = not has_note(folder) and any(map(is_written_by_runs, folder.names()))
        except OSError:  # the folder has been removed
            pass
        lock.release(keeps_lock)
    if folder is not None:
        folder.close()


def is_of_run(folder):
    """Whether a launcher has used the folder: it leaves its note, and where that is not written its lock."""
    return has_note(folder) or OF_RUN in folder.names()


def has_note(folder):
    try:
        with os.fdopen(folder.open(NOTE, os.O_RDONLY), "rb") as file:
            note = json.loads(file.read(MOST_NOTE_BYTES))
        return isinstance(note, dict) and isinstance(note.get("job"), str)
    except (FileNotFoundError, NotOwn, ValueError, RecursionError):  # a link, or something else of that name
        return False


def remove_earlier(folder, had_run):
    found = sorted(name for name in folder.names() if name != OF_RUN and is_written_by_runs(name))
    if found and not had_run:
        raise Failure(USAGE, f"--run-dir {folder.path}: it has a file {found[0]} that no run of prun.py has left there: name "
                             "another folder, or move the file")
    for name in found:
        folder.remove(name)


def remove_kept(folder):
    """Removes the files that workers have written for their replacements."""
    try:
        for name in folder.names():
            if re.fullmatch(KEPT, name, re.ASCII):
                folder.remove(name)
    except OSError:  # the folder has been removed
        pass
