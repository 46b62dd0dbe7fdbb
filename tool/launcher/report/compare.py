# SPDX-License-Identifier: BSD-3-Clause
"""Runs beside each other: a table of text, and a page."""
import json
import os

from .charts import Chart
from .html import Page, table as html_table, text
from ..common.figures import byte_text, percent, seconds_text, short
from ..folders.run_directory import table
from .run_record import RESULTS, rises
from .summary import summary_lines

MOST_CONFIG_ROWS = 40
MOST_VALUE = 60  # characters of a config's value in a table


def flat(value, prefix=""):
    """A config as {path: text of the value}."""
    if isinstance(value, dict) and value:
        return {k: v for name, one in value.items() for k, v in flat(one, f"{prefix}.{name}" if prefix else str(name)).items()}
    shown = json.dumps(value, ensure_ascii=False)
    return {prefix: shown if len(shown) <= MOST_VALUE else shown[:MOST_VALUE] + "..."}


def config_of(record):
    """{key: text of its value}: of the config file as it stands, with what --set has replaced."""
    try:
        config = json.loads(record.run.get("config") or "{}")
    except (ValueError, RecursionError):
        config = {"(config)": "is not JSON"}
    found = flat(config) if isinstance(config, dict) and config else {}
    replaced = record.run.get("set")
    for word in replaced if isinstance(replaced, list) else []:
        key, _, value = str(word).partition("=")
        try:
            found.update(flat(json.loads(value), key))
        except (ValueError, RecursionError):  # a text without its quotes
            found.update(flat(value, key))
    return found


def names_of(records):
    """Names that tell the runs apart."""
    short_names = [os.path.basename(os.path.abspath(r.folder)) for r in records]
    return short_names if len(set(short_names)) == len(records) else [r.folder for r in records]


def shares_text(record):
    shares = [s for _, s in record.worker_shares()]
    whole = sum(sum(s.values()) for s in shares)
    if not shares:
        return None
    return ", ".join(f"{percent(sum(s[k] for s in shares), whole)} {k}" for k in ("computing", "waiting"))


def rate_of(record):
    main = record.main()
    if main is None or len(main.seconds) < 2 or main.seconds[-1] <= main.seconds[0]:
        return None
    done, _ = record.round_count()
    return (done - 1) / (main.seconds[-1] - main.seconds[0])


def rows_of(records):
    """[(what, [a cell for each run])], without rows that are empty for all."""
    def row(name, one):
        cells = [one(r) for r in records]
        if any(c is not None for c in cells):
            rows.append((name, ["–" if c is None else str(c) for c in cells]))

    rows = []
    row("program", lambda r: r.run.get("program"))
    row("ended with status", lambda r: "killed" if r.end is None else r.end[1])
    for key in ("workers", "servers", "replicas"):
        row(key, lambda r, key=key: r.run.get(key))
    for key in ("rows", "features"):
        row(key, lambda r, key=key: short(r.loaded[key]) if isinstance((r.loaded or {}).get(key), int) else None)
    row("time", lambda r: seconds_text(r.took()))
    row("rounds", lambda r: short(r.round_count()[0]) if r.metrics else None)
    row("rounds per second", lambda r: None if rate_of(r) is None else short(rate_of(r), 3))
    for name in dict.fromkeys(r.main().name for r in records if r.main() is not None):
        def series(r, name=name):
            return r.metrics[name].finite() if name in r.metrics else []
        row(f"{name}, last", lambda r: short(series(r)[-1]) if series(r) else None)
        best = max if rises(name) else min
        row(f"{name}, best", lambda r: short(best(series(r))) if series(r) else None)
    for name in RESULTS:
        row(name, lambda r, name=name: short(dict(r.results)[name]) if name in dict(r.results) else None)
    row("workers' time", shares_text)
    row("sent by workers", lambda r: byte_text(sum(n.last("sent_bytes", 0) for n in r.of("worker")))
        if any(n.samples for n in r.of("worker")) else None)
    configs = [config_of(r) for r in records]
    keys = dict.fromkeys(k for c in configs for k in c)
    differ = [k for k in keys if len({c.get(k) for c in configs}) > 1]
    for key in differ[:MOST_CONFIG_ROWS]:
        rows.append((f"config: {key}", [c.get(key, "–") for c in configs]))
    if len(differ) > MOST_CONFIG_ROWS:
        rows.append((f"config: {len(differ) - MOST_CONFIG_ROWS} more keys differ", ["" for _ in records]))
    return rows


def compare_text(records):
    return "\n".join(table([""] + names_of(records), [[name] + cells for name, cells in rows_of(records)])) + "\n"


def compare_page(records):
    names = names_of(records)
    page = Page("Runs compared: " + ", ".join(names))
    page.add(f"<h1>{text(len(records))} runs compared</h1>")
    charts = []
    metrics = dict.fromkeys(name for r in records for name in list(r.metrics)[:8])
    for name in metrics:
        having = [(label, r.metrics[name], r) for label, r in zip(names, records) if name in r.metrics]
        if len(having) < 2 or not any(len(set(s.finite())) > 1 for _, s, _ in having):
            continue
        by_time = [(label, [(t - r.first_round_at, v) for t, v in zip(s.seconds, s.values)]) for label, s, r in having]
        charts.append(page.figure(Chart(f"{name} by time since the first round began", by_time, from_zero=False)))
        if not any(r.has_stages() for _, _, r in having):
            by_round = [(label, [(n, v) for n, v in zip(s.rounds, s.values) if n is not None]) for label, s, _ in having]
            charts.append(page.figure(Chart(f"{name} by round", by_round, x_unit="number", from_zero=False)))
    if not charts:
        page.add("<div class=card><p>The runs have no metric in common that changes.</p></div>")
    page.section("Curves", f"<div class=charts>{''.join(charts)}</div>" if charts else "")
    page.section("Figures", "<div class=card>" + html_table([""] + names, [[n] + c for n, c in rows_of(records)]) + "</div>")
    words = ["".join(f"<p>{text(line)}</p>" for line in summary_lines(r)) for r in records]
    page.section("In words", *[f"<div class=card><h3>{text(label)}</h3>{said}</div>" for label, said in zip(names, words)])
    return page.html()
