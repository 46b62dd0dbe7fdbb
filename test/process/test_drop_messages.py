#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py --drop-messages: messages between real processes are lost, duplicated and delayed on purpose, and the results are
bit-identical to those of undisturbed runs, with one copy of each parameter and with two."""
import glob
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, LR, JobTest, main, patient, read_bytes  # noqa: E402

COUNTERS = os.path.join(BIN, "test_counters")
REPORT = re.compile(r"--drop-messages (\S+) --seed (\d+): of (\d+) messages (\d+) lost, (\d+) doubled, (\d+) delayed")


class DropMessages(JobTest):
    def run_lr(self, name, *options, consistency="bsp"):
        self.write_config(f"{name}.json", output=f"{name}/", consistency=consistency, rounds=20)
        run_dir = os.path.join(self.folder, name + "_run")
        run = self.start("-w", "4", "-p", "2", "--run-dir", run_dir, *options, "-c", f"{name}.json", LR)
        self.assertEqual(run.wait(120), 0, run.err() + run.out())
        return read_bytes(os.path.join(self.folder, name, "lr_theta_0")), self.disturbed(run_dir)

    @staticmethod
    def disturbed(run_dir):
        """What the logs of the processes say: name of the log -> percentage, seed, messages, lost, doubled, delayed."""
        found = {}
        for path in glob.glob(os.path.join(run_dir, "*.log")):
            match = REPORT.search(read_bytes(path).decode("utf-8", "replace"))
            if match:
                found[os.path.basename(path)] = tuple(float(n) for n in match.groups())
        return found

    def test_a_bsp_model_has_the_bits_of_the_undisturbed_one(self):
        expected, disturbed = self.run_lr("undisturbed")
        self.assertEqual(disturbed, {})
        for replicas in ("1", "2"):
            for seed in ("1", "7"):
                with self.subTest(replicas=replicas, seed=seed):
                    got, disturbed = self.run_lr(f"dropped_{replicas}_{seed}", "--replicas", replicas, "--drop-messages", "3",
                                                 "--seed", seed)
                    self.assertEqual(got, expected)
                    self.assertEqual(sorted(disturbed), [f"server_{i}.log" for i in range(2)]
                                     + [f"worker_{i}.log" for i in range(4)])
                    self.assertEqual({(d[0], d[1]) for d in disturbed.values()}, {(3.0, float(seed))})
                    for kind in (3, 4, 5):
                        self.assertGreater(sum(d[kind] for d in disturbed.values()), 0, disturbed)

    def test_nothing_counts_twice_and_nothing_is_lost(self):
        for options in ((), ("--replicas", "2"), ("--threads", "3", "--connections", "shared")):
            with self.subTest(options=options):
                run = self.start("-w", "3", "-p", "2", *options, "--drop-messages", "2", "--seed", "5", COUNTERS, "40", "10")
                self.assertEqual(run.wait(90), 0, run.err() + run.out())
                match = re.fullmatch(r"exact, longest round (\S+) s\n", run.out())
                self.assertTrue(match, run.out() + run.err())
                self.assertLess(float(match.group(1)), patient(20))
                self.assertNotIn("lost:", run.err())


if __name__ == "__main__":
    main()
