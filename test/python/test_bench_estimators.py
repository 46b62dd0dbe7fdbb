#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tool/bench/estimators.py: its rows are all estimators, and it measures some of them on little data."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import BUILD, SOURCE, in_package  # noqa: E402

in_package("numpy", "scipy", "sklearn")
sys.path.insert(0, os.path.join(SOURCE, "tool", "bench"))

import estimators  # noqa: E402
import paracel  # noqa: E402


class Estimators(unittest.TestCase):
    def test_each_has_a_row_or_no_counterpart(self):
        with_fit = {name for name in paracel.__all__ if hasattr(getattr(paracel, name), "fit")}
        self.assertEqual(with_fit, {row.estimator for row in estimators.ROWS} | set(estimators.WITHOUT))
        self.assertEqual(len({row.name for row in estimators.ROWS}), len(estimators.ROWS))

    def measured(self, *words):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, os.path.join(SOURCE, "tool", "bench", "estimators.py"), "--build", BUILD, "--python",
                       sys.executable, "--runs", "1", "--json", file.name, *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            return done.stdout, json.load(file)["rows"]

    def test_beside_scikit_learn(self):
        said, (ridge, spectral) = self.measured("--rows", "Ridge,SpectralClustering", "--scale", "0.005")
        for row in (ridge, spectral):
            self.assertTrue(row["equal_quality"], said)
            self.assertGreater(row["workers"]["2"]["bytes"], row["workers"]["0"]["bytes"])
            self.assertEqual(row["why"] != "", any(w["ratio"] < 1 for w in row["workers"].values()), said)
        self.assertIn("| Ridge | 10000 | ", said)

    def test_beside_the_program(self):
        said, (row,) = self.measured("--rows", "Ridge", "--scale", "0.1", "--beside", "program")
        self.assertLess(row["bytes_ratio"], 1.2, said)
        self.assertGreater(row["seconds_ratio"], 0.2, said)


if __name__ == "__main__":
    unittest.main()
