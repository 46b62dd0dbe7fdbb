#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The connections of a server break, or fall silent, while its process lives: messages in flight are sent again and count once,
with and without replicas; with them an unreachable server is replaced. Connections that swallow everything from now on, or are
accepted and never answered, are renewed within a second or two. PARACEL_KILL_RUNS (default 1): the number of repetitions."""
import os
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from link_proxy import Links  # noqa: E402
from process_support import BIN, JobTest, main, patient, wait_until  # noqa: E402
from test_linearizability import HISTORIES, KEYS, WORKERS, check  # noqa: E402

RUNS = int(os.environ.get("PARACEL_KILL_RUNS", "1"))
COUNTERS = os.path.join(BIN, "test_counters")
SERVERS = 3
FAULTS = 16 if os.environ.get("PARACEL_LONG") else 5
RENEWAL_LIMIT = 4.0  # seconds; two faults may hit the same round
CUT_LIMIT = 15.0  # seconds; the proxy, eight workers and three servers share the cores: only detects hanging


class CutLinks(JobTest):
    replicas = "2"

    def start_linked(self, program, *arguments, workers=8, options=(), all_links=False):
        folder = tempfile.mkdtemp(prefix="links", dir=self.folder)
        links = Links(folder, program, SERVERS, workers if all_links else 0)
        self.addCleanup(links.close)
        if program == COUNTERS:
            arguments = (self.not_there("enough"), *arguments)
        # Heartbeats are five times as frequent as usual: the rest of a lease after a silence is slack for a busy machine.
        run = self.start("-w", str(workers), "-p", str(SERVERS), "--replicas", self.replicas, "--heartbeat-interval", "0.1",
                         *options, links.program, *arguments)
        self.assertTrue(wait_until(lambda: "round" in run.err() or run.process.poll() is not None, 30), run.err())
        self.assertIsNone(run.process.poll(), run.err())
        run.enough = arguments[0]
        return run, links

    def assert_exact(self, run, longest):
        self.touch(run.enough)
        self.assertEqual(run.wait(90), 0, run.err() + run.out())
        self.assert_nothing_left(run.job(), 1)
        match = re.fullmatch(r"exact, longest round (\S+) s\n", run.out())
        self.assertTrue(match, run.out() + run.err())
        self.assertLess(float(match.group(1)), patient(longest), run.err())
        print(match.group(0).strip(), file=sys.stderr)

    def disturb(self, links, times, breaks):
        """Connections are silent one after the other, each for less than its server's lease; with `breaks` about half of them
        break instead."""
        for _ in range(times):
            slot = random.randrange(SERVERS)
            if breaks and random.random() < 0.5:
                links.reset(slot, random.choice((0, 0.05)))
            else:
                links.silence(slot)
                time.sleep(random.uniform(0.1, 0.8))
                links.restore(slot)
            time.sleep(random.uniform(0, 0.4))

    def test_nothing_is_lost_with_a_connection(self):
        self.reset_links()

    def test_nothing_is_lost_with_a_connection_that_threads_share(self):
        self.reset_links("--threads", "3", "--connections", "shared")

    def reset_links(self, *options):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run, links = self.start_linked(COUNTERS, "20", options=options)
                lost = 0
                for swallow in random.sample((0, 0, 0.02, 0.2, 0.2), 4):  # at least one of them long enough to lose something
                    lost += links.reset(random.randrange(SERVERS), swallow)
                    time.sleep(random.uniform(0, 0.5))
                self.assertGreater(lost, 0)
                self.assert_exact(run, CUT_LIMIT)
                self.assertNotIn("lost", run.err())

    def test_a_link_that_is_silent_for_a_moment_continues(self):
        self.silence_links()

    def test_a_link_that_threads_share_and_that_is_silent_for_a_moment_continues(self):
        self.silence_links("--threads", "3", "--connections", "shared")

    def silence_links(self, *options):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run, links = self.start_linked(COUNTERS, "20", options=options)
                self.disturb(links, 2, breaks=False)
                self.assert_exact(run, CUT_LIMIT)
                self.assertNotIn("lost", run.err())

    def test_connections_that_fall_silent_for_ever_are_renewed(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run, links = self.start_linked(COUNTERS, "20", workers=WORKERS, all_links=True)
                for _ in range(FAULTS):
                    name = random.choice(list(links.pipes))
                    (links.swallow if random.random() < 0.7 else links.answer_nothing)(name)
                    time.sleep(random.uniform(0, 4))
                self.assert_exact(run, RENEWAL_LIMIT)
                self.assertNotIn("lost", run.err())

    def test_a_server_that_nobody_reaches_is_replaced(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                run, links = self.start_linked(COUNTERS, "20")
                slot = random.randrange(SERVERS)
                links.silence(slot)
                self.assertTrue(wait_until(lambda: "the job continues" in run.err(), 10), run.err())
                links.restore(slot)  # for the replacement
                self.assert_exact(run, CUT_LIMIT)
                self.assertRegex(run.err(), rf"server s{slot} \(pid \d+ .*lost: no heartbeat for .*; the job continues")

    def test_histories_are_linearizable_while_connections_break_and_fall_silent(self):
        for turn in range(RUNS):
            with self.subTest(turn=turn):
                folder = tempfile.mkdtemp(prefix="histories", dir=self.folder)
                run, links = self.start_linked(HISTORIES, folder, "4", str(KEYS), workers=WORKERS)
                self.disturb(links, 6, breaks=True)
                self.assertEqual(run.wait(60), 0, run.err() + run.out())
                self.assert_nothing_left(run.job(), 1)
                status, said = check(*(os.path.join(folder, str(r)) for r in range(WORKERS)))
                print(said.strip(), file=sys.stderr)
                self.assertEqual(status, 0, said)


class CutLinksOfTheOnlyCopy(CutLinks):
    """No lost connection ends the job, although every server has the only copy of its keys."""
    replicas = "1"

    def test_a_server_that_nobody_reaches_is_replaced(self):
        self.skipTest("there is no replica to take over")

    def test_with_delivery_fail_the_job_ends_and_says_so(self):
        run, links = self.start_linked(COUNTERS, "20", options=("--delivery", "fail"))
        while run.process.poll() is None:
            links.reset(random.randrange(SERVERS), 0.2)
            time.sleep(0.2)
        self.assertEqual(run.wait(), 1, run.err())
        self.assertRegex(run.err(), r"the connection to tcp://\S+ of s\d broke, and the request in flight was lost: it is "
                                    r"unknown whether the server executed it")
        self.assert_nothing_left(run.job(), 1)


if __name__ == "__main__":
    main()
