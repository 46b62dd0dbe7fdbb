#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""However often servers are replaced, no process keeps sockets to replaced ones: the scheduler (with checkpoints it communicates
with every shard), the other servers, the workers."""
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, JobTest, main, processes_of, role_of, wait_until  # noqa: E402

COUNTERS = os.path.join(BIN, "test_counters")
AGAIN = "replicas of everything exist again"
THREADS = 4
TURNS = 6
# Transient connections; each replacement that is not cleaned up costs one for each of its threads.
SLACK = 2 * THREADS


class Descriptors(JobTest):
    def counts(self, run):
        """Open descriptors, by process."""
        found = {}
        for process in processes_of(run.job()):
            try:
                found[process.pid, role_of(process)] = len(os.listdir(f"/proc/{process.pid}/fd"))
            except OSError:
                pass
        return found

    def checkpoints(self, folder):
        return [name for name in os.listdir(folder) if os.path.exists(os.path.join(folder, name, "manifest.json"))]

    def replace_one(self, run, folder, slot, count):
        run.server(slot).kill()
        self.assertTrue(wait_until(lambda: run.err().count(AGAIN) == count or run.process.poll() is not None, 60), run.err())
        self.assertIsNone(run.process.poll(), run.err())
        before = set(self.checkpoints(folder))
        # The first may have begun without the server that is new.
        self.assertTrue(wait_until(lambda: len(set(self.checkpoints(folder)) - before) >= 2, 60), run.err())

    def test_nobody_keeps_sockets_to_servers_that_were_replaced(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        enough = self.not_there("enough")
        run = self.start("-w", "2", "-p", "3", "--replicas", "2", "--threads", str(THREADS), "--max-restarts", str(TURNS + 1),
                         "--checkpoint-dir", folder, "--checkpoint-every", "5", COUNTERS, enough, "5", "2000")
        self.assertTrue(wait_until(lambda: self.checkpoints(folder) or run.process.poll() is not None, 60), run.err())
        self.replace_one(run, folder, 0, 1)  # by then all processes have communicated
        first = self.counts(run)
        for turn in range(TURNS):
            self.replace_one(run, folder, random.choice((1, 2)), turn + 2)
        last = self.counts(run)
        stayed = sorted(set(first) & set(last))
        self.assertEqual({role for _, role in stayed}, {"scheduler", "server", "worker"}, (first, last))
        # Of its role: a server that had just replaced another may not have reached all processes yet.
        usual = {role: max(n for (_, other), n in first.items() if other == role) for _, role in first}
        for who in stayed:
            self.assertLessEqual(last[who], usual[who[1]] + SLACK, (who, first, last))
        self.touch(enough)
        self.assertEqual(run.wait(60), 0, run.err() + run.out())


if __name__ == "__main__":
    main()
