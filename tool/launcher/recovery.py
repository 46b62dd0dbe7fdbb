# SPDX-License-Identifier: BSD-3-Clause
"""Deaths that need not end a job.

Servers that die while others have copies of what they kept: the scheduler is told at once, the job goes on, and a new
server takes the dead one's slot.

    its end is seen                 ->  "report_death" to the scheduler  ->  its answer  ->  a new process in the slot
    the scheduler lost it (silent)  ->  the process is killed    ->  its end     ->  a new process in the slot

Under mpirun the end is seen through a descriptor of the process when it is on this host, which is a second before mpirun
tells of it; on another host a new process does not wait for the end of an mpirun that may not reach that host any more.

Workers that die, with --on-worker-death eject: the scheduler lets collectives go on without them and says so in an event;
when the process is dead for certain, its rank is taken out of the clock.

With --on-worker-death wait:T the scheduler lets the others wait, and another process is started with the rank of the dead
one, as for a server; the process that falls silent is killed first.

The scheduler alone decides whether the job goes on: when more is lost than there are copies, it ends the job as ever."""
import os
import signal

from .worker_eject import Ejection
from .plan import Child
from .scaling import Resizing
from .run_directory import question
from .exit_status import SERVER_LOST, WORKER_LOST

WITHOUT_WORKER_0 = "; worker 0 writes the results: it cannot be ejected"
PATIENCE_WITH_SCHEDULER = 3  # heartbeat limits, as in src/net/heartbeat.hpp


class Losses:
    def __init__(self, job):
        self.job, self.plan = job, job.plan
        self.restarts = job.options.max_restarts
        self.turns = {}      # slot -> how often a process was started there
        self.asking = {}     # pid of a question -> the dead server that it tells of
        self.given_up = set()  # (slot, pid) that the scheduler has counted out
        self.replaced = set()  # pids of children in whose place another one was started
        self.watched = {}    # descriptor of a process -> (slot, pid)
        self.told = True     # that the copies are whole again
        self.away = set()    # slots that nobody serves
        self.ejected = {}    # rank -> the scheduler's event
        self.ejections = []  # of workers that are not out of the clock yet
        self.resizing = Resizing(self)
        self.silent = set()  # pids of workers that the scheduler has counted out before their ends were seen
        self.awaits = set()  # ranks in whose place another process will be started

    def takes(self, child):
        """Whether the death of this process need not end the job. A worker that says itself that it failed ends it."""
        if not self.job.running:
            return False
        if child.role == "server":
            return self.job.options.may_change()
        killed = child.ended.si_code != os.CLD_EXITED or child.index in self.ejected or child.pid in self.silent
        if child.role == "worker" and self.job.options.worker_wait:
            # What has been read from standard input is gone.
            return killed and not (child.index == 0 and self.plan.reads_standard_input)
        return child.role == "worker" and self.job.options.on_worker_death == "eject" and child.index != 0 and killed

    def why_not(self, child):
        """Why the job does not go on without this process, if that was asked for."""
        killed = child.ended.si_code != os.CLD_EXITED
        if child.role != "worker" or not killed or self.job.options.on_worker_death == "abort":
            return ""
        if not self.job.running:
            return "; the others go on without a worker only when all have joined"
        if child.index == 0 and self.job.options.on_worker_death == "eject":
            return WITHOUT_WORKER_0
        if child.index == 0 and self.plan.reads_standard_input:
            return "; it has read standard input, which no other process can read again"
        return ""

    def died(self, child, text):
        if child.role == "server":
            self.server_died(child, text)
        elif child.index in self.ejected:
            self.leave_clock(child.index)
        elif self.job.options.worker_wait:
            self.worker_died(child, text)
        else:
            self.tell(child, {"role": "worker", "rank": child.index, "pid": child.pid}, text)

    def watch(self, slot, pid, host):
        """A server of an mpirun of its own has joined."""
        if host != os.uname().nodename or not any(c.index == slot and c.mpirun for c in self.job.alive("server")):
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # it has ended already, which mpirun will tell
            return
        self.watched[fd] = (slot, pid)
        self.job.poll.register(fd)

    def see(self, fd):
        """A watched process has ended."""
        slot, pid = self.watched.pop(fd)
        self.job.poll.unregister(fd)
        os.close(fd)
        child = next((c for c in self.job.alive("server") if c.index == slot and self.pid_in_job(c) == pid), None)
        if child is not None and (slot, pid) not in self.given_up and not self.job.stopping and not self.job.done:
            self.tell(child, {"role": "server", "slot": slot, "pid": pid}, f"server s{slot} (pid {pid}) has ended")

    def tell(self, child, body, text):
        body["why"] = "it " + text.split(") ", 1)[-1]  # the scheduler knows who
        # As long as everybody else waits for a scheduler that was stopped.
        patience = PATIENCE_WITH_SCHEDULER * self.job.options.heartbeat_limit
        asked = Child("question", 0, question(self.plan.asker, self.job.address, self.plan.id, "report_death", body, patience),
                      self.plan.log_of("scheduler", 0))
        self.job.spawn(asked)
        self.asking[asked.pid] = (child, text)

    def pid_in_job(self, child):
        """The server's own process id: under mpirun not that of the child. None before it has joined, and when its place is
        another one's."""
        joined = self.job.nodes.get(("server", child.index))
        if child.pid in self.replaced or joined is None or joined == child.joined_before:
            return None
        if not child.mpirun and joined[0] != child.pid:
            return None
        return joined[0]

    def server_died(self, child, text):
        pid = self.pid_in_job(child)
        if child.pid in self.replaced or self.resizing.takes(child, pid, text):
            pass
        elif pid is None:  # a replacement that never came: the scheduler does not know it
            self.job.terminal.say(text)
            self.job.show_tail(("server", child.index))
            self.replace(child)
        elif (child.index, pid) in self.given_up:
            self.replace(child)
        else:
            self.tell(child, {"role": "server", "slot": child.index, "pid": pid}, text)

    def answered(self, asked):
        """A question has ended: the scheduler knows of the death, or ends the job and has said so in an event."""
        if self.job.stopping or self.job.done or self.job.cause is not None:
            return
        ejection = next((e for e in self.ejections if e.asked is asked), None)
        if ejection is not None:
            if ejection.answered():
                self.ejections.remove(ejection)
            self.set_deadline()
            return
        child, text = self.asking.pop(asked.pid)
        if asked.ended.si_code != os.CLD_EXITED or asked.ended.si_status != 0:
            status = SERVER_LOST if child.role == "server" else WORKER_LOST
            self.job.fail(status, text + ", and the others could not be told", (child.role, child.index), 1.0)
        elif child.role == "server":
            self.replace(child)
        elif self.job.options.worker_wait:
            self.replace_worker(child, text)

    def lost(self, event):
        """The scheduler has counted a server out, and the job goes on."""
        if self.job.stopping:
            return
        slot, pid = event["index"], event["pid"]
        self.given_up.add((slot, pid))
        if self.resizing.lost(event):
            for child in self.job.alive("server"):
                if child.index == slot:
                    self.job.send([child], signal.SIGTERM if child.mpirun else signal.SIGKILL)
            return
        self.told = False
        self.away.add(slot)
        self.job.terminal.say(event["cause"] + "; the job goes on with the copies of its keys")
        for child in self.job.alive("server"):
            if child.index == slot and self.pid_in_job(child) == pid:
                # One that hangs is ended; an mpirun ends its rank, on whatever host that is.
                self.job.send([child], signal.SIGTERM if child.mpirun else signal.SIGKILL)
                if child.mpirun and not any(c is child for c, _ in self.asking.values()):
                    self.replace(child)

    def hear_ejected(self, event):
        """The others go on without a worker: it must be dead before the clock does."""
        if self.job.stopping:
            return
        rank = event["index"]
        self.ejected[rank] = event
        self.job.terminal.say(f"{event['cause']}; the job goes on without it")
        living = [c for c in self.job.alive("worker") if c.index == rank]
        self.job.send(living, signal.SIGKILL)
        if not living:
            self.leave_clock(rank)

    # -- workers for whom the others wait

    def worker_died(self, child, text):
        self.awaits.add(child.index)
        joined = self.job.nodes.get(("worker", child.index))
        if child.pid in self.silent:
            self.replace_worker(child, text)
        elif joined is None or joined == child.joined_before:  # one in another's place that never came
            self.job.terminal.say(text)
            self.job.show_tail(("worker", child.index))
            self.replace_worker(child, text)
        else:
            self.tell(child, {"role": "worker", "rank": child.index, "pid": joined[0]}, text)

    def hear_awaited(self, event):
        """The scheduler lets the others wait for another process in the place of this one, which must be dead for that."""
        if self.job.stopping:
            return
        rank = event["index"]
        self.job.terminal.say(f"{event['cause']}; the others wait at most {event['seconds']:g} s for another in its place")
        for child in self.job.alive("worker"):
            if child.index == rank:
                self.silent.add(child.pid)
                self.job.send([child], signal.SIGKILL)

    def replace_worker(self, child, text):
        job, rank = self.job, child.index
        self.awaits.discard(rank)
        if job.stopping or job.cause is not None:
            return
        if self.restarts == 0:
            job.fail(WORKER_LOST, text + ", and no restart is left (--max-restarts)", ("worker", rank))
            return
        self.restarts -= 1
        new = next(c for c in self.plan.make_workers(job.address) if c.index == rank)
        new.joined_before = job.nodes.get(("worker", rank))
        job.spawn(new)
        job.terminal.say(f"worker {rank} is started again (pid {new.pid}); "
                         f"{self.restarts} restart{'s' * (self.restarts != 1)} left")

    # -- workers without whom the others go on

    def leave_clock(self, rank):
        self.ejections.append(Ejection(self.job, rank, self.ejected[rank]))

    def go_on(self, now):
        for ejection in self.ejections:
            ejection.go_on(now)
        self.set_deadline()

    def set_deadline(self):
        """Of the loop: when to ask again."""
        times = [e.again_at for e in self.ejections if e.again_at is not None]
        if times and not self.job.stopping:
            self.job.deadlines["clock"] = min(times)
        else:
            self.job.deadlines.pop("clock", None)

    def report(self):
        """What the result does not know of."""
        for rank, event in sorted(self.ejected.items()):
            self.job.terminal.say(f"worker {rank} was ejected after {event['clock']} iterations, as of its last heartbeat: from "
                                  f"then on its share of the data, 1 of {self.job.options.wnum} parts, went unseen")

    def replace(self, child):
        job, slot = self.job, child.index
        if job.stopping or job.done or child.pid in self.replaced or self.resizing.is_no_loss(slot, self.pid_in_job(child)):
            return
        self.replaced.add(child.pid)
        if self.restarts == 0:
            job.terminal.say(f"no restart is left (--max-restarts): the job goes on without server s{slot}")
            return
        self.restarts -= 1
        self.turns[slot] = self.turns.get(slot, 0) + 1
        new = self.plan.make_server(slot, job.address, self.turns[slot])
        new.joined_before = job.nodes.get(("server", slot))
        job.spawn(new)
        job.terminal.say(f"server s{slot} is started again (pid {new.pid}); "
                         f"{self.restarts} restart{'s' * (self.restarts != 1)} left")

    def serving(self):
        """Every server that has joined has its copies and serves."""
        self.away = {slot for slot in self.away if (slot, self.job.nodes["server", slot][0]) in self.given_up}

    def synced(self):
        """There are as many copies as there can be of the servers that serve."""
        if not self.told and self.job.options.snum - len(self.away) >= self.job.options.replicas:
            self.told = True
            self.job.terminal.say(f"{self.job.options.replicas} copies of everything exist again")
