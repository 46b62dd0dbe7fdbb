#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Servers are killed and stopped at random moments with replicas (--replicas 2): the job continues, no update is lost or counted
twice, a bsp model is bit-identical to that of an undisturbed run, and no processes or files are left behind. PARACEL_KILL_RUNS
(default 1): the number of repetitions."""
import os
import random
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, ENCRYPTED, END_LIMIT, LR, MPI, OVER_UNIX, JobTest, clean_environment, main,  # noqa: E402
                             patient, processes_of, read_bytes, role_of, wait_until)

RUNS = int(os.environ.get("PARACEL_KILL_RUNS", "1"))
COUNTERS = os.path.join(BIN, "test_counters")
KILL_LIMIT = 2.0             # seconds that a round may take in which a server is killed
LEASE = 2.0 * 1.1            # seconds; includes clock drift
STOP_LIMIT = LEASE + 1.0
AGAIN = "replicas of everything exist again"


class Failover(JobTest):
    def server(self, run, slot=None):
        return run.find("server") if slot is None else run.server(slot)

    def under_way(self, run):
        self.says(run, "round")
        self.assertIsNone(run.process.poll(), run.err())

    def assert_went_well(self, run, limit=60):
        self.assertEqual(run.wait(limit), 0, run.err() + run.out())
        self.assert_nothing_left(run.job(), 1)

    def counters(self, *options, keys=20, more=(), **others):
        """Eight workers that count until told to stop."""
        enough = self.not_there("enough")
        run = self.start("-w", "8", "-p", "3", "--replicas", "2", *options, COUNTERS, enough, str(keys), *more, **others)
        run.enough = enough
        self.under_way(run)
        return run

    def assert_exact(self, run, longest, after=AGAIN):
        """They continue until prun.py has printed `after`, and then all counts are correct."""
        self.assertTrue(wait_until(lambda: after in run.err() or run.process.poll() is not None, 20), run.err())
        self.touch(run.enough)
        self.assert_went_well(run)
        match = re.fullmatch(r"exact, longest round (\S+) s\n", run.out())
        self.assertTrue(match, run.out() + run.err())
        self.assertLess(float(match.group(1)), patient(longest), run.err())

    @staticmethod
    def has_zeromq(process):
        """Whether it has threads of ZeroMQ."""
        return any(b"ZMQ" in read_bytes(f"/proc/{process.pid}/task/{t}/comm") for t in os.listdir(f"/proc/{process.pid}/task"))

    # -- counting

    def test_counts_are_exact_when_nothing_happens(self):
        self.assert_exact(self.counters(), KILL_LIMIT, after="round ")

    def test_a_killed_server_costs_no_count(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.counters()
                time.sleep(random.uniform(0, 1.0))
                victim = self.server(run)
                victim.kill()
                self.assert_exact(run, KILL_LIMIT)
                self.assertRegex(run.err(), rf"server s\d \(pid {victim.pid} .*lost: it was killed by SIGKILL; the job continues")
                self.assertRegex(run.err(), r"server s\d is restarted \(pid \d+\); 2 restarts left")

    @unittest.skipIf(ENCRYPTED or OVER_UNIX, "all jobs use one transport")
    def test_nor_does_one_whatever_the_sockets_of_servers_and_workers(self):
        """With replicas servers do without ZeroMQ's threads unless asked not to, and workers keep them unless asked."""
        for options, of_server, of_worker in (((), False, True), (("--transport", "zmq"), True, True),
                                              (("--transport", "unix"), False, False)):
            with self.subTest(options=options):
                run = self.counters(*options)
                victim = self.server(run)
                worker = next(p for p in processes_of(run.job()) if role_of(p) == "worker")
                self.assertEqual([self.has_zeromq(p) for p in (victim, worker)], [of_server, of_worker])
                victim.kill()
                self.assert_exact(run, KILL_LIMIT)

    def test_nor_does_one_whose_threads_share_connections(self):
        for threads in (2, 3):
            with self.subTest(threads=threads):
                run = self.counters("--threads", str(threads), "--connections", "shared")
                victim = self.server(run)
                self.assertIn("--shared-connections", victim.command)
                victim.kill()
                self.assert_exact(run, KILL_LIMIT)

    def test_servers_killed_one_after_the_other_cost_no_count(self):
        run = self.counters("--max-restarts", "9")
        for kill in range(3):
            victim = self.server(run, kill % 3)
            self.assertIsNotNone(victim, run.err())
            victim.kill()
            self.assertTrue(wait_until(lambda n=kill + 1: run.err().count(AGAIN) == n, 20), run.err())
        self.assert_exact(run, KILL_LIMIT)

    @unittest.skipIf(ENCRYPTED, "tcp")
    def test_the_sockets_of_servers_that_were_replaced_are_removed(self):
        run = self.counters("--max-restarts", "9")
        for kill in range(2):
            victim = self.server(run, 1)
            self.assertIsNotNone(victim, run.err())
            victim.kill()
            self.assertTrue(wait_until(lambda n=kill + 1: run.err().count(AGAIN) == n, 20), run.err())
        command = self.server(run, 0).command
        folder = command[command.index("--bind") + 1].removeprefix("ipc://")
        mine = [name for name in os.listdir(folder) if name.startswith(("1_", "s1."))]
        self.assertEqual(mine, ["s1.2"])
        self.assertTrue(os.listdir(os.path.join(folder, "s1.2")))
        self.assertTrue([name for name in os.listdir(folder) if name.startswith("0_")])
        self.assert_exact(run, KILL_LIMIT)

    def test_a_stopped_server_is_replaced_within_its_lease_and_a_second(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.counters()
                victim = self.server(run)
                victim.kill(signal.SIGSTOP)
                self.assert_exact(run, STOP_LIMIT)
                self.assertRegex(run.err(), rf"server s\d \(pid {victim.pid} .*lost: no heartbeat for .*; the job continues")
                self.assertIn("is restarted", run.err())

    def test_without_restarts_the_job_continues_with_fewer_servers(self):
        run = self.counters("--max-restarts", "0")
        self.server(run).kill()
        self.assert_exact(run, KILL_LIMIT, after="the job continues without")
        self.assertRegex(run.err(), r"no restart is left \(--max-restarts\): the job continues without server s\d")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_a_killed_server_under_mpirun_costs_no_count(self):
        run = self.counters("--m_server", "mpi")
        self.server(run).kill()
        self.assert_exact(run, KILL_LIMIT + 2.0)  # mpirun takes a second to report it, and all processes share two cores
        self.assertRegex(run.err(), r"server s\d \(pid \d+ on \S+\) lost: it (has ended|was killed by SIGKILL); the job "
                                            r"continues")

    # -- a model

    def model(self, name):
        return read_bytes(os.path.join(self.folder, name, "lr_theta_0"))

    def train(self, name, *options):
        return self.start_paced(name + ".json", "-w", "4", "-p", "3", *options, output=name + "/", rounds=1000)

    def test_the_model_has_the_bits_of_the_undisturbed_one(self):
        alone = self.train("alone")
        self.touch(alone.enough)
        self.assert_went_well(alone)
        expected = self.model("alone")
        self.assertTrue(expected)
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.train(f"killed{turn}", "--replicas", "2")
                self.under_way(run)
                time.sleep(random.uniform(0, 0.5))
                self.server(run).kill()
                self.assertTrue(wait_until(lambda r=run: "the job continues" in r.err(), 20), run.err())
                self.touch(run.enough)
                self.assert_went_well(run)
                self.assertEqual(self.model(f"killed{turn}"), expected)

    def test_a_server_whose_function_hangs_is_replaced(self):
        plugins = os.path.join(os.path.dirname(BIN), "lib", "test_plugins")
        hang = os.path.join(self.folder, "hang")
        run = self.counters("--function-timeout", "0.5", "--hang-limit", "1", "--plugin-dir", plugins, keys=5,
                            more=("0", os.path.join(plugins, "libslow_updates.so")),
                            environment=clean_environment(TEST_HANG=hang))
        self.touch(hang)
        self.assertTrue(wait_until(lambda: AGAIN in run.err(), 20), run.err())
        self.assertRegex(run.err(), r"server s\d \(pid \d+ .*\) lost: libslow_updates.so:hang_once has been running for "
                                    r'\S+ s in thread \d+: libslow_updates.so:hang_once at "slow"; the job continues')
        self.assert_exact(run, 1 + 0.5 + STOP_LIMIT)

    # -- losses that replication does not cover

    def test_more_losses_than_copies_end_the_job_with_their_cause(self):
        run = self.counters()
        first, second = self.server(run, 0), self.server(run, 1)
        first.kill()
        second.kill()
        self.assertEqual(run.wait(END_LIMIT), 11, run.err())
        self.assertRegex(run.err(), r"server s\d \(pid \d+ on \S+\) lost: .*; "
                                    r"lost before the replicas of s\d's partitions were restored")
        self.assert_nothing_left(run.job(), 1)

    def test_the_scheduler_has_no_copy(self):
        run = self.counters()
        run.find("scheduler").kill()
        self.assertEqual(run.wait(END_LIMIT), 13, run.err())
        self.assert_nothing_left(run.job(), 1)

    def test_a_killed_worker_ends_the_job(self):
        run = self.counters()
        worker = next(p for p in processes_of(run.job()) if p.command[0] == COUNTERS)
        worker.kill()
        self.assertEqual(run.wait(END_LIMIT), 10, run.err())
        self.assert_nothing_left(run.job(), 1)

    def test_prun_is_killed_after_a_server_was_replaced(self):
        run = self.counters()
        self.server(run).kill()
        self.assertTrue(wait_until(lambda: AGAIN in run.err(), 20), run.err())
        job = run.job()
        run.process.kill()
        run.wait()
        self.assert_nothing_left(job, END_LIMIT)


class CommandLine(JobTest):
    def test_copies_need_servers(self):
        for text, *options in (("--replicas 3 needs as many servers, and there are 2 (-p)", "-p", "2", "--replicas", "3"),
                               ("--replicas 2 needs as many servers, and there is 1 (-p)", "--replicas", "2"),
                               ("--replicas 9: want at most 8", "-p", "20", "--replicas", "9"),
                               ("--replicas: '0' is not a whole number above 0", "--replicas", "0"),
                               ("--max-restarts: '-1' is not a whole number", "--max-restarts=-1")):
            with self.subTest(options=options):
                self.assert_refused(text, *options, LR)


if __name__ == "__main__":
    main()
