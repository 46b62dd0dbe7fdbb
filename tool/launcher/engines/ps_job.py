# SPDX-License-Identifier: BSD-3-Clause
"""A job of a program written for ps-lite (#include "ps/ps.h"): the program itself is started in all three roles. It finds the
others by DMLC_* variables; this launcher watches the processes, and terminates all when one fails."""
import os
import shlex
import signal
import time

from ..common.exit_status import OK, TIMEOUT, USAGE, Failure
from ..common.figures import seconds_text
from ..common.output import write_out, write_quietly
from ..common.printable import printable
from ..common.terminal import number_of
from ..folders import runs
from ..folders.own_folder import APPEND
from ..folders.run_directory import NOTE, PS_JOB
from ..folders.run_folder import release_folder, take_folder
from ..folders.socket_folder import SocketFolder
from ..job.ending import ENDING_SIGNALS, last_lines, status_of
from ..job.options import parse_command_line
from ..job.plan import Child
from ..job.wake_up import signals_in, wake_at
from ..programs.program import DEFAULT_SIGNALS, dies_with_us
from ..report.summary import shares_text

ALLOWED = {"wnum", "snum", "customers", "output_dir", "run_dir", "keep", "timeout", "dry_run", "verbose", "program", "arguments",
           "heartbeat_limit", "ps", "no_summary"}
ENDING_TIME = 3.0  # seconds for the others to report what they have lost


class PsJob:
    def __init__(self, options, program):
        defaults = vars(parse_command_line(["program"]))
        for name, value in vars(options).items():
            if name not in ALLOWED and not callable(value) and value != defaults[name]:
                raise Failure(USAGE, f"--{name.replace('_', '-')} does not apply to {os.path.basename(program)}, which is "
                                     "written for ps-lite and has its own servers")
        self.default_heartbeat_limit = defaults["heartbeat_limit"]
        self.options, self.program = options, program
        self.children, self.cause, self.folder, self.lock = [], None, None, None
        self.stopped_by = 0
        self.run_dir = os.path.abspath(options.run_dir or os.path.join(
            options.output_dir, runs.FOLDER, f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"))

    def make_children(self, sockets):
        """`sockets`: the folder of all sockets, which no other user can access."""
        o = self.options
        shared = {"DMLC_NUM_WORKER": str(o.wnum * o.customers), "DMLC_NUM_SERVER": str(o.snum),
                  "DMLC_PS_ROOT_URI": f"ipc://{sockets}", "DMLC_PS_ROOT_PORT": "0"}
        if o.heartbeat_limit != self.default_heartbeat_limit:
            shared["PS_HEARTBEAT_TIMEOUT"] = f"{o.heartbeat_limit:g}"
        command = dies_with_us([self.program] + o.arguments)
        for role, count in (("scheduler", 1), ("server", o.snum), ("worker", o.wnum)):
            for index in range(count):
                name = "scheduler.log" if role == "scheduler" else f"{role}_{index}.log"
                self.children.append(Child(role, index, command, os.path.join(self.run_dir, name),
                                           dict(shared, DMLC_ROLE=role, DMLC_RANK=str(index))))

    def run(self):
        """The exit status. Raises Failure."""
        if self.options.dry_run:
            self.make_children("/tmp/prc-XXXXXX")
            for child in self.children:
                write_out(" ".join([f"{k}={v}" for k, v in child.environment.items()] + [shlex.quote(w) for w in child.command])
                          + "\n")
            return OK
        sockets = SocketFolder()
        try:
            self.make_children(sockets.path)
            return self.run_in_folder()
        finally:
            sockets.remove()

    def run_in_folder(self):
        named = self.options.run_dir is not None
        self.folder, self.lock = take_folder(self.run_dir, named, "--run-dir" if named else "--output-dir")
        self.note()
        woken, _ = wake_at(ENDING_SIGNALS, self.on_signal)
        begin = time.monotonic()
        try:
            for child in self.children:
                self.spawn(child)
            self.watch(woken, begin)
        finally:
            self.kill()
            status = self.cause[0] if self.cause else OK
            self.note(status=status, cause=self.cause[1] if self.cause else "")
            release_folder(self.folder, self.lock)
            if not self.options.run_dir:
                runs.sweep(os.path.dirname(self.run_dir), self.options.keep)
        if not self.options.no_summary and not self.stopped_by:
            self.summarise(time.monotonic() - begin)
        if self.cause and not self.stopped_by:
            self.say(f"{self.cause[1]}; logs are in {self.run_dir}")
        elif self.options.verbose:
            self.say(f"done in {time.monotonic() - begin:.2f} s; logs are in {self.run_dir}")
        return status

    def summarise(self, took):
        """Says in a line each what was run, and what the system knows of the processes' time: they report nothing themselves."""
        o = self.options
        self.say(f"{os.path.basename(self.program)}: {number_of(o.wnum, 'worker')}, {number_of(o.snum, 'server')}; "
                 f"{seconds_text(took)}")
        for role in ("worker", "server"):
            self.say(shares_text(role, [(f"{role} {c.index}", c.spent) for c in self.children if c.role == role and c.pid], took))

    def note(self, **more):
        """For `prun.py runs`; an error does not end the job."""
        import json
        note = dict(job=PS_JOB, program=os.path.basename(self.program), pid=os.getpid(), host=os.uname().nodename,
                    workers=self.options.wnum, servers=self.options.snum, **more)
        try:
            self.folder.write(NOTE, json.dumps(note))
        except OSError as error:
            self.say(f"warning: {os.path.join(self.run_dir, NOTE)} cannot be written: {error.strerror}")

    def say(self, text):
        write_quietly(2, f"prun.py: {printable(text)}\n".encode("utf-8", "replace"))

    def on_signal(self, number, _frame):
        if number in ENDING_SIGNALS and not self.stopped_by:
            self.stopped_by = number
            self.cause = self.cause or (128 + number, "")

    def spawn(self, child):
        log = self.folder.open(os.path.basename(child.log), APPEND, 0o644)
        actions = [] if self.is_seen(child) else [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        child.began = time.monotonic()
        try:
            child.pid = os.posix_spawn(child.command[0], child.command, dict(os.environ, **child.environment), setpgroup=0,
                                       setsigdef=DEFAULT_SIGNALS, file_actions=actions)
        except OSError as error:
            raise Failure(USAGE, f"{self.program} cannot be run: {error.strerror}") from None
        finally:
            os.close(log)
        if self.options.verbose:
            self.say(f"started {child.name()}")

    def watch(self, woken, begin):
        """Watches until all have exited, or the others have had time to exit after the first failure."""
        import select
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        limit = begin + self.options.timeout if self.options.timeout else None
        while any(c.ended is None for c in self.children) and not self.stopped_by:
            now = time.monotonic()
            if limit is not None and now >= limit:
                if self.cause is None:
                    self.cause = (TIMEOUT, f"the job took longer than {self.options.timeout:g} s")
                return
            poll.poll(1000 if limit is None else min(1000, (limit - now) * 1000 + 1))
            signals_in(woken)
            for child in self.children:
                if child.ended is None:
                    self.reap(child, os.WNOHANG)
                    if child.ended is not None and self.cause is None and not self.went_well(child):
                        self.cause = status_of(child)
                        self.show_tail(child)
                        ends = time.monotonic() + ENDING_TIME
                        limit = ends if limit is None else min(limit, ends)

    @staticmethod
    def reap(child, flags=0):
        child.ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | flags)
        if child.ended is not None:
            used = os.wait4(child.pid, 0)[2]
            rest = time.monotonic() - child.began - used.ru_utime - used.ru_stime
            child.spent = {"computing": used.ru_utime, "system": used.ru_stime, "idle": max(0.0, rest)}

    @staticmethod
    def went_well(child):
        return child.ended.si_code == os.CLD_EXITED and child.ended.si_status == 0

    @staticmethod
    def is_seen(child):
        """The output of worker 0 and of the scheduler, which programs of this kind use as a driver, is the job's."""
        return child.role == "scheduler" or (child.role, child.index) == ("worker", 0)

    def show_tail(self, child):
        for line in [] if self.is_seen(child) else last_lines(child.log) or []:
            self.say(f"{child.role} {child.index}: {line}")

    def kill(self):
        for child in self.children:
            if child.pid and child.ended is None:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                self.reap(child)
