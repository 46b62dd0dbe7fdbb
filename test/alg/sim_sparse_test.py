#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Similarities of sparse rows, tested by running jobs: equal to brute force and bit-identical for any number of workers."""
import os
import random
import unittest

import numpy
import scipy.sparse

import oracles
from alg_job import LONG, MPI, ONLY_LONG, AlgorithmCase


def parse(lines):
    """{id: [(id, similarity), ...]} of the text form."""
    lists = {}
    for line in lines:
        key, _, rest = line.partition("\t")
        lists[key] = [(name, float(value)) for name, value in (entry.rsplit(":", 1) for entry in rest.split("|"))]
    return lists


class SimilarityCase(AlgorithmCase):
    def compare(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for key, wanted in expected.items():
            got = found[key]
            self.assertEqual(len(got), len(wanted), key)
            of = dict(wanted)
            for (name, value), (_, other) in zip(got, wanted):
                self.assertAlmostEqual(value, other, delta=1e-12)
                # A different id only where it ties with the missing one.
                self.assertTrue(name in of or abs(value - wanted[-1][1]) < 1e-9, (key, name))
            order = [(-value, int(name)) for name, value in got]
            self.assertEqual(order, sorted(order))


class SimSparseTest(SimilarityCase):
    program = "sim_sparse"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(3)
        cls.input = os.path.join(cls.folder, "entries")
        rows = [2**63 + 5, 7, 11, 100] + generator.sample(range(1000, 9999), 116)
        with open(cls.input, "w", encoding="ascii") as file:
            cells = {(generator.choice(rows), int(generator.random() ** 2 * 60)) for _ in range(2500)}
            for row, column in sorted(cells, key=lambda cell: generator.random()):
                file.write(f"{row},{column},{generator.choice((0.5, 1, 2, 3.25, 5, -1, 0))}\n")

    def lists(self, workers=1, servers=1, mode="local", **keys):
        self.said = self.results(self.job(workers, servers, mode, **{"input": self.input, "topk": 8, **keys}))
        return parse(self.lines("similarities", workers))

    def test_equal_to_brute_force_with_every_method_and_filter(self):
        table = [{}, {"sim_method": "jaccard"}, {"sim_method": "pearson"}, {"sim_bar": 0.3, "topk": 500},
                 {"sim_ubar": 0.4, "sim_bar": -0.2}, {"weight_bar": 1, "sim_bar": -1}, {"rbar": 15, "rubar": 25},
                 {"cbar": 20, "cubar": 60, "rbar": 5}, {"intersect_bar": 4}, {"format": "sfv", "rbar": 10},
                 {"sim_method": "pearson", "intersect_bar": 3, "weight_bar": 0.75, "rubar": -1, "sim_ubar": -1}]
        for number, keys in enumerate(table):
            rows, expected = oracles.sim_sparse(self.input, **keys)
            self.assertGreater(len(expected), 0)
            for workers, servers, mode in ((1, 1, "embedded"), (2, 1, "local"), (4, 3, "local")):
                if workers > 1 and number % 3 != workers % 3:
                    continue
                with self.subTest(keys=keys, workers=workers):
                    self.compare(self.lists(workers, servers, mode, **keys), expected)
                    self.assertEqual(self.said["neighbours"], sum(map(len, expected.values())))
                    self.assertEqual(self.said["rows"], rows)

    def test_the_same_bits_for_1_2_4_workers_and_under_mpi(self):
        for method in ("cosine", "pearson"):
            one = self.lists(1, sim_method=method)
            for workers, servers, mode in ((2, 1, "local"), (4, 3, "local")) + (((3, 1, "mpi"),) if MPI else ()):
                with self.subTest(workers=workers, mode=mode):
                    self.assertEqual(self.lists(workers, servers, mode, sim_method=method), one)

    def test_names_as_ids_and_a_row_that_shares_nothing(self):
        path = self.path("names", "ann,x,1\nbob,x,2\nbob,y,1\ncy,z,3\ndot,y,0\n")
        for workers in (1, 3):
            found = self.lists(workers, input=path)
            self.assertEqual({k: [n for n, _ in v] for k, v in found.items()}, {"ann": ["bob"], "bob": ["ann"]})
            self.assertAlmostEqual(found["ann"][0][1], 2 / 5**0.5, delta=1e-15)

    def test_bad_input_is_refused_with_its_place(self):
        path = self.path("bad", "1,2,3\n1,3,abc\n")
        for workers, mode in ((1, "embedded"), (2, "local")):
            self.assertIn("bad:2:5", self.job(workers, 1, mode, status=4, input=path))
        self.assertIn('key "sim_method"', self.job(mode="embedded", status=3, input=self.input, sim_method="dice"))
        self.assertIn('key "topk"', self.job(mode="embedded", status=3, input=self.input, topk=0))

    def test_npy_has_the_same_lists(self):
        expected = self.lists(1)
        self.job(2, input=self.input, topk=8, output_format="npy")
        arrays = self.manifest()["arrays"]

        def read(name, which="files"):
            return numpy.concatenate([numpy.load(os.path.join(self.output, f)) for f in arrays[name][which]])
        ids, counts = read("counts", "ids"), read("counts")
        others, values = read("neighbours", "ids"), read("neighbours")
        ends = numpy.cumsum(counts)
        found = {str(i): list(zip(map(str, others[end - n:end]), values[end - n:end]))
                 for i, n, end in zip(ids, counts, ends)}
        self.assertEqual({k: v for k, v in found.items() if v}, expected)

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_the_figures_of_movielens(self):
        path = self.shared("movielens-small", "ratings.csv")
        self.lists(2, input=path, topk=670, sim_bar=0.5)
        self.assertEqual(self.said["neighbours"], 2 * 867)
        self.assertEqual(self.said["best_pair"], "151 369")
        self.assertAlmostEqual(self.said["best_similarity"], 0.84530088, delta=1e-8)
        # Items, compared with SciPy.
        data = numpy.loadtxt(path, delimiter=",")
        users, u = numpy.unique(data[:, 0], return_inverse=True)
        items, i = numpy.unique(data[:, 1], return_inverse=True)
        matrix = scipy.sparse.csr_matrix((data[:, 2], (i, u)), (len(items), len(users)))
        norm = numpy.sqrt(numpy.asarray(matrix.multiply(matrix).sum(1)).ravel())
        lists = {w: self.lists(w, input=path, format="sfv", topk=20) for w in (1, 2)}
        self.assertEqual(lists[1], lists[2])
        for first in range(0, len(items), 1000):
            block = (matrix[first:first + 1000] @ matrix.T).toarray()
            block /= norm[first:first + 1000, None] * norm[None, :]
            block[numpy.arange(len(block)), first + numpy.arange(len(block))] = 0
            best = -numpy.sort(-block, axis=1)[:, :20]
            for row, wanted in enumerate(best):
                got = lists[2][str(int(items[first + row]))]
                numpy.testing.assert_allclose([v for _, v in got], wanted[wanted > 0], rtol=0, atol=1e-12)
                columns = numpy.searchsorted(items, [int(n) for n, _ in got])
                numpy.testing.assert_allclose(block[row, columns], [v for _, v in got], rtol=0, atol=1e-12)


if __name__ == "__main__":
    unittest.main()
