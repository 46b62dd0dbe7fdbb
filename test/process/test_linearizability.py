#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Six workers read and change four shared keys while servers and a worker are killed and stopped. Their observations must be
linearizable for each key. PARACEL_KILL_RUNS (default 1): the number of repetitions."""
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, JobTest, main, patient, processes_of, read_bytes, role_of, wait_until  # noqa: E402

RUNS = int(os.environ.get("PARACEL_KILL_RUNS", "1"))
HISTORIES = os.path.join(BIN, "test_histories")
WORKERS, KEYS = 6, 4
LEASE = 2.0 * 1.1


def check(*files):
    """(exit status, output)"""
    done = subprocess.run([HISTORIES, "check", *files], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Linearizable(JobTest):
    def histories(self, seconds, *options):
        self.histories_folder = os.path.join(self.folder, f"histories{time.monotonic_ns()}")
        os.mkdir(self.histories_folder)
        run = self.start("-w", str(WORKERS), "-p", "3", "--replicas", "2", *options, HISTORIES, self.histories_folder,
                         str(seconds), str(KEYS))
        self.assertTrue(wait_until(lambda: all(self.file_of(r) for r in range(WORKERS)), 20), run.err())
        return run

    def file_of(self, rank):
        return read_bytes(os.path.join(self.histories_folder, str(rank)))

    def servers(self, run):
        return [p for p in processes_of(run.job()) if role_of(p) == "server"]

    def assert_linearizable(self, run, least=100):
        self.assertEqual(run.wait(60), 0, run.err() + run.out())
        self.assert_nothing_left(run.job(), 1)
        status, said = check(*(os.path.join(self.histories_folder, str(r)) for r in range(WORKERS)))
        self.assertEqual(status, 0, said + run.err())
        print(said.strip(), file=sys.stderr)
        self.assertGreater(int(re.search(r"(\d+) operations", said).group(1)), least)

    def longest(self, run):
        return float(re.search(r"longest operation (\S+) s", run.out()).group(1))

    def test_while_a_server_is_killed(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.histories(2)
                time.sleep(random.uniform(0.1, 1.0))
                random.choice(self.servers(run)).kill()
                self.assert_linearizable(run)
                self.assertIn("the job continues", run.err())
                self.assertLess(self.longest(run), patient(2.0))

    def test_while_a_server_is_stopped_for_a_moment(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.histories(3)
                for _ in range(3):
                    victim = random.choice(self.servers(run))
                    victim.kill(signal.SIGSTOP)
                    time.sleep(random.uniform(0.1, 0.6))
                    victim.kill(signal.SIGCONT)
                    time.sleep(random.uniform(0, 0.2))
                self.assert_linearizable(run)
                self.assertNotIn("the job continues", run.err())

    def test_while_a_server_is_stopped_until_another_is_in_its_place(self):
        # It resumes at the moment when it counts as lost, and must not answer as if it were not.
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.histories(4)
                time.sleep(random.uniform(0.1, 0.5))
                victim = random.choice(self.servers(run))
                victim.kill(signal.SIGSTOP)
                time.sleep(LEASE + random.uniform(-0.4, 0.4))
                try:
                    victim.kill(signal.SIGCONT)
                except ProcessLookupError:
                    pass
                self.assert_linearizable(run)
                self.assertLess(self.longest(run), patient(LEASE + 1))

    def test_while_a_worker_is_killed(self):
        # It is unknown whether its last operation was executed.
        run = self.histories(2, "--on-worker-death", "eject")
        victims = [process for rank, process in run.workers().items() if rank != 0]
        time.sleep(random.uniform(0.1, 1.0))
        random.choice(victims).kill()
        self.assert_linearizable(run)
        self.assertIn("continues without it", run.err())


class Checker(JobTest):
    """Files with a history that is not linearizable are rejected."""

    def verdict(self, *clients):
        files = []
        for number, lines in enumerate(clients):
            files.append(os.path.join(self.folder, f"client{number}"))
            with open(files[-1], "w", encoding="utf-8") as file:
                file.write(lines)
        return check(*files)[0]

    def test_what_one_order_explains_is_taken(self):
        self.assertEqual(self.verdict("s 0 w 5 0 0\na 0 9\n", "s 0 r 0 0 1\na 5 2\ns 0 r 0 0 3\na 5 4\n"), 0)
        self.assertEqual(self.verdict("s 0 w 5 0 0\na 0 1\ns 0 c 7 5 2\na 1 3\ns 0 i 2 0 4\na 9 5\n"), 0)

    def test_a_stale_read(self):
        self.assertEqual(self.verdict("s 0 w 5 0 0\na 0 1\n", "s 0 r 0 0 2\na 0 3\n"), 1)

    def test_a_lost_update(self):
        self.assertEqual(self.verdict("s 0 a 5 0 0\na 0 1\n", "s 0 a 3 0 0\na 0 1\ns 0 r 0 0 2\na 3 3\n"), 1)

    def test_an_update_that_counts_twice(self):
        self.assertEqual(self.verdict("s 0 i 5 0 0\na 5 1\ns 0 r 0 0 2\na 10 3\n"), 1)

    def test_two_swaps_of_one_version(self):
        swap = "s 0 c %d 0 0\na 1 9\n"
        self.assertEqual(self.verdict(swap % 5, swap % 7), 1)
        self.assertEqual(self.verdict(swap % 5, "s 0 c 7 0 0\na 0 9\n"), 0)

    def test_an_operation_of_unknown_fate_counts_once_or_not(self):
        unknown = "s 0 a 5 0 0\n"
        self.assertEqual(self.verdict(unknown, "s 0 r 0 0 2\na 0 3\n"), 0)
        self.assertEqual(self.verdict(unknown, "s 0 r 0 0 2\na 0 3\ns 0 r 0 0 4\na 5 5\n"), 0)
        self.assertEqual(self.verdict(unknown, "s 0 r 0 0 2\na 5 3\ns 0 r 0 0 4\na 0 5\n"), 1)
        self.assertEqual(self.verdict(unknown, "s 0 r 0 0 2\na 10 3\n"), 1)


if __name__ == "__main__":
    main()
