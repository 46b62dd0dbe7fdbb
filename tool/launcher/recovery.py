# SPDX-License-Identifier: BSD-3-Clause
"""Deaths that need not end a job.

Servers that die while others have copies of what they kept: the scheduler is told at once, the job goes on, and a new
server takes the dead one's slot.

    its end is seen                 ->  "report_death" to the scheduler  ->  its answer  ->  a new process in the slot
    the scheduler lost it (silent)  ->  the process is killed    ->  its end     ->  a new process in the slot

Under mpirun the end is seen through a descriptor of the process when it is on this host, which is a second before mpirun
tells of it; on another host a new process does not wait for the end of an mpirun that may not reach that host any more.

Workers that die, with --on-worker-death eject or wait:T: the scheduler is told how, and decides. With eject the others go on
without a worker; one that has fallen silent is killed, and its death is told. With wait:T the others wait, and another process
is started with the rank of the dead one, as for a server; the process that falls silent is killed first.

The scheduler alone decides whether the job goes on: when more is lost than there are copies, it ends the job as ever."""
import json
import os
import signal

from .ending import status_of
from .exit_status import SERVER_LOST, WORKER_LOST
from .plan import Child
from .run_directory import question
from .scaling import Resizing

PATIENCE_WITH_SCHEDULER = 3  # heartbeat limits, as in src/net/heartbeat.hpp


def exited(child):
    """By itself, that is not killed."""
    return child.ended.si_code == os.CLD_EXITED


def goes_on(answer):
    try:
        return json.loads(answer)["goes_on"] is not False
    except (ValueError, KeyError, TypeError):
        return True


class Losses:
    def __init__(self, job):
        self.job, self.plan = job, job.plan
        self.restarts = job.options.max_restarts
        self.turns = {}      # slot -> how often a process was started there
        self.asking = {}     # pid of a question -> the dead process that it tells of
        self.given_up = set()  # (slot, pid) that the scheduler has counted out
        self.replaced = set()  # pids of children in whose place another one was started
        self.watched = {}    # descriptor of a process -> (slot, pid)
        self.told = True     # that the copies are whole again
        self.away = set()    # slots that nobody serves
        self.ejected = {}    # rank -> the scheduler's event
        self.resizing = Resizing(self)
        self.silent = set()  # pids of workers that the scheduler has counted out before their ends were seen

    def takes(self, child):
        """Whether the scheduler decides what the death of this process means for the job."""
        if child.role == "server":
            return self.job.running and self.job.options.may_change()
        return child.role == "worker" and self.job.options.on_worker_death != "abort" and not (self.job.done and exited(child))

    def died(self, child, text):
        if child.role == "server":
            self.server_died(child, text)
        else:
            self.worker_died(child, text)

    def undecided(self):
        """Whether a worker has died of which the scheduler has not said what that means."""
        return any(child.role == "worker" for child, _ in self.asking.values())

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
        child, text = self.asking.pop(asked.pid)
        if self.job.stopping or self.job.done or self.job.cause is not None:
            return
        if asked.ended.si_code != os.CLD_EXITED or asked.ended.si_status != 0:
            status = SERVER_LOST if child.role == "server" else WORKER_LOST
            self.job.fail(status, text + ", and the others could not be told", (child.role, child.index), 1.0)
        elif child.role == "server":
            self.replace(child)
        elif not goes_on(asked.answer):
            self.job.fail(status_of(child)[0], text, ("worker", child.index))
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

    def words_for(self, event):
        """Of a process whose loss ends the job: of a worker whose death was told from here, the launcher's own."""
        own = next((text for child, text in self.asking.values()
                    if (child.role, child.index) == ("worker", event["index"]) and event["role"] == "worker"), None)
        if own is None:
            return event["cause"]
        return own + ("; " + event["why_not"] if "why_not" in event else "")

    def hear_ejected(self, event):
        """The others go on without a worker: it must be dead before the clock does."""
        if self.job.stopping:
            return
        rank = event["index"]
        self.ejected[rank] = event
        self.job.terminal.say(f"{event['cause']}; the job goes on without it")
        if event["reaped"]:
            return
        living = [c for c in self.job.alive("worker") if c.index == rank]
        self.job.send(living, signal.SIGKILL)
        for child in self.job.children if not living else ():  # its death was told before it was taken for lost
            if (child.role, child.index) == ("worker", rank):
                self.worker_died(child, status_of(child)[1])

    # -- workers for whom the others wait

    def worker_died(self, child, text):
        rank, wait = child.index, self.job.options.worker_wait
        joined = self.job.nodes.get(("worker", rank))
        never_came = joined is None or joined == child.joined_before
        # What has been read from standard input is gone.
        cannot = rank == 0 and self.plan.reads_standard_input
        killed = not exited(child) or child.pid in self.silent
        if wait and killed and not cannot and self.job.running:
            if never_came and child.pid not in self.silent:  # one in another's place
                self.job.terminal.say(text)
                self.job.show_tail(("worker", rank))
            if never_came or child.pid in self.silent:
                self.replace_worker(child, text)
                return
        body = {"role": "worker", "rank": rank, "pid": child.pid if never_came else joined[0]}
        if not killed:
            body["status"] = status_of(child)[0]
        if cannot:
            body["cannot"] = "it has read standard input, which no other process can read again"
        self.tell(child, body, text)

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
