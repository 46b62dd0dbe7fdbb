#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Word counts, tested by running jobs: equal to coreutils line by line, for any number of workers and servers and in every mode.
The Bible of TOOLBOX.md is looked for in $PARACEL_SHARED_DATA, else in ../shared/data. Options: names of tests."""
import collections
import os
import random
import re
import subprocess
import unittest

import numpy

from alg_job import MPI, AlgorithmCase


def coreutils(path, tokens):
    """{word: count} by tr, sort and uniq."""
    change = "tr -cs 'A-Za-z0-9_-' '\\n'" if tokens == "paracel" else "tr -s '\\t\\n\\v\\f\\r ' '\\n'"
    done = subprocess.run(f"LC_ALL=C; export LC_ALL; {change} < '{path}' | sort | uniq -c", shell=True, capture_output=True,
                          check=True)
    counts = {}
    for line in done.stdout.split(b"\n"):
        fields = line.lstrip().split(b" ", 1)
        if len(fields) == 2 and fields[1]:
            counts[fields[1]] = int(fields[0])
    return counts


class WcTest(AlgorithmCase):
    program = "wc"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = os.path.join(cls.folder, "text.txt")
        generator = random.Random(5)
        pieces = [b"a", b"bc", b"-", b"_9", b"Xyz", b"\xc3\xa4", b"abcdefgh", b"abcdefghi", b"\x00", b"."]
        with open(cls.text, "wb") as file:
            for _ in range(20000):
                file.write(b"".join(generator.choice(pieces) for _ in range(generator.randrange(1, 6))))
                file.write(generator.choice([b" ", b" ", b"\t", b"\n", b"\r\n", b"\v", b"\f", b"  "]))
            file.write(b"the-last-word")  # no line end

    def run_wc(self, *where, **keys):
        return self.job(*where, **{"input": self.text, "dump": True, **keys})

    def dumped(self, workers):
        counts = {}
        for rank in range(workers):
            with open(os.path.join(self.output, f"wc_{rank}"), "rb") as file:
                lines = file.read().split(b"\n")[:-1]
            self.assertEqual(lines, sorted(lines, key=lambda line: line.split(b"\t")[0]))
            for line in lines:
                word, count = line.split(b"\t")
                self.assertNotIn(word, counts)
                counts[word] = int(count)
        return counts

    def top(self, counts, k):
        return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:k]

    def test_equal_to_coreutils_for_any_number_of_workers_and_servers(self):
        for tokens in ("paracel", "space"):
            expected = coreutils(self.text, tokens)
            first = b"".join(b"%s : %d\n" % entry for entry in self.top(expected, 25))
            for workers, servers, mode in ((1, 1, "embedded"), (1, 1, "local"), (2, 1, "local"), (4, 3, "local")):
                with self.subTest(tokens=tokens, workers=workers, servers=servers, mode=mode):
                    said = self.run_wc(workers, servers, mode, tokens=tokens, topk=25)
                    self.assertEqual(self.dumped(workers), expected)
                    self.assertIn(first.decode(errors="replace"), said)
                    self.assertIn(f"distinct {len(expected)}\n", said)
                    self.assertIn(f"words {sum(expected.values())}\n", said)

    @unittest.skipUnless(MPI, "no mpirun")
    def test_equal_under_mpi(self):
        self.run_wc(2, 1, "mpi")
        self.assertEqual(self.dumped(2), coreutils(self.text, "paracel"))

    def test_equal_to_a_regular_expression(self):
        self.run_wc(2)
        with open(self.text, "rb") as file:
            self.assertEqual(self.dumped(2), collections.Counter(re.findall(rb"[A-Za-z0-9_-]+", file.read())))

    def test_npy_gives_words_and_counts(self):
        self.run_wc(2, format="npy")
        array = self.manifest()["arrays"]["counts"]
        counts = {}
        for numbers, names in zip(array["files"], array["ids"]):
            with open(os.path.join(self.output, names), "rb") as file:
                words = file.read().split(b"\n")[:-1]
            counts.update(zip(words, numpy.load(os.path.join(self.output, numbers)).tolist()))
        self.assertEqual(counts, coreutils(self.text, "paracel"))

    def test_several_files_are_one_text_and_one_without_a_word_is_refused(self):
        folder = os.path.join(self.folder, "many")
        os.makedirs(folder, exist_ok=True)
        for name, content in (("a", b"one two"), ("b", b"three"), ("c", b""), ("d", b"\n\n two \n")):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        for workers in (1, 3):
            self.run_wc(workers, input=folder)
            self.assertEqual(self.dumped(workers), {b"one": 1, b"two": 2, b"three": 1})
        self.assertIn("c:1:1: found no word, want text", self.run_wc(2, status=4, input=os.path.join(folder, "c")))

    def test_a_wrong_key_is_refused_with_status_3(self):
        self.assertIn('key "tokens"', self.run_wc(0, status=3, tokens="letters"))
        self.assertIn("/no/such", self.run_wc(0, status=3, input="/no/such"))

    def test_the_figures_of_the_bible(self):
        path = self.shared("bible-kjv", "kjv.txt")
        for tokens, distinct, words, first in (("space", 59958, 820736, ()),
                                               ("paracel", 14884, 853603, ("the : 62057\nand : 38844\nof : 34428\n",))):
            expected = coreutils(path, tokens)
            self.assertEqual((len(expected), sum(expected.values())), (distinct, words))
            for workers in (1, 2, 4):
                said = self.run_wc(workers, input=path, tokens=tokens, topk=3)
                self.assertEqual(self.dumped(workers), expected)
                for text in first:
                    self.assertIn(text, said)


if __name__ == "__main__":
    unittest.main()
