#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""L1-regularised logistic regression, tested by running jobs: the figures on a9a, the optimality conditions, equal to
SciPy for any number of workers and servers and in every mode. Options: names of tests."""
import json
import math
import os
import unittest

import numpy

import oracles
from alg_job import LONG, MPI, SOURCE, AlgorithmCase


class LrL1Test(AlgorithmCase):
    program = "lr_l1"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(6)
        cls.x = numpy.round(random.normal(size=(500, 40)) * (random.random((500, 40)) < 0.4), 3)
        cls.x[0, 39] = 0.5
        weights = random.normal(size=40) * (random.random(40) < 0.5)
        cls.y = numpy.where(cls.x @ weights + 0.4 + random.logistic(size=500) > 0, 1, -1)
        cls.sparse = os.path.join(cls.folder, "train.svm")
        cls.dense = os.path.join(cls.folder, "train.csv")
        with open(cls.sparse, "w", encoding="ascii") as sparse, open(cls.dense, "w", encoding="ascii") as dense:
            for row, label in zip(cls.x, cls.y):
                sparse.write(" ".join([f"{label:+d}"] + [f"{j + 1}:{row[j]:.17g}" for j in numpy.flatnonzero(row)]) + "\n")
                dense.write(",".join([f"{v:.17g}" for v in row] + ["1" if label > 0 else "0"]) + "\n")

    def weights(self):
        return numpy.array([float(v) for v in self.lines("lr_l1_weight", 1)[0].split("|")])

    def fit(self, *where, **keys):
        return self.results(self.job(*where, **{"training_input": self.sparse, "C": 1, **keys}))

    def objective_and_violation(self, w, c, bias=False):
        b, u = (w[0], w[1:]) if bias else (0.0, w)
        z = self.y * (self.x @ u + b)
        pull = -c * self.y / (1 + numpy.exp(z))
        slope = self.x.T @ pull
        away = numpy.where(u == 0, numpy.maximum(0, abs(slope) - 1), abs(slope + numpy.sign(u))).max()
        return abs(u).sum() + c * numpy.logaddexp(0, -z).sum(), max(away, abs(pull.sum())) if bias else away

    def test_the_figures_of_a9a(self):
        train, test = self.shared("a9a", "a9a"), self.shared("a9a", "a9a.t")
        for c, objective, least, most, accuracy in ((1, 10558.7234, 94, 100, 0.8499), (0.1, 1082.6167, 51, 53, 0.8504),
                                                    (0.01, 122.7260, 25, 27, 0.8443)):
            values = []
            for workers, servers in ((1, 1), (2, 1), (4, 3)):
                with self.subTest(C=c, workers=workers):
                    found = self.fit(workers, servers, training_input=train, test_input=test, C=c)
                    self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-6)
                    self.assertLessEqual(found["violation"], 1e-3)
                    self.assertTrue(least <= found["nonzeros"] <= most, found)
                    self.assertAlmostEqual(found["accuracy"], accuracy, delta=2e-4)
                    values.append(found["objective"])
            self.assertLessEqual(max(values) / min(values) - 1, 1e-9)

    def test_the_optimality_conditions_hold_in_every_mode(self):
        for path in (self.sparse, self.dense):
            for bias in (False, True):
                values = []
                for place in [(1, 1, "embedded"), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI and bias else []):
                    found = self.fit(*place, training_input=path, C=0.5, bias=bias)
                    objective, violation = self.objective_and_violation(self.weights(), 0.5, bias)
                    self.assertLessEqual(violation, 1.01e-4)
                    self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-12)
                    values.append(found["objective"])
                self.assertLessEqual(max(values) / min(values) - 1, 1e-9)
                self.assertGreater((self.weights() == 0).sum(), 0)

    def test_it_is_the_minimum_of_scipy(self):
        for c in (0.05, 1, 20):
            for bias in (False, True):
                objective, nonzeros = oracles.lr_l1(self.x, self.y, c, bias)
                found = self.fit(2, C=c, bias=bias, tolerance=1e-7)
                self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-9)
                self.assertEqual(found["nonzeros"], nonzeros)

    def test_lambda_is_one_over_c_and_small_blocks_end_at_the_same_minimum(self):
        first = self.fit(mode="embedded", C=0.25)["objective"]
        again = self.results(self.job(mode="embedded", input=self.sparse, **{"lambda": 4}))["objective"]
        self.assertAlmostEqual(again / first, 1, delta=1e-12)
        self.assertAlmostEqual(self.fit(2, C=0.25, block_size=7, rounds=100000)["objective"] / first, 1, delta=1e-7)

    def test_owlqn_ends_at_the_same_minimum(self):
        for bias in (False, True):
            newton = self.fit(1, bias=bias, tolerance=1e-6)
            for workers, mode in ((1, "embedded"), (3, "local")) + (((2, "mpi"),) if MPI else ()):
                with self.subTest(bias=bias, workers=workers, mode=mode):
                    found = self.fit(workers, 1, mode, bias=bias, tolerance=1e-5, method="owlqn", rounds=5000)
                    self.assertAlmostEqual(found["objective"] / newton["objective"], 1, delta=1e-9)
                    self.assertEqual(found["nonzeros"], newton["nonzeros"])
                    objective, violation = self.objective_and_violation(self.weights(), 1, bias)
                    self.assertAlmostEqual(objective / found["objective"], 1, delta=1e-12)
                    self.assertLess(violation, 1.1e-5)
        said = self.job(1, status=1, training_input=self.sparse, C=1, method="owlqn", rounds=2)
        self.assertIn("after 2 rounds the optimality conditions are violated by", said)
        said = self.job(1, status=3, training_input=self.sparse, C=1, method="owlqn", block_size=7)
        self.assertIn("block_size", said)

    def test_more_weights_than_a_block_has_end_at_the_same_minimum(self):
        # Adjacent features are correlated, so that moving all weights at once is not easy either.
        random = numpy.random.default_rng(11)
        x = random.normal(size=(900, 150))
        for j in range(1, 150):
            x[:, j] = 0.9 * x[:, j - 1] + math.sqrt(1 - 0.81) * x[:, j]
        x = numpy.round(x, 3)
        y = numpy.where(x @ random.normal(size=150) + random.logistic(size=900) > 0, 1, -1)
        path = self.path("many.svm")
        with open(path, "w", encoding="ascii") as file:
            for row, label in zip(x, y):
                file.write(f"{label:+d} " + " ".join(f"{j + 1}:{v:.17g}" for j, v in enumerate(row)) + "\n")
        for c in (0.1, 1, 30) if LONG else (1,):
            objective, nonzeros = oracles.lr_l1(x, y, c)
            self.assertGreater(nonzeros, 32)
            values = []
            for workers, block in ((1, 16), (2, 16), (4, 16), (2, 1), (2, 1024)):
                with self.subTest(C=c, workers=workers, block_size=block):
                    found = self.fit(workers, training_input=path, C=c, block_size=block, tolerance=1e-6)
                    self.assertLessEqual(found["violation"], 1e-6)
                    self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-10)
                    self.assertEqual(found["nonzeros"], nonzeros)
                    self.assertLess(found["rounds"], 200)
                    if block == 16:
                        values.append(found["objective"])
            self.assertLessEqual(max(values) / min(values) - 1, 1e-9)

    def test_more_features_than_samples(self):
        random = numpy.random.default_rng(8)
        path = self.path("wide.svm")
        x, y = numpy.zeros((300, 3001)), []
        with open(path, "w", encoding="ascii") as file:
            for row in x:
                columns = numpy.unique(random.integers(1, 3001, 30))
                row[columns] = 1
                label = 1 if (columns % 7 == 0).sum() * 2 + random.normal() > 9 else -1
                y.append(label)
                file.write(" ".join([str(label)] + [f"{j}:1" for j in columns]) + "\n")
        objective, _ = oracles.lr_l1(x, numpy.array(y), 1)
        for workers, block in ((1, 1024), (3, 1024), (2, 50)):
            found = self.fit(workers, training_input=path, block_size=block)
            self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-7)

    def test_the_objective_never_rises(self):
        self.fit(2, C=5)
        values = [line["objective"] for line in self.curve()]
        for before, after in zip(values, values[1:]):
            self.assertLessEqual(after, before * (1 + 1e-12))

    def test_models_and_predictions(self):
        for bias in (False, True):
            first = self.fit(2, bias=bias, predict_input=self.sparse, test_input=self.sparse)
            w = self.weights()
            margins = self.x @ w[1:] + w[0] if bias else self.x @ w
            lines = self.lines("pred_v", 2)
            for line, margin in zip(lines, margins):
                self.assertAlmostEqual(float(line.split()[0]), 1 / (1 + math.exp(-margin)), places=11)
            self.assertAlmostEqual(first["accuracy"], ((margins >= 0) == (self.y > 0)).mean(), places=12)
            for form in ("text", "npy"):
                self.fit(2, bias=bias, format=form)
                again = self.results(self.job(1, model=self.output, test_input=self.sparse, predict_input=self.sparse))
                self.assertAlmostEqual(again["auc"], first["auc"], places=12)
                self.assertEqual(self.lines("pred_v", 1), lines)

    def test_one_class_one_row_and_idle_workers(self):
        one = self.path("one.svm", "+1 1:1 3:2\n")
        found = self.fit(3, training_input=one, C=10)
        self.assertGreater(found["nonzeros"], 0)
        same = self.path("same.svm", "-1 1:1\n-1 2:1\n")
        self.fit(2, training_input=same, bias=True)
        bare = self.path("bare.svm", "+1\n-1 1:0.001\n")
        self.assertEqual(self.fit(2, training_input=bare)["nonzeros"], 0)

    def test_bad_input_and_bad_configs(self):
        bad = self.path("bad.svm", "+1 1:1\n-1 1:x\n")
        self.assertIn(bad + ":2:", self.job(2, status=4, training_input=bad, C=1))
        three = self.path("l.svm", "3 1:1\n")
        self.assertIn("l.svm: found only the label 3, want two classes",
                      self.job(mode="embedded", status=4, training_input=three, C=1))
        mixed = self.path("mixed.svm", "0 1:1\n-1 1:2\n+1 1:1\n")
        self.assertIn("want 0 and 1, or -1 and +1", self.job(mode="embedded", status=4, training_input=mixed, C=1))
        for keys, said in (({}, "not needed with C or model"), ({"C": 1, "lambda": 1}, "not together"), ({"C": 0}, '"C"')):
            self.assertIn(said, self.job(mode="embedded", status=3, training_input=self.sparse, **keys))
        self.assertIn("raise rounds", self.job(2, status=1, training_input=self.sparse, C=10, rounds=1))

    def test_the_config_that_is_shipped_runs(self):
        with open(os.path.join(SOURCE, "alg", "lr_l1", "lr_l1.json"), encoding="utf-8") as file:
            shipped = json.load(file)
        del shipped["output"]
        self.job(2, **{**shipped, "input": self.sparse})


if __name__ == "__main__":
    unittest.main()
