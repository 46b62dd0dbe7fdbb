#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""doc/which_algorithm.md: its tables are those that tool/bench/which_algorithm.py prints, which runs here on smaller data."""
import os
import re
import subprocess
import sys
import unittest

from alg_job import BUILD, LONG, ONLY_LONG, SOURCE


def tables_of(text):
    """{title: [(program, quality)]}; titles are those of the data sets."""
    found, rows = {}, []
    for line in text.splitlines():
        title = re.match(r"(\w[\w ]*): .* \(`-m \w+ .*-n \d+`\)", line)
        row = re.match(r"\| ([a-z][\w, -]*) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", line)
        if title:
            rows = found.setdefault(title[1], [])
        elif row:
            rows.append((row[1], float(row[2])))
    return found


class WhichAlgorithm(unittest.TestCase):
    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_the_tables_can_be_measured_again(self):
        tool = [sys.executable, "-B", os.path.join(SOURCE, "tool", "bench", "which_algorithm.py"), "--build", BUILD]
        done = subprocess.run([*tool, "--scale", "0.1"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        measured = tables_of(done.stdout)
        with open(os.path.join(SOURCE, "doc", "which_algorithm.md"), encoding="utf-8") as file:
            written = tables_of(file.read())
        self.assertEqual({title: [name for name, _ in rows] for title, rows in written.items()},
                         {title: [name for name, _ in rows] for title, rows in measured.items()})
        self.assertGreaterEqual(len(measured), 6)
        for title, rows in measured.items():
            for name, quality in rows:
                with self.subTest(title=title, name=name):
                    if title in ("lines", "curves", "words"):
                        self.assertTrue(0.5 < quality <= 1, quality)
                    else:
                        self.assertTrue(0 < quality < 200, quality)  # the spread of the targets is 100
        refused = subprocess.run([*tool, "--sets", "none"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("found none, want some of lines", refused.stderr)


if __name__ == "__main__":
    unittest.main()
