#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures the framework against the floor of its transport, and whole runs of logistic regression.

Machines that others use too swing by a factor of two, so no figure stands alone: each row runs bench_kv and bench_zmq_floor
alternately, with the same frames, sizes and window, and its result is the median of the paired ratios. Absolute figures are
for orientation.
"""
import argparse
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
ROOT = os.path.dirname(os.path.dirname(HERE))

# Through paralg; the same keys with pull_multi instead of set_pull are what a set is 3.2 times as fast as.
SET = "--api paralg --value_type f32 --value_bytes 4 --keys_per_call 10000 --key_bytes 20 --verb "

# name, options of bench_kv, what is aimed at as a ratio to the floor (None: for orientation)
KV_ROWS = [
    ("pull 8 B, waiting", "--verb pull --value_bytes 8", 0.90),
    ("update 8 B, waiting", "--verb update --value_bytes 8", 0.90),
    ("pull 8 B, 64 in flight", "--verb pull --value_bytes 8 --window 64", 0.70),
    ("update 8 B, 64 in flight", "--verb update --value_bytes 8 --window 64", 0.70),
    ("pull 8 B, futures, 64 in flight", "--api paralg --verb pull --value_bytes 8 --window 64", 0.80),
    ("update 8 B, futures, 64 in flight", "--api paralg --verb update --value_bytes 8 --window 64", 0.80),
    ("pull 8 B, futures, 512 in flight", "--api paralg --verb pull --value_bytes 8 --window 512", 0.80),
    ("update 8 B, futures, 512 in flight", "--api paralg --verb update --value_bytes 8 --window 512", 0.80),
    ("pull 100 keys x 8 B, waiting", "--verb pull_multi --value_bytes 8 --keys_per_call 100 --key_bytes 20", 0.85),
    ("pull 100 keys x 8 B, 8 in flight",
     "--verb pull_multi --value_bytes 8 --keys_per_call 100 --key_bytes 20 --window 8", 0.80),
    ("update 100 keys x 8 B, 8 in flight",
     "--verb update_multi --value_bytes 8 --keys_per_call 100 --key_bytes 20 --window 8", 0.80),
    ("pull a set of 10 k floats, waiting", SET + "set_pull", 0.80),
    ("update a set of 10 k floats, waiting", SET + "set_update", 0.80),
    ("pull a set of 10 k floats, 4 in flight", SET + "set_pull --window 4", None),
    ("update a set of 10 k floats, 4 in flight", SET + "set_update --window 4", None),
    ("the 10 k floats by name, waiting", SET + "pull_multi", None),
    ("pull 1 MB", "--verb pull --value_bytes 1048576", 0.90),
    ("push 1 MB", "--verb push --value_bytes 1048576", 0.90),
    ("add 80 kB of doubles in the server", "--verb update --value_bytes 80000", 0.90),
    ("4 workers, 2 servers: bupdate 808 B", "--verb bupdate --value_bytes 808 --workers 4 --servers 2", 0.85),
]
MORE_ROWS = [
    ("pull 8 B, waiting, tcp", "--verb pull --value_bytes 8 --transport tcp", None),
    ("pull 8 B, 64 in flight, tcp", "--verb pull --value_bytes 8 --window 64 --transport tcp", None),
    ("pull 8 B, 512 in flight", "--verb pull --value_bytes 8 --window 512", None),
    ("bupdate 808 B, waiting", "--verb bupdate --value_bytes 808", None),
    ("4 workers, 2 servers: bupdate 808 B, tcp",
     "--verb bupdate --value_bytes 808 --workers 4 --servers 2 --transport tcp", None),
    ("update 100 keys x 8 B, waiting", "--verb update_multi --value_bytes 8 --keys_per_call 100 --key_bytes 20", None),
    ("pull 8 B of 1 M keys, 512 in flight", "--verb pull --value_bytes 8 --window 512 --keys 1000000 --key_bytes 20", None),
    ("push 80 kB", "--verb push --value_bytes 80000", None),
    ("push 4 MB", "--verb push --value_bytes 4194304", None),
    ("add 80 kB, 4 in flight", "--verb update --value_bytes 80000 --window 4", None),
]
# method, seconds aimed at; 2,500 samples of 100 features, 100 rounds, 4 workers, 2 servers
LR_ROWS = [("dgd", 0.4), ("ipm", 0.4), ("downpour", 1.5), ("agd", 9.0)]


def fail(text):
    print(f"run.py: error: {text}", file=sys.stderr)
    sys.exit(1)


def measure(program, words):
    for _ in range(3):
        done = subprocess.run([program] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              timeout=300)
        if done.returncode != 0:
            fail(f"{os.path.basename(program)} {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        if figures["calls"] > 0:
            return figures
    fail(f"{os.path.basename(program)} {' '.join(words)}: no call was answered in time; the machine is too busy to measure")


def floor_words(words, kv):
    """The floor's options for the same frames as bench_kv's."""
    options = dict(zip(words[::2], words[1::2]))
    result = []
    for name in ("request_bytes", "reply_bytes", "tail_request_bytes", "tail_reply_bytes"):
        result += ["--" + name, str(kv[name])]
    for kv_name, floor_name in (("--window", "--window"), ("--workers", "--clients"), ("--servers", "--servers"),
                                ("--transport", "--transport")):
        if kv_name in options:
            result += [floor_name, options[kv_name]]
    return result


def kv_row(args, name, text, aim):
    words = text.split()
    times = ["--seconds", str(args.seconds)]
    kv_rates, floor_rates, ratios = [], [], []
    for _ in range(args.pairs):
        kv = measure(os.path.join(args.bin_dir, "bench_kv"), words + times)
        floor = measure(os.path.join(args.bin_dir, "bench_zmq_floor"), floor_words(words, kv) + times)
        kv_rates.append(kv["calls_per_second"])
        floor_rates.append(floor["calls_per_second"])
        ratios.append(kv_rates[-1] / floor_rates[-1])
    return {"name": name, "command": "bench_kv " + text, "aim": aim, "calls_per_second": statistics.median(kv_rates),
            "floor_calls_per_second": statistics.median(floor_rates), "ratio": statistics.median(ratios),
            "p50_us": kv["p50_us"], "floor_p50_us": floor["p50_us"], "ratios": [round(r, 4) for r in ratios]}


def show_kv(row):
    low, high = min(row["ratios"]), max(row["ratios"])
    aim = "" if row["aim"] is None else f">= {row['aim']:.2f} {'reached' if row['ratio'] >= row['aim'] else 'MISSED'}"
    print(f"{row['name']:<42}{row['calls_per_second']:>12,.0f}{row['floor_calls_per_second']:>12,.0f}{row['ratio']:>8.3f}"
          f"   {low:.2f}-{high:.2f}  {aim}", flush=True)


def lr_row(args, folder, data, method, aim):
    plugin = os.path.join(os.path.dirname(args.bin_dir), "lib", "liblr_update.so")
    config = {"training_input": data, "test_input": data, "predict_input": data, "output": os.path.join(folder, method),
              "update_file": plugin, "update_func": "lr_theta_update", "method": method, "rounds": 100, "alpha": 0.001,
              "beta": 0.01, "debug": False}
    path = os.path.join(folder, method + ".json")
    with open(path, "w") as f:
        json.dump(config, f)
    command = [sys.executable, os.path.join(ROOT, "prun.py"), "-w", "4", "-p", "2", "-c", path, "-m", "local", "--output-dir",
               os.path.join(folder, "runs"), os.path.join(args.bin_dir, "lr")]
    seconds = []
    for _ in range(args.pairs):
        begin = time.monotonic()
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              timeout=300)
        seconds.append(time.monotonic() - begin)
        if done.returncode != 0:
            fail(f"{' '.join(command)} ended with {done.returncode}: {done.stdout.strip()[-1000:]}")
    return {"name": f"lr {method}, whole run", "command": " ".join(command[1:]), "aim_seconds": aim,
            "median_seconds": statistics.median(seconds), "seconds": [round(s, 3) for s in seconds]}


def show_lr(row):
    reached = "reached" if row["median_seconds"] < row["aim_seconds"] else "MISSED"
    print(f"{row['name']:<42}{row['median_seconds']:>10.2f} s   {min(row['seconds']):.2f}-{max(row['seconds']):.2f}"
          f"  < {row['aim_seconds']:.1f} s {reached}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build", "bin"),
                        help="where the programs are (default: build/bin)")
    parser.add_argument("--pairs", type=int, default=15, help="runs of each side (default: 15)")
    parser.add_argument("--seconds", type=float, default=0.3, help="measured time of a run (default: 0.3)")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--all", action="store_true", help="also the rows for orientation")
    parser.add_argument("--skip-lr", action="store_true", help="without the whole runs of logistic regression")
    parser.add_argument("--json", default="", help="write the figures to this file")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    if args.pairs < 1:
        parser.error("--pairs begins at 1")

    kv = [r for r in KV_ROWS + (MORE_ROWS if args.all else []) if args.only in r[0]]
    lr = [r for r in LR_ROWS if not args.skip_lr and args.only in f"lr {r[0]}, whole run"]
    if args.list:
        for name, text, _ in kv:
            print(f"{name:<42}bench_kv {text}")
        for method, _ in lr:
            print(f"lr {method}, whole run")
        return 0
    for program in (["bench_kv", "bench_zmq_floor"] if kv else []) + (["lr"] if lr else []):
        if not os.access(os.path.join(args.bin_dir, program), os.X_OK):
            fail(f"{os.path.join(args.bin_dir, program)} is not there: build first, or give --bin-dir")

    result = {"machine": platform.platform(), "cores": os.cpu_count(), "pairs": args.pairs, "seconds": args.seconds,
              "kv": [], "lr": []}
    if kv:
        print(f"{'':<42}{'calls/s':>12}{'floor/s':>12}{'ratio':>8}   range      aim")
    for name, text, aim in kv:
        result["kv"].append(kv_row(args, name, text, aim))
        show_kv(result["kv"][-1])
    if lr:
        folder = tempfile.mkdtemp(prefix="prc-bench-")
        try:
            data = os.path.join(folder, "training.dat")
            subprocess.run([sys.executable, os.path.join(ROOT, "tool", "datagen.py"), "-m", "classification", "-o", data,
                            "-n", "2500", "-k", "100"], check=True, stdout=subprocess.DEVNULL)
            for method, aim in lr:
                result["lr"].append(lr_row(args, folder, data, method, aim))
                show_lr(result["lr"][-1])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
