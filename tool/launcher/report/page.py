# SPDX-License-Identifier: BSD-3-Clause
"""The report of one run."""
import os
import re
import sys
import time

from .charts import Chart, summarised
from .html import MOST_PRINTED, Page, bars, facts, preformatted, table, text
from ..common.exit_status import MEANING
from ..common.figures import byte_text, count_of, percent, seconds_text, short
from ..job.ending import last_lines
from .run_record import number, rises, shares_of
from .summary import quality, time_spent, what

MOST_ROWS = 64       # of a table of processes
MOST_BARS = 24       # rows of bars
MOST_OPEN = 16       # rows of a table that is shown at once
MOST_OTHERS = 8      # metrics with a chart of their own, besides the main one
MOST_EVENTS = 200    # in the table
LEAST_SAMPLES = 3    # of a curve
MOST_MARKS = 60      # in the charts
MARKED = ("lost", "ejected", "awaited", "joined", "entered", "retired", "moved", "checkpoint", "checkpoint_failed", "abort",
          "caught_up")
WORK = (("computing", 0), ("in system calls", 5), ("without a processor", 1), ("waiting", 8))
AXIS = ("staleness", "seconds", "compute_seconds", "wait_seconds", "fold_seconds", "chunks_given", "chunks_taken")


def report_page(record):
    """The HTML of a run's report."""
    program = str(record.run.get("program", "run"))
    page = Page(f"{program}: report of a run")
    head(page, record)
    cause(page, record)
    key_figures(page, record)
    marks = [(t, kind, said) for t, kind, said in record.events if kind in MARKED][:MOST_MARKS]
    page.section("Result", *result(page, record, marks))
    page.section("Where the time went", *where_time_went(page, record, marks))
    page.section("Workers", *workers(page, record, marks))
    page.section("Servers", *servers(page, record, marks))
    page.section("Events", events(record))
    page.section("What was run", *what_was_run(record))
    return page.html()


def head(page, record):
    run, end = record.run, record.end
    if end is None:
        state, bad = "its launcher was killed", True
    else:
        status = end[1]
        state = "done" if status == 0 else f"exit status {status} ({MEANING.get(status, 'failure')})"
        bad = status != 0
    wall = number(run.get("wall"))
    try:
        began = "" if wall is None else time.strftime("%Y-%m-%d %H:%M:%S %z, ", time.localtime(wall))
    except (OverflowError, ValueError, OSError):  # no date
        began = ""
    page.add(f'<h1>{text(run.get("program", "a program"))} <span class="pill{" bad" if bad else ""}">{text(state)}</span></h1>',
             f'<p class=soft>{text(began)}job {text(run.get("job", "?"))} on {text(run.get("host", "?"))}</p>',
             f'<div class=card><p>{text(what(record))}</p>',
             f"<p>{text(good)}</p>" if (good := quality(record)) else "", f"<p>{text('Time: ' + time_spent(record))}</p></div>")


def cause(page, record):
    if record.end is None or record.end[1] == 0:
        return
    said = record.end[2] or "it was interrupted"
    parts = [f"<h2>Why it ended</h2><p>{text(said)}</p>"]
    who = re.search(r"\b(?:(worker) (\d+)|server (s)(\d+))\b", said)
    if who is not None:
        name = f"worker_{who[2]}.log" if who[1] else f"server_{who[4]}.log"
        lines = last_lines(os.path.join(record.folder, name))
        if lines:
            parts.append(f"<p>The last lines of {text(name)}:</p>" + preformatted("\n".join(lines)))
    page.add("<div class='card bad'>" + "".join(parts) + "</div>")


def key_figures(page, record):
    loaded, main = record.loaded or {}, record.main()
    done, total = record.round_count()
    values = main.finite() if main is not None else []
    rounds = None if main is None else short(done) + (f" of {short(total)}" if total is not None and total > done else "")
    peak = [v for node in record.nodes.values() if (v := peak_memory(node)) is not None]
    moved = [node.last("sent_bytes", 0) + node.last("received_bytes", 0) for node in record.of("worker") if node.samples]
    rate = None
    if main is not None and len(main.seconds) > 1 and main.seconds[-1] > main.seconds[0]:
        rate = short((len(main.seconds) - 1) / (main.seconds[-1] - main.seconds[0])
                     * (1 if not record.thinned or not record.thinned[1] else record.thinned[1]), 3)
    pairs = [("time", seconds_text(record.took())), ("rounds", rounds), ("rounds per second", rate),
             (main.name, short(values[-1])) if values else ("result", None),
             ("rows", short(loaded["rows"]) if number(loaded.get("rows")) is not None else None),
             ("features", short(loaded["features"]) if number(loaded.get("features")) is not None else None),
             ("input", byte_text(loaded["bytes"]) if number(loaded.get("bytes")) is not None else None),
             ("sent and received by workers", byte_text(sum(moved)) if moved else None),
             ("memory of all processes", byte_text(sum(peak)) if peak else None)]
    page.add(facts(pairs))


def peak_memory(node):
    return node.last("peak_bytes", max((v for _, v in node.curve("resident_bytes")), default=None))


def span_of(record):
    return (0.0, max(record.took(), 1e-3))


def result(page, record, marks):
    main, whole = record.main(), span_of(record)
    if main is None:
        return [facts([(name, short(value)) for name, value in record.results])] if record.results else []
    notes = [f"Better when {'larger' if rises(main.name) else 'smaller'}."] if known(main.name) else []
    bad, first = main.broken()
    if bad:
        notes.append(f"{count_of(bad, 'value')} {'was' if bad == 1 else 'were'} not a finite number"
                     + (f", first in round {short(first)}" if first is not None else "") + ".")
    if marks:
        notes.append("Lines across: red a loss, green a checkpoint or a process that joined; the events are listed below.")
    if record.thinned and record.thinned[1]:
        notes.append(f"One of {short(record.thinned[1])} rounds is drawn.")
    charts = [page.figure(Chart(main.name, [(main.name, points_of(main))], marks=marks, whole=whole, from_zero=False,
                                note=" ".join(notes)), wide=True)]
    others = [s for name, s in record.metrics.items() if s is not main and name not in AXIS and len(set(s.finite())) > 1]
    charts.append(grid(page, [Chart(s.name, [(s.name, points_of(s))], marks=marks, whole=whole, from_zero=False)
                              for s in others[:MOST_OTHERS]]))
    printed = [(name, short(value)) for name, value in record.results if name != main.name]
    return charts + [facts(printed) if printed else "", rounds_table(record)]


def grid(page, charts):
    """Two charts beside each other; the last of an odd number has the whole width."""
    charts = [chart for chart in charts if chart]
    wide = len(charts) - 1 if len(charts) % 2 else None
    figures = [page.figure(chart, wide=i == wide) for i, chart in enumerate(charts)]
    return f"<div class=charts>{''.join(figures)}</div>" if figures else ""


def over_time(title, curves, record, marks, **more):
    """A chart of samples, or None when there are too few for a curve."""
    if max((len(points) for _, points in curves), default=0) < LEAST_SAMPLES:
        return None
    return Chart(title, summarised(curves), marks=marks, whole=span_of(record), **more)


def known(name):
    """Whether it is known which way a metric of this name gets better."""
    return rises(name) or name in ("objective", "error", "inertia", "l1") or name.endswith(("rmse", "loss"))


def points_of(series):
    return list(zip(series.seconds, series.values))


def rounds_table(record, most=12):
    """Some rounds as numbers: the first, the last, and evenly between."""
    names = list(record.metrics)[:8]
    main = record.main()
    count = len(main.values)
    chosen = sorted({round(i * (count - 1) / max(1, min(most, count) - 1)) for i in range(min(most, count))})
    columns = [record.metrics[n] for n in names]
    rows = []
    for i in chosen:
        row = [short(main.rounds[i]), seconds_text(main.seconds[i])]
        row += [short(s.values[i]) if len(s.values) == count and s.values[i] is not None else
                ("not finite" if len(s.values) == count else "–") for s in columns]
        rows.append(row)
    return ("<details class=card><summary>Some rounds in numbers</summary>" + table(["round", "time"] + names, rows) +
            "</details>")


def where_time_went(page, record, marks):
    phases = [p for p in record.phases() if p[1] > 0]
    colours = {"starting": 7, "loading": 3, "rounds": 0, "running": 0, "ending": 2}
    whole = sum(s for _, s in phases)
    parts = []
    if whole > 0:
        parts.append("<div class=card><h3>The run</h3>" + bars(
            [("", [s for _, s in phases])], [seconds_text(whole)],
            [(f"{name}: {seconds_text(s)} ({percent(s, whole)})", colours[name]) for name, s in phases]) + "</div>")
    shares = record.worker_shares()
    if shares:
        shown = sorted(shares, key=lambda s: -s[1]["waiting"])[:MOST_BARS] if len(shares) > MOST_BARS else shares
        rows = [(node.name(), [s[k] for k in ("computing", "system", "delayed", "waiting")]) for node, s in shown]
        numbers = [f"{percent(s['computing'], sum(s.values()))} computing" for _, s in shown]
        more = f"<p class=soft>{len(shares) - len(shown):,} more waited less.</p>" if len(shown) < len(shares) else ""
        parts.append("<div class=card><h3>Each worker, from when it joined</h3>" + bars(rows, numbers, WORK) + more +
                     "<p class=soft>Waiting: for servers, other workers, or files. In system calls: mostly to send and receive. "
                     "Without a processor: ready to run while others ran.</p></div>")
    curves = [(node.name(), shares_over_time(node)) for node in record.of("worker")]
    return parts + [grid(page, [over_time("Computing, as a share of the time", curves, record, marks, unit="share")])]


def shares_over_time(node):
    points, before = [], None
    for t, fields in node.samples:
        own = shares_of(fields)
        if own is None:
            continue
        total = (sum(own.values()), own["computing"] + own["system"])
        if before is not None and total[0] <= before[0] + 0.05:
            if total[0] < before[0]:  # another process
                before = None
            continue
        if before is not None:
            points.append((t, min(1.0, max(0.0, (total[1] - before[1]) / (total[0] - before[0])))))
        before = total
    return points


def workers(page, record, marks):
    nodes = record.of("worker")
    if not nodes:
        return []
    charts = [
        over_time("Staleness: rounds ahead of the slowest worker", [(n.name(), n.curve("ahead")) for n in nodes], record, marks),
        over_time("Rounds per second", [(n.name(), n.rate("clock")) for n in nodes], record, marks),
        over_time("Bytes per second, sent and received",
                  [(n.name(), both(n.rate("sent_bytes"), n.rate("received_bytes"))) for n in nodes], record, marks, unit="bytes"),
        over_time("Messages per second", [(n.name(), n.rate("requests")) for n in nodes], record, marks)
    ]
    rows = []
    for node in nodes[:MOST_ROWS]:
        used = shares_of(node.samples[-1][1] if node.samples else {}) or {}
        rows.append([node.name(), node.host, node.pid, short(node.last("clock"))]
                    + [seconds_text(used.get(k)) for k in ("computing", "system", "delayed", "waiting")]
                    + [short(node.last("requests")), byte_text(node.last("sent_bytes")), byte_text(node.last("received_bytes")),
                       byte_text(peak_memory(node))])
    head_row = [
        "worker", "host", "pid", "rounds", "computing", "system", "no processor", "waiting", "messages", "sent", "received",
        "memory"
    ]
    note = "<p class=soft>Curves need a run of some seconds: processes are sampled twice a second at most.</p>"
    note = "" if any(charts) else note
    return [grid(page, charts), folded("Workers", table(head_row, rows) + more_than(nodes) + note, len(rows))]


def both(one, other):
    values = dict(other)
    return [(t, v + values.get(t, 0.0)) for t, v in one]


def folded(name, html, rows):
    """A long table is opened on demand."""
    if rows <= MOST_OPEN:
        return f"<div class=card>{html}</div>"
    return f"<details class=card><summary>{text(name)} in numbers</summary>{html}</details>"


def more_than(nodes):
    return f"<p class=soft>{len(nodes) - MOST_ROWS:,} more are not shown.</p>" if len(nodes) > MOST_ROWS else ""


def servers(page, record, marks):
    nodes = record.of("server")
    if not nodes:
        return []
    charts = [over_time(title, [(n.name(), points(n)) for n in nodes], record, marks, unit=unit)
              for title, unit, points in (
                  ("Requests per second", "number", lambda n: n.rate("requests")),
                  ("Bytes per second, in and out", "bytes", lambda n: both(n.rate("bytes_in"), n.rate("bytes_out"))),
                  ("Memory of the processes", "bytes", lambda n: n.curve("resident_bytes")),
                  ("Processors used", "number", lambda n: n.rate("cpu")))]
    rows, shards = [], []
    for node in nodes[:MOST_ROWS]:
        rows.append([node.name(), node.host, node.pid, short(node.last("requests")), byte_text(node.last("bytes_in")),
                     byte_text(node.last("bytes_out")), short(node.last("keys")), byte_text(node.last("memory_bytes")),
                     byte_text(node.last("resident_bytes")), seconds_text(node.last("cpu"))])
        last = next((f["shards"] for _, f in reversed(node.samples) if isinstance(f.get("shards"), list)), [])
        for i, one in enumerate(last):
            if isinstance(one, list) and len(one) == 4 and all(number(v) is not None for v in one):
                shards.append((f"{node.name()}.{i}", one))
    head_row = ["server", "host", "pid", "requests", "in", "out", "keys", "parameters", "process", "CPU time"]
    parts = [grid(page, charts), folded("Servers", table(head_row, rows) + more_than(nodes), len(rows))]
    if len(shards) > 1 and any(one[0] for _, one in shards):
        shown = sorted(shards, key=lambda s: -s[1][0])[:MOST_BARS] if len(shards) > MOST_BARS else shards
        mean = sum(one[0] for _, one in shards) / len(shards)
        most = max(one[0] for _, one in shards)
        parts.append("<div class=card><h3>Load of the shards</h3>" + bars(
            [(name, [one[0]]) for name, one in shown],
            [f"{short(one[0])} requests, {byte_text(one[1] + one[2])}, {count_of(one[3], 'key')}" for _, one in shown],
            [("requests", 0)]) + f"<p class=soft>The busiest has {short(most / mean, 3)} times the mean.</p></div>")
    return parts + hot_partitions(nodes)


def hot_partitions(nodes):
    """Those of all servers that were asked for most keys, beside what an even share would have been."""
    found = []
    for node in nodes:
        last = next((f["partitions"] for _, f in reversed(node.samples) if isinstance(f.get("partitions"), list)), [])
        found += [(node.name(), one) for one in last
                  if isinstance(one, list) and len(one) == 3 and all(number(v) is not None for v in one)]
    if not found:
        return []
    found.sort(key=lambda f: -f[1][1])
    rows = [[short(one[0]), name, short(one[1]), byte_text(one[2])] for name, one in found[:MOST_OPEN]]
    return ["<div class=card><h3>Hot partitions</h3>" + table(["partition", "server", "keys asked for", "bytes"], rows)
            + "<p class=soft>Of 16,384; estimated from one key or row in 32.</p></div>"]


def events(record):
    if not record.events:
        return ""
    rows = [[seconds_text(t), kind.replace("_", " "), said] for t, kind, said in record.events[:MOST_EVENTS]]
    more = ""
    if len(record.events) > MOST_EVENTS:
        more = f"<p class=soft>{len(record.events) - MOST_EVENTS:,} more are in timeline.jsonl.</p>"
    return "<div class=card>" + table(["time", "event", ""], rows, texts=(1, 2)) + more + "</div>"


def version(framework):
    """Of Paracel, as its CMake package says, in an installed tree or a build."""
    prefix = os.path.dirname(framework)
    for folder in (os.path.join(prefix, "lib", "cmake", "paracel"), prefix):
        try:
            with open(os.path.join(folder, "paracelConfigVersion.cmake"), encoding="utf-8", errors="replace") as file:
                found = re.search(r'set\(PACKAGE_VERSION "([\w.]+)"', file.read(1 << 16))
        except OSError:
            continue
        if found:
            return found[1]
    return None


def what_was_run(record):
    import shlex
    run = record.run
    command = run.get("command")
    rows = [("job", run.get("job")),
            ("command", " ".join(shlex.quote(str(w)) for w in command) if isinstance(command, list) else None),
            ("config", run.get("config_file") or None),
            ("replaced by --set", "  ".join(map(str, run["set"])) if isinstance(run.get("set"), list) and run["set"] else None),
            ("input", ", ".join(map(str, (record.loaded or {}).get("names", []))) or None),
            ("results", run.get("output") or None), ("logs", record.folder),
            ("workers", f"{run.get('workers')} ({run.get('method')})"),
            ("servers", f"{run.get('servers')} ({run.get('m_server')}), threads each: {run.get('threads') or 'by their cores'}, "
             f"replicas: {run.get('replicas')}"),
            ("host", f"{run.get('host')}: {run.get('system')}, {run.get('cores')} processors"),
            ("Paracel", version(str(run.get("framework", "")))), ("Python", ".".join(map(str, sys.version_info[:3])))]
    parts = ["<div class=card>" + table(["", ""], [(k, v) for k, v in rows if v is not None], texts=(1,)) + "</div>"]
    if run.get("config"):
        config = str(run["config"])
        parts.append(f"<details class=card{' open' if len(config) < MOST_PRINTED / 10 else ''}><summary>Config</summary>"
                     f"{preformatted(config)}</details>")
    return parts
