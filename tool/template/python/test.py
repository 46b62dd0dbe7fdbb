# SPDX-License-Identifier: BSD-3-Clause
"""test.py [PRUN]: the program against NumPy's least squares, alone and as jobs of several workers."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "my_algorithm.py")
PRUN = [sys.executable, "-S", sys.argv[1] if len(sys.argv) > 1 else "PARACEL_PRUN"]


def run(*command):
    return subprocess.run(command, cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


class MyAlgorithm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_it_finds_the_least_squares_line(self):
        x, y = np.loadtxt(os.path.join(HERE, "points.csv"), delimiter=",", unpack=True)
        slope, height = np.polyfit(x, y, 1)
        launcher = [*PRUN, "--output-dir", self.folder]
        for command in ([sys.executable], launcher, [*launcher, "-w", "3", "-p", "2"]):
            with self.subTest(command=command):
                done = run(*command, PROGRAM, "--cfg_file", "my_algorithm.json", "--set", f"output={self.folder}")
                self.assertEqual(done.returncode, 0, done.stderr)
                np.testing.assert_allclose(np.load(os.path.join(self.folder, "line.npy")), [height, slope], atol=1e-6)

    def test_a_wrong_line_is_an_error(self):
        bad = os.path.join(self.folder, "bad.csv")
        with open(bad, "w", encoding="utf-8") as file:
            file.write("1,2\n3\n")
        done = run(sys.executable, PROGRAM, "--cfg_file", "my_algorithm.json", "--set", f"training_input={bad}")
        self.assertEqual(done.returncode, 4)
        self.assertIn("found 3, want x,y", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
