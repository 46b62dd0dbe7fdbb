#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""paracel.ray and paracel.dask, with the real packages: the README's first job gives the bits of a local one, a server's actor or
task that is killed costs nothing with two replicas, and what is wrong is said."""
import glob
import os
import signal
import sys
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "process"))
from process_support import BUILD, HEARTBEAT_LIMIT, clean_environment, main, patient, read_bytes, wait_until  # noqa: E402
from python_support import SITE, PackageTest, TOOLS  # noqa: E402

ENGINES = os.path.join(TOOLS, "engines")
BEGIN = {
    "ray": """
import ray
import paracel.ray as engine
ray.init(num_cpus={places}, include_dashboard=False, logging_level="error")
more = {{}}
""",
    "dask": """
import paracel.dask as engine
from dask.distributed import Client, LocalCluster
cluster = LocalCluster(n_workers={places}, threads_per_worker=1, processes=True, dashboard_address=None)
more = {{"client": Client(cluster)}}
"""}
RUN = """
print(engine.run("lr", {config}, workers={workers}, servers={servers}, replicas={replicas},
                 options=["--no-summary", "--heartbeat-limit", "{limit:.1f}"{options}], **more), end="", flush=True)
"""


def engines():
    return [name for name, package in (("ray", "ray"), ("dask", "distributed"))
            if os.path.isdir(os.path.join(ENGINES, package))]


@unittest.skipUnless(engines(), f"no {ENGINES}: tool/setup.sh --long installs Ray and Dask there, from PyPI")
class Engines(PackageTest):
    @staticmethod
    def environment(**more):
        # Ray's workers inherit it; nothing of them may look for a network or a place of its own.
        return clean_environment(PYTHONPATH=os.pathsep.join([SITE, ENGINES]), RAY_USAGE_STATS_ENABLED="0",
                                 RAY_worker_niceness="0", **more)

    def config(self, output, **more):
        return {"training_input": os.path.join(self.folder, "training.dat"), "output": os.path.join(self.folder, output),
                "update_file": "liblr_update.so", "update_func": "lr_theta_update", "method": "dgd", "rounds": 100, "alpha": 1.0,
                "beta": 0.001, **more}

    def script(self, engine, config, workers=4, servers=2, replicas=1, places=None, options=""):
        begin = BEGIN[engine].format(places=places or workers + servers)
        text = begin + RUN.format(config=config, workers=workers, servers=servers, replicas=replicas, options=options,
                                  limit=patient(HEARTBEAT_LIMIT))
        # Processes of Dask import the file, too.
        return "if __name__ == \"__main__\":\n" + textwrap.indent(text, "    ")

    def model(self, output):
        return read_bytes(os.path.join(self.folder, output, "lr_theta_0"))

    def local(self, output, workers, servers, *options, **more):
        import json
        with open(os.path.join(self.folder, output + ".json"), "w", encoding="utf-8") as file:
            json.dump(self.config(output, **more), file)
        run = self.start("-w", str(workers), "-p", str(servers), *options, "-c", output + ".json",
                         os.path.join(SITE, "paracel", "_bin", "lr"))
        self.assertEqual(run.wait(), 0, run.err())
        return self.model(output)

    def test_the_first_job(self):
        expected = self.local("local", 4, 2)
        self.assertTrue(expected)
        for engine in engines():
            with self.subTest(engine=engine):
                file = self.program(f"{engine}_first.py", self.script(engine, self.config(engine)))
                status, out, err = self.python(file, limit=patient(120))
                self.assertEqual(status, 0, err)
                self.assertRegex(out, r"^objective 0\.\d+\noutput \S+\n$")
                self.assertEqual(self.model(engine), expected)

    def server_and_its_place(self, folder):
        """(a server of the job whose logs are below the folder, the actor or the process of Dask that has started it)."""
        for name in os.listdir("/proc"):
            words = read_bytes(f"/proc/{name}/cmdline").split(b"\0") if name.isdigit() else []
            if not words or not words[0].endswith(b"start_server") or b"1" != words[words.index(b"--slot") + 1]:
                continue
            if os.fsencode(folder) not in read_bytes(f"/proc/{name}/environ"):
                continue
            shell = self.parent_of(int(name))
            return int(name), self.parent_of(shell)
        return None

    @staticmethod
    def parent_of(pid):
        return int(read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])

    def test_a_killed_server_costs_nothing_with_replicas(self):
        paced = {"update_file": os.path.join(BUILD, "lib", "test_plugins", "libpaced_updates.so"), "update_func": "paced_add",
                 "rounds": 500}
        expected = self.local("calm", 2, 3, "--replicas", "2", **{**paced})
        for engine in engines():
            with self.subTest(engine=engine):
                enough = self.not_there("enough")
                file = self.program(f"{engine}_killed.py", self.script(
                    engine, self.config(f"{engine}_killed", **paced), 2, 3, 2, places=6,
                    options=f', "--run-dir", "{engine}_run"'))
                with self.running(file, TEST_ENOUGH=enough) as driver:
                    metrics = os.path.join(self.folder, f"{engine}_killed", "metrics.jsonl")
                    self.assertTrue(wait_until(lambda: read_bytes(metrics) or driver.poll() is not None, 90))
                    if driver.poll() is not None:
                        self.fail(driver.communicate()[1])
                    server, place = self.server_and_its_place(enough)
                    os.kill(place, signal.SIGKILL)
                    self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{server}/exe"), 10), "it outlives its actor")
                    timeline = os.path.join(self.folder, f"{engine}_run", "timeline.jsonl")
                    self.assertTrue(wait_until(lambda: b'"synced"' in read_bytes(timeline).partition(b'"lost"')[2]
                                               or driver.poll() is not None, 60), read_bytes(timeline)[-2000:])
                    self.touch(enough)
                    out, err = driver.communicate(timeout=patient(120))
                    self.assertEqual(driver.returncode, 0, err)
                self.assertRegex(out, r"(?m)^objective ")  # Ray says on stdout that an actor has died
                self.assertEqual(self.model(f"{engine}_killed"), expected)
        # Ray kills all descendants of an actor at once; what is left the next prun.py removes.
        for key in glob.glob("/tmp/*/job.key"):
            self.assertTrue(os.path.exists(os.path.join(os.path.dirname(key), ".prun")) or not os.path.exists(key), key)

    def test_what_is_wrong_is_said(self):
        for engine in engines():
            for change, words in (({"places": 3}, "UsageError: 6 processes"), ({"config": self.config("x", alpha=-1)}, "alpha")):
                with self.subTest(engine=engine, words=words):
                    arguments = {"config": self.config("x"), **change}
                    file = self.program(f"{engine}_wrong.py", self.script(engine, **arguments))
                    status, _, err = self.python(file, limit=patient(60))
                    self.assertNotEqual(status, 0)
                    self.assertIn(words, err)


class WithoutThem(PackageTest):
    def test_the_error_names_what_to_install(self):
        for module, package in (("ray", "ray"), ("dask", "'dask[distributed]'")):
            hidden = f"import sys; sys.modules['ray'] = sys.modules['distributed'] = None; import paracel.{module}"
            status, _, err = self.python("-c", hidden)
            self.assertEqual(status, 1)
            self.assertIn(f"which is not installed: pip install {package}", err)


if __name__ == "__main__":
    main()
