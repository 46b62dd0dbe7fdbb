#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A logistic regression driver in the style of Paracel 0.3, around today's class: its output and exit status."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
DRIVER = os.path.join(BUILD, "bin", "test_old_lr")
LR = os.path.join(BUILD, "bin", "lr")


class OldDriver(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="paracel_old_driver_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_here([os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o", "train.dat", "-n", "2500", "-k",
                       "10"])
        self.keys = {"training_input": "train.dat", "test_input": "train.dat", "predict_input": "train.dat", "output": "out",
                     "update_file": os.path.join(BUILD, "lib", "liblr_update.so"), "update_func": "lr_theta_update",
                     "method": "dgd", "rounds": 100, "alpha": 0.001, "beta": 0.001, "debug": False}

    def run_here(self, command, status=0):
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def job(self, program, way, status=0, **keys):
        with open(os.path.join(self.folder, "c.json"), "w", encoding="utf-8") as file:
            json.dump({**self.keys, **keys}, file)
        if way == "embedded":
            return self.run_here([program, "--cfg_file", "c.json"], status)
        workers, mode = way
        return self.run_here([os.path.join(SOURCE, "prun.py"), "-w", str(workers), "-p", "2", "-c", "c.json", "-m", mode,
                              program], status)

    def objective(self):
        with open(os.path.join(self.folder, "out", "model.json"), encoding="utf-8") as file:
            return json.load(file)["objective"]

    def test_it_reaches_what_paracel_did_in_every_mode(self):
        objectives = []
        for way in "embedded", (3, "local"), (2, "mpi"):
            said = self.job(DRIVER, way)
            self.assertRegex(said, "(?m)^final loss: 0\\.19")
            self.assertRegex(said, "(?m)^loss in test dataset is: 0\\.19")
            self.assertRegex(said, "(?m)^0\\.5$")  # the hypothesis of a sample of zeros
            objectives.append(self.objective())
        for objective in objectives:
            self.assertAlmostEqual(objective, objectives[0], delta=1e-12)
        self.job(LR, "embedded", gradient="sum")
        self.assertAlmostEqual(self.objective(), objectives[0], delta=1e-12)
        self.job(LR, "embedded", alpha=2.5)  # the mean of 2,500 samples
        self.assertAlmostEqual(self.objective(), objectives[0], delta=1e-12)
        self.job(LR, "embedded")
        self.assertGreater(self.objective(), 0.5)

    def test_a_driver_that_prints_and_returns_1_does_so(self):
        for way in "embedded", (2, "local"):
            self.assertRegex(self.job(DRIVER, way, status=1, test_input="nowhere.dat"),
                             r'not started: c.json: key "test_input": no such file or folder: nowhere.dat')


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
