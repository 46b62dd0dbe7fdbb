# SPDX-License-Identifier: BSD-3-Clause
"""Servers that join and leave a running job, one at a time; partitions that move between them.

    prun.py --servers +1 --run RUN  ->  "resize" to the scheduler  ->  its event "wanted"   ->  a new process
                                        it joins and receives its share of the ring         ->  "entered"
    prun.py --servers -1 --run RUN  ->  "resize" to the scheduler  ->  its event "leaving"
                                        others have copies of its data     ->  "retired", and the process ends by itself

The command only sends the request and waits; the launcher of the run receives the events and starts the process."""
import signal
import time

from ..common.command_line import name_given, new_parser
from ..common.exit_status import FAILURE, OK, TIMEOUT, USAGE, Failure
from ..common.numbers import seconds
from ..common.output import write_out
from ..folders.run_directory import ask, understood


class Resizing:
    """The launcher's part."""

    def __init__(self, recovery):
        self.recovery, self.job = recovery, recovery.job
        self.entering = None  # slot
        self.retired = set()  # (slot, pid)
        self.moving_since = 0.0

    def on_event(self, kind, event):
        job, slot = self.job, event.get("index")
        if job.stopping:
            return
        if kind == "moving":
            self.moving_since = time.monotonic()
            return job.terminal.say(f"moving {event['text']}")
        if kind == "moved":
            return job.terminal.say(f"moved after {time.monotonic() - self.moving_since:.1f} s")
        if kind == "wanted":
            if job.plan.external:
                job.terminal.say(f"want one more server, to be started by `prun.py join server --index {slot}`", matters=True)
                self.entering = slot
                return
            turns = self.recovery.turns
            turns[slot] = turns[slot] + 1 if slot in turns else int(("server", slot) in job.nodes)
            new = job.plan.make_server(slot, job.address, turns[slot])
            new.joined_before = job.nodes.get(("server", slot))
            self.entering = slot
            self.retired.discard((slot, None))
            job.spawn(new)
            job.terminal.say(f"server s{slot} is started (pid {new.pid}), as requested")
        elif kind == "not_entered":
            self.entering = None
            self.retired.add((slot, None))  # not replaced
            job.send([c for c in job.alive("server") if c.index == slot and self.recovery.pid_in_job(c) is None],
                     signal.SIGTERM)
            job.terminal.say(f"server s{slot} could not be added: {event['cause']}; the job continues as before")
        elif kind == "entered":
            self.entering = None
            job.options.snum += 1
            job.terminal.say(f"server s{slot} (pid {event['pid']} on {event['host']}) serves")
        elif kind == "leaving":
            job.terminal.say(f"server s{slot} (pid {event['pid']} on {event['host']}) is leaving, as requested")
        else:
            job.options.snum -= 1
            self.retired.add((slot, event["pid"]))
            job.terminal.say(f"server s{slot} (pid {event['pid']} on {event['host']}) has left: other servers have all its data")

    def is_no_loss(self, slot, pid):
        """Whether the exit of this server is no loss, because it has left."""
        return (slot, pid) in self.retired

    def handles(self, child, pid, text):
        """Handles the exit of a server that has left (nothing to do) or never joined (the scheduler is told). Returns whether it
        did."""
        if self.is_no_loss(child.index, pid):
            return True
        if pid is None and child.index == self.entering:
            self.entering = None
            self.job.show_tail(("server", child.index))
            self.recovery.tell(child, {"role": "server", "slot": child.index, "pid": child.pid}, text)
            return True
        return False

    def lost(self, event):
        """Handles the loss of a server that had not joined yet. Returns whether it was one."""
        if event["index"] != self.entering:
            return False
        self.entering = None
        self.retired.add((event["index"], event["pid"]))
        self.job.terminal.say(event["cause"] + "; it was not serving yet, and the job continues as before")
        return True


# ---- the command

def parse_command(arguments):
    import argparse

    def one(text):
        if text not in ("+1", "-1"):
            raise argparse.ArgumentTypeError(f"{text!r}: want +1 or -1: servers are added and removed one at a time")
        return int(text)

    parser = new_parser(prog="prun.py", description="Adds a server to a running job, or removes one.")
    parser.add_argument("--servers", required=True, type=one, metavar="+1|-1", help="add a server, or remove one")
    parser.add_argument("--run", required=True, type=name_given, metavar="RUN",
                        help="the folder of its logs, or that folder's name below paracel_runs/")
    parser.add_argument("--timeout", type=seconds, default=120.0, metavar="SECONDS",
                        help="time to wait until the server serves, or has left (default 120)")
    return parser.parse_args(arguments)


def resize_command(arguments):
    """`prun.py --servers +1 --run RUN`. Returns the exit status."""
    options = parse_command(arguments)
    begin = time.monotonic()
    try:
        answer = ask(options.run, "resize", {"servers": options.servers})
        with understood():
            slot = answer["slot"]
    except Failure as failure:
        if failure.status == USAGE:
            raise
        raise Failure(failure.status, f"--servers {options.servers:+}: {failure}") from None
    while time.monotonic() - begin < options.timeout:
        report = ask(options.run, "stats")
        with understood():
            state = next((s["state"] for s in report["servers"] if s["slot"] == slot), "gone")
            settled = report["settled"]
        if options.servers > 0 and state == "up" and settled:
            write_out(f"server s{slot} serves, after {time.monotonic() - begin:.1f} s\n")
            return OK
        if options.servers > 0 and state == "gone":
            raise Failure(FAILURE, f"server s{slot} could not be added: see its log in the run's folder")
        if options.servers < 0 and state == "gone":
            write_out(f"server s{slot} has left, after {time.monotonic() - begin:.1f} s\n")
            return OK
        if options.servers < 0 and state in ("down", "joining", "up"):
            raise Failure(FAILURE, f"server s{slot} was lost before it had left")
        time.sleep(0.1)
    raise Failure(TIMEOUT, f"server s{slot} has not {'joined' if options.servers > 0 else 'left'} within "
                           f"{options.timeout:g} s; it may still do so")
