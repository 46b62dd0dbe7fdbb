#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What prun.py -m k8s prints runs here: its pods as namespaces (pod_support.py). Needs root, ip, unshare and Python's yaml;
otherwise skipped with the reason."""
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import observed  # noqa: E402
from process_support import LR, PACED, JobTest, main, patient, read_bytes, wait_until  # noqa: E402
import pod_support  # noqa: E402
from pod_support import Cluster  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None
REASON = pod_support.REASON or ("" if yaml else "no module yaml (Debian: python3-yaml)")


@unittest.skipIf(REASON, REASON)
class Pods(JobTest):
    def setUp(self):
        self.number = getattr(type(self), "count", 0)
        type(self).count = self.number + 1
        self.enough = self.not_there("enough")

    def expected(self, config):
        """The model that the same job makes without Kubernetes, and without delays."""
        local = self.start("-w", "2", "-p", "2", "-c", config, LR)
        self.assertEqual(local.wait(), 0, local.err())
        return read_bytes(os.path.join(self.folder, f"out{self.number}", "lr_theta_0"))

    def cluster(self, *options, paced=True, volume=()):
        """Of a job whose rounds are slow until the file `self.enough` exists. `volume`: folders that are there before."""
        config = self.write_config(f"pods{self.number}.json", rounds=1500 if paced else 60,
                                   output=f"out{self.number}/", training_input=os.path.join(self.folder, "training.dat"),
                                   **(PACED if paced else {}))
        self.wanted = self.expected(config)
        status, out, err = self.prun("-m", "k8s", "--image", "example/paracel:1", "-w", "2", "-p", "2", "--name", "trial", "-c",
                                     config, "--heartbeat-limit", f"{patient(3):.1f}", *options, LR)
        self.assertEqual(status, 0, err)
        cluster = Cluster(self.not_there("cluster"), yaml.safe_load_all(out), {"TEST_ENOUGH": self.enough})
        self.addCleanup(cluster.close)
        for name in volume:
            os.mkdir(os.path.join(cluster.volume, name))
        return cluster

    def wait_for(self, cluster, what, limit=20):
        """Until `what()` is true, while Jobs replace their pods."""
        def found():
            cluster.turn()
            return what()
        if not wait_until(found, limit, 0.05):
            self.fail("\n\n".join(f"{pod.host} {pod.process.poll()}:\n{pod.said()[-1500:]}" for pod in cluster.pods))

    def finish(self, cluster):
        self.touch(self.enough)
        self.wait_for(cluster, lambda: all(pod.process.poll() == 0 for pod, _ in cluster.last.values()))
        got = read_bytes(os.path.join(cluster.volume, f"out{self.number}", "lr_theta_0"))
        self.assertTrue(got)
        self.assertEqual(got, self.wanted)

    def start_all(self, cluster):
        for role in ("scheduler", "server", "worker"):
            cluster.start(role)
        self.wait_for(cluster, lambda: re.search('prun: round|"round ', cluster.pod("scheduler").said()))

    def test_pods_find_each_other_in_any_order_and_end_with_the_job(self):
        cluster = self.cluster(paced=False)
        cluster.start("worker")
        cluster.start("server")
        # The scheduler's name is unknown until it has a pod.
        self.wait_for(cluster, lambda: all("trial-scheduler-0.trial is unknown" in pod.said() for pod in cluster.pods))
        cluster.start("scheduler")
        self.finish(cluster)
        self.assertEqual(cluster.failures, {})
        self.assertEqual(len(cluster.pods), 5)
        self.assertIn("objective", cluster.pod("worker", 0).said())

    def test_a_killed_server_comes_back_and_the_job_goes_on(self):
        cluster = self.cluster("--replicas", "2")
        self.start_all(cluster)
        cluster.pod("server", 1).kill()
        scheduler = cluster.pod("scheduler")
        self.wait_for(cluster, lambda: "replicas of everything exist again" in scheduler.said())
        self.finish(cluster)
        self.assertEqual(cluster.failures, {("server", 1): 1})

    def test_a_killed_worker_comes_back_and_the_others_wait_for_it(self):
        cluster = self.cluster("--on-worker-death", "wait:60")
        self.start_all(cluster)
        cluster.pod("worker", 1).kill()
        scheduler = cluster.pod("scheduler")
        self.wait_for(cluster, lambda: "has caught up" in scheduler.said())
        self.finish(cluster)
        self.assertEqual(cluster.failures, {("worker", 1): 1})

    def test_a_worker_that_hangs_is_found_by_its_probe_and_replaced(self):
        cluster = self.cluster("--on-worker-death", "wait:200")
        cluster.start("worker")
        self.assertFalse(cluster.pod("worker").probe("startupProbe"))  # no scheduler yet
        cluster.start("server")
        cluster.start("scheduler")
        self.wait_for(cluster, lambda: "prun: round" in cluster.pod("scheduler").said())
        for pod, _ in cluster.last.values():
            self.assertTrue(pod.probe("startupProbe") and pod.probe(), (pod.host, pod.probed))
        hangs = cluster.pod("worker", 1)
        pid, = hangs.pids(LR)
        os.kill(pid, signal.SIGSTOP)
        self.wait_for(cluster, lambda: not hangs.probe())
        self.assertTrue(cluster.pod("worker", 0).probe())
        self.assertIsNone(hangs.process.poll())  # so without a probe no pod would take its place
        hangs.kill()
        self.wait_for(cluster, lambda: "has caught up" in cluster.pod("scheduler").said())
        self.assertTrue(cluster.pod("worker", 1).probe())
        self.finish(cluster)
        self.assertEqual(cluster.failures, {("worker", 1): 1})

    def test_the_job_starts_again_from_its_checkpoint(self):
        """Where a death ends it; and where the scheduler dies."""
        cluster = self.cluster("--checkpoint-dir", "saved/here", "--checkpoint-every", "5", "--max-restarts", "6")
        self.start_all(cluster)
        saved = os.path.join(cluster.volume, "saved", "here")
        for role, index in (("worker", 0), ("scheduler", 0)):
            self.wait_for(cluster, lambda: any(os.path.exists(os.path.join(saved, name, "manifest.json"))
                                               for name in os.listdir(saved)))
            old = cluster.pod("scheduler")
            cluster.pod(role, index).kill()
            self.wait_for(cluster, lambda: cluster.pod("scheduler") is not old
                          and "resuming from /" in cluster.pod("scheduler").said()
                          and "prun: round" in cluster.pod("scheduler").said())
        self.finish(cluster)
        self.assertEqual(cluster.failures["scheduler", 0], 2)
        self.assertEqual(len(cluster.failures), 5)

    def test_a_job_is_observed_as_on_one_host(self):
        """Each line in the log of each pod is an object."""
        cluster = self.cluster(*observed.options("metrics"), volume=("metrics",))
        self.start_all(cluster)
        folder = os.path.join(cluster.volume, "paracel", "trial", "paracel_runs")
        run, = (os.path.join(folder, name) for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
        metrics = os.path.join(cluster.volume, "metrics")
        job = observed.wait_for_metrics(self, run, metrics, 2, 2, cluster.pod("scheduler").enter)
        self.finish(cluster)
        observed.assert_json(self, cluster.pod("scheduler").said(), job, "launcher")
        for role in ("server", "worker"):
            for i in range(2):
                said = cluster.pod(role, i).said()
                observed.assert_json(self, said, job, role, i)
                self.assertRegex(said, rf'"message": "prun.py: {role} s?{i} of trial-scheduler-0.trial:')
        self.assertIn('"message": "objective ', cluster.pod("worker", 0).said())
        hosts = [f"trial-{role}-{i}" for role in ("server", "worker") for i in range(2)]
        observed.assert_recorded(self, run, metrics, 2, 2, hosts)

    def overlap(self, role, cluster, gone):
        """A pod falls silent, and another one of its index is started; then the first is back."""
        self.start_all(cluster)
        first = cluster.pod(role, 1)
        second = cluster.start(role, 1)
        self.assertEqual(first.host, second.host)
        # As long as the first is there, the other one waits.
        self.wait_for(cluster, lambda: "waits for trial-scheduler-0.trial:7400" in second.said())
        self.assertRegex(second.said(), rf"{role} s?1 is pid \d+ on {first.host}")
        self.assertIsNone(first.process.poll())
        first.cut()
        scheduler = cluster.pod("scheduler")
        self.wait_for(cluster, lambda: gone in scheduler.said())
        first.cut(False)
        self.wait_for(cluster, lambda: first.process.poll() is not None)
        self.assertIn(first.process.poll(), (10, 11, 13), first.said())
        self.finish(cluster)
        self.assertIsNotNone(first.process.poll())
        self.assertEqual(cluster.failures, {})
        return first

    def test_of_two_pods_of_one_server_one_is_fenced(self):
        first = self.overlap("server", self.cluster("--replicas", "2"), "replicas of everything exist again")
        self.assertRegex(first.said(), "replaced it|considered lost|the scheduler is lost")

    def test_of_two_pods_of_one_worker_one_is_fenced(self):
        first = self.overlap("worker", self.cluster("--on-worker-death", "wait:60"), "has caught up")
        self.assertRegex(first.said(), "replaced it|considered lost|the scheduler is lost|another process")


if __name__ == "__main__":
    main()
