#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`prun.py --servers +1 --run RUN` and -1: servers join and leave a running job, with one replica of everything and with two, and
every count stays exact, even when a server is killed at the same time. PARACEL_RESIZE_ROUNDS (default 1): the number of
repetitions."""
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, END_LIMIT, MPI, PRUN, JobTest, main, patient, processes_of,  # noqa: E402
                             read_bytes, role_of, slot_of, wait_until)

ROUNDS = int(os.environ.get("PARACEL_RESIZE_ROUNDS", "1"))
COUNTERS = os.path.join(BIN, "test_counters")
STALL_LIMIT = 2.0  # seconds that a round may take in which a server joins or leaves


class ResizeTest(JobTest):
    def ask(self, by, run="mine"):
        return subprocess.Popen([sys.executable, PRUN, "--servers", by, "--run", run], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)

    def resize(self, by, run="mine"):
        asked = self.ask(by, run)
        out, err = asked.communicate()
        return asked.returncode, out, err

    def resized(self, by, slot, run):
        status, out, err = self.resize(by)
        self.assertEqual(status, 0, err + run.err() + run.out())
        self.assertRegex(out, rf"server s{slot} {'serves' if by == '+1' else 'has left'}, after \S+ s\n")

    def servers(self, run):
        return {slot_of(p): p for p in processes_of(run.job()) if role_of(p) == "server"}

    def begin(self, *options, program=(COUNTERS, "1000000", "20")):
        run = self.start("-w", "4", "--run-dir", "mine", *options, *program)
        self.has_begun(run)
        return run

    def has_begun(self, run):
        self.assertTrue(wait_until(lambda: "round" in run.err() or run.process.poll() is not None, 60), run.err())
        self.assertIsNone(run.process.poll(), run.err())

    def end(self, run):
        """For a run that does not end by itself: no errors so far."""
        self.assertIsNone(run.process.poll(), run.err() + run.out())
        self.assertEqual(run.out(), "")  # a worker reports wrong counts
        run.process.terminate()
        self.assertEqual(run.wait(END_LIMIT), 143, run.err())
        self.assert_nothing_left(run.job(), 1)


class Resize(ResizeTest):
    def grow_and_shrink(self, first, *options):
        """Starts with `first` servers."""
        run = self.begin("-p", str(first), *options)
        for _ in range(ROUNDS):
            self.resized("+1", first, run)
            self.resized("+1", first + 1, run)
            self.assertEqual(sorted(self.servers(run)), list(range(first + 2)))
            self.resized("-1", first + 1, run)
            self.resized("-1", first, run)
            ended = wait_until(lambda: sorted(self.servers(run)) == list(range(first)), END_LIMIT)
            self.assertTrue(ended, self.servers(run))
        self.assertNotIn("lost", run.err())
        self.end(run)

    def test_one_copy(self):
        self.grow_and_shrink(1, "--elastic")

    def test_two_copies(self):
        self.grow_and_shrink(2, "--replicas", "2")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_servers_under_mpirun(self):
        self.grow_and_shrink(2, "--replicas", "2", "--m_server", "mpi")

    def test_a_whole_run_is_exact(self):
        run = self.begin("-p", "2", "--elastic", program=(COUNTERS, "300", "20", "20000", "", "32"))
        self.resized("+1", 2, run)
        self.resized("-1", 2, run)
        self.resized("-1", 1, run)
        self.assertEqual(run.wait(60), 0, run.err() + run.out())
        match = re.fullmatch(r"exact, longest round (\S+) s\n", run.out())
        self.assertTrue(match, run.out())
        self.assertLess(float(match.group(1)), patient(STALL_LIMIT), run.err())
        self.assert_nothing_left(run.job(), 1)

    def test_a_model_has_the_bits_of_the_one_whose_servers_stayed(self):
        def model(name):
            return read_bytes(os.path.join(self.folder, name, "lr_theta_0"))
        run = self.start_paced("stays.json", "-w", "4", "-p", "2", output="stays/", rounds=2000)
        self.touch(run.enough)
        self.assertEqual(run.wait(120), 0, run.err())
        self.assertTrue(model("stays"))
        for name, by, slot, options in (("grows", "+1", 2, ["-p", "2", "--elastic"]),
                                        ("shrinks", "-1", 2, ["-p", "3", "--replicas", "2"])):
            with self.subTest(name):
                run = self.start_paced(name + ".json", "-w", "4", "--run-dir", "mine", *options, output=name + "/", rounds=2000)
                self.has_begun(run)
                self.resized(by, slot, run)
                self.assertIsNone(run.process.poll(), "it was over too soon")
                self.touch(run.enough)
                self.assertEqual(run.wait(120), 0, run.err())
                self.assertEqual(model(name), model("stays"))


class ResizeAndLoss(ResizeTest):
    """A server is killed with -9 while another joins or leaves; 64 MB of parameters make that take longer."""

    def killed_in_the_middle(self, by, slot):
        run = self.begin("-p", "3", "--replicas", "2", "--max-restarts", "9",
                         program=(COUNTERS, "1000000", "20", "0", "", "64"))
        if by == "-1":
            self.resized("+1", 3, run)
        asked = self.ask(by)
        begun = {"+1": "server s3 is started", "-1": "is leaving, as requested"}[by]
        self.assertTrue(wait_until(lambda: begun in run.err(), 20), run.err())
        time.sleep(random.uniform(0, 1.0))
        victim = self.servers(run).get(slot)
        if victim is not None:  # s3 may have left already
            victim.kill()
        out, err = asked.communicate(timeout=60)
        if slot == 3:  # it was too late or in time, but the command reports which
            self.assertIn(asked.returncode, (0, 1), err)
            said = "could not be added" if by == "+1" else "was lost before it had left"
            self.assertIn(f"server s3 {'serves' if by == '+1' else 'has left'}" if asked.returncode == 0 else said, out + err)
        else:
            self.assertEqual(asked.returncode, 0, err + run.err())
        # afterwards everything works as before: one more can join
        self.assertTrue(wait_until(lambda: self.resize("+1")[0] == 0, 30, 0.5), run.err())
        self.end(run)

    def test_another_dies_while_one_enters(self):
        for _ in range(ROUNDS):
            self.killed_in_the_middle("+1", random.randrange(3))

    def test_another_dies_while_one_leaves(self):
        for _ in range(ROUNDS):
            self.killed_in_the_middle("-1", random.randrange(3))

    def test_the_one_that_enters_dies(self):
        for _ in range(ROUNDS):
            self.killed_in_the_middle("+1", 3)

    def test_the_one_that_leaves_dies(self):
        for _ in range(ROUNDS):
            self.killed_in_the_middle("-1", 3)

    def test_with_one_copy_a_death_is_the_end(self):
        run = self.begin("-p", "1", "--elastic")
        self.resized("+1", 1, run)
        self.servers(run)[1].kill(signal.SIGKILL)
        self.assertEqual(run.wait(END_LIMIT), 11, run.err())
        self.assertRegex(run.err(), r"server s1 .* lost: .*; there is no other replica of its partitions")
        self.assert_nothing_left(run.job(), 1)


class CommandLine(ResizeTest):
    def test_what_cannot_be_is_said(self):
        run = self.begin("-p", "1")
        status, out, err = self.resize("+1")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("a job that was started with --replicas 2 or more, or with --elastic", err)
        run.destroy()
        self.assertEqual(self.resize("+1")[0], 13)  # its end was not recorded
        run = self.begin("-p", "2", "--replicas", "2")
        self.assertIn("2 replicas need as many servers, and there are 2", self.resize("-1")[2])
        run.destroy()
        run = self.begin("-p", "1", "--elastic")
        self.assertIn("the last server cannot leave", self.resize("-1")[2])
        for by in ("+2", "-2", "0", "1", "many", ""):
            with self.subTest(by=by):
                status, out, err = self.resize(by)
                self.assertEqual((status, out), (2, ""))
                self.assertIn("want +1 or -1", err)
        status, _, err = self.resize("+1", "nowhere")
        self.assertEqual(status, 2)
        self.assertIn("--run nowhere: no such folder", err)
        run.process.terminate()
        run.wait()
        status, _, err = self.resize("+1")
        self.assertEqual(status, 1)
        self.assertIn("is over: exit status 143", err)


if __name__ == "__main__":
    main()
