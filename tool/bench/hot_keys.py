#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What keys cost that are asked for much more often than others: matrix factorization on cells whose rows and columns are drawn
from Zipf distributions, beside the same with uniform ones (bench_hot_keys.cpp has the recipe).

    tool/bench/hot_keys.py                          10 million cells, as published: some minutes an epoch
    tool/bench/hot_keys.py --batch 64 --epochs 2    in steps of 64 cells instead of 8: about a minute an epoch
    tool/bench/hot_keys.py --cells 200000 --pairs 2

  single home    asp: every read goes to the server of its key
  caches         ssp with staleness 2: a worker reads again what is not fresh enough, and sums its steps until it commits
  rebalance      each with --rebalance: hot partitions have moved before the last epoch

Of each: the time of an epoch with Zipf 1.1 relative to uniform (medians of interleaved pairs; the last epoch of each run),
messages of workers to servers and bytes both ways in an epoch (the writing of the first values is in them, divided by the number
of epochs), the squared error, and the bytes of the busiest server relative to the mean in the last seconds."""
import argparse
import json
import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import running  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
PRUN = os.path.join(ROOT, "prun.py")
ONE_RUN_LIMIT = 3600  # seconds
WAYS = {"single home": ("-1", ()), "caches": ("2", ()), "single home + rebalance": ("-1", ("--rebalance",)),
        "caches + rebalance": ("2", ("--rebalance",))}


def events_of(folder):
    with open(os.path.join(folder, "timeline.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def measure(args, way, skew):
    """Returns: the figures of one run."""
    staleness, options = WAYS[way]
    with tempfile.TemporaryDirectory(prefix="paracel-hot-") as folder:
        run_dir = os.path.join(folder, "run")
        command = [sys.executable, PRUN, "-w", str(args.workers), "-p", str(args.servers), "--threads", "1", "--no-summary",
                   "--run-dir", run_dir, *options, running.built(args.build, "bench_hot_keys"), f"--cells={args.cells}",
                   f"--rows={args.rows}", f"--columns={args.columns}", f"--rank={args.rank}", f"--batch={args.batch}",
                   f"--skew={skew}", f"--staleness={staleness}", f"--epochs={args.epochs}"]
        said = running.output_of(command, ONE_RUN_LIMIT, cwd=folder)
        epochs = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        if len(epochs) != args.epochs:
            raise running.CannotMeasure(f"bench_hot_keys reported {len(epochs)} epochs, not {args.epochs}")
        events = events_of(run_dir)
    used = {(e["role"], e["index"]): e["usage"] for e in events if e["event"] == "usage"}
    workers = [u for (role, _), u in used.items() if role == "worker"]
    samples = [e for e in events if e["event"] == "sample" and len(e.get("servers", [])) == args.servers]
    loads = []
    if len(samples) > 1:
        first, last = samples[-min(len(samples), 4)], samples[-1]
        loads = [sum(b["usage"][k] - a["usage"][k] for k in ("bytes_in", "bytes_out"))
                 for a, b in zip(first["servers"], last["servers"])]
    return {"seconds": epochs[-1]["seconds"], "loss": epochs[-1]["loss"],
            "messages": sum(u["requests"] for u in workers) / args.epochs,
            "bytes": sum(u["sent_bytes"] + u["received_bytes"] for u in workers) / args.epochs,
            "imbalance": max(loads) * len(loads) / sum(loads) if loads and sum(loads) else float("nan"),
            "moved": sum(e["partitions"] for e in events if e["event"] == "moved")}


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder of the build")
    parser.add_argument("--cells", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8, help="cells of a step (8)")
    parser.add_argument("--skew", type=float, default=1.1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS), help="some of: " + ", ".join(WAYS) + "; separated by commas")
    parser.add_argument("--json", metavar="FILE", help="all figures")
    args = parser.parse_args(words)
    args.ways = [way.strip() for way in args.ways.split(",")]
    for way in args.ways:
        if way not in WAYS:
            parser.error(f"argument --ways: {way!r}: want some of " + ", ".join(WAYS))
    return args


def main():
    args = arguments()
    ways = args.ways
    figures = {way: {"zipf": [], "uniform": []} for way in ways}
    for _ in range(args.pairs):
        for way in ways:
            for name, skew in (("zipf", args.skew), ("uniform", 0)):
                figures[way][name].append(measure(args, way, skew))
    cores = len(os.sched_getaffinity(0))
    print(f"{args.rows:,} x {args.columns:,}, {args.cells:,} cells, rank {args.rank}, {args.batch} cells a step; {args.workers} "
          f"workers, {args.servers} servers of one thread, {cores} cores; {args.pairs} pairs")
    print("| way | epoch, Zipf | to uniform | messages | bytes | of uniform | busiest server | moved | squared error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for way in ways:
        both = figures[way]
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(both["zipf"], both["uniform"])]

        def middle(key, case="zipf", of=both):
            return statistics.median(run[key] for run in of[case])
        print(f"| {way} | {middle('seconds'):.2f} s | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) | "
              f"{middle('messages'):,.0f} | {middle('bytes') / 1e6:,.1f} MB | {middle('messages', 'uniform'):,.0f}, "
              f"{middle('bytes', 'uniform') / 1e6:,.1f} MB | {middle('imbalance'):.2f} of the mean | {middle('moved'):.0f} | "
              f"{middle('loss'):.3f} |")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"arguments": vars(args), "figures": figures}, file, indent=1)
    return 0


if __name__ == "__main__":
    running.run(main)
