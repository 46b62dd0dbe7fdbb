#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Inputs that change while several processes load them: logs that grow, are truncated, rotated or removed."""
import json
import os
import shutil
import tempfile
import threading
import unittest

from process_support import BIN, Run, main

WORKERS = 4
LINES = 60000


def lines_of(first, count):
    """Lines of one word each, all distinct."""
    return b"".join(b"line%09d\n" % i for i in range(first, first + count))


class GrowingInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="growing_")
        self.log = os.path.join(self.folder, "log.txt")
        with open(self.log, "wb") as file:
            file.write(lines_of(0, LINES))

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def count_words(self, change, **keys):
        """Runs wc while `change()` is called repeatedly, until the job ends."""
        config = {"input": self.log, "output": "out", "topk": 1, "dump": True}
        config.update(keys)
        with open(os.path.join(self.folder, "cfg.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        over = threading.Event()

        def go_on():
            while not over.is_set():
                change()

        changes = threading.Thread(target=go_on)
        changes.start()
        try:
            run = Run(["-w", str(WORKERS), "-p", "1", "-c", "cfg.json", os.path.join(BIN, "wc")], self.folder)
            run.process.wait()
        finally:
            over.set()
            changes.join()
        return run

    def counts(self):
        found = {}
        for rank in range(WORKERS):
            with open(os.path.join(self.folder, "out", f"wc_{rank}"), encoding="ascii") as file:
                for line in file:
                    word, count = line.split()
                    found[word] = found.get(word, 0) + int(count)
        return found

    def test_a_log_that_grows_while_it_is_loaded_loses_and_doubles_no_line(self):
        written = LINES
        with open(self.log, "ab", buffering=0) as log:
            def grow():
                nonlocal written
                log.write(lines_of(written, 100))
                written += 100

            run = self.count_words(grow)
        self.assertEqual(run.process.returncode, 0, run.err())
        self.assertGreater(written, LINES)
        counts = self.counts()
        self.assertEqual({w: c for w, c in counts.items() if c != 1}, {})
        # All initial lines, and later ones without gaps.
        self.assertGreaterEqual(len(counts), LINES)
        self.assertTrue(sorted(counts) == [f"line{i:09d}" for i in range(len(counts))], "lines are missing")

    def test_files_that_come_and_go_in_a_folder_are_looked_up_once(self):
        folder = os.path.join(self.folder, "logs")
        os.mkdir(folder)
        shutil.move(self.log, os.path.join(folder, "5.txt"))
        next_one = 0

        def add():  # sorted before the existing files, so that it would shift every range
            nonlocal next_one
            with open(os.path.join(folder, f"0.{next_one:06d}.txt"), "wb") as file:
                file.write(b"more%09d\n" % next_one)
            next_one += 1
            if next_one == 2000:
                over.set()
            if over.is_set():
                over.wait(0.01)

        over = threading.Event()
        run = self.count_words(add, input=folder)
        self.assertEqual(run.process.returncode, 0, run.err())
        counts = self.counts()
        self.assertEqual({w: c for w, c in counts.items() if c != 1}, {})
        self.assertEqual(sum(w.startswith("line") for w in counts), LINES)

    def test_a_log_that_is_replaced_meanwhile_is_named_and_nothing_is_written(self):
        spare = os.path.join(self.folder, "spare")
        names = [self.log, spare]
        shutil.copyfile(self.log, spare)

        def replace():  # each time the name refers to another file
            os.replace(names[1], os.path.join(self.folder, "next"))
            shutil.copyfile(names[0], names[1])
            os.replace(os.path.join(self.folder, "next"), names[0])

        for _ in range(50):  # a job may happen to list and to read the input between two changes
            run = self.count_words(replace)
            if run.process.returncode != 0:
                break
            shutil.rmtree(os.path.join(self.folder, "out"))
        self.assertEqual(run.process.returncode, 4, run.err())
        self.assertIn(self.log + ": was replaced or rewritten while it was loaded", run.err())
        self.assertFalse(os.path.exists(os.path.join(self.folder, "out", "wc_0")))


if __name__ == "__main__":
    main()
