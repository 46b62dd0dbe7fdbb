#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A job is suspended for longer than the heartbeat limit and then resumes, as when a virtual machine is saved, a cgroup is frozen
or a laptop is shut: no process has died, so none counts as lost, and every count is correct. Processes that die meanwhile are
detected."""
import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, HEARTBEAT_LIMIT, JobTest, clean_environment, main, patient, processes_of,  # noqa: E402
                             role_of, wait_until)

COUNTERS = os.path.join(BIN, "test_counters")
LIMIT = min(patient(HEARTBEAT_LIMIT), 10.0)  # seconds; a lease lasts 2
PAUSE = LIMIT + 2.0
LONE_PAUSE = LIMIT + 1.0  # of the scheduler alone, for which the others wait three limits
AGAIN = "replicas of everything exist again"


class Pause(JobTest):
    def counters(self, *options, servers=2, more=(), **others):
        enough = self.not_there("enough")
        run = self.start("-w", "3", "-p", str(servers), "--heartbeat-limit", f"{LIMIT:g}", *options, COUNTERS, enough, "10",
                         *(more or ("10000",)), **others)
        run.enough = enough
        self.assert_continues(run)
        return run

    def assert_continues(self, run, limit=60):
        """It continues counting from here."""
        rounds = run.err().count("round ")
        self.assertTrue(wait_until(lambda: run.err().count("round ") > rounds + 1 or run.process.poll() is not None, limit),
                        run.err())
        self.assertIsNone(run.process.poll(), run.err() + run.out())

    def assert_exact(self, run):
        self.assert_continues(run)
        self.touch(run.enough)
        self.assertEqual(run.wait(120), 0, run.err() + run.out())
        self.assertRegex(run.out(), r"^exact, longest round ")
        self.assert_nothing_left(run.job(), 2)

    def pids(self, run, *roles):
        """All processes of the job, including the launcher; or those with some roles."""
        found = {p.pid: role_of(p) for p in processes_of(run.job())}
        found[run.pid] = "launcher"
        return [pid for pid, role in found.items() if not roles or role in roles]

    @staticmethod
    def signal_all(pids, number):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def pause(self, pids, seconds, again=None, meanwhile=None):
        self.signal_all(pids, signal.SIGSTOP)
        time.sleep(seconds / 2)
        if meanwhile is not None:
            meanwhile()
        time.sleep(seconds / 2)
        again = list(pids) if again is None else again
        for pid in again:
            self.signal_all([pid], signal.SIGCONT)
            time.sleep(random.uniform(0, 0.02))

    def assert_nobody_was_lost(self, run):
        self.assertNotIn("lost", run.err())

    def test_a_job_outlives_its_own_pause(self):
        """Each kind of process is once the first to resume, and with replicas once the last."""
        for first, options, servers, roles in ((True, (), 2, ("scheduler", "server", "worker", "launcher")),
                                               (False, ("--replicas", "2"), 3, ("scheduler", "server", "launcher"))):
            run = self.counters(*options, servers=servers)
            for role in roles:
                with self.subTest(role=role, first=first):
                    pids, chosen = self.pids(run), self.pids(run, role)
                    order = sorted(random.sample(pids, len(pids)), key=lambda pid, c=chosen, f=first: (pid in c) != f)
                    self.pause(pids, PAUSE, order)
                    self.assert_continues(run)
            self.assert_exact(run)
            self.assert_nobody_was_lost(run)

    def test_a_scheduler_that_is_stopped_alone_ends_nothing(self):
        for options in ((), ("--replicas", "2")):
            with self.subTest(options=options):
                run = self.counters(*options)
                self.pause(self.pids(run, "scheduler"), LONE_PAUSE)
                self.assert_exact(run)
                self.assert_nobody_was_lost(run)

    def test_a_launcher_that_is_stopped_alone_ends_nothing(self):
        run = self.counters("--replicas", "2")
        self.pause(self.pids(run, "launcher"), PAUSE)
        self.assert_exact(run)
        self.assert_nobody_was_lost(run)

    def test_a_server_that_dies_in_the_pause_or_stays_stopped_after_it_is_found(self):
        for dies, cause in ((True, "it was killed by SIGKILL"), (False, "no heartbeat for .*")):
            with self.subTest(dies=dies):
                run = self.counters("--replicas", "2", servers=3)
                pids, victim = self.pids(run), random.choice(self.pids(run, "server"))
                self.pause(pids, PAUSE, [pid for pid in pids if dies or pid != victim],
                           (lambda v=victim: os.kill(v, signal.SIGKILL)) if dies else None)
                self.assertTrue(wait_until(lambda r=run: AGAIN in r.err() or r.process.poll() is not None, 60), run.err())
                self.assertRegex(run.err(), rf"server s\d \(pid {victim} on \S+\) lost: {cause}; the job continues")
                self.assertEqual(run.err().count(" lost: "), 1, run.err())
                self.assert_exact(run)

    def test_a_server_that_dies_while_the_scheduler_is_stopped_is_replaced(self):
        run = self.counters("--replicas", "2", servers=3)
        victim = random.choice(self.pids(run, "server"))
        self.pause(self.pids(run, "scheduler"), LONE_PAUSE, meanwhile=lambda: os.kill(victim, signal.SIGKILL))
        self.assertTrue(wait_until(lambda: AGAIN in run.err() or run.process.poll() is not None, 60), run.err())
        self.assertEqual(run.err().count(" lost: "), 1, run.err())
        self.assert_exact(run)

    def test_a_user_function_was_not_running_while_its_server_was_stopped(self):
        plugins = os.path.join(os.path.dirname(BIN), "lib", "test_plugins")
        hang = self.not_there("hang")
        limit = 4.0
        run = self.counters("--replicas", "2", "--function-timeout", "1", "--hang-limit", str(limit), "--plugin-dir", plugins,
                            servers=3, more=("0", os.path.join(plugins, "libslow_updates.so")),
                            environment=clean_environment(TEST_HANG=hang))
        self.touch(hang)
        running = r"libslow_updates.so:hang_once has been running for (\S+) s"
        self.assertTrue(wait_until(lambda: re.search(running, run.err()) or run.process.poll() is not None, 60), run.err())
        self.pause(self.pids(run), PAUSE)
        self.assertTrue(wait_until(lambda: AGAIN in run.err() or run.process.poll() is not None, 60), run.err())
        lost = re.search(running + r" in thread \d+: libslow_updates.so:hang_once at \"slow\"; the job continues", run.err())
        self.assertTrue(lost, run.err())
        self.assertLess(float(lost.group(1)), limit + PAUSE / 3, run.err())
        self.assertEqual(run.err().count(" lost: "), 1, run.err())
        self.assert_exact(run)


if __name__ == "__main__":
    main()
