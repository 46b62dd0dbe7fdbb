# SPDX-License-Identifier: BSD-3-Clause
"""One axis of time for the threads of a run: ticks -> ns of their host -> ns of the run.

Within a host ticks are comparable, and only their rate is unknown: it comes from two moments at which a clock was read. Between
hosts a request bounds the difference: a server cannot have begun before the client sent, nor ended after the reply arrived. All
requests between two hosts together bound it to less than the quickest of them took."""
from collections import defaultdict

from .files import APPLY, REPLICATE, REQUEST, SERVE


class HostClock:
    """The clock of a host. `offset`: to be added for the time of the run."""

    def __init__(self, clocks, cycles):
        """`clocks`: the sync records of its threads."""
        clocks = sorted(clocks, key=lambda c: c.begin)
        first, last = self.closest(clocks[:len(clocks) // 3 + 1]), self.closest(clocks[-(len(clocks) // 3) - 1:])
        if last.begin == first.begin:
            first, last = clocks[0], clocks[-1]
        self.tick, self.ns = (first.begin + first.end) // 2, first.client
        self.wall = first.sequence - first.client  # of the wall clock, relative to this one
        ticks = (last.begin + last.end) // 2 - self.tick
        passed = last.client - first.client
        self.rate = passed / ticks if cycles and ticks > 0 and passed > 0 else 1.0
        self.offset = 0.0

    @staticmethod
    def closest(clocks):
        return min(clocks, key=lambda c: c.end - c.begin)

    def __call__(self, tick):
        return self.ns + (tick - self.tick) * self.rate + self.offset


class Clocks:
    """The clocks of all hosts, in step. `notes`: sentences about how well, if there are several hosts."""

    def __init__(self, files):
        self.notes = []
        groups = defaultdict(list)
        for file in files:
            groups[self.key(file)].append(file)
        self.of = {key: HostClock([c for file in group for c in file.clocks], group[0].cycles)
                   for key, group in groups.items() if any(file.clocks for file in group)}
        self.names = {key: group[0].host for key, group in groups.items()}
        if len(self.of) > 1:
            self.align(files)

    @staticmethod
    def key(file):
        return file.boot or file.host

    def clock(self, file):
        """None: its thread has not written any time."""
        return self.of.get(self.key(file))

    def bounds(self, files):
        """(host of the sender, host of the receiver) -> [the least and the most that the receiver's clock is behind]"""
        sent = {}
        for file in files:
            if self.clock(file):
                for r in file.records:
                    if r.kind in (REQUEST, REPLICATE):
                        sent[r.kind, r.client, r.sequence, r.more if r.kind == REPLICATE else 0] = self.key(file), r
        found = {}
        for file in files:
            mine = self.clock(file)
            for r in file.records if mine else ():
                if r.kind not in (SERVE, APPLY):
                    continue
                key = (REQUEST, r.client, r.sequence, 0) if r.kind == SERVE else (REPLICATE, r.client, r.sequence, r.more)
                host, s = sent.get(key, (self.key(file), None))
                if host == self.key(file):
                    continue
                theirs = self.of[host]
                low, high = theirs(s.begin) - mine(r.begin), theirs(s.end) - mine(r.end)
                pair = found.setdefault((host, self.key(file)), [low, high])
                pair[0], pair[1] = max(pair[0], low), min(pair[1], high)
        return found

    def align(self, files):
        bounds = self.bounds(files)
        both = {}
        for (a, b), (lo, hi) in bounds.items():
            other = bounds.get((b, a))
            if other:
                lo, hi = max(lo, -other[1]), min(hi, -other[0])
            both[a, b], both[b, a] = (lo, hi), (-hi, -lo)
        first = next(iter(self.of))
        known, worst = {first}, 0.0
        while True:
            step = [(abs(hi - lo), a, b) for (a, b), (lo, hi) in both.items() if a in known and b not in known]
            if not step:
                break
            width, a, b = min(step)
            lo, hi = both[a, b]
            self.of[b].offset = self.of[a].offset + (lo + hi) / 2
            worst = max(worst, width / 2)
            known.add(b)
        rest = [key for key in self.of if key not in known]
        if len(known) > 1:
            self.notes.append(f"the clocks of {len(known)} hosts were set by the requests between them, to within "
                              f"{worst / 1000:.0f} us")
        for key in rest:
            self.of[key].offset = self.of[key].wall - self.of[first].wall
        if rest:
            names = ", ".join(sorted(self.names[key] for key in rest))
            self.notes.append(f"no traced request joins {names} to the others: there the wall clock was taken, which may be off "
                              "by milliseconds or more")
