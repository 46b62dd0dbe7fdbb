# SPDX-License-Identifier: BSD-3-Clause
"""A run in three lines: what it was, how good the result is, where the time went."""
from ..common.figures import byte_text, count_of, seconds_text, share_list, short
from .run_record import RESULTS, rises

TAIL = 0.1   # of the rounds: whether the objective still moves
STILL = 1e-3  # relative change over them above which it does


def what(record):
    """`lr: 2,500 rows, 100 features; 4 workers, 2 servers; 100 rounds`"""
    run, loaded = record.run, record.loaded or {}
    data = []
    for key, name in (("rows", "row"), ("features", "feature")):
        if isinstance(loaded.get(key), int):
            data.append(count_of(loaded[key], name))
    if data and isinstance(loaded.get("bytes"), int):
        data.append(byte_text(loaded["bytes"]))
    size = [count_of(run[key], key[:-1]) for key in ("workers", "servers") if isinstance(run.get(key), int)]
    done, total = record.round_count()
    rounds = []
    if record.metrics:
        of = f" of at most {short(total)}" if total is not None and done < total else ""
        rounds = [(f"{count_of(done, 'round')}{of}" if not of else f"{short(done)}{of} rounds")]
    parts = [", ".join(part) for part in (data, size, rounds) if part]
    return f"{run.get('program', 'a program')}: " + "; ".join(parts)


def trend(series):
    """How a series ends: `still falling, by 2.1 % in the last 10 rounds`, or nothing when it moves no more."""
    values = series.finite()
    if len(values) < 10:
        return ""
    count = max(2, int(len(values) * TAIL))
    before, last = values[-count - 1 if count < len(values) else 0], values[-1]
    size = max(abs(before), abs(last))
    if not size or abs(last - before) / size < STILL:
        return "hardly moving any more"
    return f"still {'rising' if last > before else 'falling'}, by {short(100 * abs(last - before) / size, 2)} % in the last " \
           f"{count_of(count, 'round')}"


def quality(record):
    """`objective 0.2184, at first 0.56, still falling, by 1 % in the last 10 rounds; accuracy 0.93`"""
    parts = []
    main = record.main()
    if main is not None:
        values = main.finite()
        if values:
            text = f"{main.name} {short(values[-1])}"
            if len(values) > 1:
                text += f", at first {short(values[0])}"
            if end := trend(main):
                text += f", {end}"
            best = (max if rises(main.name) else min)(values)
            if len(values) > 2 and abs(values[-1] - best) > 0.01 * abs(best):
                text += f", best {short(best)}"
            parts.append(text)
        bad, first = main.broken()
        if bad:
            where = f", first in round {short(first)}" if first is not None else ""
            parts.append(f"{main.name} was not a finite number in {count_of(bad, 'round')}{where}")
    printed = dict(record.results)
    parts += [f"{name} {short(printed[name])}" for name in RESULTS if name in printed]
    if not parts:
        parts = [f"{name} {short(value)}" for name, value in record.results[-4:]]
    return "; ".join(parts)


SPENT = {"computing": "computing", "system": "in system calls", "delayed": "without a processor", "waiting": "waiting",
         "idle": "waiting or without a processor"}


def shares_text(role, shares, took):
    """`the workers: 93 % waiting, 6 % computing (worker 2 computes 1.9 times as long as the mean)`

    shares: [(name, {what of SPENT: seconds})] of the processes of this role. took: seconds of the run."""
    text = f"the {role}{'s' if len(shares) > 1 else ''}: " + share_list(
        [(name, sum(one.get(key, 0.0) for _, one in shares)) for key, name in SPENT.items()])
    mean = sum(one["computing"] for _, one in shares) / len(shares)
    name, own = max(shares, key=lambda s: s[1]["computing"])
    if len(shares) > 1 and own["computing"] > max(1.25 * mean, 0.05 * took):
        text += f" ({name} computes {short(own['computing'] / mean, 2)} times as long as the mean)"
    return text


def time_spent(record):
    """`1.7 s, of which 78 % rounds, 12 % starting; the workers: 93 % waiting, 6 % computing`"""
    text = f"{seconds_text(record.took())}, of which {share_list(record.phases())}"
    shares = record.worker_shares()
    if shares:
        text += "; " + shares_text("worker", [(node.name(), one) for node, one in shares], record.took())
    return text


def summary_lines(record):
    """The three lines; fewer if nothing is known for one."""
    lines = [what(record)]
    if good := quality(record):
        lines.append("result: " + good)
    if record.took() > 0:
        lines.append("time: " + time_spent(record))
    return lines
