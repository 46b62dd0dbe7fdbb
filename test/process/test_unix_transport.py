#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py --transport unix: workers and servers read and write their Unix sockets themselves. Results have the bits of those over
ZeroMQ, also when messages are lost on purpose; a killed server costs no count, a killed worker ends the job."""
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, LR, JobTest, main, patient, processes_of, read_bytes, role_of, wait_until  # noqa: E402

COUNTERS = os.path.join(BIN, "test_counters")
AGAIN = "replicas of everything exist again"
UNIX = ("--transport", "unix")


class UnixTransport(JobTest):
    def model(self, name, *options):
        self.write_config(f"{name}.json", output=f"{name}/", consistency="bsp", rounds=20)
        run = self.start("-w", "4", "-p", "2", *options, "-c", f"{name}.json", LR)
        self.assertEqual(run.wait(120), 0, run.err() + run.out())
        self.assert_nothing_left(run.job(), 1)
        return read_bytes(os.path.join(self.folder, name, "lr_theta_0"))

    def processes(self, run, role):
        return [p for p in processes_of(run.job()) if role_of(p) == role]

    def counting(self, *options, program=()):
        enough = self.not_there("enough")
        run = self.start("-w", "4", "-p", "3", *UNIX, *options, COUNTERS, enough, "20", *program)
        self.assertTrue(wait_until(lambda: "round" in run.err() or run.process.poll() is not None, 20), run.err())
        self.assertIsNone(run.process.poll(), run.err())
        return run, enough

    def assert_exact(self, run):
        self.assertEqual(run.wait(90), 0, run.err() + run.out())
        match = re.fullmatch(r"exact, longest round (\S+) s\n", run.out())
        self.assertTrue(match, run.out() + run.err())
        self.assert_nothing_left(run.job(), 1)
        return float(match.group(1))

    def test_a_bsp_model_has_the_bits_of_that_over_zeromq(self):
        expected = self.model("zmq")
        for replicas in ("1", "2"):
            for more in ((), ("--drop-messages", "3", "--seed", "4")):
                with self.subTest(replicas=replicas, more=more):
                    self.assertEqual(self.model(f"unix_{replicas}_{len(more)}", *UNIX, "--replicas", replicas, *more), expected)

    def test_counts_are_exact_when_messages_are_lost(self):
        for replicas in ("1", "2"):
            with self.subTest(replicas=replicas):
                run = self.start("-w", "3", "-p", "2", *UNIX, "--replicas", replicas, "--drop-messages", "2", "--seed", "5",
                                 COUNTERS, "40", "10")
                self.assertLess(self.assert_exact(run), patient(20))

    def test_a_killed_server_costs_no_count(self):
        run, enough = self.counting("--replicas", "2", "--max-restarts", "9")
        for kill in range(2):
            victim = self.processes(run, "server")[kill]
            self.assertIn("unix", victim.command)
            victim.kill()
            self.assertTrue(wait_until(lambda n=kill + 1: run.err().count(AGAIN) == n, 30), run.err())
        self.touch(enough)
        self.assertLess(self.assert_exact(run), patient(2.0), run.err())

    def test_large_values_in_rings_are_exact_when_a_server_is_killed_and_messages_are_lost(self):
        vector = ("0", "", "0", "131072")  # 1 MB
        for more in ((), ("--drop-messages", "2", "--seed", "3")):
            with self.subTest(more=more):
                run, enough = self.counting("--replicas", "2", "--max-restarts", "9", *more, program=vector)
                for process in self.processes(run, "server") + self.processes(run, "worker"):
                    self.assertTrue(wait_until(lambda p=process: b"memfd:paracel_ring" in read_bytes(f"/proc/{p.pid}/maps"), 20))
                self.processes(run, "server")[1].kill()
                self.assertTrue(wait_until(lambda: AGAIN in run.err(), 30), run.err())
                self.touch(enough)
                self.assert_exact(run)

    def test_a_killed_worker_ends_the_job_at_once(self):
        run, _ = self.counting()
        begin = time.monotonic()
        self.processes(run, "worker")[0].kill()
        self.assertNotEqual(run.wait(30), 0)
        self.assertLess(time.monotonic() - begin, patient(5))
        self.assertRegex(run.err(), r"worker \d .*SIGKILL")
        self.assert_nothing_left(run.job(), 1)

    def test_no_thread_of_zeromq_is_left_in_servers_and_workers(self):
        run, enough = self.counting()
        for process in self.processes(run, "server") + self.processes(run, "worker"):
            names = [read_bytes(f"/proc/{process.pid}/task/{t}/comm") for t in os.listdir(f"/proc/{process.pid}/task")]
            self.assertFalse([n for n in names if b"ZMQ" in n], names)
        self.touch(enough)
        self.assert_exact(run)

    def test_what_it_cannot_do_is_refused(self):
        for more in (("--connections", "shared"), ("--encrypt",), ("--host", "127.0.0.1"), ("--bind-interface", "lo")):
            with self.subTest(more=more):
                run = self.start("-w", "2", *UNIX, *more, COUNTERS, "1", "1")
                self.assertEqual(run.wait(30), 2)
                self.assertIn(f"--transport unix: not with {more[0]}", run.err())


if __name__ == "__main__":
    main()
