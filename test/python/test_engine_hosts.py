#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""paracel.ray and paracel.dask on two hosts, with the real packages: network namespaces as in test_two_hosts.py, a node of
Ray or Dask's workers on each. A server and a worker on the other host are killed, and the model is that of one host. Needs
root, ip and unshare; otherwise skipped with the reason."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "process"))
import test_engines as one_host  # noqa: E402
from namespaces import join_by_cable, tools_of, why_not  # noqa: E402
from process_support import BUILD, HEARTBEAT_LIMIT, main, patient, read_bytes, wait_until  # noqa: E402
from python_support import PYTHON, PackageTest  # noqa: E402
from test_two_hosts import Host  # noqa: E402

TOOLS = tools_of("ip", "unshare", "nsenter")
REASON = why_not(TOOLS) or ("" if one_host.engines() else f"no {one_host.ENGINES}: tool/setup.sh --long installs Ray and Dask")
PLACES = (1, 4)  # of the hosts, for three workers and two servers: the second one has some of both
BEGIN = {
    "ray": """
import ray
import paracel.ray as engine
ray.init(address="{address}:{port}", logging_level="error")
assert len(ray.nodes()) == 2
more = {{}}
""",
    "dask": """
import paracel.dask as engine
from dask.distributed import Client
more = {{"client": Client("tcp://{address}:{port}")}}
"""}


@unittest.skipIf(REASON, REASON)
class EngineHosts(PackageTest):
    token = os.urandom(32).hex()  # of Ray's cluster, which wants one where others can reach it

    @classmethod
    def environment(cls, **more):
        return one_host.Engines.environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=cls.token, **more)

    config, local, model = (getattr(one_host.Engines, name) for name in ("config", "local", "model"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ray_folder = tempfile.mkdtemp(prefix="ray-")  # of sockets, whose paths must be short
        cls.addClassCleanup(shutil.rmtree, cls.ray_folder, ignore_errors=True)
        cls.hosts = [Host(0), Host(1)]
        for host in cls.hosts:
            cls.addClassCleanup(host.close)
            host.open(cls.folder)
        join_by_cable(TOOLS, cls.hosts)

    def on(self, number, *words, **variables):
        """Starts a part of a cluster on a host."""
        log = os.path.join(self.folder, f"{self.engine}_{len(self.parts)}.log")
        with open(log, "wb") as out:
            part = subprocess.Popen([*self.hosts[number].enter, PYTHON, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    cwd=self.folder, env=self.environment(**variables), start_new_session=True)
        self.parts.append(part)
        return log

    def ray(self, **variables):
        """The port of a cluster of two nodes."""
        a, b = self.hosts
        start = ("-c", "from ray.scripts.scripts import main; main()", "start", "--block", "--disable-usage-stats",
                 "--object-store-memory=80000000")
        log = self.on(0, *start, "--head", f"--num-cpus={PLACES[0]}", f"--node-ip-address={a.address}", "--port=6379",
                      "--include-dashboard=false", f"--temp-dir={self.ray_folder}", **variables)
        self.assertTrue(wait_until(lambda: b"Ray runtime started" in read_bytes(log), 60, 0.2), read_bytes(log))
        log = self.on(1, *start, f"--num-cpus={PLACES[1]}", f"--node-ip-address={b.address}", f"--address={a.address}:6379",
                      **variables)
        self.assertTrue(wait_until(lambda: b"Ray runtime started" in read_bytes(log), 60, 0.2), read_bytes(log))
        return 6379

    def dask(self, **variables):
        a = self.hosts[0]
        log = self.on(0, "-m", "distributed.cli.dask_scheduler", "--host", a.address, "--port", "8786", "--no-dashboard",
                      **variables)
        self.assertTrue(wait_until(lambda: b"Scheduler at" in read_bytes(log), 60, 0.2), read_bytes(log))
        for number, host in enumerate(self.hosts):
            self.on(number, "-m", "distributed.cli.dask_worker", f"tcp://{a.address}:8786", "--host", host.address, "--nworkers",
                    str(PLACES[number]), "--nthreads", "1", "--no-dashboard", "--local-directory",
                    self.not_there("space"), **variables)
        self.assertTrue(wait_until(lambda: read_bytes(log).count(b"Register worker") == sum(PLACES), 60, 0.2), read_bytes(log))
        return 8786

    def end_cluster(self):
        for part in self.parts:
            part.terminate()
        for part in self.parts:
            try:
                part.wait(patient(10))
            except subprocess.TimeoutExpired:
                os.killpg(part.pid, signal.SIGKILL)
                part.wait()

    def processes(self, enough):
        """[(role, index, pid)] of the job's on the second host."""
        found = []
        for pid in self.hosts[1].pids():
            words = read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
            variables = read_bytes(f"/proc/{pid}/environ").split(b"\0")
            if b"TEST_ENOUGH=" + os.fsencode(enough) not in variables:
                continue
            rank = next((int(v[13:]) for v in variables if v.startswith(b"PARACEL_RANK=")), None)
            if words[0].endswith(b"/start_server"):
                found.append(("server", int(words[words.index(b"--slot") + 1]), pid))
            elif words[0].endswith(b"/lr") and rank is not None:
                found.append(("worker", rank, pid))
        return found

    def events(self, kind):
        """Those that have been written to their ends."""
        *lines, _ = read_bytes(os.path.join(self.folder, f"{self.engine}_run", "timeline.jsonl")).split(b"\n")
        return [e for e in map(json.loads, lines) if e.get("event") == kind]

    def test_a_server_and_a_worker_on_the_other_host_are_killed(self):
        paced = {"update_file": os.path.join(BUILD, "lib", "test_plugins", "libpaced_updates.so"), "update_func": "paced_add",
                 "rounds": 600}
        expected = self.local("calm", 3, 2, "--replicas", "2", **paced)
        self.assertTrue(expected)
        for self.engine in one_host.engines():
            with self.subTest(engine=self.engine):
                self.parts = []
                self.addCleanup(self.end_cluster)
                enough = self.not_there("enough")
                port = getattr(self, self.engine)(TEST_ENOUGH=enough)
                text = BEGIN[self.engine].format(address=self.hosts[0].address, port=port) + one_host.RUN.format(
                    config=self.config(self.engine, **paced), workers=3, servers=2, replicas=2,
                    limit=patient(HEARTBEAT_LIMIT),
                    options=f', "--run-dir", "{self.engine}_run", "--on-worker-death", "wait:120"')
                file = self.program(f"{self.engine}_two.py", 'if __name__ == "__main__":\n' + textwrap.indent(text, "    "))
                self.drive(file, enough)
                self.assertEqual(self.model(self.engine), expected)
                self.end_cluster()

    def drive(self, file, enough):
        with open(os.path.join(self.folder, "said"), "wb+") as out, subprocess.Popen(
                [*self.hosts[0].enter, PYTHON, file], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env=self.environment(TEST_ENOUGH=enough)) as driver:
            def said():
                return read_bytes(out.name).decode("utf-8", "replace")
            try:
                self.await_event(driver, lambda: self.events("progress"), said)
                self.assertEqual({e["host"] for e in self.events("joined")}, {host.name for host in self.hosts})
                for role, sign in (("server", "synced"), ("worker", "caught_up")):
                    before = len(self.events(sign))
                    os.kill(next(pid for of, _, pid in self.processes(enough) if of == role), signal.SIGKILL)
                    self.await_event(driver, lambda: len(self.events(sign)) > before, said)
                self.touch(enough)
                self.assertEqual(driver.wait(patient(120)), 0, said())
            finally:
                driver.kill()
        self.assertRegex(read_bytes(out.name).decode(), r"(?m)^objective ")

    def await_event(self, driver, happened, said):
        self.assertTrue(wait_until(lambda: happened() or driver.poll() is not None, 90, 0.1), said())
        self.assertIsNone(driver.poll(), said())


if __name__ == "__main__":
    main()
