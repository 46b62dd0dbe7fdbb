#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs written for ps-lite (test/ps/ps_benchmark.cpp), relative to a bare echo of the same bytes and to prepared key sets of
Paracel's own servers, in turns: medians of paired ratios.

    tool/bench/ps.py --pairs 5 --keys 10000

A push carries a key of 8 bytes and a float for each, a pull the keys there and the floats back. The echo is that of
bench_zmq_floor; a prepared set sends no keys.
"""
import argparse
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import running  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
ONE_RUN_LIMIT = 120  # seconds
FRAME_BYTES = 250  # of headers


def last_json(command):
    return running.figures_of(command, ONE_RUN_LIMIT)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=5_000)
    args = parser.parse_args()

    programs = {name: running.built(args.build, name) for name in ("ps_benchmark", "bench_kv", "bench_zmq_floor")}

    def echo(there, back):
        """Microseconds of a round trip: the largest array is a frame of its own if it is large."""
        words = []
        for way, arrays in (("request", there), ("reply", back)):
            tail = max(arrays) if max(arrays) >= 1 << 16 else 0
            words += [f"--{way}_bytes", str(FRAME_BYTES + sum(arrays) - tail), f"--tail_{way}_bytes", str(tail)]
        return last_json([programs["bench_zmq_floor"], *words])["p50_us"]

    def own(verb):
        words = [programs["bench_kv"], "--verb", verb, "--value_bytes", "4", "--keys_per_call", str(args.keys)]
        return last_json(words)["p50_us"]

    keys, floats = 8 * args.keys, 4 * args.keys
    found = {}
    for _ in range(args.pairs):
        ours = last_json([os.path.join(ROOT, "prun.py"), "--output-dir", "/tmp", "-w", "1", "-p", "1", programs["ps_benchmark"],
                          str(args.keys), str(args.calls)])
        for name, us, floor, verb in (("push", ours["push_us"], ([keys, floats], [0]), "set_update"),
                                      ("pull", ours["pull_us"], ([keys], [floats]), "set_pull")):
            row = found.setdefault(name, {"us": [], "relative to the echo": [], "relative to a prepared set": []})
            row["us"].append(us)
            row["relative to the echo"].append(echo(*floor) / us)
            row["relative to a prepared set"].append(own(verb) / us)
    for name, row in found.items():
        print(f"{name} of {args.keys} keys, waiting: "
              + ", ".join(f"{what} {statistics.median(v):.2f} ({min(v):.2f}-{max(v):.2f})" for what, v in row.items()))


if __name__ == "__main__":
    running.run(main)
