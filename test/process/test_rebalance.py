#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`--rebalance`: hot partitions move while the job runs, the load of the servers becomes even, and the result keeps its bits,
also when a server is killed meanwhile, messages are lost, checkpoints are made or a server is added. Without the option nothing
moves."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, PRUN, JobTest, main, patient, processes_of, role_of, wait_until  # noqa: E402

ZIPF = os.path.join(BIN, "test_zipf")
PREFIX = "b"   # of the keys: four servers have about 0.14, 0.28, 0.15, 0.43 of what is asked
LOADS = re.compile(r"(?m)^s\d +up .* MB +([\d,.]+) +\d+ \(\d+ %\) +[0-9a-f]{16}$")


class Rebalance(JobTest):
    def begin(self, *options, rounds=None, pause=5):
        """A job that runs until `run.enough` exists, or for so many rounds."""
        enough = self.not_there("enough")
        run = self.start("-w", "2", "-p", "4", "--threads", "1", *options, ZIPF, str(rounds or enough), str(pause), PREFIX)
        run.enough = enough
        return run

    def imbalance(self, run):
        """Keys a second of the busiest server as a multiple of the mean; 0 before all have said theirs."""
        loads = [float(keys.replace(",", "")) for keys in LOADS.findall(self.status_of(run))]
        return max(loads) * 4 / sum(loads) if len(loads) == 4 and sum(loads) else 0

    def expect_same_bits(self, run):
        """Ends it, and runs as many rounds without the option. Returns what the first has said."""
        self.touch(run.enough)
        self.assertEqual(run.wait(patient(60)), 0, run.err())
        out, err = run.out(), run.err()  # the next run writes the same files
        said = re.fullmatch(r"(\d+) rounds, digest [0-9a-f]{16}\n", out)
        self.assertTrue(said, out)
        still = self.begin(rounds=int(said[1]), pause=0)
        self.assertEqual(still.wait(patient(120)), 0, still.err())
        self.assertNotIn("prun: moving ", still.err())
        self.assertEqual(out, still.out())
        return err

    def moves(self, run):
        self.assertTrue(wait_until(lambda: "prun: moving " in run.err() or run.process.poll() is not None, 60), run.err())
        self.assertRegex(run.err(),
                         r"prun: moving \d+ partitions?: the busiest thread of a server has [\d.]+ times its fair share")

    def test_the_load_becomes_even_and_the_result_is_the_same(self):
        run = self.begin("--rebalance")
        uneven = wait_until(lambda: "round" in run.err() and self.imbalance(run) > 1.45, 30, 0.2)
        self.assertTrue(uneven, self.status_of(run))
        self.moves(run)
        self.assertTrue(wait_until(lambda: re.search(r"prun: moved after [\d.]+ s", run.err()), 20), run.err())
        self.assertTrue(wait_until(lambda: 0 < self.imbalance(run) < 1.2, 40, 0.3), self.status_of(run))
        self.assertRegex(self.status_of(run), r"(?m)^partitions that were given to other servers because of the load: [1-9]\d*; "
                                              r"moving now: \d+$")
        err = self.expect_same_bits(run)
        self.assertLess(len(re.findall("prun: moving", err)), 5, err)

    def test_a_server_is_killed_while_partitions_move(self):
        run = self.begin("--rebalance", "--replicas", "2")
        self.moves(run)
        servers = [p for p in processes_of(run.job()) if role_of(p) == "server"]
        self.assertEqual(len(servers), 4)
        servers[0].kill()
        self.assertTrue(wait_until(lambda: "2 replicas of everything exist again" in run.err(), 30), run.err())
        self.assertIn("was killed by SIGKILL", self.expect_same_bits(run))

    def test_lost_messages_checkpoints_and_a_server_that_is_added(self):
        folder = self.not_there("checkpoints")
        run = self.begin("--rebalance", "--replicas", "3", "--encrypt", "--drop-messages", "0.05", "--checkpoint-dir", folder,
                         "--checkpoint-every", "3", "--run-dir", "mine")
        self.moves(run)
        self.assertTrue(wait_until(lambda: "prun: moved after" in run.err(), 60), run.err())

        def events():
            with open(os.path.join(self.folder, "mine", "timeline.jsonl"), encoding="utf-8") as file:
                return [json.loads(line)["event"] for line in file if line.endswith("\n")]
        self.assertTrue(wait_until(lambda: events().count("checkpoint") > 2, 60, 0.2), run.err())
        self.assertNotIn("checkpoint_failed", events())

        def add():
            done = subprocess.run([sys.executable, PRUN, "--servers", "+1", "--run", "mine"], cwd=self.folder,
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            self.assertTrue(done.returncode == 0 or "try again" in done.stderr, done.stderr)
            return done.returncode == 0
        self.assertTrue(wait_until(add, 60, 0.5), run.err())
        self.assertIn("prun: server s4 ", self.expect_same_bits(run))


if __name__ == "__main__":
    main()
