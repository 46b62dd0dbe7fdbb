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
from running import CannotMeasure, built_in, output_of  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
ONE_RUN_LIMIT = 300  # seconds

# Group, name, options of bench_kv, the target ratio to the floor (None: for orientation).
KV_ROWS = [
    ("one", "pull 8 B, waiting", "--verb pull --value_bytes 8", 0.95),
    ("one", "update 8 B, waiting", "--verb update --value_bytes 8", 0.95),
    ("one", "pull 8 B, waiting, tcp", "--verb pull --value_bytes 8 --transport tcp", 0.95),
    ("one", "4 workers, 2 servers: bupdate 808 B", "--verb bupdate --value_bytes 808 --workers 4 --servers 2", 0.90),
    ("one", "4 workers, 2 servers: bupdate 808 B, tcp",
     "--verb bupdate --value_bytes 808 --workers 4 --servers 2 --transport tcp", 0.90),
    ("flight", "pull 8 B, 64 in flight", "--verb pull --value_bytes 8 --window 64", 0.80),
    ("flight", "update 8 B, 64 in flight", "--verb update --value_bytes 8 --window 64", 0.80),
    ("flight", "pull 8 B, 512 in flight", "--verb pull --value_bytes 8 --window 512", 0.80),
    ("flight", "update 8 B, 512 in flight", "--verb update --value_bytes 8 --window 512", 0.80),
    ("flight", "pull 8 B, futures, 64 in flight", "--api paralg --verb pull --value_bytes 8 --window 64", 0.80),
    ("flight", "update 8 B, futures, 64 in flight", "--api paralg --verb update --value_bytes 8 --window 64", 0.80),
    ("flight", "pull 8 B, futures, 512 in flight", "--api paralg --verb pull --value_bytes 8 --window 512", 0.80),
    ("flight", "update 8 B, futures, 512 in flight", "--api paralg --verb update --value_bytes 8 --window 512", 0.80),
    ("flight", "pull 8 B of 1 M keys, 512 in flight", "--verb pull --value_bytes 8 --window 512 --keys 1000000", None),
    ("flight", "pull 8 B, 64 in flight, tcp", "--verb pull --value_bytes 8 --window 64 --transport tcp", 0.80),
    ("flight", "pull 8 B, 512 in flight, tcp", "--verb pull --value_bytes 8 --window 512 --transport tcp", 0.80),
    ("many", "pull 100 keys x 8 B a call, waiting", "--verb pull_multi --value_bytes 8 --keys_per_call 100", 0.85),
    ("many", "update 100 keys x 8 B a call, waiting", "--verb update_multi --value_bytes 8 --keys_per_call 100", 0.85),
    ("many", "pull 100 keys x 8 B a call, 8 in flight",
     "--verb pull_multi --value_bytes 8 --keys_per_call 100 --window 8", 0.60),
    ("many", "update 100 keys x 8 B a call, 8 in flight",
     "--verb update_multi --value_bytes 8 --keys_per_call 100 --window 8", 0.60),
    ("many", "pull 10,000 keys x 1 float a call", "--verb pull_multi --value_bytes 4 --keys_per_call 10000", None),
    ("many", "update 10,000 keys x 1 float a call", "--verb update_multi --value_bytes 4 --keys_per_call 10000", None),
    ("sets", "prepared: pull 10,000 keys x 1 float, waiting", "--verb set_pull --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared: update 10,000 keys x 1 float, waiting",
     "--verb set_update --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared, futures: pull 10,000 keys x 1 float, waiting",
     "--api paralg --verb set_pull --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared, futures: update 10,000 x 1 float, waiting",
     "--api paralg --verb set_update --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared, futures: update 10,000 x 1 float, 4 in flight",
     "--api paralg --verb set_update --value_bytes 4 --keys_per_call 10000 --window 4", None),
    ("large", "pull 1 MB", "--verb pull --value_bytes 1048576", 0.95),
    ("large", "push 1 MB", "--verb push --value_bytes 1048576", 0.95),
    ("large", "pull 4 MB", "--verb pull --value_bytes 4194304", 0.95),
    ("large", "push 4 MB", "--verb push --value_bytes 4194304", 0.95),
    ("large", "pull 1 MB, tcp", "--verb pull --value_bytes 1048576 --transport tcp", 0.95),
    ("large", "push 1 MB, tcp", "--verb push --value_bytes 1048576 --transport tcp", 0.95),
    ("large", "pull 4 MB, tcp", "--verb pull --value_bytes 4194304 --transport tcp", 0.95),
    ("large", "push 4 MB, tcp", "--verb push --value_bytes 4194304 --transport tcp", 0.95),
    ("large", "add 80 kB of doubles in the server, waiting", "--verb update --value_bytes 80000", 0.95),
    ("large", "add 80 kB of doubles in the server, 4 in flight", "--verb update --value_bytes 80000 --window 4", 0.70),
    ("large", "add 80 kB, waiting, tcp", "--verb update --value_bytes 80000 --transport tcp", 0.95),
    ("large", "add 80 kB, 4 in flight, tcp", "--verb update --value_bytes 80000 --window 4 --transport tcp", 0.70),
    ("unix", "pull 8 B, unix, waiting", "--verb pull --value_bytes 8 --transport unix", 0.80),
    ("unix", "update 8 B, unix, waiting", "--verb update --value_bytes 8 --transport unix", 0.80),
    ("unix", "pull 8 B, unix, 64 in flight", "--verb pull --value_bytes 8 --window 64 --transport unix", None),
    ("unix", "update 8 B, unix, 64 in flight", "--verb update --value_bytes 8 --window 64 --transport unix", None),
    ("unix", "pull 100 keys x 8 B a call, unix, waiting",
     "--verb pull_multi --value_bytes 8 --keys_per_call 100 --transport unix", None),
    ("unix", "prepared: pull 10,000 keys x 1 float, unix, waiting",
     "--verb set_pull --value_bytes 4 --keys_per_call 10000 --transport unix", None),
    ("unix", "pull 70 kB, unix", "--verb pull --value_bytes 70000 --transport unix", None),
    ("unix", "pull 1 MB, unix", "--verb pull --value_bytes 1048576 --transport unix", 1.5),
    ("unix", "push 1 MB, unix", "--verb push --value_bytes 1048576 --transport unix", None),
    ("unix", "pull 4 MB, unix", "--verb pull --value_bytes 4194304 --transport unix", None),
    ("unix", "push 4 MB, unix", "--verb push --value_bytes 4194304 --transport unix", None),
]

# Group, name, command, figures that it prints (the first one found is used), target (None: for orientation), and the command that
# it is relative to ("": none). A target begins with `>=` or `<=`.
PROGRAM_ROWS = [
    ("sets", "prepared, relative to string keys: pull 10,000 x 1 float",
     "bench_kv --verb set_pull --value_bytes 4 --keys_per_call 10000", ("calls_per_second",), ">= 3.2",
     "bench_kv --verb pull_multi --value_bytes 4 --keys_per_call 10000"),
    ("sets", "10,000 string keys that come again, to prepared: pull",
     "bench_kv --api paralg --verb pull_multi --value_bytes 4 --keys_per_call 10000", ("calls_per_second",), ">= 0.8",
     "bench_kv --api paralg --verb set_pull --value_bytes 4 --keys_per_call 10000"),
    ("sets", "10,000 string keys that come again, to prepared: update",
     "bench_kv --api paralg --verb update_multi --value_bytes 4 --keys_per_call 10000", ("calls_per_second",), ">= 0.8",
     "bench_kv --api paralg --verb set_update --value_bytes 4 --keys_per_call 10000"),
    ("sets", "prepared: pull 10,000 x 1 float, 4 in flight, calls/s",
     "bench_kv --verb set_pull --value_bytes 4 --keys_per_call 10000 --window 4", ("calls_per_second",), ">= 20000", ""),
    ("rows", "rows of 16 floats, 10,000 a call of 1 M: pulled/s", "bench_rows --op pull", ("rows_per_second",), ">= 15e6",
     ""),
    ("rows", "rows of 16 floats: added/s", "bench_rows --op add", ("rows_per_second",), ">= 10e6", ""),
    ("rows", "rows of 16 floats: AdaGrad/s", "bench_rows --op adagrad", ("rows_per_second",), ">= 5e6", ""),
    ("rows", "bytes of a row of 16 floats", "bench_rows --op add", ("bytes_per_row",), "<= 96", ""),
    ("rows", "bytes of a row of 16 floats with AdaGrad's state", "bench_rows --op adagrad", ("bytes_per_row",),
     "<= 160", ""),
    ("rows", "through a worker and a server process: pulled/s", "bench_rows --op pull --where ipc", ("rows_per_second",),
     None, ""),
    ("rows", "through a worker and a server process: added/s", "bench_rows --op add --where ipc", ("rows_per_second",), None,
     ""),
    ("unix", "pull 8 B, unix, waiting: calls/s to ZeroMQ's", "bench_kv --verb pull --value_bytes 8 --transport unix",
     ("calls_per_second",), ">= 2.5", "bench_kv --verb pull --value_bytes 8"),
    ("unix", "pull 8 B, unix, waiting: processor time to the echo's", "bench_kv --verb pull --value_bytes 8 --transport unix",
     ("cpu_s_per_million",), "<= 1.3", "bench_unix_floor --request_bytes 104 --reply_bytes 72"),
    ("unix", "pull 1 MB, unix: calls/s to ZeroMQ's", "bench_kv --verb pull --value_bytes 1048576 --transport unix",
     ("calls_per_second",), None, "bench_kv --verb pull --value_bytes 1048576"),
] + [
    ("ids", f"{what} 10,000 of 10 M rows of 1 float, to plain_rows",
     f"bench_rows --where ipc --width 1 --rows 10000000 --ids ascending --op {op} --lists {lists}", ("calls_per_second",),
     ">= 1.3", f"plain_rows --rows 10000000 --op {op} --lists {lists}")
    for op in ("pull", "add")
    for what, lists in ((f"{op}, 1 list:", 1), (f"{op}, 64 lists:", 64), (f"{op}, new lists:", 0))
] + [
    ("replicas", f"update 8 B, 64 in flight, {servers} servers, R = {servers}: to R = 1",
     f"bench_kv --verb update --value_bytes 8 --window 64 --servers {servers} --replicas {servers}", ("calls_per_second",),
     aim, f"bench_kv --verb update --value_bytes 8 --window 64 --servers {servers}")
    for servers, aim in ((2, ">= 0.65"), (3, ">= 0.5"))
] + [
    ("cache", "cached vector, a reference, ns", "bench_cache", ("hit_by_reference_ns",), "<= 200", ""),
    ("cache", "cached vectors of many keys, a reference, ns", "bench_cache", ("hit_by_reference_many_keys_ns",), None, ""),
    ("cache", "cached vector, copied, ns", "bench_cache", ("hit_copied_ns",), None, ""),
    ("cache", "an update that is added up until the commit, ns", "bench_cache", ("combined_update_ns",), None, ""),
    ("scan", "top 10 of 1 M keys in a shard, ms", "bench_shard --load 0", ("top_10.ms",), "<= 3", ""),
    ("scan", "sum over 1 M keys in a shard, ms", "bench_shard --load 0", ("sum.ms",), None, ""),
    ("scan", "longest slice of a scan of 1 M keys, ms", "bench_shard --load 0", ("scan.longest_slice_ms",), "<= 10", ""),
    ("scan", "bytes of a key in the shard alone", "bench_shard --load 0", ("bytes_a_key",), "<= 80", ""),
    ("checkpoint", "checkpoint of 1 GB relative to write + fsync", "bench_checkpoint --mb 1024 --repeat 3", ("ratio",),
     ">= 0.5", ""),
    ("checkpoint", "checkpoint of 1 M keys relative to write + fsync", "bench_checkpoint --mb 122 --value_bytes 128",
     ("ratio",), ">= 0.5", ""),
    ("checkpoint", "1 GB read back from a checkpoint, MB/s", "bench_checkpoint --mb 1024 --repeat 3",
     ("restore_mb_per_s",), None, ""),
    ("scale", "longest insertion of a key, 10^10 keys, us", "bench_scale", ("insert_us.longest",), "<= 2000", ""),
    ("scale", "longest insertion of a row, 10^10 rows, us", "bench_scale", ("row_insert_us.longest",), "<= 2000", ""),
    ("scale", "1,100 workers and servers join, ms", "bench_scale", ("joins_ms",), None, ""),
    ("memory", "bytes of a key (20 characters, one double, 1 M keys)", "bench_key_memory", ("bytes_per_key",), "<= 80", ""),
    ("memory", "growth after a million in and out twice, bytes", "bench_key_memory", ("growth_bytes",), "<= 4e6", ""),
    ("memory", "10 M keys loaded, keys/s", "bench_key_memory --keys 10000000 --turns 1", ("load_keys_per_second",), None, ""),
    ("memory", "10 M keys loaded, keys/s of a server's core", "bench_key_memory --keys 10000000 --turns 1",
     ("load_keys_per_core_second",), ">= 1e6", ""),
] + [
    ("allreduce", f"{tasks} workers, {size}: {what}, us", f"bench_allreduce --tasks {tasks} --bytes {count} {option}", ("us",),
     aim, base.format(tasks=tasks, count=count))
    for tasks in (2, 4, 8)
    for size, count in (("8 B", 8), ("64 KiB", 65536), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20))
    for what, option, aim, base in (
        ("relative to Open MPI by tcp", "", "<= 1.11", "bench_allreduce_mpi {tasks} {count} tcp"),
        ("relative to Open MPI by memory", "", None, "bench_allreduce_mpi {tasks} {count} vader"),
        ("relative to the memory traffic", "", None, "bench_allreduce --tasks {tasks} --bytes {count} --way memory"))
] + [
    ("allreduce", f"{tasks} ranks of MPI by tcp, {size}: to MPI_Allreduce",
     f"bench_allreduce_mpi {tasks} {count} tcp", ("ratio",), "<= 1.11", "")
    for tasks in (2, 4, 8)
    for size, count in (("8 B", 8), ("64 KiB", 65536), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20))
] + [
    ("straggler", "8 late workers, bsp: iterations/s relative to s = 0", "bench_straggler --consistency bsp",
     ("iterations_per_second",), None, "bench_straggler"),
    ("straggler", "8 late workers, s = 1: iterations/s relative to s = 0", "bench_straggler --staleness 1",
     ("iterations_per_second",), ">= 1.35", "bench_straggler"),
    ("straggler", "8 late workers, s = 4: iterations/s relative to s = 0", "bench_straggler --staleness 4",
     ("iterations_per_second",), ">= 1.8", "bench_straggler"),
    ("straggler", "8 late workers, s = 8: iterations/s relative to s = 0", "bench_straggler --staleness 8",
     ("iterations_per_second",), ">= 2.0", "bench_straggler"),
] + [
    ("straggler", f"8 workers, {pattern}, {what}: time to the ideal", f"bench_stealing --pattern {pattern} --runs 1",
     (figure,), aim, "")
    for pattern in ("none", "slow", "delays", "power_law")
    for what, figure, aim in (("work stealing", "on", "<= 1.1"), ("without", "off", None))
] + [
    ("objective", "8 late workers, bsp: seconds to the objective", "bench_straggler --consistency bsp --objective 0.46",
     ("objective_seconds",), None, ""),
] + [
    ("objective", f"8 late workers, s = {s}: seconds to the objective", f"bench_straggler --staleness {s} --objective 0.46",
     ("objective_seconds",), None, "") for s in (0, 1, 4, 8)
]
# Maximum runs of a row in these groups, unless --pairs is less: they take long, or vary little.
MOST_RUNS = {"rows": 5, "ids": 5, "cache": 5, "scan": 5, "checkpoint": 3, "memory": 3, "straggler": 3, "objective": 3,
             "allreduce": 3, "hot": 3, "scale": 3}

# Groups whose rows are measured on one processor, too.
PINNED = ("one", "flight", "many", "sets", "large", "unix", "rows", "ids")

# Method, transport ("": the usual one), target: seconds, or relative to the usual transport; 2,500 samples of 100 features, 100
# rounds, 4 workers, 2 servers.
LR_ROWS = [("dgd", "", "<= 0.4"), ("ipm", "", "<= 0.4"), ("downpour", "", "<= 1.5"), ("agd", "", "<= 9.0"),
           ("agd", "unix", "<= 0.4")]
# A small size of hot_keys.py, and the ways of which the time of an epoch is compared with that of uniform keys.
HOT, HOT_AIM = "--cells 100000", "<= 1.2"
HOT_ROWS = [(f"hot keys, {way}: s an epoch, to uniform keys", way) for way in ("single home", "caches", "caches + rebalance")]
# One round of the smallest of these jobs, and beside it as many processes that do nothing, at once.
START, START_AIM = "start and end of a job: 4 workers, 2 servers, s", "<= 0.1"
START_FLOOR = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7; do /bin/true & done; wait"]


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
