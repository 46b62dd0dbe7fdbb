#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives between hosts, beside Open MPI's own over tcp: two network namespaces joined by a virtual cable, the workers
divided between them. Every turn runs each way once, all operations and lengths of bench_collectives.

    tool/bench/between_hosts.py --build build
    tool/bench/between_hosts.py --workers 2 --ways mpi,encrypted --operations all_reduce --bytes 8 --turns 5

  mpi        Open MPI's own collectives, restricted to tcp
  plain      ours in clear text, which are MPI's messages: -m mpi --insecure
  encrypted  ours as they are by default: -m ssh, and likewise -m mpi without --insecure

Prints a table: microseconds (medians of the turns), and of each way the speed relative to Open MPI (the median, lowest and
highest of the ratios of the turns; 0.9: it takes 1.11 times as long). Both hosts have the processors of this one: where
they are fewer than the workers, MPI yields them while it waits. Needs root, ip, nsenter and mpirun."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "test", "process"), HERE]
import running  # noqa: E402
from namespaces import run  # noqa: E402
from test_two_hosts import NET, REASON, TOOLS, Host  # noqa: E402

WAYS = ("mpi", "plain", "encrypted")
AGENT = """#!/bin/sh
host=$1
shift
case $host in
{cases}
*) echo "no such host: $host" >&2; exit 255;;
esac
exec {nsenter} --target $pid --uts --net sh -c "$*"
"""


class Cluster:
    """Two hosts with a cable, and a command that runs others there as ssh does."""

    def __init__(self, folder):
        self.folder = folder
        self.hosts = [Host(0), Host(1)]

    def __enter__(self):
        try:
            self.open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.close()

    def open(self):
        for host in self.hosts:
            host.open(self.folder)
        a, b = self.hosts
        run(TOOLS["ip"], "link", "add", "eth0", "netns", a.name, "type", "veth", "peer", "name", "eth0", "netns", b.name)
        for host in self.hosts:
            run(*host.enter, TOOLS["ip"], "address", "add", host.address + "/24", "dev", "eth0")
            run(*host.enter, TOOLS["ip"], "link", "set", "eth0", "up")
        self.agent = os.path.join(self.folder, "agent")
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write(AGENT.format(nsenter=TOOLS["nsenter"],
                                    cases="\n".join(f"{h.address}) pid={h.holder.pid};;" for h in self.hosts)))
        os.chmod(self.agent, 0o755)

    def command(self, way, workers, program):
        """Of this many workers, half of them on each host."""
        hostfile = os.path.join(self.folder, f"hosts{workers}")
        with open(hostfile, "w", encoding="utf-8") as file:
            file.write("".join(f"{host.address} slots={(workers + 1 - i) // 2}\n" for i, host in enumerate(self.hosts)))
        if way == "mpi":
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            words = [TOOLS["mpirun"], *root, "--oversubscribe", "--bind-to", "none", "-n", str(workers), "--hostfile", hostfile,
                     *program, "--mpi"]
        else:
            method = ["-m", "mpi", "--insecure"] if way == "plain" else ["-m", "ssh"]
            words = [sys.executable, os.path.join(ROOT, "prun.py"), "-w", str(workers), "-p", "1", *method, "--hostfile",
                     hostfile, "--run-dir", os.path.join(self.folder, "run"), *program]
        return [*self.hosts[0].enter, *words]

    def measure(self, way, workers, program, limit):
        """(operation, bytes) -> microseconds"""
        environment = {**os.environ, "PARACEL_SSH": self.agent, "OMPI_MCA_plm_rsh_agent": self.agent,
                       "OMPI_MCA_oob_tcp_if_include": NET + ".0/24", "OMPI_MCA_btl_tcp_if_include": NET + ".0/24",
                       "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1", "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
                       "OMPI_MCA_mpi_yield_when_idle": str(int(workers > os.cpu_count()))}
        command = self.command(way, workers, program)
        try:
            done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=limit)
        except subprocess.TimeoutExpired:
            raise running.CannotMeasure(f"{way}, {workers} workers: not done after {limit:g} s") from None
        if done.returncode != 0:
            logs = [log.read_text(errors="replace") for log in pathlib.Path(self.folder, "run").glob("worker_*.log")]
            raise running.CannotMeasure(f"{way}, {workers} workers: status {done.returncode}: {done.stderr}{''.join(logs)}")
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {(row["operation"], row["bytes"]): row["us"] for row in rows}


def table(workers, ways, turns):
    """`turns`: of each, way -> (operation, bytes) -> microseconds."""
    def figure(way, row):
        times = [turn[way][row] for turn in turns]
        text = f"{statistics.median(times):,.0f}" if statistics.median(times) >= 100 else f"{statistics.median(times):.1f}"
        if way == "mpi" or "mpi" not in ways:
            return text
        ratios = [turn["mpi"][row] / turn[way][row] for turn in turns]
        return f"{text}, {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    lines = [f"| {workers} workers | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for operation, count in turns[0][ways[0]]:
        lines.append(f"| {operation}, {count} B | " + " | ".join(figure(way, (operation, count)) for way in ways) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300, help="seconds of one run")
    options, rest = parser.parse_known_args()  # the rest is for bench_collectives
    ways = options.ways.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"--ways: {unknown[0]} is none of {', '.join(WAYS)}")
    program = [running.built(os.path.abspath(options.build), "bench_collectives"), *rest]
    if REASON:
        raise running.CannotMeasure(REASON)
    with tempfile.TemporaryDirectory(prefix="prc-hosts-") as folder, Cluster(folder) as cluster:
        for workers in map(int, options.workers.split(",")):
            turns = [{way: cluster.measure(way, workers, program, options.limit) for way in ways} for _ in range(options.turns)]
            print(table(workers, ways, turns), flush=True)


if __name__ == "__main__":
    running.run(main)
