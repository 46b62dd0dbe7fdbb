# SPDX-License-Identifier: BSD-3-Clause
"""A running job: one event loop for all inputs, and the end of the job."""
import json
import os
import select
import signal
import time

from ..common.exit_status import FAILURE, OK, SCHEDULER_LOST, TIMEOUT, Failure, words_of
from ..common.terminal import Terminal
from ..engines.before_limit import ANNOUNCING, BeforeLimit
from ..engines.mpirun import Tagged, signal_name
from ..engines.ssh import LifeLine, Startups
from ..folders.run_directory import NOTE, write_note
from ..programs.program import DEFAULT_SIGNALS
from .checkpoints import event_text
from .ending import ENDING_SIGNALS, READER_LIMIT, deliver, finish, has_lost_its_node, last_lines, next_step, status_of
from .logs import Logs
from .orphans import become_subreaper, reap, signal_orphans
from .pipes import Pipes
from .recovery import Recovery
from .timeline import Timeline
from .wake_up import signals_in, wake_at

EXPLAINED_LIMIT = 2.0               # seconds in which an exit with status 0 before the end of the job must be explained
READY_LIMIT = 10.0                  # seconds until the scheduler must have bound its port
# Seconds for processes to exit by themselves, with their last log lines, after the scheduler has ended the job.
LAST_WORDS = 0.3
LATE = 0.5                          # seconds; a launcher that wakes up this late was suspended
FAILURE_KILL = 2.0                  # seconds from SIGTERM to SIGKILL
FORWARD_LIMIT = 1.0                 # seconds in which servers exit on a signal that their mpirun forwards
INTERRUPT_KILL = 3.0


class Job:
    def __init__(self, plan):
        self.plan, self.options = plan, plan.options
        json_of = plan.id if plan.options.log_format == "json" else None
        self.terminal = Terminal(plan.options.progress_every, json_of)
        self.files = Logs(self.terminal.say, plan.open_log, json_of)
        self.children = []
        self.by_pid = {}
        self.queued = []           # servers that are started after the previous one has joined
        self.nodes = {}            # (role, index) -> (pid, host), from the scheduler
        self.poll = select.poll()
        self.pipes = Pipes(self.poll, self.terminal.out.is_full)
        self.event_rest = b""
        self.subreaper = False
        self.address = ""
        self.metrics = ""          # where they are served
        self.started = False
        self.running = False       # all processes have joined
        self.warnings = set()      # that were printed
        self.timeline = Timeline(plan, self.files)
        self.recovery = Recovery(self)
        self.life_line = LifeLine()
        self.startups = Startups()  # of workers
        # the end of the job
        self.cause = None          # (status, text)
        self.told = False          # the scheduler has announced the end of the job
        self.left = set()          # ranks of workers that have left, according to the scheduler
        self.done = False          # the scheduler reports that all workers have left with status 0
        self.stopping = False
        self.interrupts = 0
        self.unexplained = []      # servers that have exited with 0 without a known reason
        self.checkpoint_asked = False
        self.kill_at = None
        self.deadlines = {}        # name -> time
        self.before_limit = BeforeLimit(self) if plan.allocation is not None else None  # under Slurm

    # -- starting

    def spawn(self, child):
        """Starts a process in its own process group, so that Ctrl-C reaches only the launcher and a child can be killed together
        with all its descendants."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_") and child.keeps(k)}
        environment.update(self.plan.key_environment(child.mpirun))
        environment.update(child.environment)
        out = err = self.files.open(child.log)
        child.log_begins = os.fstat(out).st_size
        ends = [out, os.open(os.devnull, os.O_RDONLY)]  # of the process
        devnull = ends[1]
        reader = None
        if child.role == "scheduler":
            reader = self.read_events
        elif child.mpirun:
            reader = Tagged(child, self.files, self.plan.log_of, self.nodes, self.terminal.pass_through)
        elif child.role == "request":
            reader = self.reply_collector(child)
        elif child.role == "worker" and child.index == 0:
            reader = self.files.reader(child.log, child.role, child.index, self.terminal.pass_through)
        try:
            if self.files.json_of is not None and not child.mpirun:
                out = err = self.open_pipe(child, self.files.reader(child.log, *child.in_logs()), True, ends)
            if reader is not None:
                out = self.open_pipe(child, reader, child.role in ("scheduler", "request"), ends)
            actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out if child.mpirun else err, 2)]
            # An mpirun passes standard input to its rank 0. No other process may consume it: it may be meant for the next
            # program.
            takes_input = self.plan.reads_standard_input and child.role == "worker" and not child.index
            if not takes_input:
                actions.append((os.POSIX_SPAWN_DUP2, devnull if child.host is None else self.life_line.end(), 0))
            if self.options.verbose:
                import shlex
                self.terminal.say("starts " + " ".join(shlex.quote(w) for w in child.command))
            try:
                child.pid = os.posix_spawn(child.command[0], child.command, environment, file_actions=actions,
                                           setpgroup=0, setsigdef=DEFAULT_SIGNALS)
            except OSError as error:
                raise Failure(FAILURE, f"{child.command[0]} cannot be run: {error.strerror}") from None
        finally:
            for fd in ends:
                os.close(fd)
        self.children.append(child)
        self.by_pid[child.pid] = child

    def open_pipe(self, child, reader, urgent, ends):
        """Returns the end for the process, also added to `ends`."""
        source, into = self.pipes.open(reader, urgent)
        child.sources.append(source)
        ends.append(into)
        return into

    def start_nodes(self, address):
        self.started = True
        self.address = self.plan.external.bound(address) if self.plan.external else address
        self.deadlines.pop("ready", None)
        self.write_note()
        if self.plan.external:
            return self.plan.external.begin(self)
        self.queued = self.plan.make_servers(address)
        self.spawn(self.queued.pop(0))
        if not self.plan.remote:
            self.start_queued(len(self.queued))
            self.start_workers()

    def start_queued(self, count):
        for _ in range(min(count, len(self.queued))):
            self.spawn(self.queued.pop(0))

    def start_workers(self):
        """With other hosts, called only after all servers have joined, one by one if each has its own mpirun: on those hosts all
        mpiruns share the folder for their files."""
        self.startups.waiting = self.plan.make_workers(self.address)
        self.start_waiting(time.monotonic())

    def start_waiting(self, now):
        for child in self.startups.take(self.nodes, now):
            self.spawn(child)

    # -- events

    def reply_collector(self, child):
        """Collects the reply to a request to the scheduler; most of it also arrives as an event."""
        def take(data):
            child.answer += data
            if not data and child.answer.strip() and self.options.verbose:
                self.terminal.say("the answer is " + child.answer.decode("utf-8", "replace").rstrip())
        return take

    def read_events(self, data):
        """Parses the scheduler's JSON lines."""
        *lines, self.event_rest = (self.event_rest + data).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self.timeline.add(event.get("event"), line)
                self.on_event(event)

    def on_event(self, event):
        kind = event.get("event")
        if kind == "progress":
            self.terminal.note_progress(event, time.monotonic())
            return
        if kind in ("sample", "usage", "loaded", "output"):  # for the report
            return
        if self.options.verbose:
            self.terminal.say(f"event {kind} " + " ".join(f"{k}={v}" for k, v in event.items() if k != "event"))
        if kind == "ready":
            if not self.started and not self.stopping:
                self.start_nodes(event["address"])
        elif kind == "metrics":
            self.metrics = event["address"]
            self.terminal.say(f"metrics at {self.metrics}")
            if self.started:
                self.write_note()
        elif kind in ("joined", "joining"):
            self.nodes[event["role"], event["index"]] = (event["pid"], event["host"])
            self.suspect_early_ends()
            if "threads" in event:
                self.plan.threads_of[event["index"]] = event["threads"]
            if event["role"] == "server" and self.options.may_change():
                self.recovery.watch(event["index"], event["pid"], event["host"])
            if self.plan.remote and not self.stopping and not self.running:
                if len(self.nodes) == self.options.snum:
                    self.start_workers()
                else:
                    self.start_queued(1)
        elif kind == "started":
            self.running = True
            if self.deadlines.pop("missing", None) is not None:
                self.terminal.say("all processes have joined")
        elif kind == "vacated":
            self.nodes.pop((event["role"], event["index"]), None)
            self.terminal.say(f"{event['cause']}; another process may take its place")
        elif kind == "left" and event["role"] == "worker":
            self.left.add(event["index"])
        elif kind in ("wanted", "not_entered", "entered", "leaving", "retired", "moving", "moved"):
            self.recovery.resizing.on_event(kind, event)
        elif kind == "serving":
            self.recovery.serving()
        elif kind == "synced":
            self.recovery.synced()
        elif kind == "ejected":
            self.recovery.on_ejected(event)
        elif kind == "awaited":
            self.recovery.on_awaited(event)
        elif kind == "caught_up":
            self.terminal.say(f"worker {event['index']} (pid {event['pid']}) has caught up")
        elif kind == "lost" and event.get("continues"):
            self.recovery.lost(event)
        elif kind == "busy" and not self.options.verbose:
            self.terminal.say(f"server s{event['index']} (pid {event['pid']} on {event['host']}), shard {event['shard']}: "
                              f"{event['function']} has been running for {event['seconds']:.0f} s")
        elif kind == "lost":
            self.told = True
            self.fail(event["status"], self.recovery.words_for(event), (event["role"], event["index"]))
        elif kind == "abort":
            self.told = True
            self.fail(event["status"], event["cause"], None, LAST_WORDS)
        elif kind == "done":
            self.done = True
        elif kind == "warning":
            text = str(event.get("text"))
            about = text.partition(": ")[2]  # without the worker's name: a warning that all of them send is printed once
            if about not in self.warnings:
                self.warnings.add(about)
                self.terminal.say(text)
        elif kind == "error":
            self.terminal.say("the scheduler: " + str(event.get("text")))
        elif kind in ("checkpoint", "checkpoint_failed", "checkpoint_asked", "restored"):
            # For periodic checkpoints only failures are reported.
            asked, self.checkpoint_asked = self.checkpoint_asked, kind == "checkpoint_asked"
            if kind != "checkpoint" or asked:
                self.terminal.say(event_text(event))
            if self.before_limit is not None and kind in ("checkpoint", "checkpoint_failed"):
                self.before_limit.on_checkpoint(str(event.get("why", "")))

    # -- the end of the job

    def fail(self, status, text, who=None, patience=0.0):
        """Fails the job; only the first cause counts, and only for that this returns True. `who` is (role, index): the last lines
        of its log are shown."""
        if self.cause is not None or (self.stopping and self.interrupts == 0):
            return False
        self.cause = (status, text)
        self.terminal.end_progress()
        if not self.interrupts:
            self.terminal.say(text, matters=True, level="error")
            self.show_tail(who)
        if patience > 0:
            self.deadlines["stop"] = time.monotonic() + patience
        else:
            self.stop(FAILURE_KILL)
        return True

    def show_tail(self, who):
        if who is None:
            return
        path = who if isinstance(who, str) else self.plan.log_of(*who)
        lines = last_lines(path)
        if lines is None:
            return
        if not lines:
            self.terminal.say(f"its log {path} is empty", matters=True)
            return
        self.terminal.say(f"the last lines of its log {path}:", matters=True)
        self.terminal.say_lines(lines)

    def handle_death(self, child, late=False):
        if child.role == "request":
            self.recovery.answered(child)
            self.stop_when_all_left()
            return
        child.lost_node = has_lost_its_node(child)
        clean = child.ended.si_code == os.CLD_EXITED and child.ended.si_status == 0 and not child.lost_node
        if self.stopping:
            if self.cause is None and not clean and not self.interrupts and child.role != "scheduler":
                status, text = status_of(child)
                if not (child.ended.si_code == os.CLD_EXITED or child.ended.si_status in (signal.SIGTERM, signal.SIGKILL)):
                    self.terminal.say(f"after the job was complete, {text}")
            return
        if clean and (child.role == "worker" or self.done):
            self.suspect_early_ends()
            self.stop_when_all_left()
            return
        if child.role == "scheduler" and self.done:
            return
        if clean and child.role == "server" and not late:
            # It may have been told that the job is done before this launcher, which was suspended or starved.
            self.unexplained.append(child)
            self.deadlines["explained"] = time.monotonic() + EXPLAINED_LIMIT
            return
        status, text = status_of(child, self.recovery.has_joined(child))
        who = (child.role, child.index)
        if child.mpirun:
            rank, _ = child.first_failure or (None, None)
            who = child.log if rank is None else (child.role, rank)
        if self.recovery.handles(child):
            self.recovery.died(child, text)
            self.stop_when_all_left()
            return
        if self.fail(status, text, who) and child.role == "worker":
            step = next_step(text, self.plan.embedded_command())
            if step is not None:
                self.terminal.say(step, matters=True)

    def ended_early(self):
        """A worker that has exited with 0 without leaving the job, so that the others wait for it, or None. None for programs
        that do not join at all."""
        if self.done or self.stopping or not any(role == "worker" for role, _ in self.nodes):
            return None
        return next((c for c in self.children if c.role == "worker" and not c.mpirun and c.ended and c.index not in self.left
                     and c.ended.si_code == os.CLD_EXITED and c.ended.si_status == 0 and not c.lost_node), None)

    def suspect_early_ends(self):
        """The event that the worker has left may still be in the pipe."""
        if "early" not in self.deadlines and self.ended_early() is not None:
            self.deadlines["early"] = time.monotonic() + EXPLAINED_LIMIT

    def stop_when_all_left(self):
        if self.plan.external:  # the scheduler ends by itself
            return
        over = all(c.ended for c in self.children if c.role == "worker") and not self.startups.waiting
        if over and not self.recovery.undecided():
            self.stop(FAILURE_KILL)

    def alive(self, *roles):
        return [c for c in self.children if c.ended is None and (not roles or c.role in roles)]

    def send(self, children, number):
        for child in children:
            for send in (os.killpg, os.kill):  # the group may not exist yet
                try:
                    send(child.pid, number)
                    break
                except OSError:
                    continue

    def stop(self, limit):
        """Begins the end: SIGTERM now, SIGKILL after `limit` seconds; `continue_stopping` does the rest."""
        if self.stopping:
            return
        self.stopping = True
        self.deadlines.clear()
        self.kill_at = time.monotonic() + limit
        self.asked = set()
        self.forwarded = None
        self.send(self.alive("request"), signal.SIGKILL)
        self.continue_stopping()

    def ask(self, children):
        children = [c for c in children if c.pid not in self.asked]
        self.asked.update(c.pid for c in children)
        for child in children:
            self.send([child], child.end_signal)
        self.send(children, signal.SIGCONT)  # so that a stopped process receives it

    def ask_servers(self):
        """After SIGTERM an mpirun waits for a second, even if its ranks have exited; SIGALRM is forwarded to them."""
        servers = self.alive("server")
        now = time.monotonic()
        if self.cause is None and servers[0].mpirun:
            if self.forwarded is None:
                self.forwarded = now
                self.kill_at += FORWARD_LIMIT
                for child in servers:
                    os.kill(child.pid, signal.SIGALRM)  # not its group: ssh would not survive that
            if now < self.forwarded + FORWARD_LIMIT:
                return
        self.ask(servers)

    def continue_stopping(self):
        """Stops workers, then servers, then the scheduler; after a failure workers and servers together."""
        failed = self.cause is not None and not self.interrupts
        if failed and {"mpi", "ssh", "slurm", "external"} & {self.options.method, self.options.m_server} and not self.told:
            self.told = True
            self.ask(self.alive("scheduler"))  # it notifies processes that no mpirun or ssh reaches any more
        if self.alive("worker"):
            self.ask(self.alive("worker"))
            if not failed:
                return
        if self.alive("server"):
            self.ask_servers()
            return
        if self.alive("worker") or self.orphans(signal.SIGTERM):
            return
        for child in self.alive("scheduler"):
            if not self.done and self.plan.all_local():
                self.send([child], signal.SIGKILL)  # it would wait for notifications to processes that no longer exist
            elif child.pid not in self.asked:
                if (self.plan.remote or self.plan.external) and self.cause is not None and self.told:
                    return  # it exits when all processes on other hosts have been notified, or at kill_at
                self.ask([child])

    def orphans(self, number):
        """Sends a signal to processes that we inherited because their mpirun has died. Returns their number."""
        return signal_orphans(number, {*self.by_pid, *self.plan.key_holder_pids()}) if self.subreaper else 0

    def kill(self):
        self.send(self.alive(), signal.SIGKILL)
        self.orphans(signal.SIGKILL)

    def on_signal(self, number):
        if number == signal.SIGCHLD:
            return
        if self.before_limit is not None and number in ANNOUNCING:
            self.before_limit.on_signal(number)
            return
        if number == signal.SIGUSR1:
            if self.nodes:  # before that the scheduler may not handle the signal yet
                self.send(self.alive("scheduler"), signal.SIGUSR1)
            return
        if number == signal.SIGINT and self.interrupts:
            self.terminal.say("interrupted again: killing everything", matters=True)
            self.kill_at = time.monotonic()
            return
        if self.interrupts:
            return
        self.interrupts = 1
        status = 128 + number
        if self.cause is not None:   # already failing: stop immediately
            self.stop(0)
            self.kill_at = time.monotonic()
            return
        self.cause = (status, "")
        self.terminal.end_progress()
        self.terminal.say("interrupted: stopping the job (Ctrl-C again kills it)" if number == signal.SIGINT
                          else f"{signal_name(number)}: stopping the job", matters=True)
        self.stopping = False
        self.stop(INTERRUPT_KILL)

    # -- the loop

    def wait_time(self, now):
        ends = list(self.deadlines.values())
        if self.kill_at is not None:
            ends.append(self.kill_at)
        if self.terminal.due() is not None:
            ends.append(self.terminal.due())
        if self.startups.waiting and self.cause is None:
            ends.append(self.startups.at)
        if self.subreaper and self.stopping:
            ends.append(now + 0.1)  # orphans arrive without a signal
        return None if not ends else max(0.0, min(ends) - now) * 1000

    def run(self):
        """Returns the exit status."""
        try:
            return self.run_loop()
        except (Failure, OSError) as error:
            if self.cause is None:
                self.cause = (getattr(error, "status", FAILURE), words_of(error))
            self.write_end()
            raise

    def run_loop(self):
        o = self.options
        self.subreaper = "mpi" in (o.method, o.m_server) and become_subreaper()
        self.wake, wake_in = wake_at({signal.SIGUSR1, *ENDING_SIGNALS, *(ANNOUNCING if self.before_limit is not None else ())})
        self.terminal.wake_with(wake_in)
        self.poll.register(self.wake, select.POLLIN)
        self.terminal.say(self.plan.described())
        self.terminal.say(f"logs in {self.plan.run_dir}")
        for note in self.plan.notes + self.plan.checkpoints.notes:
            self.terminal.say(note)
        begin = time.monotonic()
        self.timeline.open()
        if o.timeout is not None:
            self.deadlines["timeout"] = begin + o.timeout
        scheduler = self.plan.make_scheduler()
        self.spawn(scheduler)
        if self.plan.all_local() and self.plan.uses_ipc():  # otherwise it reports the port that it has bound
            self.start_nodes(scheduler.command[scheduler.command.index("--bind") + 1])
        else:
            self.deadlines["ready"] = begin + READY_LIMIT

        while self.alive() or (self.subreaper and self.stopping and self.orphans(0)):
            self.pipes.listen()
            asked_at = time.monotonic()
            wait = self.wait_time(asked_at)
            ready = [fd for fd, _ in self.poll.poll(wait)]
            if wait is not None:
                self.extend_deadlines(time.monotonic() - asked_at - wait / 1000)
            signals = signals_in(self.wake)
            # Children are reaped before their output is read, and handled after that: an event of the scheduler that explains a
            # death was written before it.
            dead, others = reap(self.by_pid)
            for words in self.plan.lost_keys(others):
                self.terminal.say(words, matters=True)
            left = [source for child in dead for source in child.sources]
            for fd in self.pipes.sources():
                if dead or fd in ready:
                    self.pipes.read(fd, final=fd in left)
            for fd in [fd for fd in ready if fd in self.recovery.watched]:
                self.recovery.on_exit(fd)
            for number in signals:
                self.on_signal(number)
            for child in dead:
                self.handle_death(child)
            now = time.monotonic()
            self.meet_deadlines(now)
            if self.stopping:
                if self.kill_at <= now:
                    self.kill()
                    self.kill_at = now + 0.2  # repeated for processes started meanwhile
                else:
                    self.continue_stopping()
            elif self.cause is None:
                self.start_waiting(now)
            self.terminal.show_progress(now)
        for fd in self.pipes.sources():
            self.pipes.read(fd, final=True)
        self.pipes.close()
        took = time.monotonic() - begin
        self.write_end()
        deliver(self, None if o.timeout is None else begin + o.timeout)
        finish(self, took)
        return self.cause[0] if self.cause is not None else OK

    def meet_deadlines(self, now):
        """Handles expired deadlines."""
        if self.deadlines.get("timeout", now + 1) <= now:
            self.deadlines.pop("timeout")
            self.fail(TIMEOUT, f"the job was not complete within {self.options.timeout:g} s")
        if self.deadlines.get("missing", now + 1) <= now:
            self.plan.external.remind(self, now)
        if self.deadlines.get("ready", now + 1) <= now:
            self.deadlines.pop("ready")
            self.fail(SCHEDULER_LOST, "the scheduler did not start", ("scheduler", 0))
        if self.deadlines.get("srun", now + 1) <= now:
            self.deadlines.pop("srun")
            self.recovery.kill_srun()
        if self.before_limit is not None:
            self.before_limit.meet_deadlines(now)
        if self.deadlines.get("explained", now + 1) <= now:
            self.deadlines.pop("explained")
            late, self.unexplained = self.unexplained, []
            for child in late:
                self.handle_death(child, late=True)
        if self.deadlines.get("early", now + 1) <= now:
            self.deadlines.pop("early")
            early = self.ended_early()
            if early is not None:
                self.fail(FAILURE, f"{early.name()} exited with status 0 before the job was done", ("worker", early.index))
        if self.deadlines.get("stop", now + 1) <= now:
            self.deadlines.pop("stop")
            self.stop(FAILURE_KILL)

    def extend_deadlines(self, late):
        """A launcher that wakes up late was suspended, perhaps with the whole job: all deadlines but --timeout are extended."""
        if late < LATE:
            return
        for name in self.deadlines:
            if name != "timeout":
                self.deadlines[name] += late

    def write_note(self, **more):
        """Writes the note for `prun.py status`; an error does not end the job."""
        note = {"job": self.plan.id, "scheduler": self.address, "pid": os.getpid(), "host": os.uname().nodename,
                "program": os.path.basename(self.plan.program), **self.plan.key_note(),
                **({"metrics": self.metrics} if self.metrics else {})}
        try:
            write_note(self.plan.run_folder, dict(note, **more))
        except OSError as error:
            self.files.tell(os.path.join(self.plan.run_dir, NOTE), error)

    def write_end(self):
        status, cause = self.cause if self.cause is not None else (OK, "")
        self.timeline.end(status, cause)
        self.write_note(status=status, cause=cause)

    def clean_up(self, words):
        """Kills all processes and removes sockets in any case. Waits for a limited time until the last message is written."""
        while self.alive():
            self.kill()
            for child in self.alive():
                try:
                    os.waitpid(child.pid, 0)
                except ChildProcessError:
                    pass
                child.ended = True
        self.plan.remove_kept()
        self.plan.remove_folders()
        if words:
            self.terminal.say(words, matters=True, name="prun.py", level="error")
        self.terminal.err.wait(READER_LIMIT)
