#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Weights of points in k-means: a fixed point on repeated points, every number of workers and every form of the weights,
scikit-learn's sample_weight, weights of 0, of any size and in a model. Options: names of tests."""
import os
import unittest

import numpy

import oracles
from alg_job import BUILD, AlgorithmCase

try:
    from sklearn import cluster as sklearn_cluster
except ImportError:  # the oracle; other tests do not need it
    sklearn_cluster = None


class KmeansWeightsTest(AlgorithmCase):
    program = "kmeans"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(5)
        middles = random.normal(size=(5, 3)) * 2
        cls.x = numpy.round(middles[random.integers(0, 5, 400)] + random.normal(size=(400, 3)), 3)
        # Weights that are greater on one side, so that weighted clusters are not the plain ones.
        cls.weight = random.integers(0, 3, 400) + 6 * (cls.x[:, 0] > 1)
        cls.plain = cls.csv(cls, "plain", cls.x)
        cls.repeated = cls.csv(cls, "repeated", numpy.repeat(cls.x, cls.weight, axis=0))
        cls.named = cls.csv(cls, "named", numpy.column_stack([cls.x[:, :1], cls.weight, cls.x[:, 1:]]), "a,w,b,c\n")
        cls.numbered = cls.csv(cls, "numbered", numpy.column_stack([cls.x, cls.weight]))
        cls.numbers = cls.csv(cls, "numbers", cls.weight[:, None])

    def csv(self, name, rows, header=""):
        lines = [",".join(f"{v:.17g}" for v in row) + "\n" for row in rows]
        return AlgorithmCase.path(self, name + ".csv", header + "".join(lines))

    def cluster(self, *where, **keys):
        """(results, centres, labels, counts)"""
        where = where or (1, 1, "embedded")
        found = self.results(self.job(*where, **{"kclusters": 5, **keys}))
        centres = [[float(v) for v in line.split("\t")[1].split("|")] for line in self.lines("centers", 1)]
        labels = [int(line.split("\t")[1]) for line in self.lines("labels", where[0])]
        counts = [float(v) for v in self.lines("counts", 1)[0].split("|")]
        return found, numpy.array(centres), numpy.array(labels), numpy.array(counts)

    def check_weighted(self, x, weight, found, centres, labels, counts):
        """Labels of the nearest centres, which are weighted means, and weighted inertia and counts."""
        square = ((x[:, None, :] - centres[None]) ** 2).sum(axis=2)
        numpy.testing.assert_array_equal(labels, square.argmin(axis=1))
        numpy.testing.assert_allclose(found["inertia"], (weight * square.min(axis=1)).sum(), rtol=1e-12)
        numpy.testing.assert_allclose(counts, numpy.bincount(labels, weight, len(centres)), rtol=1e-12)
        for c in numpy.flatnonzero(counts):
            numpy.testing.assert_allclose(centres[c], numpy.average(x[labels == c], axis=0, weights=weight[labels == c]),
                                          rtol=1e-9, atol=1e-12)

    def test_the_result_is_a_fixed_point_for_repeated_points(self):
        for seed in range(4):
            found, centres, labels, counts = self.cluster(input=self.named, weight="w", seed=seed)
            self.assertEqual(found["converged"], "yes")
            self.check_weighted(self.x, self.weight, found, centres, labels, counts)
            for rounds in (0, 1):
                inertia, _ = oracles.kmeans(numpy.repeat(self.x, self.weight, axis=0), centres, rounds)
                self.assertAlmostEqual(inertia / found["inertia"], 1, delta=1e-12)

    def test_the_best_of_many_runs_is_that_of_repeated_points(self):
        weighted, plain = (self.cluster(input=path, n_init=20, **keys)[0]["inertia"]
                           for path, keys in ((self.named, {"weight": "w"}), (self.repeated, {})))
        self.assertAlmostEqual(weighted / plain, 1, delta=1e-9)

    def test_every_number_of_workers_and_every_form_of_the_weights_gives_the_same(self):
        svm = self.path("points.svm", "".join(" ".join(["0"] + [f"{j + 1}:{v!r}" for j, v in enumerate(row)]) + "\n"
                                              for row in numpy.column_stack([self.x, self.weight]).tolist()))
        numpy.save(self.path("points.npy"), numpy.column_stack([self.x, self.weight]))
        fvec = self.path("points.txt", "".join(f"p{i}\t" + ",".join(map(repr, row)) + "\n"
                                               for i, row in enumerate(self.x.tolist())))
        plugin = {"update_file": os.path.join(BUILD, "lib", "libkmeans_update.so"),
                  "update_functions": ["local_update_kmeans_clusters", "local_update_kmeans_groups"]}
        for seed in (0, 7):
            first = self.cluster(input=self.named, weight="w", seed=seed)
            for where, keys in (((3,), {"input": self.named, "weight": "w"}), ((4, 2), {"input": self.numbered, "weight": 3}),
                                ((2,), {"input": self.plain, "row_weights": self.numbers}),
                                ((2,), {"input": fvec, "row_weights": self.numbers}),
                                ((2,), {"input": svm, "weight": 3}), ((1,), {"input": self.path("points.npy"), "weight": 3}),
                                ((3, 2), {"input": self.named, "weight": "w", **plugin})):
                with self.subTest(seed=seed, where=where, **keys):
                    found, centres, labels, counts = self.cluster(*where, seed=seed, **keys)
                    self.assertAlmostEqual(found["inertia"] / first[0]["inertia"], 1, delta=1e-9)
                    numpy.testing.assert_allclose(centres, first[1], rtol=1e-9, atol=1e-9)
                    numpy.testing.assert_array_equal(labels, first[2])
                    numpy.testing.assert_array_equal(counts, first[3])

    def test_weights_change_mini_batches(self):
        mean = numpy.average(self.x, axis=0, weights=self.weight)
        self.assertGreater(numpy.abs(mean - self.x.mean(axis=0)).max(), 0.5)
        whole = self.cluster(input=self.named, weight="w", n_init=20)[0]["inertia"]
        for seed in range(3):
            one, same = (self.cluster(w, input=self.named, weight="w", kclusters=1, batch_size=64, rounds=60, seed=seed)[1]
                         for w in (1, 3))
            numpy.testing.assert_allclose(one, same, rtol=1e-9)
            numpy.testing.assert_allclose(one[0], mean, atol=0.1)
            found = self.cluster(2, input=self.named, weight="w", batch_size=64, rounds=30, n_init=5, seed=seed)[0]["inertia"]
            self.assertLess(found, 1.02 * whole)

    def test_other_metrics_are_weighted(self):
        for metric, x in (("cosine", self.x), ("haversine", self.x[:, :2])):
            path = self.csv(f"metric_{metric}", numpy.column_stack([x, self.weight]))
            again = self.csv(f"repeated_{metric}", numpy.repeat(x, self.weight, axis=0))
            best = [self.cluster(input=p, metric=metric, n_init=20, kclusters=3, **keys)[0]["inertia"]
                    for p, keys in ((path, {"weight": x.shape[1]}), (again, {}))]
            self.assertAlmostEqual(best[0] / best[1], 1, delta=1e-9)

    @unittest.skipUnless(sklearn_cluster, "no scikit-learn")
    def test_the_clusters_are_those_of_scikit_learn(self):
        for seed in range(3):
            weight = numpy.round(numpy.random.default_rng(seed).exponential(size=400), 6)
            path = self.csv("real", numpy.column_stack([self.x, weight]))
            found, centres, labels, _ = self.cluster(2, input=path, weight=3, n_init=10, seed=seed)
            theirs = sklearn_cluster.KMeans(5, init=centres, n_init=1, tol=0).fit(self.x, sample_weight=weight)
            numpy.testing.assert_allclose(theirs.cluster_centers_, centres, rtol=1e-9, atol=1e-9)
            numpy.testing.assert_array_equal(theirs.labels_, labels)
            self.assertAlmostEqual(theirs.inertia_ / found["inertia"], 1, delta=1e-9)
            best = sklearn_cluster.KMeans(5, n_init=10, random_state=seed).fit(self.x, sample_weight=weight).inertia_
            self.assertLessEqual(found["inertia"], best * 1.001)
            batches = sklearn_cluster.MiniBatchKMeans(5, n_init=5, batch_size=64, max_iter=30, random_state=seed)
            batches.fit(self.x, sample_weight=weight)
            own = self.cluster(2, input=path, weight=3, batch_size=64, rounds=30, n_init=5, seed=seed)[0]["inertia"]
            self.assertLessEqual(own, batches.inertia_ * 1.02)

    def test_points_of_weight_0_do_not_count(self):
        # So far away that one of them would be a centre of its own.
        far = numpy.array([[1e5, 0, 0, 0], [0, -1e5, 0, 0], [1e6, 1e6, 1e6, 0]])
        rows = numpy.column_stack([self.x, numpy.ones(400)])
        path = self.csv("far", numpy.concatenate([far[:1], rows[:200], far[1:2], rows[200:], far[2:]]))
        weight = numpy.concatenate([[0], numpy.ones(200), [0], numpy.ones(200), [0]])
        x = numpy.concatenate([far[:1, :3], self.x[:200], far[1:2, :3], self.x[200:], far[2:, :3]])
        for workers, keys in ((1, {}), (3, {}), (2, {"kclusters": 60}), (2, {"batch_size": 50, "rounds": 5})):
            found, centres, labels, counts = self.cluster(workers, input=path, weight=3, **keys)
            self.assertLess(numpy.abs(centres).max(), 20)
            self.assertEqual(counts.sum(), 400)
            if "batch_size" not in keys:
                self.assertEqual(found["converged"], "yes")
                self.check_weighted(x, weight, found, centres, labels, counts)

    def test_empty_centres_are_given_weighted_points(self):
        few = self.path("few.csv", "0,0,0.3\n0,1,7\n5,5,0.1\n5,5,1e-9\n9,0,2\n9,9,0\n")
        for workers in (1, 4):
            found, _, labels, counts = self.cluster(workers, input=few, weight=2, kclusters=4)
            self.assertEqual(len(set(labels[:5])), 4)
            self.assertLess(found["inertia"], 1e-29)
            numpy.testing.assert_allclose(sorted(counts), [0.1 + 1e-9, 0.3, 2, 7])
        tenths = self.path("tenths.csv", "".join(f"{x},{y},{0.1 * (i % 3 + 1)}\n" for i, (x, y) in
                                                 enumerate([(0.1, 0.7), (0.3, 0.2), (0.6, 0.9), (0.7, 0.1)] * 33)))
        for workers in (1, 3):
            found = self.cluster(workers, input=tenths, weight=2, kclusters=6, rounds=300)[0]
            self.assertEqual(found["converged"], "yes")
            self.assertLess(len(self.curve()), 10)  # rounding does not prevent convergence

    def test_weights_of_any_size(self):
        plain = self.cluster(input=self.named, weight="w")
        for size in (1e-305, 1e-100, 0.1, 1e300):
            path = self.csv("sized", numpy.column_stack([self.x, self.weight * size]))
            found, centres, labels, counts = self.cluster(2, input=path, weight=3)
            numpy.testing.assert_allclose(found["inertia"] / size, plain[0]["inertia"], rtol=1e-9)
            numpy.testing.assert_allclose(counts / size, plain[3], rtol=1e-9)
            numpy.testing.assert_allclose(centres, plain[1], rtol=1e-9, atol=1e-9)
            numpy.testing.assert_array_equal(labels, plain[2])

    def test_a_model_keeps_the_field_and_weighs_other_points(self):
        found, _, labels, counts = self.cluster(input=self.named, weight="w")
        model = self.output
        for keys, right in (({"input": self.named, "weight": "w"}, (found["inertia"], counts)),
                            ({"input": self.plain, "row_weights": self.numbers}, (found["inertia"], counts)),
                            ({"input": self.named}, (None, numpy.bincount(labels)))):
            again = self.results(self.job(2, model=model, **keys))
            if right[0]:
                self.assertAlmostEqual(again["inertia"] / right[0], 1, delta=1e-12)
            self.assertEqual([int(line.split("\t")[1]) for line in self.lines("labels", 2)], labels.tolist())
            self.assertEqual([float(v) for v in self.lines("counts", 1)[0].split("|")], right[1].tolist())

    def test_refusals(self):
        def said(text, status=4, name="bad.csv", **keys):
            return self.job(2, status=status, input=self.path(name, text), kclusters=1, **keys)
        self.assertIn('bad.csv:2:3: found "-1", want a weight of 0 or more', said("1,2\n3,-1\n", weight=1))
        self.assertIn("bad.csv:2:3", said("1,2\n3,nan\n", weight=1))
        self.assertIn("bad.csv: found no weight above 0 in field 1, want at least one", said("1,0\n3,0\n", weight=1))
        for text, error in (("1\n-2\n", "w.txt: found a weight below 0"), ("0\n0\n", "w.txt: found only weights that are 0"),
                            ("1\n", "w.txt: found 1 weights, want one for each of 2 rows"), ("1\ninf\n", "w.txt:2:1")):
            self.assertIn(error, said("1,2\n3,4\n", row_weights=self.path("w.txt", text)))
        self.assertIn('key "row_weights": not together with weight',
                      said("1,2\n3,4\n", 3, weight=1, row_weights=self.path("w.txt", "1\n1\n")))
        self.assertIn('"weight": not with points with names, which have no fields; want row_weights',
                      said("a\t1,2\nb\t3,4\n", 3, weight=1))
        self.assertIn("want at most the number of points with a weight above 0, 1",
                      self.job(2, status=3, input=self.path("bad.csv", "1,0\n3,1\n4,0\n"), kclusters=2, weight=1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
