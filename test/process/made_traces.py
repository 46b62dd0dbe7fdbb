# SPDX-License-Identifier: BSD-3-Clause
"""Files of traces as src/net/trace_file.cpp writes them, with any content, for tests of what reads them."""
import json
import os
import struct

REQUEST, SERVE, REPLICATE, APPLY, HOLD, PHASE = range(1, 7)
VERBS = {"1": "pull", "3": "update"}
PHASES = {"1": "load", "2": "iteration", "6": "all_reduce"}


def header(role, index, thread="x", dropped=0, **about):
    about = {"role": role, "index": index, "thread": thread, "pid": 7, "tid": 8, "host": "one", "boot": "b1", "cycles": True,
             "verbs": VERBS, "phases": PHASES, **about}
    text = json.dumps(about).encode()
    size = -(-(32 + len(text)) // 48) * 48
    return (struct.pack("<8sIIQII", b"PRCTRC01", size, 48, dropped, len(text), 0) + text).ljust(size, b"\0")


def record(kind, begin, end, client=1, sequence=1, what=1, **more):
    return struct.pack("<QQQQIIHHBBH", begin, end, client, sequence, more.get("bytes", 8), more.get("more", 0),
                       more.get("slot", 0), more.get("result", 0), kind, what, 0)


def clock(tick, boot_ns, wall_ns):
    return struct.pack("<QQQQIIHHBBH", tick, tick, boot_ns, wall_ns, 0, 0, 0, 0, 0, 0, 0)


def write(folder, name, *parts):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(b"".join(parts))
    return path


class Host:
    """A host whose ticks and clock began at other times, and whose ticks have another rate. `write` takes records with times in
    ns of the run."""

    def __init__(self, boot, tick0, rate, boot0, wall0):
        self.boot, self.tick0, self.rate, self.boot0, self.wall0 = boot, tick0, rate, boot0, wall0

    def tick(self, ns):
        return round(self.tick0 + ns * self.rate)

    def write(self, folder, name, role, index, thread, records, end=10**9):
        """`records`: (kind, begin, end, fields)"""
        clocks = [clock(self.tick(ns), round(self.boot0 + ns), round(self.wall0 + ns)) for ns in (0, end // 2, end)]
        made = [record(kind, self.tick(a), self.tick(b), **fields) for kind, a, b, fields in records]
        return write(folder, name, header(role, index, thread, boot=self.boot, host=self.boot), clocks[0], clocks[1], *made,
                     clocks[2])
