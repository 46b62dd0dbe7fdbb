#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ridge regression, tested by running jobs: the figures on wine-white and bike-hour, equal to NumPy's
solution for any number of workers and servers and in every mode, and errors in the input. Options: names of tests."""
import json
import os
import unittest

import numpy

import oracles
from alg_job import MPI, SOURCE, AlgorithmCase
from tables import BIKE, WINE, dense_regression, samples_of, sparse_regression, stride_5


class RidgeTest(AlgorithmCase):
    program = "ridge"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.dense, cls.x, cls.y = dense_regression(os.path.join(cls.folder, "dense.csv"), 400, 9)
        cls.sparse, cls.sx, cls.sy = sparse_regression(os.path.join(cls.folder, "sparse.svm"), 500, 30)

    def theta(self):
        return numpy.array([float(v) for v in self.lines("ridge_theta", 1)[0].split("|")])

    def fit(self, *where, **keys):
        return self.results(self.job(*where, **{"training_input": self.dense, "penalty": 2.5, **keys}))

    def test_the_figures_of_wine_white_and_bike_hour(self):
        for table, objective, rmse in ((WINE, 2180.931643, 0.76930), (BIKE, 279698052.1028, 141.67172)):
            train, test = stride_5(self, table)
            for workers, servers in ((1, 1), (2, 1), (4, 3)):
                with self.subTest(table.name, workers=workers):
                    found = self.fit(workers, servers, training_input=train, test_input=test, penalty=1, standardize=True,
                                     **table.keys)
                    self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-9)
                    self.assertAlmostEqual(found["rmse"], rmse, delta=1e-5)
            objective, theta = oracles.ridge(*samples_of(table, train), 1, True)
            self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-12)
            self.assertAlmostEqual(found["rmse"] / oracles.rmse(*samples_of(table, test), theta), 1, delta=1e-12)

    def test_it_is_the_solution_of_numpy_in_every_mode(self):
        for path, x, y in ((self.dense, self.x, self.y), (self.sparse, self.sx, self.sy)):
            for standardize in (False, True):
                objective, theta = oracles.ridge(x, y, 2.5, standardize)
                places = [(1, 1, "embedded"), (1, 1), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI and standardize else [])
                for place in places:
                    with self.subTest(path, standardize=standardize, place=place):
                        found = self.fit(*place, training_input=path, standardize=standardize)
                        self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-11)
                        self.assertLessEqual(numpy.abs(self.theta() - theta).max(), 1e-10 * numpy.abs(theta).max())

    def test_scales_of_the_features_do_not_matter(self):
        Ridge = self.library("sklearn.linear_model").Ridge
        random = numpy.random.default_rng(5)
        for scale in 10.0 ** numpy.arange(10):
            x = random.normal(size=(200, 2)) * [scale, 1]
            y = 2 * x[:, 0] / scale + 3 * x[:, 1] + 0.1 * random.normal(size=200)
            path = self.path("scales.csv", "".join(f"{a!r},{b!r},{c!r}\n" for (a, b), c in zip(x.tolist(), y.tolist())))
            for penalty in (0, 1):
                with self.subTest(scale=scale, penalty=penalty):
                    model = Ridge(alpha=penalty, solver="svd").fit(x, y)
                    self.fit(training_input=path, penalty=penalty)
                    numpy.testing.assert_allclose(self.theta(), [model.intercept_, *model.coef_], rtol=1e-9)

    def test_beta_is_the_penalty_over_twice_the_rows(self):
        one = self.fit(mode="embedded")
        self.assertEqual(one["objective"], self.results(self.job(mode="embedded", training_input=self.dense,
                                                                 beta=2.5 / 800))["objective"])

    def test_many_features_are_solved_by_conjugate_gradients(self):
        path, x, y = sparse_regression(os.path.join(self.folder, "wide.svm"), 600, 2400)
        for standardize in (False, True):
            objective, theta = oracles.ridge(x, y, 5.0, standardize)
            for workers in (1, 3):
                found = self.fit(workers, training_input=path, penalty=5.0, standardize=standardize)
                self.assertAlmostEqual(found["objective"] / objective, 1, delta=1e-10)
                self.assertLessEqual(numpy.abs(self.theta() - theta).max(), 1e-8 * numpy.abs(theta).max())

    def test_too_few_rounds_of_conjugate_gradients_are_an_error(self):
        path, _, _ = sparse_regression(os.path.join(self.folder, "few_rounds.svm"), 600, 2400)
        said = self.job(2, status=1, training_input=path, penalty=5.0, rounds=2)
        self.assertIn("after 2 rounds the residual is", said)
        self.assertIn("raise rounds or tolerance", said)

    def test_sgd_on_labels_that_are_noise_has_not_diverged(self):
        random = numpy.random.default_rng(5)
        rows = numpy.column_stack([random.standard_normal(200), random.standard_normal((200, 40))])
        path = os.path.join(self.folder, "noise.csv")
        numpy.savetxt(path, rows, delimiter=",", fmt="%.6f")
        found = self.fit(2, training_input=path, penalty=1e4, method="sgd", alpha=0.01, rounds=20)
        self.assertLess(found["objective"], 2 * (rows[:, 0] ** 2).sum())

    def test_sgd_comes_within_one_percent(self):
        for path in (self.dense, self.sparse):
            best = self.fit(mode="embedded", training_input=path, standardize=True)["objective"]
            for workers in (1, 2, 4):
                found = self.fit(workers, training_input=path, standardize=True, method="sgd", alpha=0.01, decay=0.1,
                                 rounds=100)
                self.assertLessEqual(found["objective"], best * 1.01)
            first = self.theta()
            self.fit(4, training_input=path, standardize=True, method="sgd", alpha=0.01, decay=0.1, rounds=100)
            self.assertTrue(numpy.array_equal(first, self.theta()))
        self.assertIn("lower alpha", self.job(2, status=1, training_input=self.dense, penalty=1, method="sgd", alpha=10.0))

    def test_sgd_comes_within_one_percent_on_wine_white(self):
        train, test = stride_5(self, WINE)
        found = self.fit(2, 1, training_input=train, test_input=test, penalty=1, standardize=True, method="sgd", alpha=0.001,
                         decay=0.1, rounds=100)
        self.assertLessEqual(found["objective"], 2180.931643 * 1.01)

    def test_constant_and_equal_features_and_few_rows(self):
        path = self.path("flat.csv", "".join(f"{i},7,{i},0.1,{3 * i + 1}\n" for i in range(20)))
        for keys in ({"standardize": True}, {}, {"penalty": 0.0}, {"penalty": 0.0, "standardize": True}):
            found = self.fit(2, training_input=path, **keys)
            theta = self.theta()
            self.assertEqual((theta[2], theta[4]), (0, 0))
            self.assertAlmostEqual(theta[1], theta[3], places=12)
            if keys.get("penalty") == 0.0:
                self.assertLess(found["objective"], 1e-18)
        one = self.path("one.csv", "1,2,3\n")
        found = self.fit(3, training_input=one)
        self.assertEqual(found["objective"], 0)
        self.assertEqual(self.theta().tolist(), [3, 0, 0])

    def test_a_large_mean_costs_no_digits(self):
        path = self.path("shifted.csv")
        numpy.savetxt(path, numpy.column_stack([self.x + 1e6, self.y]), fmt="%.17g", delimiter=",")
        x = numpy.loadtxt(path, delimiter=",")[:, :-1]
        objective, _ = oracles.ridge(x, self.y, 2.5, True)
        self.assertAlmostEqual(self.fit(2, training_input=path, standardize=True)["objective"] / objective, 1, delta=1e-9)

    def test_models_and_predictions(self):
        self.fit(2, standardize=True, predict_input=self.dense, test_input=self.dense)
        theta = self.theta()
        expected = theta[0] + self.x @ theta[1:]
        lines = self.lines("pred_v", 2)
        self.assertLessEqual(max(abs(float(line.split(":")[1]) - e) for line, e in zip(lines, expected)), 1e-12)
        text_model = self.output
        first = self.fit(2, standardize=True, test_input=self.dense, format="npy")
        manifest = self.manifest()
        self.assertTrue(numpy.array_equal(numpy.load(os.path.join(self.output, manifest["arrays"]["ridge_theta"]["files"][0])),
                                          theta))
        for model in (text_model, self.output):
            again = self.results(self.job(3, model=model, test_input=self.dense, predict_input=self.dense))
            self.assertAlmostEqual(again["rmse"] / first["rmse"], 1, delta=1e-14)
            self.assertEqual(self.lines("pred_v", 3), lines)
        bare = self.path("bare.csv")
        numpy.savetxt(bare, self.x, fmt="%.17g", delimiter=",")
        self.job(mode="embedded", model=text_model, predict_input=bare)
        self.assertEqual(self.lines("pred_v", 1), lines)

    def test_bad_input_and_bad_configs(self):
        bad = self.path("bad.csv", "1,2\n1,x\n")
        self.assertIn(bad + ":2:3", self.job(2, status=4, training_input=bad, penalty=1))
        self.assertIn("found no line", self.job(mode="embedded", status=4, training_input=self.path("empty", ""), penalty=1))
        self.assertIn("bad.csv", self.job(2, status=4, training_input=self.dense, penalty=1, test_input=bad))
        for keys, said in (({}, "not needed with penalty or model"), ({"beta": 1, "penalty": 1}, "not together"),
                           ({"penalty": -1}, '"penalty"'), ({"penalty": 1, "method": "lars"}, '"method"'),
                           ({"penalty": 1, "model": self.dense}, "not with training_input"),
                           ({"penalty": 1, "separator": "ab"}, "want one character")):
            self.assertIn(said, self.job(mode="embedded", status=3, training_input=self.dense, **keys))
        self.assertIn("training_input", self.job(mode="embedded", status=3, penalty=1))
        for key in ("update_file", "update_func"):
            given = {key: "libridge.so", "output": self.path("out"), "status": 3, "mode": "embedded"}
            for keys, said in (({"training_input": self.dense, "penalty": 1}, "not with method exact"),
                               ({"model": self.folder}, "not with a model: nothing is trained")):
                self.assertRegex(self.job(**keys, **given), rf'config\d+.json:1:\d+: key "{key}": {said}')

    def test_the_config_that_is_shipped_runs(self):
        with open(os.path.join(SOURCE, "alg", "ridge_regression", "ridge.json"), encoding="utf-8") as file:
            shipped = json.load(file)
        del shipped["output"]
        inputs = {name: self.dense for name in ("training_input", "test_input", "predict_input")}
        self.job(2, **{**shipped, **inputs})


if __name__ == "__main__":
    unittest.main()
