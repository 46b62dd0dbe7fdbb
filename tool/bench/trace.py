#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What --trace costs: the throughput of bench_kv while its client and server are traced, relative to that without.

    tool/bench/trace.py                    pairs of runs, alternating which is first
    tool/bench/trace.py --count            instructions of client and server per request instead, by callgrind
    tool/bench/trace.py --count --before DIR    the same for the programs in DIR (of a build without traces), not traced

The aim is a ratio of at least 0.97, the default of --trace-every included. On a loaded machine single pairs mean little: use more
of them, or --count."""
import argparse
import glob
import os
import re
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import running  # noqa: E402

BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
AIM = 0.97
ROWS = {
    "pull, one at a time": ["--verb", "pull"],
    "update, one at a time": ["--verb", "update"],
    "pull, 64 in flight": ["--verb", "pull", "--window", "64"],
    "update, 64 in flight": ["--verb", "update", "--window", "64"],
    "pull of 100 keys": ["--verb", "pull_multi"],
    "set_update of 10,000 keys": ["--verb", "set_update", "--keys_per_call", "10000"],
}


def run(command, environment):
    return running.figures_of(command, env={**os.environ, **environment})


def traced(folder, every):
    return {"PARACEL_TRACE": folder, **({"PARACEL_TRACE_EVERY": str(every)} if every else {})}


def rate(options, words, environment):
    command = [running.built(options.build, "bench_kv"), "--seconds", str(options.seconds), *words]
    return run(command, environment)["calls_per_second"]


def pairs(options, words):
    ratios = []
    for number in range(options.pairs):
        folder = tempfile.mkdtemp(prefix="paracel-bench-")
        try:
            on = traced(os.path.join(folder, "trace"), options.every)
            if number % 2:
                with_trace, without = rate(options, words, on), rate(options, words, {})
            else:
                without, with_trace = rate(options, words, {}), rate(options, words, on)
            ratios.append(with_trace / without)
        finally:
            shutil.rmtree(folder)
    return ratios


def instructions(options, bin_dir, words, environment):
    """Of all processes, per call: the difference between a long and a short run, so that start and end do not count."""
    counts = []
    for seconds in (options.seconds, 4 * options.seconds):
        folder = tempfile.mkdtemp(prefix="paracel-bench-")
        try:
            mine = {k: os.path.join(folder, "trace") if k == "PARACEL_TRACE" else v for k, v in environment.items()}
            command = ["valgrind", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={folder}/%p.out",
                       os.path.join(bin_dir, "bench_kv"), "--seconds", str(seconds), "--warm_up", "0", *words]
            calls = run(command, mine)["calls"]
            total = 0
            for path in glob.glob(f"{folder}/*.out*"):
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                if "start_scheduler" in text[:text.find("\nevents:")]:
                    continue
                found = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
                total += int(found[1]) if found else 0
            counts.append((calls, total))
        finally:
            shutil.rmtree(folder)
    (few, less), (many, more) = counts
    return (more - less) / (many - few)


def main():
    parser = argparse.ArgumentParser(description="What --trace costs.")
    parser.add_argument("--build", default=BUILD, help="the build folder (default: $PARACEL_BUILD, or build)")
    parser.add_argument("--pairs", type=int, default=9, help="runs with and without of each row (default 9)")
    parser.add_argument("--seconds", type=float, default=1, help="measured time of a run (default 1)")
    parser.add_argument("--every", type=int, default=0, help="--trace-every (default: its default)")
    parser.add_argument("--rows", default="", help="parts of rows' names, separated by semicolons")
    parser.add_argument("--count", action="store_true", help="count instructions, by valgrind")
    parser.add_argument("--before", default="", metavar="DIR", help="with --count: a folder with the programs of another build")
    options = parser.parse_args()
    wanted = [part for part in options.rows.split(";") if part]
    rows = {name: words for name, words in ROWS.items() if not wanted or any(part in name for part in wanted)}
    if not rows:
        sys.exit(f"trace.py: --rows {options.rows}: none of {', '.join(ROWS)}")
    for name, words in rows.items():
        if options.count:
            here = os.path.join(options.build, "bin")
            off = instructions(options, here, words, {})
            on = instructions(options, here, words, traced("", options.every))
            line = f"{name}: {off:.0f} instructions a call, traced {on:.0f}: {on / off:.3f}"
            if options.before:
                before = instructions(options, options.before, words, {})
                line += f"; before {before:.0f}, so off costs {off / before:.4f}"
            print(line, flush=True)
            continue
        ratios = sorted(pairs(options, words))
        middle = statistics.median(ratios)
        print(f"{name}: {middle:.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} pairs)"
              f"{'' if middle >= AIM else f', below {AIM}'}", flush=True)


if __name__ == "__main__":
    running.run(main)
