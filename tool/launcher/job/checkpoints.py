# SPDX-License-Identifier: BSD-3-Clause
"""The launcher's part of checkpoints. Only paracel_checkpoint knows their format."""
import json
import os

from ..common.exit_status import DATA, FAILURE, USAGE, Failure
from ..common.terminal import number_of
from ..folders.folder_lock import OF_CHECKPOINTS, FolderLock
from ..folders.own_folder import NotOwn, OwnFolder
from ..programs.program import dies_with_us, own_program

PROGRAM = "paracel_checkpoint"
MOST_CHANGES, MOST_VALUE = 20, 60  # keys that a warning lists, characters of a value there
MOST_PATH_BYTES = 1000  # what fits into a membership, with file names appended


def ask(program, *arguments):
    """The output of paracel_checkpoint. Raises Failure with its error message."""
    import subprocess
    done = subprocess.run(dies_with_us([program, *arguments]), capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace").strip().removeprefix(f"{PROGRAM}: error: ")
        raise Failure(done.returncode if done.returncode in (DATA, USAGE) else FAILURE, text or f"{program} failed")
    return done.stdout.decode("utf-8", "replace")


class Checkpoints:
    """The resolved checkpoint options: absolute paths, and the checkpoint to resume from."""

    def __init__(self, options, framework, program):
        self.folder, self.resume, self.notes = "", "", []
        self.options = options
        if options.resume_newest and holds_checkpoints(options.checkpoint_dir):
            options.resume = options.checkpoint_dir
        if not (options.checkpoint_dir or options.resume):
            return
        wanted = options.checkpoint_dir
        if wanted and os.path.exists(wanted) and not os.path.isdir(wanted):
            raise Failure(USAGE, f"--checkpoint-dir {wanted}: a file, want a folder")
        if options.resume:
            self.choose(framework, os.path.abspath(options.resume), program)
        if options.checkpoint_dir:
            self.folder = os.path.abspath(options.checkpoint_dir)
        else:
            self.folder = os.path.dirname(self.resume)
        for name, path in (("--checkpoint-dir", self.folder), ("--resume", self.resume)):
            try:  # it is sent to the servers as JSON
                size = len(path.encode())
            except UnicodeEncodeError:
                raise Failure(USAGE, f"{name}: the path {path} is not UTF-8") from None
            if size > MOST_PATH_BYTES:
                raise Failure(USAGE, f"{name}: the path {path} is longer than {MOST_PATH_BYTES} bytes")
        if os.path.dirname(self.resume) != self.folder and holds_checkpoints(self.folder):
            raise Failure(USAGE, f"--checkpoint-dir {self.folder} holds checkpoints of another run: resume from them with "
                                 "--resume, or name another folder")

    def choose(self, framework, folder, program):
        try:
            OwnFolder(folder).close()
        except NotOwn as error:
            raise Failure(USAGE, f"--resume: {error.filename} {error.strerror}: resume from a copy of it") from None
        except OSError:  # paracel_checkpoint reports the error
            pass
        tool = os.path.join(framework, PROGRAM)
        if not os.access(tool, os.X_OK):
            tool = own_program(PROGRAM)
        config = [self.options.cfg_file, json.dumps(self.options.set)] if self.options.cfg_file else []
        answer = json.loads(ask(tool, "choose", folder, *config))
        self.resume = answer["folder"]
        for broken in answer["passed_over"]:
            self.notes.append(f"warning: {broken['folder']} is damaged: {broken['why']}")
        if answer["program"] and answer["program"] != os.path.basename(program):
            own = os.path.basename(program)
            raise Failure(DATA, f"--resume {self.resume}: a checkpoint of the program {answer['program']}, which {own} "
                                f"cannot resume from: want one of {own}")
        if answer["changes"]:
            self.notes.append(f"warning: {self.resume} was made with another config: {changes_text(answer['changes'])}")
        elif answer["changes"] is None and not answer["same_config"]:  # there is none now, or the checkpoint has only its hash
            self.notes.append(f"warning: {self.resume} was made with another config")
        self.notes.append(f"resuming from {self.resume}: clock {answer['clock']}, "
                          f"taken with {number_of(answer['workers'], 'worker')} and {number_of(answer['servers'], 'server')}")

    def lock(self):
        """Locks the folder for this job. If it cannot be created or written, that is reported when the first checkpoint fails."""
        if not self.folder:
            return []
        option = "--checkpoint-dir" if self.options.checkpoint_dir else "--resume"
        try:
            os.makedirs(self.folder, exist_ok=True)
            return [FolderLock(OwnFolder(self.folder), OF_CHECKPOINTS, lambda who: (
                f"{option}: the checkpoints of a job that is running ({who}) go to {self.folder}: name another folder with "
                "--checkpoint-dir"))]
        except NotOwn as error:
            raise Failure(USAGE, f"{option}: {error.filename} {error.strerror}") from None
        except OSError:
            return []

    def flags(self, program):
        """Options for start_scheduler."""
        o = self.options
        if not self.folder:
            return []
        flags = ["--checkpoint_dir", self.folder, "--checkpoint_every", str(o.checkpoint_every), "--checkpoint_keep",
                 str(o.checkpoint_keep), "--checkpoint_wait", f"{o.checkpoint_wait:g}", "--program", os.path.basename(program)]
        if o.cfg_file:
            flags += ["--config", os.path.abspath(o.cfg_file), "--overrides", json.dumps(o.set)]
        return flags + (["--resume", self.resume] if self.resume else [])


def changes_text(changes):
    """`rounds was 20, is 30; late was not given, is 5`"""
    def short(value):
        return "not given" if not value else value if len(value) <= MOST_VALUE else value[:MOST_VALUE] + "..."
    parts = [f"{c['key']} was {short(c['before'])}, is {short(c['now'])}" for c in changes[:MOST_CHANGES]]
    rest = len(changes) - len(parts)
    return "; ".join(parts) + (f"; and {number_of(rest, 'more key')}" if rest else "")


def holds_checkpoints(folder):
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(len(name) == 10 and name.isdigit() and os.path.exists(os.path.join(folder, name, "manifest.json"))
               for name in names)


def event_text(event):
    """The message for a checkpoint event; None if it is shown only with -v."""
    kind = event.get("event")
    where = f" at clock {event['clock']}" if "clock" in event else ""
    if kind == "checkpoint_failed":
        return f"the checkpoint{where} failed, and the job continues: {event.get('why')}"
    if kind == "checkpoint_asked":
        return f"all workers will stop for a checkpoint{where}"
    if kind == "restored":
        return f"the servers have read {event.get('folder')} in {event.get('seconds', 0):.2g} s"
    if kind == "checkpoint":
        return f"checkpoint{where}: {event.get('bytes', 0)} bytes in {event.get('seconds', 0):.2g} s"
    return None


def checkpoint_command(arguments):
    """prun.py checkpoint list|verify DIR. Does not return: replaces this process with paracel_checkpoint."""
    if len(arguments) != 2 or arguments[0] not in ("list", "verify"):
        raise Failure(USAGE, "usage: prun.py checkpoint list|verify DIR")
    path = own_program(PROGRAM)
    try:
        os.execv(path, [path] + arguments)
    except OSError as error:
        raise Failure(FAILURE, f"{path} cannot be run: {error.strerror}") from None
