#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Linear support vector regression, tested by running jobs: the minimum and the dual problem, scikit-learn's solutions,
any number of workers in every mode. Options: names of tests."""
import os
import unittest

import numpy

from alg_job import MPI, AlgorithmCase
from tables import thin_matrix, write_rows


class LinearSvrTest(AlgorithmCase):
    program = "linear_svr"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(4)
        cls.x = thin_matrix(random, 300, 10)
        cls.y = numpy.round(cls.x @ random.normal(size=10) + 2 + random.standard_t(3, size=300), 3)
        cls.dense = write_rows(os.path.join(cls.folder, "rows.csv"), cls.x, cls.y, False)
        cls.sparse = write_rows(os.path.join(cls.folder, "rows.svm"), cls.x, cls.y, True)
        cls.defaults = {"training_input": cls.dense}

    def weights(self):
        return numpy.array([float(v) for v in self.lines("linear_svr_weight", 1)[0].split("|")])

    def objective(self, w, c, epsilon, squared, bias, penalize, weight=1.0):
        b, u = (w[0], w[1:]) if bias else (0.0, w)
        beyond = numpy.maximum(0, abs(self.x @ u + b - self.y) - epsilon)
        square = u @ u + (b * b if penalize else 0)
        return square / 2 + c * (weight * (beyond ** 2 if squared else beyond)).sum()

    def test_it_is_the_minimum_in_every_mode(self):
        random = numpy.random.default_rng(1)
        for squared, epsilon in ((False, 0.3), (False, 0), (True, 0.3), (True, 0)):
            loss = "squared_epsilon_insensitive" if squared else "epsilon_insensitive"
            for path, bias, penalize in ((self.dense, True, True), (self.sparse, True, False), (self.sparse, False, True)):
                values = []
                for place in [(1, 1, "embedded"), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI and epsilon and penalize else []):
                    with self.subTest(loss=loss, epsilon=epsilon, bias=bias, penalize=penalize, place=place):
                        found = self.fit(*place, training_input=path, loss=loss, epsilon=epsilon, bias=bias,
                                         penalize_bias=penalize, C=0.5, tolerance=1e-9)
                        w = self.weights()
                        value = self.objective(w, 0.5, epsilon, squared, bias, penalize)
                        self.assertAlmostEqual(found["objective"] / value, 1, delta=1e-12)
                        for scale in (1e-1, 1e-2, 1e-3):
                            for step in random.normal(size=(40, len(w))):
                                other = self.objective(w + scale * step, 0.5, epsilon, squared, bias, penalize)
                                self.assertGreaterEqual(other, value * (1 - 2e-9))
                        values.append(found["objective"])
                self.assertLessEqual(max(values) / min(values) - 1, 2e-9)

    def test_the_gap_bounds_the_distance_to_the_minimum(self):
        best = self.fit(tolerance=1e-10)["objective"]
        for tolerance in (1e-1, 1e-2, 1e-3, 1e-5):
            found = self.fit(2, tolerance=tolerance)
            self.assertLessEqual(found["gap"], tolerance * found["objective"])
            self.assertLessEqual(found["objective"] - best, found["gap"] + 1e-9 * best)

    def test_few_rows_and_targets_far_from_zero_are_fitted_to_the_tolerance(self):
        found = self.fit(training_input=self.path("one.csv", "1,2,1\n"))
        self.assertLessEqual(found["gap"], 1e-4 * found["objective"])
        # w = b (1, 2, 1), the bias last: b^2 6 / 2 + |6 b - 1| - 0.1 is least at b = 0.9 / 6.
        self.assertAlmostEqual(found["objective"], 6 / 2 * 0.15 ** 2, delta=1e-4 * 6 / 2 * 0.15 ** 2)
        random = numpy.random.default_rng(3)
        for n, d, c, epsilon in ((10, 5, 5.6e3, 1), (3, 3, 2.2e3, 0.1), (3, 3, 1, 50), (6, 2, 1e5, 0)):
            x = random.normal(size=(n, d))
            y = 100 + x @ random.normal(size=d) + random.normal(size=n)
            path = write_rows(self.path("few.csv"), x, y, False)
            for penalize in (True, False):
                with self.subTest(n=n, c=c, epsilon=epsilon, penalize=penalize):
                    found = self.fit(training_input=path, C=c, epsilon=epsilon, penalize_bias=penalize)
                    scale = c * (numpy.maximum(0, abs(y - y.mean()) - epsilon)).sum()
                    self.assertLessEqual(found["gap"], 1e-4 * max(found["objective"], 1e-6 * scale) + 1e-10 * scale)
                    self.assertIn("within its tolerance", found["ended"])

    def test_dual_coordinates_and_newton_find_the_same_minimum(self):
        random = numpy.random.default_rng(9)
        wide = numpy.where(random.random((60, 1100)) < 0.01, random.normal(size=(60, 1100)), 0)
        wide[:2], wide[2, 1099] = 0, 1
        path = write_rows(self.path("wide.svm"), wide,
                          numpy.round(wide @ random.normal(size=1100) + random.normal(size=60), 3), True)
        for inputs, epsilon in ((path, 0.2), (path, 0), (self.dense, 0.3)):
            for bias in (False, True):
                keys = {"training_input": inputs, "epsilon": epsilon, "bias": bias, "C": 0.05, "tolerance": 1e-4}
                newton = self.fit(2, method="newton", **keys)
                for workers in (1, 2, 4):
                    with self.subTest(path=inputs, epsilon=epsilon, bias=bias, workers=workers):
                        dual = self.fit(workers, method="dual", **keys)
                        self.assertAlmostEqual(dual["objective"] / newton["objective"], 1, delta=2e-4)
                        curve = self.curve()
                        self.assertTrue(all(b["dual_objective"] >= a["dual_objective"] for a, b in zip(curve, curve[1:])))
        self.fit(2, training_input=path)
        self.assertIn("gap", self.curve()[0])  # auto is dual there
        self.assertIn("dual is only for epsilon_insensitive",
                      self.job(mode="embedded", status=3, training_input=path, method="dual", loss="squared_epsilon_insensitive"))

    def test_it_is_the_solution_of_scikit_learn(self):
        """Squared: the weights to 1e-6. With kinks: the objective to 1e-6, since liblinear's dual steps stop there."""
        LinearSVR = self.library("sklearn.svm").LinearSVR
        weight = numpy.round(numpy.random.default_rng(3).uniform(0, 3, 300), 3)
        weights = self.path("weights.txt", "".join(f"{v}\n" for v in weight))
        for loss in ("squared_epsilon_insensitive", "epsilon_insensitive"):
            squared = loss.startswith("squared")
            for epsilon in (0.0, 0.2):
                for given in (False, True):
                    theirs = LinearSVR(loss=loss, epsilon=epsilon, C=0.7, dual=not squared, tol=1e-8, max_iter=1000000,
                                       random_state=0)
                    theirs.fit(self.x, self.y, sample_weight=weight if given else None)
                    expected = numpy.concatenate([numpy.ravel(theirs.intercept_), theirs.coef_])
                    least = self.objective(expected, 0.7, epsilon, squared, True, True, weight if given else 1.0)
                    for workers in (1, 3):
                        with self.subTest(loss=loss, epsilon=epsilon, weights=given, workers=workers):
                            found = self.fit(workers, loss=loss, epsilon=epsilon, C=0.7, tolerance=1e-8,
                                             **({"row_weights": weights} if given else {}))
                            if squared:
                                self.assertLess(numpy.abs(self.weights() - expected).max(), 1e-6)
                            self.assertLessEqual(found["objective"] / least - 1, 1e-7)
                            self.assertGreaterEqual(found["objective"] / least - 1, -1e-6)

    def test_real_data(self):
        rows = numpy.loadtxt(self.shared("wine-white", "winequality-white.csv"), delimiter=";", skiprows=1)
        x = (rows[:, :11] - rows[:, :11].mean(0)) / rows[:, :11].std(0)
        path = write_rows(self.path("wine.csv"), x, rows[:, 11], False)
        values = []
        for workers in (1, 2, 4):
            found = self.fit(workers, training_input=path, test_input=path, tolerance=1e-6)
            self.assertLess(found["rmse"], 0.78)
            values.append(found["objective"])
        self.assertLessEqual(max(values) / min(values) - 1, 1e-6)

    def test_models_and_predictions(self):
        for path in (self.dense, self.sparse):
            for bias in (False, True):
                for form in ("text", "npy"):
                    first = self.fit(2, training_input=path, bias=bias, predict_input=path, test_input=path, format=form)
                    folder, lines = self.output, self.lines("pred_v", 2)
                    found = [float(line.rsplit(":", 1)[1] if path == self.dense else line.split()[0]) for line in lines]
                    if form == "text":
                        w = self.weights()
                        wanted = self.x @ w[1:] + w[0] if bias else self.x @ w
                    numpy.testing.assert_allclose(found, wanted, atol=1e-10)
                    self.assertAlmostEqual(first["rmse"], numpy.sqrt(((wanted - self.y) ** 2).mean()), places=10)
                    for place in ((1, 1, "embedded"), (3, 1)):
                        again = self.results(self.job(*place, model=folder, test_input=path, predict_input=path))
                        self.assertAlmostEqual(again["rmse"], first["rmse"], places=12)
                        self.assertEqual(self.lines("pred_v", place[0]), lines)

    def test_idle_workers_and_targets_that_are_all_the_same(self):
        few = self.path("few.svm", "2 1:1 3:2\n-1 2:1\n0.5 3:1\n")
        values = [self.fit(workers, training_input=few, tolerance=1e-9)["objective"] for workers in (1, 2, 6)]
        self.assertLessEqual(max(values) / min(values) - 1, 1e-8)
        for target in (0, 5):
            same = self.path("same.csv", f"1,2,{target}\n3,4,{target}\n")
            found = self.fit(2, training_input=same, penalize_bias=False)
            self.assertLess(found["objective"], 1e-4)

    def test_validation_and_early_stopping(self):
        half = write_rows(self.path("half.csv"), self.x[:40], self.y[:40], False)
        rest = write_rows(self.path("rest.csv"), self.x[40:], self.y[40:], False)
        for loss, power in (("epsilon_insensitive", 1), ("squared_epsilon_insensitive", 2)):
            self.fit(2, training_input=half, validation_input=rest, C=100, loss=loss, patience=2)
            curve, w = self.curve(), self.weights()
            beyond = numpy.maximum(0, abs(self.x[40:] @ w[1:] + w[0] - self.y[40:]) - 0.1)
            self.assertAlmostEqual((beyond ** power).mean() / min(line["validate_loss"] for line in curve), 1, delta=1e-9)
            self.assertNotIn("validate_accuracy", curve[0])

    def test_bad_input_and_bad_configs(self):
        bad = self.path("bad.csv", "1,2\n1,x\n")
        self.assertIn(bad + ":2:3:", self.job(2, status=4, training_input=bad))
        for keys in ({"epsilon": -1}, {"C": 0}, {"patience": 1}, {"method": "lbfgs"}):
            name = next(iter(keys))
            self.assertRegex(self.job(mode="embedded", status=3, training_input=self.dense, **keys), rf'json:1:\d+: key "{name}"')
        self.assertIn("raise rounds", self.job(2, status=1, training_input=self.dense, rounds=1))


if __name__ == "__main__":
    unittest.main()
