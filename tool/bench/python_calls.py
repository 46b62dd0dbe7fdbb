#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls of the Python package beside the same calls in C++ (bench_kv): 1 worker, 1 server with 1 thread, alternately.

    tool/bench/python_calls.py [--runs 5] [--build build] --python PYTHON    (an interpreter that has the package)

Prints the microseconds of a call in both, and the median of the ratios of neighbouring runs. PARACEL_FRAMEWORK, if set, is
passed on to prun.
"""
import argparse
import os
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import running  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SECONDS = 1.0

# name: (arguments of bench_kv, the call in Python, given p, keys and numbers)
CASES = {
    "update of 8 B, waited for": (["--verb=update", "--value_bytes=8"], "p.update('00000000', 1.0).get()"),
    "read of 8 B": (["--verb=pull", "--value_bytes=8"], "p.read('00000000')"),
    "read of 1 MB": (["--verb=pull", "--value_bytes=1000000"], "p.read('large')"),
    "write of 1 MB": (["--verb=push", "--value_bytes=1000000"], "p.write('large', large)"),
    "set of 10,000 keys: read": (["--verb=set_pull", "--keys_per_call=10000"], "p.read(keys, out=numbers)"),
    "set of 10,000 keys: update, waited for": (["--verb=set_update", "--keys_per_call=10000"],
                                               "p.update(keys, numbers).get()"),
}

PROGRAM = """
import sys, time
import numpy as np
import paracel

class Calls(paracel.Paralg):
    def solve(self):
        p, large, numbers = self, np.ones(125000), np.ones(10000)
        p.write("00000000", 1.0), p.write("large", large)
        keys = p.prepare([f"{{i:08}}k" for i in range(10000)])
        p.write(keys, numbers)
        def measure(seconds):
            end, n, begin = time.perf_counter() + seconds, 0, time.perf_counter()
            while time.perf_counter() < end:
                {call}
                {call}
                {call}
                {call}
                n += 4
            return (time.perf_counter() - begin) / n
        measure(0.2)
        print(measure({seconds}) * 1e6)

paracel.run(Calls)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    bench = running.built(os.path.abspath(options.build), "bench_kv")
    print(f"{'call':42} {'C++ us':>9} {'Python us':>9} {'ratio':>6}  range")
    for name, (arguments, call) in CASES.items():
        pairs = []
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "calls.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PROGRAM.format(call=call, seconds=SECONDS))
            for _ in range(options.runs):
                line = running.figures_of([bench, "--api=paralg", f"--seconds={SECONDS}", *arguments])
                native = 1e6 / line["calls_per_second"]
                words = [options.python, "-S", os.path.join(TOP, "prun.py"), "-w", "1", "-p", "1", "--threads", "1", path]
                own = float(running.output_of(words, cwd=folder))
                pairs.append((native, own))
        ratios = sorted(own / native for native, own in pairs)
        print(f"{name:42} {statistics.median(n for n, _ in pairs):9.1f} {statistics.median(o for _, o in pairs):9.1f} "
              f"{statistics.median(ratios):6.2f}  {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)


if __name__ == "__main__":
    running.run(main)
