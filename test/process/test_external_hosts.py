#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on two hosts whose processes are started there by hand (-m external): network namespaces as in test_two_hosts.py, without
sshd. Needs root, ip and unshare; otherwise skipped with the reason."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import LR, JobTest, main  # noqa: E402
import test_external  # noqa: E402
from namespaces import join_by_cable, run  # noqa: E402
from test_two_hosts import REASON, TOOLS, Host  # noqa: E402


@unittest.skipIf(REASON, REASON)
class ExternalHosts(JobTest):
    use, join, schedule, said, assert_ended, model, paced = (
        getattr(test_external.External, name) for name in ("use", "join", "schedule", "said", "assert_ended", "model", "paced"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hosts = [Host(0), Host(1)]
        for host in cls.hosts:
            cls.addClassCleanup(host.close)
            host.open(cls.folder)
        join_by_cable(TOOLS, cls.hosts)

    def setUp(self):
        test_external.External.setUp(self)
        self.use(f"{self.hosts[0].address}:{test_external.free_port()}#hosts")

    def start(self, *arguments, **more):
        """prun.py runs on the first host."""
        return super().start(*arguments, prefix=self.hosts[0].enter, **more)

    def on(self, host, role, index):
        return self.join(role, "--index", str(index), prefix=self.hosts[host].enter)

    def test_the_first_job_has_the_bits_of_one_host(self):
        self.write_config("one.json", output="one/")
        self.assertEqual(self.prun("-w", "3", "-p", "2", "-c", "one.json", LR)[0], 0)
        joined = [self.on(1, "server", 0), self.on(0, "server", 1), self.on(1, "worker", 0), self.on(0, "worker", 1)]
        job = self.schedule("-w", "3", "-p", "2", "-c", self.write_config("two.json", output="two/"))
        joined.append(self.on(1, "worker", 2))
        self.assertEqual(job.wait(), 0, job.err() + "".join(j.text() for j in joined))
        self.assert_ended(*joined)
        self.assertTrue(self.model("two"))
        self.assertEqual(self.model("two"), self.model("one"))

    def test_a_host_with_a_server_vanishes_and_the_job_goes_on(self):
        self.write_config("whole.json", output="whole/", rounds=1500)
        self.assertEqual(self.prun("-w", "2", "-p", "2", "--replicas", "2", "-c", "whole.json", LR)[0], 0)
        job = self.paced("half.json", "-w", "2", "-p", "2", "--replicas", "2", output="half/", rounds=1500)
        joined = [self.on(0, "server", 0), self.on(0, "worker", 0), self.on(0, "worker", 1)]
        cut_off = self.on(1, "server", 1)
        self.said(job, "round 1/")
        run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "down")
        try:
            self.said(job, "server s1 .* lost: no heartbeat for .*; the job continues with the replicas of its keys")
            joined.append(self.on(0, "server", 1))
            self.said(job, "2 replicas of everything exist again")
        finally:
            run(*self.hosts[1].enter, TOOLS["ip"], "link", "set", "eth0", "up")
        self.assert_ended(cut_off, status=11)
        self.assertRegex(cut_off.text(), "another process has replaced it|was considered lost")
        self.touch(self.enough)
        self.assertEqual(job.wait(), 0, job.err())
        self.assert_ended(*joined)
        self.assertEqual(self.model("half"), self.model("whole"))


if __name__ == "__main__":
    main()
