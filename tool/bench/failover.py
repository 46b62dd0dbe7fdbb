#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cost of replication, and of losing a server with it.

    tool/bench/failover.py                        every row
    tool/bench/failover.py --rows failover --kills 10

  speed     64 updates in flight to two and three servers, with R replicas relative to one, by the sockets of each: medians of
            paired ratios. As prun.py's, servers with replicas use Unix sockets themselves; workers use ZeroMQ
  wire      bytes on the wire for each of them, over tcp on the loopback device: all packets, acknowledgements included
  failover  eight workers increment counters on three servers with two replicas, and one server is killed with -9: the
            longest round of any worker, compared with undisturbed runs; all counts must be exact
"""
import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import running  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
PRUN = os.path.join(ROOT, "prun.py")
ONE_RUN_LIMIT = 120  # seconds
DEVICE = "/proc/net/dev"


def kv(args, servers, replicas, *words):
    command = [running.built(args.build, "bench_kv"), "--verb", "update", "--window", "64", "--servers", str(servers),
               "--replicas", str(replicas), "--seconds", str(args.seconds), *words]
    return running.figures_of(command, ONE_RUN_LIMIT)


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


# Servers with one replica as they are by default, or with the sockets of those with more; all processes over ZeroMQ, or none.
SPEEDS = {"relative to 1": ((), ()),
          "relative to 1 with the same sockets in servers": (("--server_options", "--transport unix"), ()),
          "relative to 1, ZeroMQ alone": ((), ("--server_options", "--transport zmq")),
          "relative to 1, Unix sockets alone": (("--transport", "unix"), ("--transport", "unix"))}


def measure_speed(args):
    ratios = {(servers, replicas, how): [] for servers, replicas in ((2, 2), (3, 2), (3, 3)) for how in SPEEDS}
    for _ in range(args.pairs):
        for (servers, replicas, how), found in ratios.items():
            one, more = (kv(args, servers, r, *words)["calls_per_second"] for r, words in zip((1, replicas), SPEEDS[how]))
            found.append(more / one)
    return {f"64 updates in flight to {servers} servers, R = {replicas} {how}": spread(found)
            for (servers, replicas, how), found in ratios.items()}


def loopback_bytes():
    with open(DEVICE, encoding="ascii") as file:
        return int(re.search(r"^\s*lo:\s*(\d+)", file.read(), re.M).group(1))


def measure_wire(args):
    per_call = {}
    for replicas in (1, 2, 3):
        found = []
        for _ in range(args.pairs):
            before = loopback_bytes()
            said = kv(args, 3, replicas, "--transport", "tcp", "--warm_up", "0")
            found.append((loopback_bytes() - before) / said["calls"])
        per_call[replicas] = statistics.median(found)
    return {f"bytes on the wire for an update, R = {r}":
            f"{bytes_:.0f}" + (f", {bytes_ / per_call[1]:.2f} of R = 1" if r > 1 else "")
            for r, bytes_ in per_call.items()}


def count(args, kill):
    """Returns: the longest round in seconds."""
    program = running.built(args.build, "test_counters")
    with tempfile.TemporaryDirectory(prefix="paracel-fault-") as folder:
        err, enough = os.path.join(folder, "err"), os.path.join(folder, "enough")
        with open(err, "wb") as said:
            run = subprocess.Popen([sys.executable, PRUN, "-w", "8", "-p", "3", "--replicas", "2", "-v", "--output-dir", folder,
                                    program, enough, "20"],
                                   stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        try:
            wait_for("round", err, run)
            time.sleep(random.uniform(0, 1.0))
            if kill:
                os.kill(server_of(run.pid), signal.SIGKILL)
                wait_for("replicas of everything exist again", err, run)
            with open(enough, "wb"):
                pass
            out = run.communicate(timeout=ONE_RUN_LIMIT)[0]
        finally:
            if run.poll() is None:
                run.terminate()
        match = re.search(r"^exact, longest round (\S+) s$", out, re.M)
        if run.returncode != 0 or not match:
            raise running.CannotMeasure(f"the counts are not exact, or the run failed: {out}{read(err)}")
        return float(match.group(1))


def wait_for(text, path, run):
    while run.poll() is None and text not in read(path):
        time.sleep(0.02)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def server_of(launcher):
    """A random server started by this prun.py."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(launcher)], stdout=subprocess.PIPE, text=True, check=True)
    return int(random.choice([line.split()[0] for line in listed.stdout.splitlines() if "/start_server " in line]))


def measure_failover(args):
    quiet, killed = [], []
    for turn in range(args.kills):
        killed.append(count(args, True))
        if turn % 5 == 0:
            quiet.append(count(args, False))
    return {"longest round without a loss, s": spread(quiet, 3),
            f"longest round, a server killed with -9, {args.kills} runs, s": spread(killed, 3)}


ROWS = {"speed": measure_speed, "wire": measure_wire, "failover": measure_failover}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="some of " + ", ".join(ROWS) + " (all)")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs of speed and wire (7)")
    parser.add_argument("--seconds", type=float, default=1, help="seconds of each run of speed and wire (1)")
    parser.add_argument("--kills", type=int, default=50, help="runs of failover (50)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="the build (build/)")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    rows = args.rows.split(",")
    for name in rows:
        if name not in ROWS:
            parser.error(f"--rows {name}: want some of {', '.join(ROWS)}")
    status = 0
    for name in rows:
        try:
            figures = ROWS[name](args)
        except running.CannotMeasure as e:
            figures, status = {name: f"not measured: {e}"}, 1
        for what, value in figures.items():
            print(f"| {what} | {value} |", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
