#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the framework with the floor of its transport and with target values; prints a table and writes JSON.

On shared machines rates vary by a factor of two, so they are always compared: a row with a floor runs bench_kv and
bench_zmq_floor (over unix: bench_unix_floor) alternately, with the same frames, sizes and window, and its result is the median
of the paired ratios. A row relative to another command is compared with that in the same way. The other rows are medians of a
figure that a program prints. A row that cannot be measured states the reason, and the remaining rows are measured.

Rows about servers are measured twice in each turn: with all processors, and pinned to one of them, where nothing waits for
another processor and the ratios spread by a few percent. Beside them: nanoseconds a key, and the processor time of client and
servers for a million keys, both of the pinned runs.
"""
import argparse
import ctypes
import ctypes.util
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import hot_keys  # noqa: E402
from run_rows import (HOT, HOT_AIM, HOT_ROWS, KV_ROWS, LR_ROWS, MOST_RUNS, PINNED, PROGRAM_ROWS, START,  # noqa: E402
                      START_AIM, START_FLOOR)
from running import CannotMeasure, built_in, output_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
ONE_RUN_LIMIT = 300  # seconds


# ---- running programs

def stay_on_one_processor():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def figures_of(bin_dir, words, pinned=False):
    """The JSON object that a program prints: its last line, or its complete output."""
    command = [built_in(bin_dir, words[0])] + words[1:]
    for _ in range(3):
        text = output_of(command, ONE_RUN_LIMIT, **({"preexec_fn": stay_on_one_processor} if pinned else {})).strip()
        figures = None
        for part in (text.rpartition("\n")[2], text):
            try:
                figures = json.loads(part)
            except ValueError:
                continue
            break
        if not isinstance(figures, dict):
            raise CannotMeasure(f"{words[0]} did not print an object of JSON")
        if figures.get("calls", 1) > 0:
            return figures
    raise CannotMeasure("no call was answered in time; the machine is too busy to measure")


def floor_words(words, kv):
    """The command of the floor for the same frames as bench_kv's."""
    options = dict(zip(words[::2], words[1::2]))
    over_unix = options.get("--transport") == "unix"  # its floor has one client and one server
    result = ["bench_unix_floor" if over_unix else "bench_zmq_floor"]
    for name in ("request_bytes", "reply_bytes", "tail_request_bytes", "tail_reply_bytes"):
        result += ["--" + name, str(kv[name])]
    same = (("--window", "--window"),)
    of_zmq = (("--workers", "--clients"), ("--servers", "--servers"), ("--transport", "--transport"))
    for kv_name, floor_name in same if over_unix else same + of_zmq:
        if kv_name in options:
            result += [floor_name, options[kv_name]]
    return result


def figure_in(figures, names, program):
    """The first of `names` found; a.b is b in the object a."""
    for name in names:
        value = figures
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, (int, float)):
            return float(value)
    has = ", ".join(k for k, v in figures.items() if isinstance(v, (int, float, dict))) or "nothing"
    raise CannotMeasure(f"{program} prints no {' or '.join(names)}; it has {has}")


# ---- rows: JSON objects

def paired(left, right):
    """The median of the ratios of paired measurements (not the ratio of the medians), and all ratios."""
    ratios = [a / b for a, b in zip(left, right)]
    return {"ratio": statistics.median(ratios), "ratios": [round(r, 4) for r in ratios]}


def is_met(value, aim):
    if aim is None:
        return None
    relation, bound = aim.split()
    return value >= float(bound) if relation == ">=" else value <= float(bound)


PER_KEY = ("ns_per_key", "cpu_s_per_million")


def medians(names, runs):
    """The medians of those figures that all runs have."""
    return {n: statistics.median(r[n] for r in runs) for n in names if runs and all(n in r for r in runs)}


def compared(rates, floors, runs):
    """The figures of paired runs; without floors those of the runs alone."""
    row = {"figure": statistics.median(rates), **medians(PER_KEY, runs)}
    if floors:
        row.update(floor=statistics.median(floors), **paired(rates, floors))
    return row


def ways(args, group):
    """Whether a turn's runs are pinned: False, or False and True."""
    return (False, True) if group in PINNED and not args.free else (False,)


def kv_row(args, group, name, text, aim):
    words = text.split()
    times = ["--seconds", str(args.seconds)]
    kvs, floors = {False: [], True: []}, {False: [], True: []}
    for _ in range(args.pairs):
        for pinned in ways(args, group):
            kvs[pinned].append(figures_of(args.bin_dir, ["bench_kv"] + words + times, pinned))
            floor = floor_words(words, kvs[pinned][-1]) + times
            floors[pinned].append(figures_of(args.bin_dir, floor, pinned))
    both = {pinned: compared([r["calls_per_second"] for r in kvs[pinned]], [r["calls_per_second"] for r in floors[pinned]],
                             kvs[pinned]) for pinned in ways(args, group)}
    row = {"group": group, "name": name, "command": "bench_kv " + text, "aim": None if aim is None else f">= {aim:.2f}",
           "unit": "calls/s", "p50_us": kvs[False][-1]["p50_us"], "p99_us": kvs[False][-1]["p99_us"],
           "floor_p50_us": floors[False][-1]["p50_us"], **both[False]}
    if True in both:
        row["pinned"] = both[True]
    row["met"] = is_met(row["ratio"], row["aim"])
    return row


class Programs:
    """Caches runs of programs: several rows may use figures of the same run."""

    def __init__(self, args):
        self.args = args
        self.runs = {}  # command, and whether it is pinned -> figures of each run

    def figures(self, command, i, pinned=False):
        done = self.runs.setdefault((command, pinned), [])
        while len(done) <= i:
            words = command.split()
            if words[0] in ("bench_kv", "bench_unix_floor"):
                words += ["--seconds", str(self.args.seconds)]
            done.append(figures_of(self.args.bin_dir, words, pinned))
        return done[i]


def program_row(args, programs, group, name, command, names, aim, base):
    program = command.split()[0]
    values, floors, runs = {False: [], True: []}, {False: [], True: []}, {False: [], True: []}
    for i in range(min(args.pairs, MOST_RUNS.get(group, args.pairs))):
        for pinned in ways(args, group):
            if base:
                floors[pinned].append(figure_in(programs.figures(base, i, pinned), names, program))
            runs[pinned].append(programs.figures(command, i, pinned))
            values[pinned].append(figure_in(runs[pinned][-1], names, program))
    row = {"group": group, "name": name, "command": command, "aim": aim, "unit": names[0], "figures": values[False],
           **compared(values[False], floors[False], runs[False])}
    if base:
        row["relative_to"] = base
    if True in ways(args, group):
        row["pinned"] = compared(values[True], floors[True], runs[True])
    row["met"] = is_met(row["ratio"] if base else row["figure"], aim)
    return row


def hot_row(args, name, way):
    of = hot_keys.arguments(HOT.split() + ["--build", os.path.dirname(args.bin_dir)])
    runs = [[hot_keys.measure(of, way, skew) for skew in (of.skew, 0)] for _ in range(min(args.pairs, MOST_RUNS["hot"]))]
    zipf, uniform = zip(*runs)
    row = {"group": "hot", "name": name, "command": f"hot_keys.py {HOT} --ways '{way}'", "aim": HOT_AIM, "unit": "s",
           "figures": [run["seconds"] for run in zipf], "zipf": zipf, "uniform": uniform,
           **compared([run["seconds"] for run in zipf], [run["seconds"] for run in uniform], [])}
    row["met"] = is_met(row["ratio"], row["aim"])
    return row


def lr_command(args, folder, data, method, rounds, *options):
    plugin = os.path.join(os.path.dirname(args.bin_dir), "lib", "liblr_update.so")
    config = {"training_input": data, "test_input": data, "predict_input": data, "output": os.path.join(folder, method),
              "update_file": plugin, "update_func": "lr_theta_update", "method": method, "rounds": rounds, "alpha": 0.001,
              "beta": 0.01, "debug": False}
    path = os.path.join(folder, f"{method}_{rounds}.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    return [sys.executable, "-S", os.path.join(ROOT, "prun.py"), "-w", "4", "-p", "2", "--threads", "1", "-c", path, "-m",
            "local", *options, "--output-dir", os.path.join(folder, "runs"), built_in(args.bin_dir, "lr")]


def seconds_of(command, folder):
    begin = time.monotonic()
    output_of(command, ONE_RUN_LIMIT, cwd=folder)
    return time.monotonic() - begin


def lr_row(args, folder, data, method, transport, aim):
    mine = lr_command(args, folder, data, method, 100, *(["--transport", transport] if transport else []))
    usual = lr_command(args, folder, data, method, 100)
    seconds, floors = [], []
    for _ in range(args.pairs):
        if transport:
            floors.append(seconds_of(usual, folder))
        seconds.append(seconds_of(mine, folder))
    row = {"group": "lr", "name": lr_name(method, transport), "command": " ".join(mine[1:]), "aim": aim, "unit": "s",
           "figures": [round(s, 3) for s in seconds], **compared(seconds, floors, [])}
    row["met"] = is_met(row["ratio"] if transport else row["figure"], row["aim"])
    return row


def start_row(args, folder, data):
    command = lr_command(args, folder, data, "dgd", 1)
    seconds_of(command, folder)  # what it reads is in memory afterwards
    floors, seconds = [], []
    for _ in range(args.pairs):
        floors.append(seconds_of(START_FLOOR, folder))
        seconds.append(seconds_of(command, folder))
    row = {"group": "start", "name": START, "command": " ".join(command[1:]), "aim": START_AIM, "unit": "s",
           "figures": [round(s, 3) for s in seconds], "relative_to": START_FLOOR[2], "figure": statistics.median(seconds),
           "floor": statistics.median(floors)}
    row["met"] = is_met(row["figure"], row["aim"])
    return row


def lr_name(method, transport=""):
    return f"lr {method}, {f'{transport}, to ZeroMQ' if transport else 'whole run, s'}"


# ---- output

WIDTHS = (64, 12, 12, 8, 18, 9, 9, 9, 11)
HEAD = ("", "figure", "floor", "ratio", "range", "pinned", "ns/key", "cpu s/M", "aim")


def number_text(value):
    if value is None:
        return ""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def line_of(row):
    """One line of the table."""
    if "error" in row:
        return f"{row['name']:<{WIDTHS[0]}}not measured: {row['error']}"
    spread = row.get("ratios") or row.get("figures") or []
    relative = "ratio" in row
    alone = row.get("pinned", {})
    per_key = alone or row
    texts = (number_text(row["figure"]), number_text(row.get("floor")), f"{row['ratio']:.3f}" if relative else "",
             f"{number_text(min(spread))}-{number_text(max(spread))}" if spread else "",
             f"{alone['ratio']:.3f}" if "ratio" in alone else number_text(alone.get("figure")),
             *(number_text(per_key.get(n)) for n in PER_KEY), row["aim"] or "")
    met = {True: "met", False: "MISSED", None: ""}[row["met"]]
    return (f"{row['name']:<{WIDTHS[0]}}" + "".join(f"{t:>{w}}" for t, w in zip(texts, WIDTHS[1:])) + "  " + met).rstrip()


def head_line():
    return "".join(f"{t:<{w}}" if i == 0 else f"{t:>{w}}" for i, (t, w) in enumerate(zip(HEAD, WIDTHS)))


def text_in(path, begin):
    """The rest of the first line that starts with `begin`."""
    try:
        with open(path, encoding="utf-8") as f:
            for line in f:
                if line.startswith(begin):
                    return line[len(begin):].strip(" \t:=\n")
    except OSError:
        pass
    return None


def zmq_version():
    name = ctypes.util.find_library("zmq")
    if name is None:
        return None
    numbers = [ctypes.c_int() for _ in range(3)]
    ctypes.CDLL(name).zmq_version(*(ctypes.byref(n) for n in numbers))
    return ".".join(str(n.value) for n in numbers)


def commit():
    """None where the tree is not a clone, or git not installed."""
    try:
        done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return None
    return done.stdout.strip() or None


def machine(bin_dir):
    cache = os.path.join(os.path.dirname(bin_dir), "CMakeCache.txt")
    return {"platform": platform.platform(), "processor": text_in("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "memory": text_in("/proc/meminfo", "MemTotal"), "libzmq": zmq_version(),
            "compiler": text_in(cache, "CMAKE_CXX_COMPILER:FILEPATH"), "build_type": text_in(cache, "CMAKE_BUILD_TYPE:STRING"),
            "commit": commit(), "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load_before": os.getloadavg()[0]}


# ---- selecting rows

def wanted(args, group, name):
    return (not args.group or group in args.group.split(",")) and args.only in name


def all_rows(args):
    """(group, name, command, function that measures it) of each selected row."""
    programs = Programs(args)
    rows = []
    # Groups in the order of their first occurrence.
    order = list(dict.fromkeys([r[0] for r in KV_ROWS] + [r[0] for r in PROGRAM_ROWS]))
    for group in order:
        for r in KV_ROWS:
            if r[0] == group and wanted(args, group, r[1]):
                rows.append((group, r[1], "bench_kv " + r[2], lambda r=r: kv_row(args, *r)))
        for r in PROGRAM_ROWS:
            if r[0] == group and wanted(args, group, r[1]):
                rows.append((group, r[1], r[2], lambda r=r: program_row(args, programs, *r)))
    return rows + [("hot", name, f"hot_keys.py {HOT} --ways '{way}'", lambda r=(name, way): hot_row(args, *r))
                   for name, way in HOT_ROWS if wanted(args, "hot", name)]


def measured(group, name, command, measure):
    try:
        return measure()
    except CannotMeasure as problem:
        return {"group": group, "name": name, "command": command, "error": str(problem), "aim": None, "met": None}


def write_json(path, result):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


def arguments(words=None):
    groups = list(dict.fromkeys([r[0] for r in KV_ROWS] + [r[0] for r in PROGRAM_ROWS])) + ["hot", "start", "lr"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build", "bin"),
                        help="where the programs are (default: build/bin)")
    parser.add_argument("--pairs", type=int, default=15, help="runs of each side (default: 15)")
    parser.add_argument("--seconds", type=float, default=0.3, help="measured time of a run of bench_kv (default: 0.3)")
    parser.add_argument("--group", default="", help="rows of these groups, separated by commas: " + ", ".join(groups))
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--free", action="store_true", help="skip the runs that are pinned to one processor")
    parser.add_argument("--json", default="", help="write the figures to this file, after each row")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    args = parser.parse_args(words)
    args.bin_dir = os.path.abspath(args.bin_dir)
    if args.pairs < 1:
        parser.error("--pairs begins at 1")
    for group in filter(None, args.group.split(",")):
        if group not in groups:
            parser.error(f"there is no group {group}; there are {', '.join(groups)}")
    return args


def main(words=None):
    args = arguments(words)
    rows = all_rows(args)
    lr = [r for r in LR_ROWS if wanted(args, "lr", lr_name(*r[:2]))]
    start = wanted(args, "start", START)
    if args.list:
        for group, name, command, _ in rows:
            print(f"{group:<11}{name:<{WIDTHS[0]}}{command}")
        if start:
            print(f"{'start':<11}{START:<{WIDTHS[0]}}prun.py -w 4 -p 2 ... lr")
        for method, transport, _ in lr:
            print(f"{'lr':<11}{lr_name(method, transport):<{WIDTHS[0]}}prun.py -w 4 -p 2 ... lr")
        return 0

    folder = tempfile.mkdtemp(prefix="prc-bench-")
    try:
        if lr or start:
            data = os.path.join(folder, "training.dat")
            subprocess.run([sys.executable, os.path.join(ROOT, "tool", "datagen.py"), "-m", "classification", "-o", data,
                            "-n", "2500", "-k", "100"], check=True, stdout=subprocess.DEVNULL)
            if start:
                rows.append(("start", START, "lr", lambda: start_row(args, folder, data)))
            rows += [("lr", lr_name(*r[:2]), "lr", lambda r=r: lr_row(args, folder, data, *r)) for r in lr]
        facts = machine(args.bin_dir)
        if facts["load_before"] > 0.5:
            print(f"note: the load average is {facts['load_before']:.1f} on {facts['cores']} cores; figures will vary",
                  file=sys.stderr)
        result = {"machine": facts, "pairs": args.pairs, "seconds": args.seconds, "rows": []}
        print(head_line())
        for row in rows:
            result["rows"].append(measured(*row))
            print(line_of(result["rows"][-1]), flush=True)
            facts["load_after"] = os.getloadavg()[0]
            if args.json:
                write_json(args.json, result)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    unmeasured = [r["name"] for r in result["rows"] if "error" in r]
    missed = [r["name"] for r in result["rows"] if r["met"] is False]
    aims = sum(r["met"] is not None for r in result["rows"])
    print(f"{aims - len(missed)} of {aims} aims met" + (f"; {len(unmeasured)} rows not measured" if unmeasured else ""))
    return 1 if unmeasured else 0


if __name__ == "__main__":
    sys.exit(main())
