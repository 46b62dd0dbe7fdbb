#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Parts of the launcher that need no job."""
import os
import sys
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tool"))

from launcher.job import LATE, Job  # noqa: E402


class Deadlines(unittest.TestCase):
    def test_all_but_the_timeout_are_extended_after_a_suspension(self):
        job = Job.__new__(Job)
        before = {"timeout": 10.0, "ready": 11.0, "explained": 12.0, "early": 13.0, "stop": 14.0}
        job.deadlines = dict(before)
        job.extend_deadlines(LATE / 2)
        self.assertEqual(job.deadlines, before)
        job.extend_deadlines(5.0)
        self.assertEqual(job.deadlines, {name: at + (0 if name == "timeout" else 5) for name, at in before.items()})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
