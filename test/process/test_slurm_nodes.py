#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A node of Slurm's dies with the workers on it, under --on-worker-death wait:T: they are replaced on a node where the allocation
has tasks that no worker took, and where there are none the job ends and says so. Debian's slurmctld, munged and three slurmd on
hosts as namespaces (slurm_support.py). Needs root and these packages; otherwise skipped with the reason."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import LR, main  # noqa: E402
from slurm_support import REASON, SlurmTest  # noqa: E402


@unittest.skipIf(REASON, REASON)
class Nodes(SlurmTest):
    hosts = 3

    def kill_second_host(self):
        self.addCleanup(self.cluster.wait_for_nodes)
        self.addCleanup(self.cluster.start_slurmd, 1)
        self.cluster.kill_host(1)

    def hosts_of(self, program):
        return sorted(host for name, host, _ in self.processes() if name == program)

    def assert_replaced_on_the_third_node(self, name, *options, servers):
        """Workers 0 and 1 are on the first node, 2 and 3 on the second one, and the third one has room for two."""
        config, environment, enough = self.paced(name + ".json", output=name + "/")
        job = self.submit("-w", "4", "-p", str(len(servers)), *options, "--on-worker-death", "wait:60", "-c", config, LR,
                          asked="-N3 -n6 --no-kill", **environment)
        self.wait_for("prun: round")
        self.assertEqual((self.hosts_of("lr"), self.hosts_of("start_server")), ([0, 0, 1, 1], servers))
        self.kill_second_host()
        for rank in (2, 3):
            self.wait_for(rf"worker {rank} \(pid \d+\) has caught up", 60)
            self.assertRegex(self.said(), rf"worker {rank} \(pid \d+ on prc\d+b\) lost: .*; the others wait at most 60 s for a")
        self.assertEqual(self.hosts_of("lr"), [0, 0, 2, 2])
        self.touch(enough)
        self.assertEqual(self.cluster.wait_for_end(job), ("COMPLETED", "0:0", "0"), self.said())
        self.assert_bits_of_one_host(name, 4)

    def test_its_workers_are_replaced_where_tasks_are_free(self):
        self.assert_replaced_on_the_third_node("moved", servers=[0])

    def test_slurm_may_notice_it_before_the_scheduler_does(self):
        """An srun whose node is down exits with 0."""
        self.assert_replaced_on_the_third_node("told", "--heartbeat-limit", "100", servers=[0])
        self.assertRegex(self.said(), r"worker 2 \(pid \d+ on prc\d+b\) lost: it has lost its node, as Slurm says; ")

    def test_its_server_too_if_there_are_replicas(self):
        self.assert_replaced_on_the_third_node("both", "--replicas", "2", servers=[0, 1])

    def test_without_a_free_task_the_job_ends_and_says_why(self):
        config, environment, _ = self.paced("full.json", output="full/", rounds=100000)
        job = self.submit("-w", "4", "-p", "1", "--on-worker-death", "wait:10", "-c", config, LR, asked="-N2 -n4 --no-kill",
                          **environment)
        self.wait_for("prun: round")
        self.assertEqual(self.hosts_of("lr"), [0, 0, 1, 1])
        self.kill_second_host()
        self.assertEqual(self.cluster.wait_for_end(job), ("FAILED", "10:0", "0"), self.said())
        self.assertRegex(self.said(), r"prun: no other host has a free slot for worker [23]: it is started on n2 again\n")
        # Slurm may refuse to start it there at once, or not answer.
        self.assertRegex(self.said(), r"no restart is left \(--max-restarts\)|"
                                      r"no replacement had caught up within 10 s \(--on-worker-death\)")
        self.assert_nothing_runs()


if __name__ == "__main__":
    main()
