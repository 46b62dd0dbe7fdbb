#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""k-means, tested by running jobs: the targets on optdigits, the same clusters for any number of workers and servers and in every
mode, a fixed point of the plain algorithm, its results, and errors in the input. Options: names of tests."""
import os
import random
import statistics
import unittest

import numpy

import oracles
from alg_job import LONG, MPI, ONLY_LONG, AlgorithmCase


class KmeansTest(AlgorithmCase):
    program = "kmeans"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(7)
        cls.points = os.path.join(cls.folder, "points.csv")
        cls.sparse = os.path.join(cls.folder, "points.svm")
        cls.x, cls.sparse_x = [], []
        with open(cls.points, "w", encoding="ascii") as dense, open(cls.sparse, "w", encoding="ascii") as sparse:
            for _ in range(600):
                centre = generator.randrange(6)
                x = [round(generator.gauss(3.0 * ((centre * 7 + j * 3) % 5 < 2), 1), 3) for j in range(11)]
                cls.x.append(x)
                cls.sparse_x.append([0 if (j + 1) % 3 == centre % 3 else v for j, v in enumerate(x)])
                dense.write(",".join(map(str, x)) + "\n")
                sparse.write(" ".join(["0"] + [f"{j}:{v}" for j, v in enumerate(x, 1) if j % 3 != centre % 3]) + "\n")

    def cluster(self, *where, **keys):
        """(results, centres, labels)"""
        workers = where[0] if where else 1
        found = self.results(self.job(*where, **{"input": self.points, "kclusters": 6, **keys}))
        centres = [[float(v) for v in line.split("\t")[1].split("|")] for line in self.lines("centers", 1)]
        labels = [int(line.split("\t")[1]) for line in self.lines("labels", workers)]
        return found, numpy.array(centres), labels

    def optdigits(self):
        path = os.path.join(self.folder, "optdigits.csv")
        if not os.path.exists(path):
            rows = numpy.loadtxt(self.shared("optdigits", "optdigits.tra"), delimiter=",")[:, :-1] / 16
            numpy.savetxt(path, rows, fmt="%.17g", delimiter=",")
        return path

    def test_the_bars_on_optdigits(self):
        path = self.optdigits()
        for keys, bars in (({}, (9850, 9740)), ({"batch_size": 1024, "rounds": 30}, (1.05 * 9720, 9900))):
            found = [self.results(self.job(mode="embedded", input=path, kclusters=10, seed=seed, **keys))["inertia"]
                     for seed in range(20)]
            self.assertLessEqual(statistics.median(found), bars[0])
            self.assertLessEqual(min(found), bars[1])
            self.assertGreaterEqual(min(found), 9682.6)

    def test_every_number_of_workers_and_servers_and_every_mode_gives_the_same(self):
        first, centres, labels = self.cluster(mode="embedded")
        places = [(1, 1), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI else [])
        for place in places:
            with self.subTest(place):
                found, other, other_labels = self.cluster(*place)
                self.assertAlmostEqual(found["inertia"] / first["inertia"], 1, delta=1e-9)
                self.assertLessEqual(numpy.abs(centres - other).max(), 1e-9 * numpy.abs(centres).max())
                self.assertEqual(labels, other_labels)

    def test_runs_with_the_same_workers_have_the_same_bits(self):
        for keys in ({}, {"batch_size": 100, "rounds": 5}):
            texts = set()
            for _ in range(2):
                self.job(3, 2, input=self.points, kclusters=6, **keys)
                texts.add("".join(self.lines("centers", 1)))
            self.assertEqual(len(texts), 1)

    def test_the_result_is_a_fixed_point_of_the_plain_oracle(self):
        for path, x, keys in ((self.points, self.x, {}), (self.sparse, self.sparse_x, {}),
                              (self.points, self.x, {"metric": "cosine"}), (self.sparse, self.sparse_x, {"metric": "cosine"})):
            with self.subTest(path, **keys):
                found, centres, labels = self.cluster(2, input=path, **keys)
                for rounds in (0, 1):
                    inertia, same = oracles.kmeans(numpy.array(x), centres, rounds, cosine=bool(keys))
                    self.assertAlmostEqual(inertia / found["inertia"], 1, delta=1e-12)
                    self.assertEqual(same, labels)

    def test_haversine_clusters_places_on_a_globe(self):
        rng = numpy.random.default_rng(3)
        middles = numpy.array([[10.0, 179.5], [85.0, 0.0], [-40.0, -60.0]])  # across 180 degrees, around a pole
        places = numpy.concatenate([m + rng.uniform(-1, 1, (60, 2)) * [2, 2 / numpy.cos(numpy.radians(m[0]))] for m in middles])
        places[:, 1] = (places[:, 1] + 180) % 360 - 180
        path = os.path.join(self.folder, "places.csv")
        numpy.savetxt(path, places, delimiter=",", fmt="%.12g")

        def distance(a, b):
            a, b = numpy.radians(a), numpy.radians(b)
            half = (numpy.sin((a[..., 0] - b[..., 0]) / 2) ** 2 +
                    numpy.cos(a[..., 0]) * numpy.cos(b[..., 0]) * numpy.sin((a[..., 1] - b[..., 1]) / 2) ** 2)
            return 2 * numpy.arcsin(numpy.sqrt(half))
        for workers in (1, 3):
            found, centres, labels = self.cluster(workers, 1, input=path, kclusters=3, n_init=4, metric="haversine")
            self.assertEqual(centres.shape, (3, 2))
            far = distance(places[:, None, :], centres[None, :, :])
            self.assertEqual(labels, far.argmin(axis=1).tolist())
            self.assertLess(far.min(axis=1).max(), numpy.radians(4))
            self.assertEqual(sorted(labels.count(c) for c in range(3)), [60, 60, 60])
            self.assertAlmostEqual(found["inertia"], ((2 * numpy.sin(far.min(axis=1) / 2)) ** 2).sum(), delta=1e-9)

    def test_inertia_never_rises(self):
        for keys in ({}, {"input": self.sparse}, {"metric": "cosine"}, {"kclusters": 40}):
            self.cluster(2, 1, **{"n_init": 2, **keys})
            rounds = self.curve()
            for run in (0, 1):
                inertias = [line["inertia"] for line in rounds if line["run"] == run]
                self.assertGreater(len(inertias), 1)
                for before, after in zip(inertias, inertias[1:]):
                    self.assertLessEqual(after, before * (1 + 1e-12))

    def test_more_runs_are_never_worse_and_tolerance_ends_early(self):
        one = self.cluster(mode="embedded")[0]
        self.assertEqual(one["converged"], "yes")
        self.assertLessEqual(self.cluster(mode="embedded", n_init=5)[0]["inertia"], one["inertia"])
        self.assertLess(self.cluster(mode="embedded", tolerance=0.5)[0]["rounds"], one["rounds"] + 1)
        self.assertEqual(self.cluster(mode="embedded", rounds=1)[0]["converged"], "no")

    def test_results_in_text_and_arrays_and_a_model_that_assigns_new_points(self):
        found, centres, labels = self.cluster(2)
        groups = {}
        for rank in (0, 1):
            with open(os.path.join(self.output, f"kmeans_{rank}"), encoding="ascii") as file:
                for line in file:
                    cluster, rows = line.rstrip("\n").split("\t")
                    groups.setdefault(int(cluster), []).extend(map(int, rows.split("|")))
        self.assertEqual({row: c for c, rows in groups.items() for row in rows}, dict(enumerate(labels)))
        text_model = self.output

        self.job(2, input=self.points, kclusters=6, format="npy")
        manifest = self.manifest()
        self.assertEqual(manifest["format"], "npy")
        self.assertAlmostEqual(manifest["objective"] / found["inertia"], 1, delta=1e-15)
        arrays = {name: numpy.concatenate([numpy.load(os.path.join(self.output, f)) for f in entry["files"]])
                  for name, entry in manifest["arrays"].items()}
        self.assertTrue(numpy.array_equal(arrays["centers"], centres))
        self.assertEqual(arrays["labels"].tolist(), labels)
        for name, entry in manifest["arrays"].items():
            self.assertEqual(list(arrays[name].shape), entry["shape"])
            self.assertEqual(arrays[name].dtype.str, entry["dtype"])
        for model in (text_model, self.output, os.path.join(self.output, "model.json")):
            again = self.results(self.job(2, input=self.points, model=model))
            self.assertAlmostEqual(again["inertia"] / found["inertia"], 1, delta=1e-15)
            self.assertEqual([int(line.split("\t")[1]) for line in self.lines("labels", 2)], labels)

    def test_the_clusters_are_as_good_as_those_of_scikit_learn(self):
        KMeans = self.library("sklearn.cluster").KMeans
        found = self.cluster(2, n_init=5)[0]["inertia"]
        rows = numpy.loadtxt(self.points, delimiter=",")
        theirs = KMeans(6, n_init=5, random_state=0).fit(rows).inertia_
        self.assertLessEqual(found, theirs * 1.001)

    def test_equal_points_and_empty_clusters(self):
        same = self.path("same.csv", "1,2\n" * 7)
        for workers in (1, 2):
            found, _, labels = self.cluster(workers, input=same, kclusters=3)
            self.assertEqual(found["inertia"], 0)
            self.assertEqual(set(labels), {labels[0]})
        few = self.path("few.csv", "0,0\n0,1\n5,5\n5,5\n9,0\n")
        found, _, labels = self.cluster(4, 1, input=few, kclusters=4)  # a worker has one row or none
        self.assertEqual(found["inertia"], 0)
        self.assertEqual(len(set(labels)), 4)
        tenths = self.path("tenths.csv", "".join(f"{x},{y}\n" for x, y in [(0.1, 0.7), (0.3, 0.2), (0.6, 0.9)] * 33))
        for workers in (1, 3):
            self.cluster(workers, input=tenths, kclusters=5, rounds=300)
            self.assertLess(len(self.curve()), 10)  # rounding does not prevent convergence
        one = self.path("one.csv", "3,4\n")
        found, centres, _ = self.cluster(2, 1, input=one, kclusters=1)
        self.assertEqual((found["inertia"], centres.tolist()), (0, [[3, 4]]))
        zeros = self.path("zeros.csv", "0,0\n3,4\n0,0\n6,8\n")
        found, _, labels = self.cluster(2, 1, input=zeros, kclusters=2, metric="cosine")
        self.assertEqual([labels[0] == labels[2], labels[1] == labels[3], found["inertia"]], [True, True, 0])

    def test_rows_of_any_length_have_the_same_directions(self):
        for text in (self.points, self.sparse):
            plain, centres, labels = self.cluster(mode="embedded", input=text, metric="cosine")
            for size in (1e-200, 1e200, 1e-300):
                name = self.path(f"long{size}" + os.path.splitext(text)[1])
                with open(name, "w", encoding="ascii") as file:
                    for line in self.lines_of(text):
                        file.write(self.times(line, size) + "\n")
                found, other, other_labels = self.cluster(mode="embedded", input=name, metric="cosine")
                self.assertEqual(other_labels, labels)
                self.assertAlmostEqual(found["inertia"] / plain["inertia"], 1, delta=1e-9)
                self.assertLessEqual(numpy.abs(centres - other).max(), 1e-9)

    @staticmethod
    def lines_of(path):
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()

    @staticmethod
    def times(line, size):
        """A line of CSV or libsvm whose values are multiplied by `size`."""
        if ":" not in line:
            return ",".join(repr(float(v) * size) for v in line.split(","))
        label, *entries = line.split()
        return " ".join([label] + [f"{j}:{float(v) * size!r}" for j, v in (e.split(":") for e in entries)])

    def test_numbers_whose_squares_underflow_are_refused(self):
        points = [self.times(line, 1e-100) for line in self.lines_of(self.points)]
        found, small, labels = self.cluster(mode="embedded", input=self.path("small.csv", "\n".join(points) + "\n"))
        plain, centres, plain_labels = self.cluster(mode="embedded")
        self.assertEqual(labels, plain_labels)
        numpy.testing.assert_allclose(small * 1e100, centres, rtol=1e-9, atol=1e-12)
        self.assertAlmostEqual(found["inertia"] * 1e200 / plain["inertia"], 1, delta=1e-9)
        points = [self.times(line, 1e-170) for line in self.lines_of(self.points)]
        tiny = self.path("tiny.csv", "\n".join(points) + "\n")
        self.assertIn(tiny + ": found only numbers below 1e-130, whose squares underflow",
                      self.job(2, status=4, input=tiny, kclusters=6))

    def test_points_with_names(self):
        named = self.path("named.txt")
        with open(self.points, encoding="ascii") as rows, open(named, "w", encoding="utf-8") as file:
            file.write("".join(f"point {i}\t{row}" for i, row in enumerate(rows)))
        plain, centres, labels = self.cluster(2)
        for keys in ({}, {"type": "fvec"}):
            found, other, other_labels = self.cluster(2, 1, input=named, **keys)
            self.assertAlmostEqual(found["inertia"] / plain["inertia"], 1, delta=1e-12)
            self.assertLessEqual(numpy.abs(centres - other).max(), 1e-12)
            self.assertEqual(other_labels, labels)
            with open(os.path.join(self.output, "kmeans_0"), encoding="utf-8") as file:
                self.assertIn("point 0", file.read())
        self.assertEqual(self.lines("labels", 2)[5], f"point 5\t{labels[5]}")
        bad = self.path("bad_names", "a\t1,2\nb\t1,x\n")
        self.assertIn(bad + ':2:5: found "x", want a number', self.job(2, status=4, input=bad, kclusters=1))
        bad = self.path("wide_names", "a\t1,2\n\nb\t1,2,3\n")
        self.assertIn(bad + ":3:1: found 3 coordinates, want 2", self.job(2, status=4, input=bad, kclusters=1))
        bad = self.path("no_names", "1,2\n")
        self.assertIn(bad + ":1:1: found no tab", self.job(1, status=4, input=bad, kclusters=1, type="fvec"))

    def test_bad_input_and_bad_configs(self):
        bad = self.path("bad.csv", "1,2\n1,x\n")
        self.assertIn(bad + ":2:3", self.job(2, status=4, input=bad, kclusters=1))
        self.assertIn("found no line", self.job(1, status=4, mode="embedded", input=self.path("empty", ""), kclusters=1))
        self.assertIn("nan", self.job(1, status=4, mode="embedded", input=self.path("nan", "1,2\nnan,2\n"), kclusters=1))
        south = self.path("south.csv", "lat,lon\n1,2\n-91,3\n")
        self.assertIn("south.csv:3: found latitude -91",
                      self.job(2, status=4, input=south, kclusters=1, metric="haversine"))
        self.assertIn("want at most the number of points", self.job(2, status=3, input=self.points, kclusters=601))
        self.assertIn("2^31", self.job(mode="embedded", status=3, input=self.points, kclusters=2, rounds=10**9, n_init=3))
        self.assertIn("standard input", self.job(mode="embedded", status=3, input="-", kclusters=2))
        self.assertIn('"kclusters" is missing', self.job(mode="embedded", status=3, input=self.points))
        self.assertIn('"metric"', self.job(mode="embedded", status=3, input=self.points, kclusters=2, metric="l1"))
        self.cluster(mode="embedded")
        model = self.output
        narrow = self.path("narrow.csv", "1,2\n")
        self.assertIn("narrow.csv:1", self.job(mode="embedded", status=4, input=narrow, model=model))
        self.assertIn("not with a model", self.job(mode="embedded", status=3, input=narrow, model=model, kclusters=2))
        other = self.path("model.json", '{"format": "npy", "algorithm": "ridge", "arrays": {}}')
        self.assertIn("want one of kmeans", self.job(mode="embedded", status=4, input=narrow, model=other))

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_many_seeds_with_many_workers(self):
        path = self.optdigits()
        for seed in range(20):
            found = {workers: self.results(self.job(workers, 1, input=path, kclusters=10, seed=seed))["inertia"]
                     for workers in (1, 2, 4)}
            self.assertLessEqual(max(found.values()) / min(found.values()) - 1, 1e-9)


if __name__ == "__main__":
    unittest.main()
