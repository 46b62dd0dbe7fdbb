# SPDX-License-Identifier: BSD-3-Clause
"""Parsing mpirun's output: the output of its ranks, and which of them failed first."""
import re
import signal


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def short(role, index):
    return f"server s{index}" if role == "server" else f"{role} {index}"


TAG = rb"\[\d+,(\d+)\]<(stdout|stderr|stddiag)>:"
# A prefix of a tag at the end of the data.
PART_OF_TAG = rb"\[(\d+(,(\d+(\](<[a-z]{0,7}>?)?)?)?)?)?$"
LONGEST_TAG = 40
LONGEST_WORDS = 1 << 16  # bytes; limit of one of mpirun's own lines


class Tagged:
    """Parses the output of mpirun --tag-output, in which [1,RANK]<STREAM>: precedes each line and, since mpirun does not buffer
    lines, each chunk that it has read. Each rank's text goes to that rank's log; text without a tag after a line end is mpirun's
    own."""

    def __init__(self, child, files, log_of, nodes, pass_through):
        """`files`: Logs. `log_of(role, rank)`: the path of a rank's log. `nodes`: (role, rank) -> (pid, host) of those that have
        joined. `pass_through` receives the output of worker 0."""
        self.child, self.files, self.log_of, self.nodes, self.pass_through = child, files, log_of, nodes, pass_through
        self.named = None  # the rank in mpirun's last message
        self.rest = b""    # an incomplete tag
        self.words = b""   # an incomplete line of mpirun's own
        self.rank, self.stream = None, b""  # of the following text; None: mpirun
        self.logs = {}

    def feed(self, data):
        data = self.rest + data
        end = max(0, len(data) - LONGEST_TAG)
        part = re.search(PART_OF_TAG, data[end:])
        end = len(data) if part is None else end + part.start()
        self.rest = data[end:]
        self.take(data[:end])

    def close(self):
        self.take(self.rest)
        self.parse_messages(b"\n" if self.words else b"")
        self.rest = b""
        for log in self.logs.values():
            log.close()
        self.logs.clear()

    def take(self, data):
        logged, printed = {}, []  # rank -> pieces; output of worker 0
        for rank, stream, text in self.pieces(data):
            logged.setdefault(rank, []).append(text)
            if rank == 0 and stream == b"stdout" and self.child.role == "worker":
                printed.append(text)
        for rank, pieces in logged.items():
            path = self.child.log if rank is None else self.log_of(self.child.role, rank)
            if rank not in self.logs:
                self.logs[rank] = self.files.log(path, "mpirun" if rank is None else self.child.role, rank)
            self.logs[rank].write(b"".join(pieces))
        if printed:
            self.pass_through(b"".join(printed))
        self.parse_messages(b"".join(logged.get(None, ())))

    def pieces(self, data):
        """Yields (rank, stream, text) of complete and partial lines."""
        at = 0
        for tag in re.finditer(TAG, data):
            yield from self.split(data[at:tag.start()])
            self.rank, self.stream, at = self.number(tag[1]), tag[2], tag.end()
        yield from self.split(data[at:])

    def split(self, text):
        if self.rank is not None and text:
            end = text.find(b"\n") + 1
            yield self.rank, self.stream, text[:end] if end else text
            if end:
                self.rank = None
            text = text[end:] if end else b""
        if text:
            yield None, b"", text

    def parse_messages(self, text):
        *lines, self.words = (self.words + text).split(b"\n")
        for line in lines:
            self.parse_message(line.decode("utf-8", "replace"))
        self.words = self.words[-LONGEST_WORDS:]

    def number(self, rank):
        """The rank in the job: in an mpirun of a single server every rank is 0."""
        return int(rank) if self.child.index is None else self.child.index

    def parse_message(self, line):
        """Finds which rank failed first in mpirun's messages."""
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
