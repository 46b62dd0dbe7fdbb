#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Similarities of dense rows, tested by running jobs: equal to brute force for any number of workers, for one matrix and for
two."""
import os
import random
import unittest

import numpy

import oracles
from alg_job import MPI
from sim_sparse_test import SimilarityCase, parse


class SimDenseTest(SimilarityCase):
    program = "sim_dense"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(8)
        cls.a, cls.b = os.path.join(cls.folder, "a"), os.path.join(cls.folder, "b")
        for path, rows in ((cls.a, 150), (cls.b, 70)):
            ids = generator.sample(range(400), rows - 1) + [2**64 - 1]
            with open(path, "w", encoding="ascii") as file:
                for row, name in enumerate(ids):
                    values = [0] * 9 if row % 40 == 7 else [round(generator.gauss(0, 1), 2) for _ in range(9)]
                    file.write(f"{name}," + ",".join(map(str, values)) + "\n")

    def lists(self, workers=1, servers=1, mode="local", **keys):
        self.said = self.results(self.job(workers, servers, mode, **{"topk": 7, **keys}))
        return parse(self.lines("result", workers))

    def test_equal_to_brute_force_and_the_same_bits_for_1_2_4_workers(self):
        for keys in ({}, {"simbar": -1, "topk": 200}, {"simbar": 0.5}):
            expected = oracles.sim_dense(self.a, **keys)
            one = self.lists(1, 1, "embedded", input=self.a, **keys)
            self.compare(one, expected)
            self.assertEqual(self.said["neighbours"], sum(map(len, expected.values())))
            for workers, servers, mode in ((2, 1, "local"), (4, 3, "local")) + (((3, 1, "mpi"),) if MPI and not keys else ()):
                with self.subTest(keys=keys, workers=workers, mode=mode):
                    self.assertEqual(self.lists(workers, servers, mode, input=self.a, **keys), one)

    def test_rows_of_one_direction_have_a_similarity_of_at_most_1(self):
        rows = self.path("one_direction", "".join(f"r{i} " + " ".join(str(0.1 * i * v) for v in (1, 3, 7, 11, 13)) + "\n"
                                                  for i in range(1, 40)))
        for workers in (1, 2):
            found = self.lists(workers, input=rows, topk=50)
            self.assertTrue(all(0.999999 < s <= 1 for row in found.values() for _, s in row))
            self.assertLessEqual(self.said["best_similarity"], 1)

    def test_rows_of_one_matrix_among_those_of_another(self):
        for keys in ({}, {"simbar": -1, "topk": 100}):
            expected = oracles.sim_dense(self.a, self.b, **keys)
            one = None
            for workers, servers in ((1, 1), (2, 1), (4, 3)):
                with self.subTest(keys=keys, workers=workers):
                    found = self.lists(workers, servers, program="ab_sim_dense", input_a=self.a, input_b=self.b, **keys)
                    self.compare(found, expected)
                    one = one or found
                    self.assertEqual(found, one)
        # Equal ids are not skipped: a row is its own nearest neighbour.
        same = self.lists(2, program="ab_sim_dense", input_a=self.a, input_b=self.a, topk=1)
        for name, entries in same.items():
            self.assertEqual(entries[0][0], name)
            self.assertAlmostEqual(entries[0][1], 1, delta=1e-12)

    def test_more_workers_than_rows_names_and_row_numbers(self):
        names = self.path("few", "ann 1 0 2\nbob 2 0 4\n\ncy 0 1 0\n")
        self.assertEqual({k: [n for n, _ in v] for k, v in self.lists(4, input=names, simbar=0.1).items()},
                         {"ann": ["bob"], "bob": ["ann"]})
        table = self.path("table", "1;0;9\n2;0;9\n0;1;9\n")
        found = self.lists(2, input=table, ids="row", label=True)
        self.assertEqual({k: [n for n, _ in v] for k, v in found.items()}, {"0": ["1", "2"], "1": ["0", "2"], "2": ["0", "1"]})

    def test_npy_has_the_same_lists(self):
        expected = self.lists(1, input=self.a)
        self.job(2, input=self.a, topk=7, format="npy")
        arrays = self.manifest()["arrays"]

        def read(name, which="files"):
            return numpy.concatenate([numpy.load(os.path.join(self.output, f)) for f in arrays[name][which]])
        ids, counts, others, values = read("counts", "ids"), read("counts"), read("neighbours", "ids"), read("neighbours")
        ends = numpy.cumsum(counts)
        found = {str(i): list(zip(map(str, others[end - n:end]), values[end - n:end])) for i, n, end in zip(ids, counts, ends)}
        self.assertEqual({k: v for k, v in found.items() if v}, expected)

    def test_bad_input_is_refused(self):
        # The first error in the order of the files, for any number of workers.
        for text, said in (("1,2,3\n2,3,x\n", 'bad:2:5: found "x"'),
                           ("1,2,3\n2,3\n", "bad:2:1: found 1 numbers, want 2"),
                           ("\n1,2\n2,3\n3,4\n4,5\n5,6,7\n6,8\n7,x\n", "bad:6:1: found 2 numbers, want 1"),
                           ("1,2,3\n2,3\n3,4\n4,5\n5,6,x\n", "bad:2:1: found 1 numbers, want 2"),
                           ("1,x,3\n2,3\n3,4\n4,5\n", 'bad:1:3: found "x"'),
                           ("1,2\n1,3\n", 'bad:2:1: found the id "1" of an earlier row, want a different id for each row'),
                           ("9,1\n\nann,2\ncy,1\nbob,3\nann,4\n9,5\n", 'bad:6:1: found the id "ann" of an earlier row'),
                           ("9,1\n8,2\n7,1\n6,3\n7,4\n9,5\n", 'bad:5:1: found the id "7" of an earlier row')):
            bad = self.path("bad", text)
            for workers, mode in ((1, "embedded"), (2, "local"), (3, "local")):
                with self.subTest(text=text, workers=workers):
                    self.assertIn(said, self.job(workers, 1, mode, status=4, input=bad))
        bad, good = self.path("bad", "1,2,3\n2,5,6\n3,5,6\n"), self.path("good", "1,2\n")
        for workers in (1, 3):
            said = self.job(workers, 1, "local", status=4, program="ab_sim_dense", input_a=good, input_b=bad)
            self.assertIn("bad:1:1: found 2 numbers, want 1", said)
        self.assertIn("found no line, want an id and numbers", self.job(2, status=4, input=self.path("bad", "\n")))
        self.assertIn('"simbar"', self.job(1, 1, "embedded", status=3, input=self.a, simbar=2))

    def test_the_figures_of_the_digits(self):
        path = self.shared("optdigits", "optdigits.tra")
        one = None
        for workers in (1, 2):
            found = self.lists(workers, input=path, ids="row", label=True, topk=5)
            self.assertEqual(self.said["best_pair"], "3556 3576")
            self.assertAlmostEqual(self.said["best_similarity"], 0.994886291, delta=5e-10)
            one = one or found
            self.assertEqual(found, one)
        rows = numpy.loadtxt(path, delimiter=",")[:, :64]
        rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
        product = rows @ rows.T
        self.assertAlmostEqual((product.sum() - numpy.trace(product)) / 2, 5048882.409, delta=5e-4)
        numpy.fill_diagonal(product, -1)
        best = -numpy.sort(-product, axis=1)[:, :5]
        for row, wanted in enumerate(best):
            numpy.testing.assert_allclose([v for _, v in one[str(row)]], wanted, rtol=0, atol=1e-12)
            numpy.testing.assert_allclose([product[row, int(n)] for n, _ in one[str(row)]], wanted, rtol=0, atol=1e-12)


if __name__ == "__main__":
    unittest.main()
