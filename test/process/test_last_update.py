#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Updates that fail when no call waits for them any more: the program does not exit with status 0, and reports key and cause,
embedded, under prun.py, and with replicas."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, JobTest, clean_environment, main  # noqa: E402

PROGRAM = os.path.join(BIN, "test_last_update")
MODES = {"embedded": None, "local": ("-w", "2", "-p", "2"), "copies": ("-w", "2", "-p", "2", "--replicas", "2")}


class LastUpdate(JobTest):
    def end_of(self, mode, *arguments):
        """(status, stderr)"""
        if MODES[mode] is None:
            done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL, env=clean_environment(), timeout=60)
            return done.returncode, done.stderr
        status, _, err = self.prun(*MODES[mode], PROGRAM, *arguments)
        return status, err

    @staticmethod
    def each(consistencies=("asp", "ssp", "bsp")):
        return [(mode, consistency) for mode in MODES for consistency in consistencies]

    def test_what_fits_ends_well(self):
        for mode, consistency in self.each():
            with self.subTest(mode=mode, consistency=consistency):
                status, err = self.end_of(mode, consistency, "fits")
                self.assertEqual(status, 0, err)
                self.assertNotIn("warning", err)

    def test_an_update_of_another_size_ends_the_program_with_its_key(self):
        for mode, consistency in self.each():
            with self.subTest(mode=mode, consistency=consistency):
                status, err = self.end_of(mode, consistency, "another_size")
                self.assertEqual(status, 5, err)
                self.assertIn('key "doubles": ', err)
                self.assertIn("both must have the same size", err)

    def test_what_bsp_cannot_fold_ends_the_program_with_its_key(self):
        for mode, consistency in self.each(["bsp"]):
            with self.subTest(mode=mode, consistency=consistency):
                status, err = self.end_of(mode, consistency, "fold")
                self.assertEqual(status, 5, err)
                self.assertRegex(err, r'a staged update of rank \d in iteration 0: key "new": ')

    def test_what_no_commit_follows_is_said_to_be_lost(self):
        for mode, consistency in self.each(["bsp"]):
            with self.subTest(mode=mode, consistency=consistency):
                status, err = self.end_of(mode, consistency, "uncommitted")
                self.assertEqual(status, 0, err)
                self.assertRegex(err, r"worker \d: warning: updates since the last iter_commit are lost ")
                self.assertIn('(1; one of them of key "doubles")', err)


if __name__ == "__main__":
    main()
