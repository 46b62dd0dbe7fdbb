# SPDX-License-Identifier: BSD-3-Clause
"""Logs as JSON (--log-format json): each line of output of a process becomes an object in a line of its own,

    {"time", "level", "role", "index", "run", "message"}

with the time at which the launcher has read it (UTC), the level "error", "warning" or "info" as far as the line says so, the
role "scheduler", "server", "worker", "mpirun" or "launcher", the number of a server or worker (otherwise null), and the job's
id. What programs print is not told from what the framework prints. Bytes that are not UTF-8 are written as \\xff; a line of more
than 64 KiB becomes several objects, of which all but the last have "continues": true."""
import json
import re
import time

LONGEST = 1 << 16  # bytes of a line
# "lr: error: ...", "worker 1: warning: ...", "warning: ..."; the first line of a crash: src/worker/job/crash_report.cpp
LEVEL = r"(?:[^\s:]+: |worker \d+: )?(?:[^\s:]+: )?(error|warning): "
CRASH = ", in these calls:"


def level_of(text):
    said = re.match(LEVEL, text)
    return said[1] if said else "error" if text.endswith(CRASH) else "info"


def record(run, role, index, text, level=None, **more):
    """The line, as bytes: ASCII, whatever the text."""
    now = time.time()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
    return json.dumps({"time": when, "level": level or level_of(text), "role": role, "index": index, "run": run, "message": text,
                       **more}).encode("ascii") + b"\n"


def message_in(line):
    """What a line of a log says, whichever format that has."""
    if line.startswith('{"time": "'):
        try:
            said = json.loads(line).get("message")
        except (ValueError, RecursionError):
            return line
        if isinstance(said, str):
            return said
    return line


class JsonLog:
    """The log of a process, or of one of its two outputs, as logs.TextLog."""

    def __init__(self, log, run, role, index):
        self.log, self.run, self.role, self.index = log, run, role, index
        self.rest = b""  # a line that has no end yet

    def write(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.log.write(b"".join(self.records(line, False) for line in lines))
        if len(self.rest) > LONGEST:
            whole = len(self.rest) // LONGEST * LONGEST
            self.log.write(self.records(self.rest[:whole], True))
            self.rest = self.rest[whole:]

    def records(self, line, continues):
        parts = [line[at:at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
        made = []
        for number, part in enumerate(parts, 1):
            more = {"continues": True} if continues or number < len(parts) else {}
            made.append(record(self.run, self.role, self.index, part.decode("utf-8", "backslashreplace"), **more))
        return b"".join(made)

    def close(self):
        if self.rest:
            self.log.write(self.records(self.rest, False))
            self.rest = b""
        self.log.close()
