# SPDX-License-Identifier: BSD-3-Clause
"""What `prun.py top` knows about a running job: the scheduler's report, the counters of its servers, and what its launcher has
recorded so far. The display is top.py's."""
import json
import os
import time

from ..common.exit_status import Failure
from ..common.figures import byte_text, seconds_text, short
from ..common.terminal import loading_text
from ..folders.run_directory import ask, read_note, understood
from ..job.timeline import TIMELINE
from .run_record import RunRecord, number, shares_of

HOT_INTERVAL = 3.0    # seconds between questions to the servers
HOT_LIMIT = 2.0       # seconds in which they answer
MOST_HOT = 8
RATE_SPAN = 10.0      # seconds over which rounds are counted
MOST_READ = 16 << 20  # bytes of the record at a time


class Rates:
    """Growth a second of counters, between the last two samples that differ in age."""

    def __init__(self):
        self.samples = {}  # key -> [older, newer]: (seconds, fields)

    def add(self, key, fields):
        age = number(fields.get("seconds"))
        if age is None:
            return
        before = self.samples.get(key, [])
        if before and age < before[-1][0]:  # another process
            before = []
        if not before or age > before[-1][0]:
            self.samples[key] = before[-1:] + [(age, fields)]

    def of(self, key, name):
        """None before there are two samples."""
        pair = self.samples.get(key, [])
        if len(pair) < 2:
            return None
        values = [number(fields.get(name)) for _, fields in pair]
        return None if None in values else (values[1] - values[0]) / (pair[1][0] - pair[0][0])

    def shares(self, key):
        """As run_record.shares_of, as parts of 1, of the time between the two; of all time before there are two."""
        pair = [shares_of(fields) for _, fields in self.samples.get(key, [])]
        if not pair or pair[-1] is None:
            return None
        last = pair[-1]
        first = pair[0] if len(pair) == 2 and pair[0] is not None else dict.fromkeys(last, 0.0)
        grown = {name: max(0.0, last[name] - first[name]) for name in last}
        whole = sum(grown.values())
        return {name: value / whole for name, value in grown.items()} if whole else None


class Watch:
    """Raises Failure when the run does not exist."""

    def __init__(self, run):
        self.run = run
        self.note, self.folder = read_note(run)
        self.record = RunRecord(self.folder, read=False)
        self.offset, self.rest = 0, b""
        self.report, self.hot = None, []
        self.asked_hot = 0.0
        self.rates = Rates()

    def is_over(self):
        return "status" in self.note

    def look(self):
        """Asks again. Raises Failure when the scheduler is gone without the job's end being recorded."""
        self.note, _ = read_note(self.run)
        self.read_timeline()
        if self.is_over():
            return
        try:
            report = ask(self.run, "stats")
        except Failure:
            self.note, _ = read_note(self.run)
            if self.is_over():
                return
            raise
        with understood():
            for role, key in (("server", "slot"), ("worker", "rank")):
                for one in report[role + "s"]:
                    if isinstance(one.get("usage"), dict):
                        self.rates.add((role, one[key]), one["usage"])
            self.report = report
        if report["phase"] == "running" and time.monotonic() - self.asked_hot >= HOT_INTERVAL:
            self.look_for_hot_keys()

    def look_for_hot_keys(self):
        self.asked_hot = time.monotonic()
        body = {"to": "servers", "command": "stats", "body": "", "seconds": HOT_LIMIT}
        try:
            answers = ask(self.run, "tell", body, HOT_LIMIT + 2)["answers"]
        except (Failure, KeyError, TypeError):  # it is ending
            return
        found = []
        for answer in answers:
            try:
                counters = json.loads(answer["text"])
                found += [(h["requests"], str(h["key"]), f"s{answer['slot']}") for h in counters.get("hot", [])]
            except (ValueError, KeyError, TypeError):
                continue
        self.hot = sorted(found, key=lambda h: -h[0])[:MOST_HOT]

    def read_timeline(self):
        try:
            with open(os.path.join(self.folder, TIMELINE), "rb") as file:
                file.seek(self.offset)
                data = file.read(MOST_READ)
        except OSError:
            return
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                self.record.take(event)

    # -- for a display

    def progress(self):
        """The newest progress event, or {}."""
        now = (self.report or {}).get("progress")
        return now if isinstance(now, dict) else self.record.progress[-1][1] if self.record.progress else {}

    def objective(self):
        """(name, values so far) of what the program tracks."""
        name = self.progress().get("metric")
        values = [v for _, e in self.record.progress if e.get("metric") == name and (v := number(e.get(name))) is not None]
        last = number(self.progress().get(name))
        return name, values + ([last] if last is not None and (not values or last != values[-1]) else [])

    def rounds_per_second(self):
        points = [(t, r) for t, e in self.record.progress if (r := number(e.get("round"))) is not None]
        recent = [(t, r) for t, r in points if t >= points[-1][0] - RATE_SPAN] if points else []
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return None
        return max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))

    def headline(self):
        """How far the run is, in a line."""
        report, event = self.report or {}, self.progress()
        parts = [f"{self.note.get('program', 'job')}: {report.get('phase', 'starting')} for "
                 f"{seconds_text(number(report.get('seconds')) or 0)}"]
        if "loading" in event:
            return parts + [loading_text(event["loading"], event.get("of"))]
        if (done := number(event.get("round"))) is not None:
            total = number(event.get("rounds"))
            parts.append(f"round {short(done)}" + (f" of {short(total)}" if total is not None else ""))
            rate = self.rounds_per_second()
            if rate is not None:
                parts.append(f"{short(rate, 3)} rounds/s")
                if total is not None and total > done and rate > 0:
                    parts.append(f"{seconds_text((total - done) / rate)} left")
        name, values = self.objective()
        if values:
            parts.append(f"{name} {short(values[-1])}")
        return parts

    def plain_line(self):
        """Everything in one line."""
        parts = self.headline()
        report = self.report or {}
        clocks = [w["clock"] for w in report.get("workers", [])]
        if clocks:
            parts.append(f"clocks {min(clocks)} to {max(clocks)}" if min(clocks) != max(clocks) else f"clocks {clocks[0]}")
        loads = [r for s in report.get("servers", []) if (r := self.rates.of(("server", s["slot"]), "requests")) is not None]
        if loads:
            parts.append(f"servers {short(sum(loads), 3)} requests/s")
        memory = [s["resident_bytes"] for s in report.get("servers", []) if "resident_bytes" in s]
        if memory:
            parts.append(byte_text(sum(memory)))
        if self.hot:
            parts.append(f"hottest key {self.hot[0][1]}")
        if report.get("losses"):
            parts.append(f"{len(report['losses'])} lost")
        return ", ".join(parts)
