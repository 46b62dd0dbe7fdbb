#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lasso, tested by running jobs: the figures on wine-white and bike-hour, the optimality conditions, equal to coordinate
descent and scikit-learn for any number of workers and servers and in every mode. Options: names of tests."""
import json
import os
import unittest

import numpy

import oracles
from alg_job import MPI, SOURCE, AlgorithmCase
from tables import BIKE, WINE, dense_regression, samples_of, sparse_regression, stride_5


class LassoTest(AlgorithmCase):
    program = "lasso"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.dense, cls.x, cls.y = dense_regression(os.path.join(cls.folder, "dense.csv"), 400, 20)
        cls.sparse, cls.sx, cls.sy = sparse_regression(os.path.join(cls.folder, "sparse.svm"), 500, 60)

    def weights(self):
        return numpy.array([float(v) for v in self.lines("lasso_weight", 1)[0].split("|")])

    def fit(self, *where, **keys):
        return self.results(self.job(*where, **{"training_input": self.dense, "penalty": 0.05, **keys}))

    def violation(self, x, y, theta, a, ratio, standardize):
        """The greatest violation of the optimality conditions, as a fraction of a, computed from the samples."""
        sd = x.std(0) if standardize else numpy.ones(x.shape[1])
        sd = numpy.where(sd > 0, sd, 1)
        z, w = (x - x.mean(0)) / sd, theta[1:] * sd
        slope = z.T @ (y - theta[0] - x @ theta[1:]) / len(y) - a * (1 - ratio) * w
        away = numpy.where(w == 0, numpy.maximum(0, abs(slope) - a * ratio), abs(slope - a * ratio * numpy.sign(w)))
        return away.max() / a

    def test_the_figures_of_wine_white_and_bike_hour(self):
        for table, objective, nonzeros in ((WINE, 0.28929428, 9), (BIKE, 10454.263285, 11)):
            train, test = stride_5(self, table)
            x, y = samples_of(table, train)
            a = 0.01 * float(y.std())
            for workers, servers in ((1, 1), (2, 1), (4, 3)):
                with self.subTest(table.name, workers=workers):
                    found = self.results(self.job(workers, servers, training_input=train, test_input=test, standardize=True,
                                                  **{"lambda": a * len(y)}, **table.keys))
                    self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-7)
                    self.assertEqual(found["nonzeros"], nonzeros)
                    self.assertLessEqual(found["violation"], 1e-6)
            self.assertEqual(int((self.weights()[1:] != 0).sum()), nonzeros)
            objective, theta = oracles.lasso(x, y, a, True)
            self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-10)
            self.assertAlmostEqual(found["rmse"] / oracles.rmse(*samples_of(table, test), theta), 1, delta=1e-7)

    def test_the_optimality_conditions_hold_in_every_mode(self):
        for path, x, y in ((self.dense, self.x, self.y), (self.sparse, self.sx, self.sy)):
            for standardize, ratio in ((False, 1.0), (True, 1.0), (True, 0.3)):
                values = []
                places = [(1, 1, "embedded"), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI and ratio < 1 else [])
                for place in places:
                    found = self.fit(*place, training_input=path, standardize=standardize, l1_ratio=ratio)
                    self.assertLessEqual(self.violation(x, y, self.weights(), 0.05, ratio, standardize), 2e-7)
                    values.append(found["objective"])
                self.assertLessEqual(max(values) / min(values) - 1, 1e-9)
                self.assertGreater((self.weights()[1:] == 0).sum(), 0)

    def test_it_is_the_solution_of_scikit_learn(self):
        ElasticNet = self.library("sklearn.linear_model").ElasticNet
        for path, x, y in ((self.dense, self.x, self.y), (self.sparse, self.sx, self.sy)):
            for ratio in (1.0, 0.5):
                theirs = ElasticNet(alpha=0.05, l1_ratio=ratio, tol=1e-12, max_iter=100000).fit(x, y)
                self.fit(2, training_input=path, l1_ratio=ratio)
                expected = numpy.concatenate([[theirs.intercept_], theirs.coef_])
                self.assertLessEqual(numpy.abs(self.weights() - expected).max(), 1e-6)

    def test_many_features_and_working_sets(self):
        path, x, y = sparse_regression(os.path.join(self.folder, "wide.svm"), 300, 900)
        values = []
        for workers in (1, 3):
            found = self.fit(workers, training_input=path, penalty=[0.05, 0.01], standardize=True)
            values.append(found["objective"])
            self.assertLessEqual(self.violation(x, y, self.weights(), 0.01, 1, True), 2e-7)
            self.assertGreater(found["nonzeros"], 100)
        self.assertLessEqual(max(values) / min(values) - 1, 1e-9)

    def test_a_path_has_the_solution_of_each_penalty(self):
        said = self.job(2, training_input=self.dense, path=6, path_ratio=0.01, test_input=self.dense, format="npy")
        self.assertEqual(said.count("path "), 6)
        arrays = {name: numpy.load(os.path.join(self.output, entry["files"][0]))
                  for name, entry in self.manifest()["arrays"].items()}
        penalties, path = arrays["lasso_path_penalty"], arrays["lasso_path_weight"]
        self.assertEqual(path.shape, (6, 21))
        self.assertTrue((path[0, 1:] == 0).all())
        self.assertAlmostEqual(penalties[-1] / penalties[0], 0.01, places=12)
        for a, theta, objective in zip(penalties, path, arrays["lasso_path_objective"]):
            self.assertLessEqual(self.violation(self.x, self.y, theta, a, 1, False), 2e-7)
            alone = self.fit(mode="embedded", penalty=float(a))
            self.assertAlmostEqual(alone["objective"] / objective, 1, delta=1e-9)
        # Tested on the training data, the least penalty is the best.
        self.assertTrue(numpy.array_equal(arrays["lasso_weight"], path[-1]))

    def test_constant_and_equal_features_and_few_rows(self):
        path = self.path("flat.csv", "".join(f"{i},7,{i},0.1,{3 * i + 1}\n" for i in range(20)))
        for standardize in (False, True):
            self.fit(2, training_input=path, standardize=standardize)
            theta = self.weights()
            self.assertEqual((theta[2], theta[4]), (0, 0))
            self.assertLess(abs(theta[1] + theta[3] - 3), 0.02)
        found = self.fit(3, training_input=self.path("one.csv", "1,2,3\n"))
        self.assertEqual((found["objective"], self.weights().tolist()), (0, [3, 0, 0]))

    def test_models_and_predictions(self):
        first = self.fit(2, predict_input=self.dense, test_input=self.dense)
        theta = self.weights()
        lines = self.lines("pred_v", 2)
        for line, x in zip(lines, self.x):
            self.assertAlmostEqual(float(line.split(":")[1]), theta[0] + x @ theta[1:], places=11)
        model = self.output
        again = self.results(self.job(1, model=model, test_input=self.dense, predict_input=self.dense))
        self.assertAlmostEqual(again["rmse"] / first["rmse"], 1, delta=1e-14)
        self.assertEqual(self.lines("pred_v", 1), lines)

    def test_bad_input_and_bad_configs(self):
        bad = self.path("bad.csv", "1,2\n1,inf\n")
        self.assertIn(bad + ":2:3", self.job(2, status=4, training_input=bad, penalty=1))
        for keys, said in (({}, "not needed with penalty or path or model"), ({"path": 0}, "want one of lambda, penalty, path"),
                           ({"lambda": 1, "penalty": 1}, "only one of"),
                           ({"penalty": 0}, '"penalty"'), ({"penalty": 1, "l1_ratio": 2}, '"l1_ratio"'),
                           ({"penalty": 1, "input": self.dense}, "not together")):
            self.assertIn(said, self.job(mode="embedded", status=3, training_input=self.dense, **keys))
        flat = self.path("flat_target.csv", "1,5\n2,5\n")
        self.assertIn("no feature explains", self.job(mode="embedded", status=4, training_input=flat, path=3))
        wide, _, _ = sparse_regression(os.path.join(self.folder, "wide_bad.svm"), 200, 900)
        self.assertIn("raise rounds", self.job(2, status=1, training_input=wide, penalty=0.002, rounds=1))

    def test_the_config_that_is_shipped_runs(self):
        with open(os.path.join(SOURCE, "alg", "lasso", "lasso.json"), encoding="utf-8") as file:
            shipped = json.load(file)
        del shipped["output"]
        self.job(2, **{**shipped, "training_input": self.dense})


if __name__ == "__main__":
    unittest.main()
