# SPDX-License-Identifier: BSD-3-Clause
"""Recovery from deaths that need not end a job.

Servers that die while others have replicas of their partitions: the scheduler is told immediately, the job continues, and a new
server is started in the slot.

    its exit is detected            ->  "report_death" to the scheduler  ->  the reply  ->  a new process in the slot
    the scheduler lost it (silent)  ->  the process is killed    ->  its exit    ->  a new process in the slot

Under mpirun the exit is detected through a pidfd if the process is on this host, a second before mpirun reports it; on another
host the new process does not wait for the exit of an mpirun that may no longer be able to reach that host.

Workers that die, with --on-worker-death eject or wait:T: the launcher reports how one died, and the scheduler decides. With eject
the others continue without the worker; one that has fallen silent is killed, and its death is reported. With wait:T the others
wait, and a replacement is started with the rank of the dead worker, as for a server; a silent process is killed first.

Only the scheduler decides whether the job continues: if more is lost than the replicas cover, it ends the job."""
import json
import os
import signal
import time

from ..common.exit_status import SERVER_LOST, WORKER_LOST
from ..engines.ssh import LOST_CONNECTION
from ..folders.run_directory import request_command
from .ending import status_of
from .plan import Child
from .scaling import Resizing

PATIENCE_WITH_SCHEDULER = 3  # heartbeat limits, as in src/net/heartbeat.hpp
SRUN_LIMIT = 1.0             # seconds in which srun ends its step, if its node answers


def exited(child):
    """Whether it exited by itself, rather than being killed, or cut off from its ssh or its node."""
    return child.ended.si_code == os.CLD_EXITED and not (
        child.lost_node or child.host is not None and child.ended.si_status > 128)


def lost_its_host(child):
    """Whether the host on which it ran is perhaps gone."""
    return child.lost_node or (child.by == "ssh" and child.ended.si_code == os.CLD_EXITED
                               and child.ended.si_status == LOST_CONNECTION)


def continues(answer):
    try:
        return json.loads(answer)["continues"] is not False
    except (ValueError, KeyError, TypeError):
        return True


class Recovery:
    def __init__(self, job):
        self.job, self.plan = job, job.plan
        self.restarts = job.options.max_restarts
        self.turns = {}      # slot -> number of processes started there
        self.asking = {}     # pid of a request -> the dead process that it reports
        self.given_up = set()  # (slot, pid) that the scheduler has reported lost
        self.replaced = set()  # pids of children that have been replaced
        self.watched = {}    # descriptor of a process -> (slot, pid)
        self.told = True     # that all replicas are complete again
        self.away = set()    # slots without a server
        self.ejected = {}    # rank -> the scheduler's event
        self.resizing = Resizing(self)
        self.silent = set()  # pids of workers that the scheduler has reported lost before their exit
        self.ending = []     # children by srun that have been told to end their steps

    def handles(self, child):
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
        """Whether a worker has died about which the scheduler has not decided yet."""
        return any(child.role == "worker" for child, _ in self.asking.values())

    def watch(self, slot, pid, host):
        """Watches the exit of a server that has its own mpirun and has joined."""
        self.given_up.discard((slot, pid))  # another process with that number, perhaps in another pod
        if host != os.uname().nodename or not any(c.index == slot and c.mpirun for c in self.job.alive("server")):
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:  # it has already exited, which mpirun will report
            return
        self.watched[fd] = (slot, pid)
        self.job.poll.register(fd)

    def on_exit(self, fd):
        """A watched process has exited."""
        slot, pid = self.watched.pop(fd)
        self.job.poll.unregister(fd)
        os.close(fd)
        child = next((c for c in self.job.alive("server") if c.index == slot and self.pid_in_job(c) == pid), None)
        if child is not None and (slot, pid) not in self.given_up and not self.job.stopping and not self.job.done:
            self.tell(child, {"role": "server", "slot": slot, "pid": pid}, f"server s{slot} (pid {pid}) has ended")

    def tell(self, child, body, text):
        body["why"] = "it " + text.split(") ", 1)[-1]  # the scheduler adds the process
        # All other processes wait this long for a suspended scheduler.
        patience = PATIENCE_WITH_SCHEDULER * self.job.options.heartbeat_limit
        command = request_command(self.plan.send_request, self.job.address, self.plan.id, "report_death", json.dumps(body),
                                  patience)
        asked = Child("request", 0, command, self.plan.log_of("scheduler", 0))
        self.job.spawn(asked)
        self.asking[asked.pid] = (child, text)

    def pid_in_job(self, child):
        """The server's own process id, which under mpirun is not the child's. None before it has joined, and after it was
        replaced."""
        joined = self.job.nodes.get(("server", child.index))
        if child.pid in self.replaced or joined is None or joined == child.joined_before:
            return None
        if not child.mpirun and child.host is None and joined[0] != child.pid:
            return None
        return joined[0]

    def has_joined(self, child):
        """Whether this child is a server that was a part of the job."""
        if child.role != "server":
            return False
        if child.index is None:
            rank = (child.first_failure or (None,))[0]
            return any(role == "server" and rank in (None, index) for role, index in self.job.nodes)
        return self.pid_in_job(child) is not None

    def server_died(self, child, text):
        pid = self.pid_in_job(child)
        if child.pid in self.replaced or self.resizing.handles(child, pid, text):
            pass
        elif pid is None:  # a replacement that never joined: the scheduler does not know it
            self.job.terminal.say(text)
            self.job.show_tail(("server", child.index))
            self.replace(child)
        elif (child.index, pid) in self.given_up:
            self.replace(child)
        else:
            self.tell(child, {"role": "server", "slot": child.index, "pid": pid}, text)

    def answered(self, asked):
        """A request has finished: the scheduler knows of the death, or ends the job and has announced that in an event."""
        child, text = self.asking.pop(asked.pid)
        if self.job.stopping or self.job.done or self.job.cause is not None:
            return
        if asked.ended.si_code != os.CLD_EXITED or asked.ended.si_status != 0:
            status = SERVER_LOST if child.role == "server" else WORKER_LOST
            self.job.fail(status, text + ", and the scheduler could not be told", (child.role, child.index), 1.0)
        elif child.role == "server":
            self.replace(child)
        elif not continues(asked.answer):
            self.job.fail(status_of(child)[0], text, ("worker", child.index))
        elif self.job.options.worker_wait:
            self.replace_worker(child, text)

    def lost(self, event):
        """The scheduler has reported a server as lost, and the job continues."""
        if self.job.stopping:
            return
        slot, pid = event["index"], event["pid"]
        self.given_up.add((slot, pid))
        if self.resizing.lost(event):
            for child in self.job.alive("server"):
                if child.index == slot:
                    self.kill_server(child)
            return
        self.told = False
        self.away.add(slot)
        self.job.terminal.say(event["cause"] + "; the job continues with the replicas of its keys"
                              + (f", and another server may join as s{slot}" if self.plan.external else ""))
        for child in self.job.alive("server"):
            if child.index == slot and self.pid_in_job(child) == pid:
                self.kill_server(child)
                if child.mpirun and not any(c is child for c, _ in self.asking.values()):
                    self.replace(child)

    def kill_server(self, child):
        """One that hangs; an mpirun terminates its rank on any host."""
        if child.mpirun:
            self.job.send([child], signal.SIGTERM)
        else:
            self.kill([child])

    def words_for(self, event):
        """The cause when a loss ends the job; for a worker whose death the launcher has reported, in the launcher's own words."""
        own = next((text for child, text in self.asking.values()
                    if (child.role, child.index) == ("worker", event["index"]) and event["role"] == "worker"), None)
        if own is None:
            return event["cause"]
        return own + ("; " + event["why_not"] if "why_not" in event else "")

    def on_ejected(self, event):
        """The others continue without a worker, which must be dead before the clock advances."""
        if self.job.stopping:
            return
        rank = event["index"]
        self.ejected[rank] = event
        self.job.terminal.say(f"{event['cause']}; the job continues without it")
        if event["reaped"]:
            return
        living = [c for c in self.job.alive("worker") if c.index == rank]
        self.job.send(living, signal.SIGKILL)
        for child in self.job.children if not living else ():  # its death was reported before it counted as lost
            if (child.role, child.index) == ("worker", rank):
                self.worker_died(child, status_of(child)[1])


    def worker_died(self, child, text):
        rank, wait = child.index, self.job.options.worker_wait
        joined = self.job.nodes.get(("worker", rank))
        never_came = joined is None or joined == child.joined_before
        # Standard input cannot be read again.
        cannot = rank == 0 and self.plan.reads_standard_input
        killed = not exited(child) or child.pid in self.silent
        if wait and killed and not cannot and self.job.running:
            if child.pid in self.silent:
                self.replace_worker(child, text)
                return
            if never_came:  # a replacement, whose join may still be under way: the scheduler is told that it is dead, too
                self.job.terminal.say(text)
                self.job.show_tail(("worker", rank))
        body = {"role": "worker", "rank": rank}
        if not never_came:
            body["pid"] = joined[0]
        elif child.host is None:  # otherwise it is that of an ssh
            body["pid"] = child.pid
        if not killed:
            body["status"] = status_of(child)[0]
        if cannot:
            body["cannot"] = "it has read standard input, which no other process can read again"
        self.tell(child, body, text)

    def on_awaited(self, event):
        """The scheduler makes the others wait for a replacement of this process, which must be dead before the replacement is
        started."""
        if self.job.stopping:
            return
        rank = event["index"]
        self.job.terminal.say(f"{event['cause']}; the others wait at most {event['seconds']:g} s for a replacement")
        living = [c for c in self.job.alive("worker") if c.index == rank]
        self.silent.update(c.pid for c in living)
        self.kill(living)

    def kill(self, children):
        """Kills processes, wherever they are. A srun ends its step when it is told to end, and leaves it alone when it is
        killed; on a node that does not answer it would wait."""
        by_srun = [c for c in children if c.host is not None and c.by == "srun"]
        self.job.send([c for c in children if c not in by_srun], signal.SIGKILL)
        self.job.send(by_srun, signal.SIGTERM)
        if by_srun:
            self.ending += by_srun
            self.job.deadlines["srun"] = time.monotonic() + SRUN_LIMIT

    def kill_srun(self):
        """Those that have not ended their steps."""
        self.job.send([c for c in self.ending if c.ended is None], signal.SIGKILL)
        self.ending = []

    def replace_worker(self, child, text):
        job, rank = self.job, child.index
        if job.stopping or job.cause is not None:
            return
        if self.restarts == 0:
            job.fail(WORKER_LOST, text + ", and no restart is left (--max-restarts)", ("worker", rank))
            return
        self.restarts -= 1
        if child.pid in self.silent or lost_its_host(child):
            same = self.plan.hosts.move(rank)
            if same is not None:
                job.terminal.say(f"no other host has a free slot for worker {rank}: it is started on {same} again")
        new = next(c for c in self.plan.make_workers(job.address) if c.index == rank)
        new.joined_before = job.nodes.get(("worker", rank))
        job.spawn(new)
        job.terminal.say(f"worker {rank} is restarted (pid {new.pid}); "
                         f"{self.restarts} restart{'s' * (self.restarts != 1)} left")

    def report(self):
        """Reports the data missing from the result."""
        for rank, event in sorted(self.ejected.items()):
            self.job.terminal.say(f"worker {rank} was ejected after {event['clock']} iterations, as of its last heartbeat: from "
                                  f"then on its share of the data, 1 of {self.job.options.wnum} parts, was not used")

    def replace(self, child):
        job, slot = self.job, child.index
        if job.stopping or job.done or child.pid in self.replaced or self.resizing.is_no_loss(slot, self.pid_in_job(child)):
            return
        self.replaced.add(child.pid)
        if self.restarts == 0:
            job.terminal.say(f"no restart is left (--max-restarts): the job continues without server s{slot}")
            return
        self.restarts -= 1
        self.turns[slot] = self.turns.get(slot, 0) + 1
        new = self.plan.make_server(slot, job.address, self.turns[slot])
        new.joined_before = job.nodes.get(("server", slot))
        job.spawn(new)
        job.terminal.say(f"server s{slot} is restarted (pid {new.pid}); "
                         f"{self.restarts} restart{'s' * (self.restarts != 1)} left")

    def serving(self):
        """All servers that have joined have their replicas and serve."""
        self.away = {slot for slot in self.away if (slot, self.job.nodes["server", slot][0]) in self.given_up}

    def synced(self):
        """There are as many replicas as the serving servers allow."""
        if not self.told and self.job.options.snum - len(self.away) >= self.job.options.replicas:
            self.told = True
            self.job.terminal.say(f"{self.job.options.replicas} replicas of everything exist again")
