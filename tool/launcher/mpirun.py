# SPDX-License-Identifier: BSD-3-Clause
"""What mpirun writes: the output of its ranks, and in passing which of them was the first to fail."""
import os
import re
import signal

from .plan import APPEND
from .terminal import write_all


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def short(role, index):
    return f"server s{index}" if role == "server" else f"{role} {index}"


class Tagged:
    """Takes the output of mpirun --tag-output apart: each rank's lines go to that rank's log."""

    def __init__(self, child, log_of, nodes, pass_through):
        """`log_of(role, rank)`: the path of a rank's log. `nodes`: (role, rank) -> (pid, host), as far as they have joined.
        `pass_through` takes what worker 0 prints."""
        self.child, self.log_of, self.nodes, self.pass_through = child, log_of, nodes, pass_through
        self.named = None  # the rank that mpirun's last words were about
        self.rest = b""
        self.logs = {}
        self.last_rank = None

    def feed(self, data):
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.line(line + b"\n")

    def close(self):
        if self.rest:
            self.line(self.rest)
            self.rest = b""

    def line(self, line):
        rank, stream, text = self.split(line)
        if rank is not None:
            rank = self.number(rank)
        log = self.logs.get(rank)
        if log is None:
            path = self.child.log if rank is None else self.log_of(self.child.role, rank)
            log = self.logs[rank] = os.open(path, APPEND, 0o644)
        write_all(log, text)
        if rank is None:
            self.hear(line.decode("utf-8", "replace"))
        elif rank == 0 and stream == b"stdout" and self.child.role == "worker":
            self.pass_through(text)

    def number(self, rank):
        """Whose rank it is in the job: an mpirun of one server knows it as 0."""
        return int(rank) if self.child.index is None else self.child.index

    @staticmethod
    def split(line):
        """[1,RANK]<STREAM>:TEXT; a line without it is mpirun's own."""
        if line.startswith(b"[") and b"]<" in line:
            front, _, rest = line.partition(b"]<")
            _, _, rank = front.partition(b",")
            stream, colon, text = rest.partition(b">:")
            if rank.isdigit() and colon and stream in (b"stdout", b"stderr", b"stddiag"):
                return int(rank), stream, text
        return None, b"", line

    def hear(self, line):
        """mpirun says in passing which rank was the first to fail."""
        role = self.child.role
        if self.child.first_failure is not None:
            return
        killed = re.search(r"process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)", line)
        if killed:
            rank, pid, host, number = killed.groups()
            rank = self.number(rank)
            pid, host = self.nodes.get((role, rank), (pid, host))
            self.child.first_failure = (rank, f"{short(role, rank)} (pid {pid} on {host}) was killed by "
                                                       f"{signal_name(int(number))}")
            return
        named = re.search(r"Process name: \[\[\d+,\d+\],(\d+)\]", line)
        if named:
            self.named = self.number(named.group(1))
        code = re.search(r"Exit code: +(\d+)", line)
        if code and self.named is not None:
            rank = self.named
            where = "(pid {} on {}) ".format(*self.nodes[role, rank]) if (role, rank) in self.nodes else ""
            words = f"{short(role, rank)} {where}exited with status {code.group(1)}"
            self.child.first_failure = (rank, words)
