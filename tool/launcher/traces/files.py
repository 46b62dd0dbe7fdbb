# SPDX-License-Identifier: BSD-3-Clause
"""The files that traced threads write; their format is in src/net/trace_file.hpp."""
import json
import os
import re
import struct
from collections import namedtuple

from ..common.exit_status import USAGE, Failure

NAME = re.compile(r"(worker|server)_(\d+)\.(\d+)\.trace", re.ASCII)
MAGIC = b"PRCTRC01"
HEAD = struct.Struct("<8sIIQII")
RECORD = struct.Struct("<QQQQIIHHBBH")
SYNC, REQUEST, SERVE, REPLICATE, APPLY, HOLD, PHASE = range(7)
MOST_HEADER = 1 << 20

# `begin` and `end` in ticks; see src/core/trace.hpp.
Record = namedtuple("Record", "begin end client sequence bytes more slot result kind what")


class CutOff(Exception):
    """The file ends within its header: its process was killed, or the disk full, before anything was recorded."""


class TraceFile:
    """The records of one thread, in the order in which they ended. Raises Failure, CutOff."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise Failure(USAGE, f"{path} cannot be read: {error.strerror}") from None
        if not data.startswith(MAGIC[:len(data)]):
            raise Failure(USAGE, f"{path}: begins with {data[:len(MAGIC)]!r}, want {MAGIC!r}: it is not a trace, or of another "
                                 "version")
        if len(data) < HEAD.size:
            raise CutOff(f"{path}: " + ("empty" if not data else f"cut off after {len(data)} bytes"))
        _, header_bytes, record_bytes, self.dropped, text_bytes, _ = HEAD.unpack_from(data)
        if record_bytes != RECORD.size or not HEAD.size + text_bytes <= header_bytes <= MOST_HEADER:
            raise Failure(USAGE, f"{path}: its header says records of {record_bytes} bytes and {header_bytes} bytes of header, "
                                 f"want {RECORD.size} and at least {HEAD.size + text_bytes}")
        if len(data) < header_bytes:
            raise CutOff(f"{path}: cut off after {len(data)} bytes")
        self.read_text(data[HEAD.size:HEAD.size + text_bytes])
        self.records, self.clocks = [], []
        whole = (len(data) - header_bytes) // RECORD.size * RECORD.size  # what follows was cut off
        for number, fields in enumerate(RECORD.iter_unpack(memoryview(data)[header_bytes:header_bytes + whole]), 1):
            r = Record(*fields[:10])
            if r.kind == SYNC:
                if r.begin:  # zeros: the host has crashed
                    self.clocks.append(r)
            elif r.kind > PHASE or r.end < r.begin:
                raise Failure(USAGE, f"{path}: record {number}: found kind {r.kind} from {r.begin} to {r.end}, want a kind up to "
                                     f"{PHASE} that ends after its beginning")
            else:
                self.records.append(r)

    def read_text(self, text):
        try:
            about = json.loads(text)
            self.role, self.index, self.thread = str(about["role"]), int(about["index"]), str(about["thread"])
            self.pid, self.host, self.boot = int(about["pid"]), str(about["host"]), str(about["boot"])
            self.verbs = {int(k): str(v) for k, v in about["verbs"].items()}
            self.phases = {int(k): str(v) for k, v in about["phases"].items()}
            self.cycles = bool(about["cycles"])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Failure(USAGE, f"{self.path}: its header is not what a trace has: {type(error).__name__}: {error}") from None

    def process(self):
        return self.role, self.index, self.boot, self.host, self.pid


def read_folder(folder):
    """([TraceFile], what was left out and why). Raises Failure for a folder without any trace, or with a file that is none."""
    try:
        names = sorted((m for m in map(NAME.fullmatch, os.listdir(folder)) if m), key=lambda m: (m[1], int(m[2]), int(m[3])))
    except OSError as error:
        raise Failure(USAGE, f"{folder} cannot be read: {error.strerror}") from None
    files, left_out = [], []
    for name in names:
        try:
            files.append(TraceFile(os.path.join(folder, name[0])))
        except CutOff as why:
            left_out.append(str(why))
    if not any(file.records for file in files):
        found = f": {left_out[0]}" if left_out else ": it has no files like worker_0.0.trace"
        raise Failure(USAGE, f"{folder}: nothing was traced there (prun.py --trace, or PARACEL_TRACE)"
                             + (found if not files else ": its files have no records"))
    return files, left_out
