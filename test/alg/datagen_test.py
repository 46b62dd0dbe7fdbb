#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tool/datagen.py: the format, the seed, the options, and that what it makes can be learned."""
import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
TOOL = os.path.join(SOURCE, "tool", "datagen.py")


def datagen(*options):
    return subprocess.run([sys.executable, "-B", TOOL, *options], capture_output=True, text=True, stdin=subprocess.DEVNULL)


class Datagen(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "out.dat")

    def rows(self, *options):
        done = datagen("-o", self.path, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path, encoding="ascii") as file:
            return file.read().splitlines()

    def test_classification_has_n_lines_of_k_features_and_a_label(self):
        rows = self.rows("-m", "classification", "-n", "200", "-k", "7")
        self.assertEqual(len(rows), 200)
        labels = []
        for row in rows:
            fields = row.split(",")
            self.assertEqual(len(fields), 8)
            [float(field) for field in fields[:-1]]
            labels.append(fields[-1])
        self.assertEqual(set(labels), {"0", "1"})

    def test_regression_has_a_real_target(self):
        rows = self.rows("-m", "regression", "-n", "50", "-k", "3")
        self.assertTrue(all(len(row.split(",")) == 4 for row in rows))
        self.assertGreater(len({row.split(",")[-1] for row in rows}), 45)

    def test_the_size_is_2500_by_100_unless_said(self):
        rows = self.rows("-m", "classification")
        self.assertEqual((len(rows), rows[0].count(",")), (2500, 100))

    def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(self):
        first = self.rows("-m", "classification", "-n", "20", "-k", "5", "--seed", "3")
        self.assertEqual(first, self.rows("-m", "classification", "-n", "20", "-k", "5", "--seed", "3"))
        self.assertNotEqual(first, self.rows("-m", "classification", "-n", "20", "-k", "5", "--seed", "4"))

    def test_the_separator_can_be_chosen(self):
        for separator in ("\t", ";", "%", "%%"):
            row = self.rows("-m", "classification", "-n", "2", "-k", "3", "-s", separator)[0]
            self.assertEqual(len(row.split(separator)), 4)

    def test_what_it_makes_can_be_learned(self):
        oracle = os.path.join(BUILD, "bin", "lr_serial")
        if not os.path.exists(oracle):
            self.skipTest("lr_serial is not built")
        self.rows("-m", "classification", "-n", "2000", "-k", "30")
        done = subprocess.run([oracle, self.path, "--test", self.path, "--beta", "0.001"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=True)
        accuracy = float(dict(line.split() for line in done.stdout.splitlines())["accuracy"])
        self.assertGreater(accuracy, 0.88)
        self.assertLess(accuracy, 0.999)

    def test_a_wrong_option_is_a_usage_error(self):
        for options in (["-m", "nothing", "-o", self.path], ["-m", "classification"],
                        ["-m", "classification", "-o", self.path, "-n", "0"]):
            done = datagen(*options)
            self.assertEqual(done.returncode, 2)
            self.assertFalse(os.path.exists(self.path))

    def test_a_file_that_cannot_be_written_is_said(self):
        done = datagen("-m", "classification", "-o", os.path.join(self.folder.name, "no", "out.dat"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("No such file or directory", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
