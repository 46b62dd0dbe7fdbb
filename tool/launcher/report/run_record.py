# SPDX-License-Identifier: BSD-3-Clause
"""What a run has recorded (job/timeline.py), read for its summary, its report, comparisons and exports. Every file may be
missing, cut off, or hold anything: what cannot be understood is left out."""
import json
import math
import os

from ..job.json_log import message_in
from ..job.timeline import KEPT_METRICS, TIMELINE

MOST_BYTES = 256 << 20   # of a file that is read
INDEX_NAMES = ("round", "run", "stage", "class", "tree", "level")  # they say to what a line belongs, and are no results
RISING = ("accuracy", "auc", "ndcg", "log_likelihood", "bound", "modularity", "spearman")  # better when larger
RESULTS = ("accuracy", "auc", "log_loss", "test_rmse", "rmse", "validate_accuracy", "validate_loss", "validate_rmse", "ndcg",
           "oob_accuracy", "oob_rmse", "spearman")  # printed at the end, of data that was not trained on
MOST_OUTPUT = 64 << 10


def number(value):
    """A finite number, or None: JSON has no others, but Python reads some."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def objects_in(path):
    """The JSON objects of a file, one a line."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES)
    except OSError:
        return []
    found = []
    for line in data.splitlines():
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(one, dict):
            found.append(one)
    return found


def rises(name):
    """Whether a metric of this name is better when it is larger."""
    return any(name == word or name.endswith("_" + word) for word in RISING)


class Series:
    """Values of a metric over the rounds. None: not a number."""

    def __init__(self, name):
        self.name = name
        self.rounds, self.seconds, self.values = [], [], []

    def finite(self):
        return [v for v in self.values if v is not None]

    def broken(self):
        """(how many values are no numbers, the round of the first of them)"""
        bad = [r for r, v in zip(self.rounds, self.values) if v is None]
        return len(bad), bad[0] if bad else None


class Node:
    """A place of the job: the server or worker with this number, whichever process held it."""

    def __init__(self, role, index):
        self.role, self.index = role, index
        self.host, self.pid = "", 0
        self.samples = []   # (t, fields), oldest first
        self.joins = 0

    def retime(self):
        """Dates each sample back to when the process has taken it: it arrives with a heartbeat, and is passed on later. A process
        says how old it is."""
        spans, last = [], None  # of one process each: [(place, age)]
        for i, (_, fields) in enumerate(self.samples):
            age = number(fields.get("seconds"))
            if age is None:
                continue
            if last is None or age < last:
                spans.append([])
            spans[-1].append((i, age))
            last = age
        for span in spans:
            begin = min(self.samples[i][0] - age for i, age in span)
            for i, age in span:
                self.samples[i] = (begin + age, self.samples[i][1])

    def name(self):
        return f"s{self.index}" if self.role == "server" else f"worker {self.index}"

    def last(self, key, otherwise=None):
        """A number of the last sample that has it."""
        return next((v for _, f in reversed(self.samples) if (v := number(f.get(key))) is not None), otherwise)

    def curve(self, key):
        """[(t, value)]"""
        return [(t, v) for t, f in self.samples if (v := number(f.get(key))) is not None]

    def rate(self, key):
        """[(t, growth a second)] of a counter between samples, each at the later of the two. A process that has taken this place
        begins at 0."""
        points, before = [], (0.0, 0.0)
        for t, v in self.curve(key):
            if v < before[1]:
                before = (before[0], 0.0)
            if t > before[0]:
                points.append((t, (v - before[1]) / (t - before[0])))
                before = (t, v)
        return points


class RunRecord:
    def __init__(self, folder, read=True):
        """`read=False`: nothing is read, and the events of the timeline are given to `take` one by one."""
        self.folder = folder
        self.run, self.end, self.loaded, self.thinned = {}, None, None, None
        self.events = []                  # of the kinds that a reader wants to see: (t, kind, text)
        self.progress = []                # (t, event)
        self.started = None               # t
        self.nodes = {}                   # (role, index) -> Node
        self.last_t = 0.0
        self.lines, self.first_round_at, self.metrics, self.results = [], 0.0, {}, []
        if read:
            self.read()

    def read(self):
        folder = self.folder
        for event in objects_in(os.path.join(folder, TIMELINE)):
            self.take(event)
        for node in self.nodes.values():
            node.retime()
        self.lines = objects_in(os.path.join(folder, KEPT_METRICS))
        self.first_round_at = self.align()
        self.metrics = self.series()
        self.results = self.printed()

    # -- the timeline

    def take(self, event):
        t, kind = number(event.get("t")), event.get("event")
        if t is None or not isinstance(kind, str):
            return
        t = self.last_t = max(t, self.last_t)
        take = getattr(self, "on_" + kind, None)
        if take is not None:
            take(t, event)
        elif kind in ("ejected", "awaited", "entered", "retired", "leaving", "serving", "synced", "caught_up", "busy", "warning",
                      "checkpoint", "checkpoint_failed", "restored", "error", "abort", "wanted", "not_entered",
                      "moving", "moved"):
            self.events.append((t, kind, self.words(kind, event)))

    def words(self, kind, event):
        who = ""
        if isinstance(event.get("index"), int):
            who = f"server s{event['index']}" if event.get("role", "server") == "server" else f"worker {event['index']}"
        if kind in ("checkpoint", "checkpoint_failed", "restored"):
            from ..job.checkpoints import event_text
            try:
                return event_text(event)
            except (KeyError, TypeError, ValueError):
                return kind
        said = event.get("cause") or event.get("text") or event.get("why") or event.get("function") or ""
        return ": ".join(str(part) for part in (who, said) if part) or kind.replace("_", " ")

    def node(self, event, role=None):
        role, index = role or event.get("role"), event.get("index")
        if role not in ("server", "worker") or not isinstance(index, int):
            return None
        return self.nodes.setdefault((role, index), Node(role, index))

    def on_run(self, _, event):
        self.run = event

    def on_end(self, t, event):
        self.end = (t, event.get("status"), str(event.get("cause") or ""))

    def on_started(self, t, _):
        self.started = t

    def on_loaded(self, _, event):
        if self.loaded is None and isinstance(event.get("what"), dict):  # the first: later ones are tests
            self.loaded = event["what"]

    def on_output(self, _, event):
        if not self.run.get("output") and isinstance(event.get("what"), str):
            self.run["output"] = event["what"]

    def on_thinned(self, _, event):
        self.thinned = (number(event.get("lines")), number(event.get("step")))

    def on_progress(self, t, event):
        self.progress.append((t, event))

    def on_joined(self, t, event):
        node = self.node(event)
        if node is None:
            return
        node.joins += 1
        node.host, node.pid = str(event.get("host", "")), event.get("pid")
        if self.started is not None or node.joins > 1:
            self.events.append((t, "joined", f"{'server ' if node.role == 'server' else ''}{node.name()} (pid {node.pid} on "
                                             f"{node.host}) joined"))

    def on_lost(self, t, event):
        self.events.append((t, "lost", str(event.get("cause", "a process was lost"))))

    def on_sample(self, t, event):
        for role in ("server", "worker"):
            for one in event.get(role + "s") if isinstance(event.get(role + "s"), list) else []:
                if isinstance(one, dict):
                    self.add_sample(t, one, role)

    def on_usage(self, t, event):
        self.add_sample(t, event, None)

    def add_sample(self, t, event, role):
        node, used = self.node(event, role), event.get("usage")
        if node is None or not isinstance(used, dict):
            return
        fields = dict(used)
        for key in ("clock", "memory_bytes", "resident_bytes"):
            if key in event:
                fields[key] = event[key]
        node.samples.append((t, fields))

    def of(self, role):
        return [node for (r, _), node in sorted(self.nodes.items()) if r == role]

    # -- metrics

    def align(self):
        """The time of the program's second 0, from when its progress arrived: a round is reported once it is over."""
        times, offset, last = {}, 0.0, 0.0
        for line in self.lines:
            s = number(line.get("seconds"))
            if s is None:
                line["_seconds"] = last
                continue
            if s + offset < last:        # another stage, which counts from 0 again
                offset = last - s
            last = line["_seconds"] = s + offset
            if isinstance(line.get("round"), int):
                times.setdefault((line["round"], main_metric(line)), last)
        gaps = []
        for t, event in self.progress:
            key = (event.get("round"), event.get("metric"))
            if isinstance(key[0], int) and isinstance(key[1], str) and key in times:
                gaps.append(t - times[key])
        if gaps:
            return max(min(gaps), self.started or 0.0)
        return self.started if self.started is not None else 0.0

    def series(self):
        """name -> Series, the main metric first."""
        found = {}
        for line in self.lines:
            t, r = line.get("_seconds", 0.0) + self.first_round_at, number(line.get("round"))
            for name, value in line.items():
                if name in ("seconds", "_seconds") or name in INDEX_NAMES:
                    continue
                if value is not None and not isinstance(value, (int, float)) or isinstance(value, bool):
                    continue
                s = found.setdefault(name, Series(name))
                s.rounds.append(r)
                s.seconds.append(t)
                s.values.append(number(value))
        if not found:                    # a program that only reports its progress
            for t, event in self.progress:
                name = event.get("metric")
                if isinstance(name, str) and name in event:
                    s = found.setdefault(name, Series(name))
                    s.rounds.append(number(event.get("round")))
                    s.seconds.append(t)
                    s.values.append(number(event[name]))
        return found

    def main(self):
        """The series that the program tracks, or None."""
        return next((s for name, s in self.metrics.items() if not name.endswith("_seconds")), None)

    def round_count(self):
        """(rounds done, rounds in all or None)"""
        done = [r for s in self.metrics.values() for r in s.rounds if r is not None]
        totals = [number(e.get("rounds")) for _, e in self.progress]
        total = next((n for n in reversed(totals) if n is not None), None)
        return (len(self.lines) if self.has_stages() and not self.thinned else max(done) if done else 0), \
            None if self.has_stages() else total

    def has_stages(self):
        """Whether rounds count from 1 more than once."""
        rounds = next(iter(self.metrics.values())).rounds if self.metrics else []
        return any(a is not None and b is not None and b <= a for a, b in zip(rounds, rounds[1:]))

    def printed(self):
        """The lines `name value` that worker 0 has printed: [(name, number)]."""
        try:
            with open(os.path.join(self.folder, "worker_0.log"), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - MOST_OUTPUT))
                lines = [message_in(line) for line in file.read().decode("utf-8", "replace").splitlines()]
        except OSError:
            return []
        found = {}
        for words in (line.split(" ") for line in lines):
            if len(words) == 2 and words[0].replace("_", "").isalnum() and words[0].isascii():
                try:
                    value = number(float(words[1]))
                except ValueError:
                    continue
                if value is not None:
                    found[words[0]] = value
        return list(found.items())

    # -- time

    def took(self):
        """Seconds until the end of the run, or until the last event of one whose launcher was killed."""
        return self.end[0] if self.end is not None else self.last_t

    def phases(self):
        """[(name, seconds)] that make up `took`."""
        took = self.took()
        if self.started is None:
            return [("starting", took)]
        main = self.main() or next(iter(self.metrics.values()), None)
        phases = [("starting", self.started)]
        if main is None or not main.seconds:
            return phases + [("running", max(0.0, took - self.started))]
        begin = min(max(self.first_round_at, self.started), took)
        last = min(max(main.seconds[-1], begin), took)
        return phases + [("loading", begin - self.started), ("rounds", last - begin), ("ending", took - last)]

    def worker_shares(self):
        """What the workers did of the time since they joined, in seconds: {"computing","system","delayed","waiting"} for each
        worker of which the system has told; [(Node, dict)]."""
        return [(node, shares) for node in self.of("worker")
                if (shares := shares_of(node.samples[-1][1] if node.samples else {}))]


def shares_of(fields):
    """computing: CPU time of the algorithm's thread outside the kernel; system: inside, mostly to send and receive; delayed:
    ready, with no free processor; waiting: for servers, workers or files."""
    values = [number(fields.get(key)) for key in ("seconds", "cpu", "delayed")]
    if any(v is None for v in values):
        return None
    seconds, cpu, delayed = values
    system = min(number(fields.get("system")) or 0.0, cpu)
    return {"computing": cpu - system, "system": system, "delayed": delayed,
            "waiting": max(0.0, seconds - cpu - delayed)}


def main_metric(line):
    """The name of the program's main metric: the first member after those that say what the line is about, and no duration."""
    return next((name for name in line if name not in INDEX_NAMES and name != "seconds" and not name.endswith("_seconds")), None)
