# SPDX-License-Identifier: BSD-3-Clause
"""What a run leaves for its report: timeline.jsonl, the events of its scheduler, each with the seconds since the launcher began
("t", by a clock that nobody sets), and a copy of the program's metrics.jsonl, which the next run would replace.

    {"t": 0, "event": "run", "job", "program", "command", "config", ...}   what was started, on what
    {"t", "event": "joined", "started", "sample", "progress", "lost", ...}   as the scheduler writes them
    {"t", "event": "end", "status", "cause"}

Both files stay small however long a run takes: numbers that arrive all the time are recorded less and less often."""
import json
import os
import time

TIMELINE = "timeline.jsonl"
METRICS = "metrics.jsonl"       # in the output folder
KEPT_METRICS = "run_metrics.jsonl"  # its copy: the folder of the logs may be the output folder, too
REPORT = "report.html"
THINNED = {"progress": 0.1, "sample": 0.0}  # seconds between those recorded, at first
DOUBLES_AFTER = 600                         # records; then the interval doubles, at least to a second
MOST_EVENTS = 20000                         # of the other kinds
MOST_CONFIG_BYTES = 256 << 10
MOST_LINES = 50000              # of metrics.jsonl that are copied; of more, each second one, or third, ...
MOST_BROKEN = 1000              # lines with a value that is no number, which are copied in any case
SKIPPED = ("ready",)
CLOCK_TICK = 0.1                # seconds by which a file system's times may be late


def text_of(path, most):
    """The beginning of a text file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def identity(path):
    """Changes when the file is written."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


class Timeline:
    def __init__(self, plan, files):
        """`files`: Logs, which report once that a file cannot be written."""
        self.plan, self.files = plan, files
        self.begin, self.wall = time.monotonic(), time.time()
        self.fd = -1
        self.left = MOST_EVENTS
        self.last = {}                                   # kind -> time of the last record
        self.count = dict.fromkeys(THINNED, 0)
        self.interval = dict(THINNED)
        self.metrics = os.path.join(plan.output, METRICS) if plan.output else ""
        self.metrics_before = identity(self.metrics) if self.metrics else None

    def path(self, name):
        return os.path.join(self.plan.run_dir, name)

    def open(self):
        plan, o = self.plan, self.plan.options
        self.fd = self.files.open(self.path(TIMELINE))
        self.write({"event": "run", "job": plan.id, "program": os.path.basename(plan.program),
                    "command": plan.embedded_command(), "workers": o.wnum, "servers": o.snum, "threads": plan.threads,
                    "method": o.method, "m_server": o.m_server, "replicas": o.replicas, "output": plan.output,
                    "config_file": o.cfg_file, "set": o.set,
                    "config": text_of(o.cfg_file, MOST_CONFIG_BYTES) if o.cfg_file else "",
                    "framework": plan.framework, "host": os.uname().nodename, "system": " ".join(os.uname()[:3:2]),
                    "cores": len(os.sched_getaffinity(0)), "wall": self.wall, "zone": time.strftime("%z")})

    def write(self, event):
        self.write_line(json.dumps(event).encode("utf-8", "replace"))

    def write_line(self, line):
        """`line`: of JSON, an object that is not empty."""
        t = f'{{"t":{time.monotonic() - self.begin:.4f},'.encode()
        self.files.write(self.path(TIMELINE), self.fd, t + line[1:] + b"\n")

    def add(self, kind, line):
        """An event of the scheduler."""
        if self.fd < 0 or kind in SKIPPED:
            return
        if kind == "output" and not self.metrics:
            self.learn_output(line)
        if kind in THINNED:
            now = time.monotonic()
            if now - self.last.get(kind, -1e9) < self.interval[kind]:
                return
            self.last[kind] = now
            self.count[kind] += 1
            if self.count[kind] % DOUBLES_AFTER == 0:
                self.interval[kind] = max(1.0, self.interval[kind]) * 2
        else:
            self.left -= 1
            if self.left < 0:
                return
        self.write_line(line)

    def learn_output(self, line):
        """Where the program writes, if its config has not said so."""
        folder = json.loads(line).get("what")
        if not isinstance(folder, str) or not folder:
            return
        self.metrics = os.path.join(folder, METRICS)
        there = identity(self.metrics)
        if there is not None and there[3] / 1e9 < self.wall - CLOCK_TICK:
            self.metrics_before = there

    def end(self, status, cause):
        """The job is over, and its metrics are complete."""
        if self.fd < 0:
            return
        try:
            self.keep_metrics()
        except OSError as error:
            self.files.tell(self.path(KEPT_METRICS), error)
        self.write({"event": "end", "status": status, "cause": cause})
        os.close(self.fd)
        self.fd = -1

    def keep_metrics(self):
        """Copies metrics.jsonl, unless an earlier run has left it."""
        if not self.metrics or identity(self.metrics) in (None, self.metrics_before):
            return
        with open(self.metrics, "rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
            step = -(-lines // MOST_LINES) or 1
            if step > 1:
                self.write({"event": "thinned", "lines": lines, "step": step})
            file.seek(0)
            broken = MOST_BROKEN
            with open(self.files.open(self.path(KEPT_METRICS)), "wb") as copy:
                for number, line in enumerate(file):
                    taken = number % step == 0 or number == lines - 1
                    if not taken and broken and (b"null" in line or b"NaN" in line or b"Inf" in line):
                        broken -= 1
                        taken = True
                    if taken:
                        copy.write(line)
