#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""lr after an ejection, and from a checkpoint."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import numpy

import oracles
from lr_case import LR, PACED, PRUN, SOURCE, LrCase, run, samples_of


class Deaths(LrCase):
    def checkpoint(self, workers, folder, **keys):
        """A job that writes checkpoints to `folder`, and resumes from the newest one there."""
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01, **keys}
        config = self.config(**keys)
        command = [sys.executable, "-B", PRUN, "-w", str(workers), "-p", "1", "-c", config, "-m", "local",
                   "--output-dir", config + ".run"]
        return run(command + (["--resume", folder] if os.path.exists(folder) else
                              ["--checkpoint-dir", folder, "--checkpoint-every", "10"]) + [LR])

    def process_of(self, job, rank):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    named = b"PARACEL_RANK=%d" % rank in file.read().split(b"\0")
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if named and parent == job.pid:
                return int(pid)
        return self.fail(f"no process of worker {rank}")

    def test_after_an_ejection_the_objective_is_the_mean_over_the_rows_that_are_left(self):
        with open(self.train, encoding="ascii") as file:
            lines = file.readlines()
        size = sum(map(len, lines))
        ends = numpy.cumsum([len(line) for line in lines])
        begins = ends - [len(line) for line in lines]  # a line belongs to the worker in whose part it begins
        left = [line for line, at in zip(lines, begins) if not size / 3 <= at < 2 * size / 3]
        rest = os.path.join(self.folder, "rest.csv")
        with open(rest, "w", encoding="ascii") as file:
            file.writelines(left)
        optimum = {path: oracles.lr(*samples_of(path), 0.01)[0] for path in (self.train, rest)}
        for method, rounds, alpha in (("dgd", 3000, 1), ("ipm", 2000, 0.001), ("downpour", 300, 0.0005)):
            with self.subTest(method):
                config = self.config(training_input=self.train, method=method, rounds=rounds, alpha=alpha, beta=0.01,
                                     update_file=PACED, update_func="paced_add")
                checkpoints = config + ".ckpt"
                command = [sys.executable, "-B", PRUN, "-w", "3", "-p", "1", "-c", config, "-m", "local",
                           "--output-dir", config + ".run", "--on-worker-death", "eject", "--checkpoint-dir", checkpoints,
                           "--checkpoint-every", str(rounds // 10), LR]
                killed = config + ".killed"  # while this does not exist, rounds are slow
                job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, cwd=SOURCE,
                                       env=dict(os.environ, TEST_ENOUGH=killed))
                metrics = os.path.join(self.output, "metrics.jsonl")
                try:
                    until = time.monotonic() + 30
                    while job.poll() is None and time.monotonic() < until:
                        if os.path.exists(metrics) and os.path.getsize(metrics) > 500:
                            break
                        time.sleep(0.01)
                    os.kill(self.process_of(job, 1), signal.SIGKILL)
                    with open(killed, "w", encoding="ascii"):
                        pass
                    said = job.communicate(timeout=60)[0]
                finally:
                    job.kill()
                self.assertEqual(job.returncode, 0, said)
                self.assertIn("worker 1 was ejected", said)
                with open(metrics, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                self.assertEqual([line["round"] for line in lines], list(range(1, rounds + 1)))
                with open(os.path.join(self.output, "model.json"), encoding="utf-8") as file:
                    model = json.load(file)
                self.assertEqual(model["training_rows"], len(left))
                # A third of the rows were lost: the optimum without them is a different one, not a third smaller.
                self.assertGreaterEqual(model["objective"], optimum[rest] * (1 - 1e-9))
                self.assertLess(model["objective"], optimum[rest] * 1.005)
                self.assertGreater(model["objective"], 0.9 * optimum[self.train])
                self.assertAlmostEqual(lines[-1]["objective"], model["objective"], delta=1e-12)
                # The keys of all rounds are removed from the servers.
                sizes = []
                for folder in sorted(os.listdir(checkpoints)):
                    sizes.append(os.path.getsize(os.path.join(checkpoints, folder, "server-0-0.ckpt")))
                self.assertGreaterEqual(len(sizes), 2)
                self.assertLess(sizes[-1], sizes[0] + 10000)

    def test_a_checkpoint_of_data_with_other_columns_is_refused(self):
        wide = os.path.join(self.folder, "wide.csv")
        run([sys.executable, "-B", os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o", wide, "-n",
             "203", "-k", "101", "--seed", "5"]).check_returncode()
        for first, then, sizes in ((wide, self.small, (102, 6)), (self.small, wide, (6, 102))):
            for method in ("dgd", "ipm", "downpour"):
                with self.subTest(sizes=sizes, method=method):
                    folder = os.path.join(self.folder, f"ckpt_{sizes[0]}_{method}")
                    keys = {"method": method, "alpha": 0.001}
                    self.assertEqual(self.checkpoint(2, folder, training_input=first, **keys).returncode, 0)
                    for workers in (2, 3):
                        done = self.checkpoint(workers, folder, training_input=then, rounds=40, **keys)
                        self.assertEqual(done.returncode, 4, done.stderr)
                        self.assertIn(f"{then}: theta of the checkpoint has {sizes[0]} elements, the data have "
                                      f"{sizes[1]} (", done.stderr)

    def test_a_checkpoint_of_fewer_or_more_samples_is_refused_where_their_order_counts(self):
        half = os.path.join(self.folder, "half.csv")
        with open(self.small, encoding="ascii") as file, open(half, "w", encoding="ascii") as to:
            to.writelines(file.readlines()[:100])
        for first, then in ((self.small, half), (half, self.small)):
            for method, status in (("ipm", 4), ("dgd", 0)):
                with self.subTest(first=first, method=method):
                    folder = os.path.join(self.folder, f"ckpt_{os.path.basename(first)}_{method}")
                    keys = {"method": method, "alpha": 0.001}
                    self.assertEqual(self.checkpoint(2, folder, training_input=first, **keys).returncode, 0)
                    done = self.checkpoint(2, folder, training_input=then, rounds=40, **keys)
                    self.assertEqual(done.returncode, status, done.stderr)
                    if status != 0:
                        self.assertIn("the checkpoint has an order of ", done.stderr)


if __name__ == "__main__":
    unittest.main()
