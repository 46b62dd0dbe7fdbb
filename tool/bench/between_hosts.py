#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives between hosts, beside Open MPI's own over tcp: two network namespaces joined by a virtual cable, the workers
divided between them. In each run ours and Open MPI's alternate in the same processes (bench_collectives).

    tool/bench/between_hosts.py --build build
    tool/bench/between_hosts.py --workers 2 --ways encrypted --operations all_reduce --bytes 8,1048576 --rows 15

  plain      -m mpi --insecure, where our collectives use messages of ours
  mpi        the same with --mpi-messages, where they use MPI's
  encrypted  -m mpi, where they use ours, as with -m ssh, slurm and external

The hosts use cubic for tcp's congestion control, Linux's default, or the one of --congestion: bbr paces what is sent, and over
such a cable large messages then wait for its timers.

PARACEL_DIRECT_LINKS=0 measures our messages through ZeroMQ alone, as before workers connected directly.

Prints a table: microseconds of ours and of Open MPI's, and the speed of ours relative to it (medians; 0.9: it takes 1.11 times as
long). Both hosts have the processors of this one: where they are fewer than the workers, MPI yields them while it waits. Needs
root, ip, nsenter and mpirun."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "test", "process"))
sys.path.insert(0, HERE)
from running import CannotMeasure, built, run  # noqa: E402
from namespaces import join_by_cable, run as run_in  # noqa: E402
from test_two_hosts import NET, REASON, TOOLS, Host  # noqa: E402

WAYS = ("plain", "mpi", "encrypted")
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

    def __init__(self, folder, congestion):
        self.folder = folder
        self.congestion = congestion
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
        join_by_cable(TOOLS, self.hosts)
        for host in self.hosts:
            run_in(*host.enter, "sh", "-c", 'echo "$0" > /proc/sys/net/ipv4/tcp_congestion_control', self.congestion)
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
        words = [sys.executable, os.path.join(ROOT, "prun.py"), "-w", str(workers), "-p", "1", "-m", "mpi",
                 "--hostfile", hostfile, "--run-dir", os.path.join(self.folder, "run"),
                 *{"plain": ["--insecure"], "mpi": ["--insecure", "--mpi-messages"], "encrypted": []}[way], *program]
        return [*self.hosts[0].enter, *words]

    def measure(self, way, workers, program, limit):
        """(operation, bytes) -> what bench_collectives says"""
        environment = {**os.environ, "PARACEL_SSH": self.agent, "OMPI_MCA_plm_rsh_agent": self.agent,
                       "OMPI_MCA_oob_tcp_if_include": NET + ".0/24", "OMPI_MCA_btl_tcp_if_include": NET + ".0/24",
                       "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1", "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
                       "OMPI_MCA_mpi_yield_when_idle": str(int(workers > os.cpu_count()))}
        done = subprocess.run(self.command(way, workers, program), env=environment, cwd=self.folder, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=limit)
        if done.returncode != 0:
            logs = [log.read_text(errors="replace") for log in pathlib.Path(self.folder, "run").glob("worker_*.log")]
            raise CannotMeasure(f"{way}, {workers} workers: status {done.returncode}: {done.stderr}{''.join(logs)}")
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {(row["operation"], row["bytes"]): row for row in rows}


def table(workers, found):
    """`found`: way -> (operation, bytes) -> a row."""
    def text(us):
        return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"
    ways = list(found)
    lines = [f"| {workers} workers | " + " | ".join(f"{way} / Open MPI, ratio" for way in ways) + " |",
             "|---" * (len(ways) + 1) + "|"]
    for operation, count in found[ways[0]]:
        rows = [found[way][operation, count] for way in ways]
        cells = [f"{text(row['us'])} / {text(row['mpi_us'])}, {row['ratio']:.2f}" for row in rows]
        lines.append(f"| {operation}, {count} B | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--congestion", default="cubic", help="tcp's congestion control, of both sides")
    parser.add_argument("--limit", type=float, default=300, help="seconds of one run")
    options, rest = parser.parse_known_args()  # the rest is for bench_collectives
    ways = options.ways.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"--ways: {unknown[0]} is none of {', '.join(WAYS)}")
    program = [built(os.path.abspath(options.build), "bench_collectives"), *rest]
    if REASON:
        raise CannotMeasure(REASON)
    with tempfile.TemporaryDirectory(prefix="prc-hosts-") as folder, Cluster(folder, options.congestion) as cluster:
        for workers in map(int, options.workers.split(",")):
            print(table(workers, {way: cluster.measure(way, workers, program, options.limit) for way in ways}), flush=True)


if __name__ == "__main__":
    run(main)
