# SPDX-License-Identifier: BSD-3-Clause
"""Records as spans on tracks, joined by flows: a request of a client with what a server, and its replicas, did for it."""
from collections import defaultdict

from .clocks import Clocks
from .files import APPLY, HOLD, PHASE, REPLICATE, REQUEST, SERVE

MOST_NS = (1 << 63) - 1  # in a file of Perfetto; only of a file that was not written by a trace
NUMBERED = ("iteration", "superstep", "commit", "checkpoint")
RESULTS = ("ok", "not_found", "type_mismatch", "unknown_function", "plugin_failed", "bad_request", "wrong_owner", "stale_epoch",
           "too_large", "deadline_exceeded", "job_ended", "wrong_job", "internal", "conflict", "unknown_set", "out_of_memory",
           "expired", "connection_reset")  # net::status


class Span:
    """`begin`, `end`: ns since the first of the run. `out`, `into`: numbers of the flows that leave and enter it."""
    __slots__ = ("begin", "end", "name", "category", "args", "out", "into")

    def __init__(self, begin, end, name, category, args):
        self.begin, self.end, self.name, self.category, self.args = begin, end, name, category, args
        self.out, self.into = [], []


class Track:
    """Spans that nest, or follow each other. `spans` is sorted: a span after those that contain it."""

    def __init__(self, name, nests):
        self.name, self.nests, self.spans, self.open = name, nests, [], []

    def take(self, span):
        """Whether it fits here. To be called in the order of (begin, -end)."""
        while self.open and self.open[-1].end <= span.begin:
            self.open.pop()
        if self.open and (not self.nests or span.end > self.open[-1].end):
            return False
        self.open.append(span)
        self.spans.append(span)
        return True


class Process:
    def __init__(self, file):
        self.role, self.index, self.pid, self.host = file.role, file.index, file.pid, file.host
        self.tracks = []

    def name(self):
        return f"{'server s' if self.role == 'server' else 'worker '}{self.index} (pid {self.pid} on {self.host})"

    def lay(self, name, spans, nests):
        """Puts spans on as many tracks as they need."""
        tracks = []
        for span in sorted(spans, key=lambda s: (s.begin, -s.end)):
            if not any(track.take(span) for track in tracks):
                tracks.append(Track(name if not tracks else f"{name} {len(tracks) + 1}", nests))
                tracks[-1].take(span)
        self.tracks += tracks


class Trace:
    """A run: its processes, and sentences about what is missing."""

    def __init__(self, files):
        clocks = Clocks(files)
        self.notes = list(clocks.notes)
        self.flows = 0
        self.requests = {}                    # (client, sequence) -> Span
        self.messages = {}                    # (sender, its thread, number) -> Span
        self.serves, self.applies = [], []    # (key of what they serve, Span)
        self.counts = defaultdict(int)        # kind -> records
        self.dropped = sum(file.dropped for file in files)
        processes = {}
        for file in files:
            clock = clocks.clock(file)
            if clock is not None:
                self.take(file, clock, processes.setdefault(file.process(), Process(file)))
        self.processes = sorted(processes.values(), key=lambda p: (p.role != "worker", p.index, p.host, p.pid))
        self.join()
        spans = [span for p in self.processes for track in p.tracks for span in track.spans]
        first = min((span.begin for span in spans), default=0)
        for span in spans:
            span.begin, span.end = (min(max(0, round(t - first)), MOST_NS) for t in (span.begin, span.end))

    def take(self, file, clock, process):
        own, requests, messages, holds = [], [], [], []
        batch, last_sent = [], []  # served since the last wait for the replicas; messages since then
        passing = []               # messages that were passed on: found when their end is recorded
        for r in file.records:
            self.counts[r.kind] += 1
            begin, end = clock(r.begin), clock(r.end)
            if r.kind == REQUEST:
                args = {"sequence": r.sequence, "client": f"{r.client:016x}", "server": f"s{r.slot}", "bytes": r.bytes,
                        "reply bytes": r.more}
                if r.result:
                    args["result"] = RESULTS[r.result] if r.result < len(RESULTS) else str(r.result)
                span = Span(begin, end, file.verbs.get(r.what, f"verb {r.what}"), "request", args)
                self.requests[r.client, r.sequence] = span
                requests.append(span)
            elif r.kind == SERVE:
                span = Span(begin, end, file.verbs.get(r.what, f"verb {r.what}"), "serve",
                            {"sequence": r.sequence, "client": f"{r.client:016x}", "bytes": r.bytes})
                self.serves.append(((r.client, r.sequence), span))
                own.append(span)
                batch.append(span)
            elif r.kind == REPLICATE:
                span = Span(begin, end, f"replicate to s{r.slot}", "replicate", {"number": r.sequence})
                self.messages[r.client, r.more, r.sequence] = span
                messages.append(span)
                last_sent.append(span)
                passing.append(span)
            elif r.kind == APPLY:
                span = Span(begin, end, "apply", "replica", {"number": r.sequence, "bytes": r.bytes})
                self.applies.append(((r.client, r.more, r.sequence), span))
                own.append(span)
            elif r.kind == HOLD:
                span = Span(begin, end, "wait for replicas", "replicate", {"number": r.sequence})
                holds.append((span, r))
            elif r.kind == PHASE:
                name = file.phases.get(r.what, f"phase {r.what}")
                args = {"bytes": r.bytes} if r.bytes else {}
                own.append(Span(begin, end, f"{name} {r.sequence}" if name in NUMBERED else name, "phase", args))
        self.join_batches(batch, messages, [span for span, _ in holds])
        self.join_passed(own, passing)
        process.lay(file.thread, own, True)
        process.lay(f"{file.thread}: requests", requests, False)
        process.lay(f"{file.thread}: to replicas", messages, False)
        process.lay(f"{file.thread}: replies held", [span for span, _ in holds], False)

    def flow(self, a, b):
        self.flows += 1
        a.out.append(self.flows)
        b.into.append(self.flows)

    def join_batches(self, served, messages, holds):
        """A thread sends what a batch of requests has changed at its end, and then its replies wait: each `hold` begins there."""
        if not holds:
            return
        served, messages = sorted(served, key=lambda s: s.end), sorted(messages, key=lambda s: s.begin)
        i = k = 0
        for hold in sorted(holds, key=lambda s: s.begin):
            batch, sent = [], []
            while i < len(served) and served[i].end <= hold.begin:
                batch.append(served[i])
                i += 1
            while k < len(messages) and messages[k].begin <= hold.begin:
                if batch and messages[k].begin >= batch[0].begin:
                    sent.append(messages[k])
                k += 1
            for a in batch:
                for b in sent:
                    self.flow(a, b)

    def join_passed(self, own, messages):
        """A replica that is not the last passes a message on while it applies it."""
        applied = sorted((s for s in own if s.category == "replica"), key=lambda s: s.begin)
        messages = sorted(messages, key=lambda s: s.begin)
        k = 0
        for a in applied:
            while k < len(messages) and messages[k].begin < a.begin:
                k += 1
            while k < len(messages) and messages[k].begin <= a.end:
                self.flow(a, messages[k])
                k += 1

    def join(self):
        """Joins what different processes have recorded. What a server still does after its reply has arrived is cut off."""
        for key, span in self.serves:
            request = self.requests.get(key)
            if request is not None:
                self.flow(request, span)
                span.end = max(span.begin, min(span.end, request.end))
        for key, span in self.applies:
            message = self.messages.get(key)
            if message is not None:
                self.flow(message, span)
