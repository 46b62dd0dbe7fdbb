# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of lr share: data, configs, jobs.

The data sets a9a and agaricus are looked for in $PARACEL_TEST_DATA, else in ../shared/data.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
DATA = os.environ.get("PARACEL_TEST_DATA") or os.path.join(os.path.dirname(SOURCE), "shared", "data")
LR = os.path.join(BUILD, "bin", "lr")
PACED = os.path.join(BUILD, "lib", "test_plugins", "libpaced_updates.so")
PRUN = os.path.join(SOURCE, "prun.py")


def data(*name):
    path = os.path.join(DATA, *name)
    return path if os.path.exists(path) else None


def samples_of(path):
    """(features, labels of -1 and +1) of a CSV file"""
    table = numpy.loadtxt(path, delimiter=",")
    return table[:, :-1], numpy.where(table[:, -1] > 0, 1.0, -1.0)


def run(command, timeout=120, **environment):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          timeout=timeout, env={**os.environ, **environment}, cwd=SOURCE)


class LrCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="lr_test_")
        cls.train = os.path.join(cls.folder, "train.csv")
        cls.small = os.path.join(cls.folder, "small.csv")
        for path, n, k in ((cls.train, 2500, 100), (cls.small, 203, 5)):
            run([sys.executable, "-B", os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o", path,
                 "-n", str(n), "-k", str(k), "--seed", "5"]).check_returncode()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        self.count = 0

    def config(self, text=None, **keys):
        """Writes a config and returns its name; `output` is a new folder unless given."""
        self.count += 1
        base = os.path.join(self.folder, f"{self.id().split('.')[-1]}_{self.count}")
        self.output = keys.setdefault("output", base + "_out")
        path = base + ".json"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if text is not None else json.dumps(keys, indent=2))
        return path

    def job(self, workers, servers, mode="local", timeout=120, **keys):
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01, **keys}
        config = self.config(**keys)
        if mode == "embedded":
            return run([LR, "--cfg_file", config], timeout)
        command = [sys.executable, "-B", PRUN, "-w", str(workers), "-p", str(servers), "-c", config, "-m", mode,
                   "--output-dir", config + ".run"]
        return run(command + [LR], timeout, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def train_model(self, workers, servers, mode="local", timeout=120, **keys):
        done = self.job(workers, servers, mode, timeout, **keys)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.output, "model.json"), encoding="utf-8") as file:
            return json.load(file)

    def theta(self):
        with open(os.path.join(self.output, "lr_theta_0"), encoding="ascii") as file:
            return file.read()
