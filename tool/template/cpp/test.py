# SPDX-License-Identifier: BSD-3-Clause
"""test.py PROGRAM PRUN: the program against a closed form, alone and as jobs of several workers."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM, PRUN = sys.argv[1:3]


def run(*command):
    return subprocess.run(command, cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


class MyAlgorithm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def line_of(self, *command):
        """The result of a run: height, slope."""
        done = run(*command, "--cfg_file", "my_algorithm.json", "--set", f"output={self.folder}")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "line_0"), encoding="utf-8") as file:
            return [float(value) for value in json.loads("[" + file.read() + "]")]

    def test_it_finds_the_least_squares_line(self):
        with open(os.path.join(HERE, "points.csv"), encoding="utf-8") as file:
            points = [tuple(map(float, line.split(","))) for line in file]
        mean_x, mean_y = (sum(p[i] for p in points) / len(points) for i in (0, 1))
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
        launcher = [PRUN, "--output-dir", self.folder]
        for command in ([PROGRAM], [*launcher, PROGRAM], [*launcher, "-w", "3", "-p", "2", PROGRAM]):
            with self.subTest(command=command[:-1]):
                height, found = self.line_of(*command)
                self.assertAlmostEqual(height, mean_y - slope * mean_x, delta=1e-6)
                self.assertAlmostEqual(found, slope, delta=1e-6)

    def test_a_wrong_config_is_refused_before_anything_starts(self):
        done = run(PRUN, "-c", "my_algorithm.json", "--set", "alpha=2", "--output-dir", self.folder, PROGRAM)
        self.assertEqual(done.returncode, 3)
        self.assertIn('key "alpha": found number 2, want a number > 0 and <= 1', done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
