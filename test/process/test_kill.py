#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills, stops and interrupts real jobs at random moments: a job ends within five seconds, reports why, with the right exit
status, and leaves nothing behind. PARACEL_KILL_RUNS (default 3): the number of repetitions."""
import os
import pty
import random
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (END_LIMIT, LR, MPI, PRUN, JobTest, clean_environment, main, patient,  # noqa: E402
                             processes_of, wait_until)

RUNS = int(os.environ.get("PARACEL_KILL_RUNS", "3"))
# Random moments: from the start of the process to a second later, during which the job starts and trains.
SPREAD = 1.0


class Kill(JobTest):
    def kill_one(self, role, options, status, cause):
        """Kills a process with that role; the job must end with that status and a matching cause."""
        for turn in range(RUNS):
            with self.subTest(role=role, turn=turn):
                run = self.start_long(*options)
                victim = run.find(role)
                self.assertIsNotNone(victim, run.err())
                sockets = run.socket_folder()
                self.assertTrue(os.path.isdir(sockets))
                time.sleep(random.uniform(0, SPREAD))
                victim.kill()
                begin = time.monotonic()
                ended = run.wait(END_LIMIT)
                took = time.monotonic() - begin
                self.assertEqual(ended, status, f"after {took:.1f} s: {run.err()}")
                self.assertRegex(run.err(), cause)
                self.assert_nothing_left(run.job(), max(0.0, END_LIMIT - took))
                self.assertFalse(os.path.exists(sockets))

    def test_a_worker_is_killed(self):
        self.kill_one("worker", ["-m", "local"], 10, r"worker \d \(pid \d+\) was killed by SIGKILL")

    def test_a_server_is_killed(self):
        self.kill_one("server", ["-m", "local"], 11, r"server s\d \(pid \d+\) was killed by SIGKILL")

    def test_the_scheduler_is_killed(self):
        self.kill_one("scheduler", ["-m", "local"], 13, r"the scheduler \(pid \d+\) was killed by SIGKILL")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_a_worker_under_mpirun_is_killed(self):
        self.kill_one("worker", ["-m", "mpi"], 10, r"worker \d \(pid \d+ on \S+\) was killed by SIGKILL")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_a_server_under_mpirun_is_killed(self):
        self.kill_one("server", ["-m", "mpi"], 11, r"server s\d \(pid \d+ on \S+\) was killed by SIGKILL")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_the_scheduler_of_an_mpi_job_is_killed(self):
        self.kill_one("scheduler", ["-m", "mpi"], 13, r"the scheduler \(pid \d+\) was killed by SIGKILL")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_mpirun_of_the_workers_is_killed(self):
        self.kill_one("mpirun_workers", ["-m", "mpi"], 10, r"mpirun of the workers \(pid \d+\) was killed by SIGKILL")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_mpirun_of_the_servers_is_killed(self):
        self.kill_one("mpirun_servers", ["-m", "mpi"], 11, r"mpirun of the servers \(pid \d+\) was killed by SIGKILL")

    def kill_prun(self, options, limit=END_LIMIT):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run = self.start_long(*options)
                job = run.job()
                time.sleep(random.uniform(0, SPREAD + 0.5))
                run.process.kill()
                self.assertEqual(run.wait(), -signal.SIGKILL)
                self.assert_nothing_left(job, limit)

    def test_prun_is_killed(self):
        self.kill_prun(["-m", "local"])

    def test_prun_of_servers_whose_threads_share_connections_is_killed(self):
        self.kill_prun(["--threads", "3", "--connections", "shared"])

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_prun_of_an_mpi_job_is_killed(self):
        # The kernel may signal mpirun several times, which makes it exit at once, without its ranks.
        self.kill_prun(["-m", "mpi"])

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_an_mpirun_that_is_killed_with_prun_leaves_no_processes_and_no_memory(self):
        run = self.start_long("-m", "mpi")
        job = run.job()
        mpiruns = [run.find("mpirun_servers"), run.find("mpirun_workers")]
        words = mpiruns[1].command
        memory = words[words.index("btl_vader_backing_directory") + 1]
        self.assertTrue(wait_until(lambda: "round" in run.err(), 20), run.err())
        self.assertEqual(len([name for name in os.listdir(memory) if name.startswith("vader_segment")]), 3)
        for process in (run, *mpiruns):
            os.kill(process.pid, signal.SIGKILL)
        self.assertEqual(run.wait(), -signal.SIGKILL)
        self.assert_nothing_left(job, END_LIMIT)
        os.utime(memory, (0, 0))  # too old for a folder that is not locked yet
        self.assertEqual(self.prun("-w", "1", self.write_program("nothing", "exit 0"))[0], 0)
        self.assertFalse(os.path.exists(memory))

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_an_mpi_job_that_ends_leaves_no_memory(self):
        run = self.start("-m", "mpi", "-w", "2", "-c", "cfg.json", LR)
        words = run.find("mpirun_workers").command
        memory = words[words.index("btl_vader_backing_directory") + 1]
        self.assertEqual(run.wait(), 0, run.err())
        self.assertFalse(os.path.exists(memory))

    def test_a_program_that_knows_nothing_of_the_framework_dies_with_prun(self):
        if not os.access("/usr/bin/setpriv", os.X_OK):
            self.skipTest("setpriv is not installed")
        run = self.start("-w", "2", self.write_program("sleeper", "exec sleep 300"))
        job = run.job()
        sleepers = wait_until(lambda: [p for p in processes_of(job) if p.command and p.command[0].endswith("sleep")][1:], 20)
        self.assertTrue(sleepers, run.err())
        run.process.kill()
        self.assert_nothing_left(job, END_LIMIT)


class Stop(JobTest):
    """A stopped process is silent, and counts as dead after the heartbeat limit."""

    def stop_one(self, role, status, cause):
        limit = round(patient(1.5), 1)
        run = self.start_long("--heartbeat-limit", str(limit))
        victim = run.find(role)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 20), run.err())
        victim.kill(signal.SIGSTOP)
        begin = time.monotonic()
        ended = run.wait(limit + END_LIMIT)
        took = time.monotonic() - begin
        self.assertEqual(ended, status, run.err())
        self.assertGreater(took, limit - patient(0.6))  # the last heartbeat is at most half a second old
        self.assertLess(took, patient(limit + 2.0), run.err())
        self.assertRegex(run.err(), cause)
        self.assert_nothing_left(run.job(), 1)

    def test_a_stopped_worker_is_found(self):
        self.stop_one("worker", 10, r"worker \d \(pid \d+ on \S+\) lost: no heartbeat for \d+\.\d s")

    def test_a_stopped_server_is_found(self):
        self.stop_one("server", 11, r"server s\d \(pid \d+ on \S+\) lost: no heartbeat for \d+\.\d s")

    def test_a_stopped_scheduler_is_found_by_the_nodes(self):
        run = self.start_long("--heartbeat-limit", f"{patient(1.5):.1f}")
        victim = run.find("scheduler")
        self.assertTrue(wait_until(lambda: "round" in run.err(), 20), run.err())
        victim.kill(signal.SIGSTOP)
        self.assertEqual(run.wait(1.5 + END_LIMIT), 13, run.err())
        self.assert_nothing_left(run.job(), 1)


class Interrupt(JobTest):
    def stubborn(self):
        """A program that ignores SIGTERM."""
        path = self.write_program("stubborn", "trap '' TERM", "echo ready", "while :; do sleep 0.1; done")
        run = self.start("-w", "2", path)
        self.assertTrue(wait_until(lambda: "ready" in run.out(), 20), run.err())
        return run

    def signal_job(self, options, number, status):
        run = self.start_long(*options)
        self.assertTrue(wait_until(lambda: "round" in run.err(), 20), run.err())
        os.kill(run.pid, number)
        self.assertEqual(run.wait(END_LIMIT), status, run.err())
        self.assertIn(f"exit status {status}", run.err())
        self.assert_nothing_left(run.job(), 1)

    def test_ctrl_c_once_ends_the_job_cleanly(self):
        self.signal_job([], signal.SIGINT, 130)

    def test_sigterm_ends_the_job(self):
        self.signal_job([], signal.SIGTERM, 143)

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_ctrl_c_ends_an_mpi_job(self):
        self.signal_job(["-m", "mpi"], signal.SIGINT, 130)

    def test_who_does_not_listen_is_killed_after_three_seconds(self):
        run = self.stubborn()
        begin = time.monotonic()
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(END_LIMIT), 130)
        self.assertGreater(time.monotonic() - begin, 2.5)
        self.assert_nothing_left(run.job(), 1)

    def test_ctrl_c_twice_kills_at_once(self):
        run = self.stubborn()
        begin = time.monotonic()
        os.kill(run.pid, signal.SIGINT)
        self.assertTrue(wait_until(lambda: "Ctrl-C again" in run.err(), 5))
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(END_LIMIT), 130)
        self.assertLess(time.monotonic() - begin, patient(2.0))
        self.assert_nothing_left(run.job(), 1)

    def test_the_timeout_ends_the_job_with_status_12(self):
        run = self.start_long("--timeout", "1.5")
        self.assertEqual(run.wait(10), 12, run.err())
        self.assertIn("the job was not complete within 1.5 s", run.err())
        self.assert_nothing_left(run.job(), 1)

    def test_ctrl_c_in_a_terminal_and_a_progress_line_in_place(self):
        """In a terminal only the launcher receives Ctrl-C, and the progress line is rewritten."""
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(sys.executable, [sys.executable, PRUN, "-w", "2", "-c", "long.json", LR], clean_environment())
        text = b""
        sent = False
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                chunk = os.read(master, 4096)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            text += chunk
            if not sent and text.count(b"\rround ") > 5:
                os.write(master, b"\x03")
                sent = True
        os.close(master)
        if not wait_until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), 5):
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 130, text)
        self.assertRegex(text.decode(), r"\rround \d+/100000000  objective 0\.\d+  \S+ rounds/s  .* left\x1b\[K\r")
        self.assertIn(b"interrupted: stopping the job", text)
        job = re.search(rb"prun: job ([0-9a-f]{16})", text).group(1).decode()
        self.assert_nothing_left(job, 1)


if __name__ == "__main__":
    main()
