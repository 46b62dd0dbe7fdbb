#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Progress of fits: with tqdm of PyPI, and as lines where there is none; in this process and of jobs."""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package  # noqa: E402

in_package("numpy", "scipy", "tqdm")

from test_estimators import Folder  # noqa: E402

BEGIN = """
import sys
import numpy as np
import paracel
r = np.random.RandomState(0)
X = r.randn(400, 5)
y = X @ r.randn(5) + r.randn(400)
"""


class Progress(Folder):
    def said(self, code, tqdm=True):
        """stderr of a program, which prints nothing else."""
        hide = "" if tqdm else "import sys\nsys.modules['tqdm'] = None\n"
        done = subprocess.run([sys.executable, "-c", hide + BEGIN + code], capture_output=True, text=True, check=False,
                              timeout=300, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return done.stderr

    def test_a_bar(self):
        for workers in (None, 2):
            with self.subTest(workers=workers):
                text = self.said(f"model = paracel.GradientBoostingRegressor(n_estimators=40, progress=True, n_workers={workers})"
                                 "\nmodel.fit(X, y)\nassert len(model._forest) == 40")
                last = re.split(r"[\r\n]+", text.strip())[-1]
                self.assertRegex(last, r"^GradientBoostingRegressor: 100%\|.*\| 40/40 \[.*round.*, train_rmse=\d\.\d+\]")

    def test_the_loss_is_the_followed_one(self):
        text = self.said("paracel.GradientBoostingRegressor(n_estimators=10, progress=True).fit(X, y, eval_set=(X, y))\n"
                         "model = paracel.GradientBoostingRegressor(n_estimators=10, progress=True)\n"
                         "model.set_params(eval_metric=lambda y, p: 1.5).fit(X, y, eval_set=(X, y))\n"
                         "paracel.LogisticRegression(progress=True, tol=1e-9).fit(X, y > 0)\n"
                         "paracel.pagerank(np.array([[0, 1], [1, 2], [2, 0], [0, 2]]), progress=True)\n")
        self.assertRegex(text, r"GradientBoostingRegressor: .*\| 10/10 \[.*validate_rmse=\d\.\d+\]")
        self.assertRegex(text, r"GradientBoostingRegressor: .*\| 10/10 \[.*validate_metric=1\.5\]")
        self.assertRegex(text, r"LogisticRegression: .*\[.*objective=0\.\d+\]")
        self.assertRegex(text, r"pagerank: .*\[.*change=")

    def test_each_run_has_its_bar(self):
        text = self.said("from paracel._progress import progress_of\nshown = progress_of('runs')\n"
                         "for run in range(2):\n    for number in range(1, 4 - run):\n"
                         "        shown.report(number, 3, number / 4, 'inertia')\nshown.close()\n")
        self.assertRegex(text, r"runs: 100%.* 3/3 \[.*inertia=0\.75\]")
        self.assertRegex(text.strip(), r"runs: +67%.* 2/3 \[.*inertia=0\.5\]$")

    def test_no_progress_unless_wanted(self):
        self.assertEqual(self.said("paracel.GradientBoostingRegressor(n_estimators=3).fit(X, y)"), "")
        self.assertEqual(self.said("paracel.GradientBoostingRegressor(n_estimators=3, n_workers=1).fit(X, y)"), "")

    def test_lines_without_tqdm(self):
        text = self.said("import time\nbegun = time.monotonic()\n"
                         "def slow(y, raw):\n    time.sleep(0.05)\n    return raw - y, np.ones(len(y))\n"
                         "paracel.GradientBoostingRegressor(n_estimators=50, progress=True, objective=slow).fit(X, y)\n"
                         "print('seconds', int(time.monotonic() - begun), file=sys.stderr)\n", tqdm=False)
        *lines, last = text.splitlines()
        seconds = int(last.split()[1])
        self.assertRegex(lines[0], r"^GradientBoostingRegressor: round \d+/50  round_seconds 0\.\d+$")
        self.assertRegex(lines[-1], r"^GradientBoostingRegressor: round 50/50  ")
        self.assertTrue(3 <= len(lines) <= seconds + 3, text)
        rounds = [int(re.search(r"round (\d+)", line)[1]) for line in lines]
        self.assertEqual(rounds, sorted(set(rounds)))

    def test_lines_of_a_job(self):
        text = self.said("paracel.GradientBoostingRegressor(n_estimators=30, progress=True, n_workers=2).fit(X, y)", tqdm=False)
        self.assertRegex(text.splitlines()[-1], r"^GradientBoostingRegressor: round 30/30  train_rmse \d\.\d+$")

    def test_a_failure_ends_the_bar(self):
        text = self.said("try:\n    paracel.GradientBoostingRegressor(progress=True, objective=lambda y, raw: 1 / 0).fit(X, y)\n"
                         "except ZeroDivisionError:\n    print('failed', file=sys.stderr)\n")
        self.assertEqual(text.splitlines()[-1], "failed")


if __name__ == "__main__":
    unittest.main()
