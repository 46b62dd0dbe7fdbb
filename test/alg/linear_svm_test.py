#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Linear support vector machines, tested by running jobs: the figures on a9a, the optimality conditions and the dual problem,
scikit-learn's solutions, classes that are words, and any number of workers in every mode. Options: names of tests."""
import os
import unittest

import numpy

from alg_job import LONG, MPI, AlgorithmCase
from tables import thin_matrix, write_rows


class LinearSvmTest(AlgorithmCase):
    program = "linear_svm"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(5)
        cls.x = thin_matrix(random, 400, 12)
        score = cls.x @ random.normal(size=(12, 3)) + random.normal(size=(400, 3))
        cls.y = numpy.where(score[:, 0] + 0.5 > 0, 1, -1)
        cls.three = numpy.array(["apple", "pear", "zebra fish"])[score.argmax(1)]
        cls.sparse = write_rows(os.path.join(cls.folder, "two.svm"), cls.x, [f"{v:+d}" for v in cls.y], True)
        cls.dense = write_rows(os.path.join(cls.folder, "three.csv"), cls.x, cls.three, False)
        cls.defaults = {"training_input": cls.sparse}

    def weights(self):
        return numpy.array([[float(v) for v in line.split("\t")[1].split("|")] for line in self.lines("linear_svm_weight", 1)])

    def test_the_figures_of_a9a(self):
        train, test = self.shared("a9a", "a9a"), self.shared("a9a", "a9a.t")
        for loss, method, objective, part, accuracy in (("hinge", "newton", 11433.8077, 1e-4, 0.8497),
                                                        ("hinge", "dual", 11433.8077, 1e-4, 0.8497),
                                                        ("squared_hinge", "newton", 13742.3973, 1e-6, 0.8499)):
            values = []
            for workers, servers in ((1, 1), (2, 1), (4, 2)):
                with self.subTest(loss=loss, method=method, workers=workers):
                    found = self.fit(workers, servers, training_input=train, test_input=test, loss=loss,
                                     method=method, bias=False)
                    self.assertLessEqual(abs(found["objective"] / objective - 1), part)
                    self.assertGreaterEqual(found["objective"] / objective, 1 - 1e-8)
                    self.assertAlmostEqual(found["accuracy"], accuracy, delta=1e-3)
                    self.assertGreater(found["auc"], 0.895)
                    if loss == "hinge":
                        self.assertLessEqual(found["objective"] - objective, found["gap"] + 1e-3)
                    values.append(found["objective"])
            most = 1e-8 if loss == "squared_hinge" else 1e-5 if method == "newton" else 1e-4
            self.assertLessEqual(max(values) / min(values) - 1, most)

    def test_a_squared_hinge_of_more_features_than_rows_ends_after_a_few_steps(self):
        """Most steps move rows to the wrong side of the margin, which the quadratic model does not account for."""
        path = self.generate("wide.svm", "sparse_classification", "-n", 960, "-k", 20000, "--nnz", 40, "--seed", 1)
        for workers in (1, 2):
            with self.subTest(workers=workers):
                found = self.fit(workers, training_input=path, bias=False)
                self.assertLessEqual(found["rounds"], 40)
                # scikit-learn's, which takes 118 steps: LinearSVC(C=1, dual=False, fit_intercept=False, tol=1e-4)
                self.assertAlmostEqual(found["objective"] / 22.69752, 1, delta=1e-4)

    def objective(self, w, c, squared, bias, penalize, y, weight):
        b, u = (w[0], w[1:]) if bias else (0.0, w)
        short = numpy.maximum(0, 1 - y * (self.x @ u + b))
        square = u @ u + (b * b if penalize else 0)
        return square / 2 + c * (weight * (short ** 2 if squared else short)).sum()

    def test_it_is_the_minimum_in_every_mode(self):
        """The objective is that of the weights, and no direction lowers it."""
        random = numpy.random.default_rng(1)
        one = numpy.ones(400)
        for loss in ("hinge", "squared_hinge"):
            for bias, penalize in ((False, True), (True, True), (True, False)):
                values = []
                for place in [(1, 1, "embedded"), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI and bias else []):
                    with self.subTest(loss=loss, bias=bias, penalize=penalize, place=place):
                        found = self.fit(*place, loss=loss, bias=bias, penalize_bias=penalize, C=0.5, tolerance=1e-9)
                        w = self.weights()[0]
                        squared = loss == "squared_hinge"
                        value = self.objective(w, 0.5, squared, bias, penalize, self.y, one)
                        self.assertAlmostEqual(found["objective"] / value, 1, delta=1e-12)
                        for scale in (1e-1, 1e-2, 1e-3):
                            for step in random.normal(size=(40, len(w))):
                                other = self.objective(w + scale * step, 0.5, squared, bias, penalize, self.y, one)
                                self.assertGreaterEqual(other, value * (1 - 2e-9))
                        values.append(found["objective"])
                self.assertLessEqual(max(values) / min(values) - 1, 2e-9)

    def test_the_gap_bounds_the_distance_to_the_minimum(self):
        best = self.fit(loss="hinge", tolerance=1e-10)["objective"]
        for tolerance in (1e-1, 1e-2, 1e-3, 1e-5):
            for method, penalize in (("dual", True), ("newton", True), ("newton", False)):
                found = self.fit(2, loss="hinge", method=method, tolerance=tolerance, penalize_bias=penalize)
                self.assertLessEqual(found["gap"], tolerance * found["objective"])
                if penalize:
                    self.assertLessEqual(found["objective"] - best, found["gap"] + 1e-9 * best)
                    self.assertGreaterEqual(found["objective"], best * (1 - 1e-9))

    def test_dual_coordinates_and_newton_find_the_same_minimum(self):
        """Of narrow and wide rows, with weights of 0 and rows without a feature, for any number of workers."""
        random = numpy.random.default_rng(8)
        wide = numpy.where(random.random((60, 300)) < 0.02, random.normal(size=(60, 300)), 0)
        wide[:3], wide[3, 299] = 0, 1
        side = numpy.where(wide @ random.normal(size=300) + 0.3 * random.normal(size=60) > 0, 1, -1)
        weights = self.path("some.txt", "".join(f"{v}\n" for v in random.integers(0, 3, 60)))
        paths = [(self.sparse, {}), (self.dense, {}), (write_rows(self.path("wide.svm"), wide, side, True), {}),
                 (write_rows(self.path("wide.svm"), wide, side, True), {"row_weights": weights}),
                 (write_rows(self.path("wide.csv"), wide, side, False), {"C": 10})]
        for path, more in paths:
            for bias in (False, True):
                newton = self.fit(2, training_input=path, loss="hinge", method="newton", bias=bias, tolerance=1e-7, **more)
                for workers in (1, 2, 4) if LONG else (2,):
                    with self.subTest(path=path, bias=bias, workers=workers):
                        dual = self.fit(workers, training_input=path, loss="hinge", method="dual", bias=bias,
                                        tolerance=1e-7, **more)
                        self.assertAlmostEqual(dual["objective"] / newton["objective"], 1, delta=2e-7)

    def test_the_dual_objective_never_falls_and_is_below_the_objective(self):
        for workers in (1, 3):
            self.fit(workers, loss="hinge", method="dual", tolerance=1e-7, bias=False)
            curve = self.curve()
            best = curve[-1]["objective"]
            for a, b in zip(curve, curve[1:]):
                self.assertGreaterEqual(b["dual_objective"], a["dual_objective"] - 1e-12 * best)
                self.assertLessEqual(b["objective"], a["objective"])
            for line in curve:
                self.assertLessEqual(line["dual_objective"], best * (1 + 1e-12))
                self.assertAlmostEqual(line["gap"], line["objective"] - line["dual_objective"], delta=1e-9 * best)
            self.assertLessEqual(curve[-1]["gap"], 1e-7 * best)

    def test_it_is_the_solution_of_scikit_learn(self):
        LinearSVC = self.library("sklearn.svm").LinearSVC
        random = numpy.random.default_rng(3)
        weight = numpy.round(random.uniform(0, 3, 400), 3)
        weights = self.path("weights.txt", "".join(f"{v}\n" for v in weight))
        for loss in ("squared_hinge", "hinge"):
            for given in (False, True):
                for classes in (None, "balanced", {"apple": 2.0, "pear": 0.5}):
                    keys = {"row_weights": weights} if given else {}
                    if classes:
                        keys["class_weight"] = classes if classes == "balanced" else ["apple=2", "pear=0.5"]
                    theirs = LinearSVC(loss=loss, C=0.7, dual=loss == "hinge", tol=1e-7, max_iter=1000000, random_state=0)
                    # With more than two classes, liblinear uses only the weight of the class that is against the rest.
                    times = weight if given else numpy.ones(400)
                    if classes == "balanced":
                        times = times * [400 / (3 * (self.three == c).sum()) for c in self.three]
                    elif classes:
                        times = times * [classes.get(c, 1) for c in self.three]
                    theirs.fit(self.x, self.three, sample_weight=times)
                    expected = numpy.hstack([theirs.intercept_[:, None], theirs.coef_])
                    for workers in (1, 3):
                        with self.subTest(loss=loss, weights=given, classes=classes, workers=workers):
                            self.fit(workers, training_input=self.dense, loss=loss, C=0.7, tolerance=1e-8, test_input=self.dense,
                                     predict_input=self.dense, **keys)
                            self.assertLess(numpy.abs(self.weights() - expected).max(), 2e-3 if loss == "hinge" else 2e-6)
                            found = [line.rsplit(":", 1)[1] for line in self.lines("pred_v", workers)]
                            self.assertGreaterEqual((numpy.array(found) == theirs.predict(self.x)).mean(), 0.995)
                            self.assertEqual(self.manifest()["classes"], list(theirs.classes_))

    def test_lbfgs_ends_where_newton_does(self):
        for path in (self.sparse, self.dense):
            newton = self.fit(2, training_input=path, tolerance=1e-8)["objective"]
            lbfgs = self.fit(2, training_input=path, tolerance=1e-8, method="lbfgs")["objective"]
            self.assertAlmostEqual(lbfgs / newton, 1, delta=1e-10)
        for keys, said in (({"loss": "hinge", "method": "lbfgs"}, "hinge has a kink"),
                           ({"method": "dual"}, "dual is only for hinge"),
                           ({"loss": "hinge", "method": "dual", "penalize_bias": False},
                            "dual cannot fit a bias that is not penalised")):
            self.assertIn(said, self.job(mode="embedded", status=3, training_input=self.sparse, **keys))

    def test_models_and_predictions(self):
        for path, test, classes in ((self.sparse, self.y, ["-1", "1"]), (self.dense, self.three, sorted(set(self.three)))):
            for bias in (False, True):
                predicted = None
                for form in ("text", "npy"):
                    first = self.fit(2, training_input=path, bias=bias, predict_input=path, test_input=path, scores=True,
                                     format=form)
                    manifest = self.manifest()
                    self.assertEqual(manifest["classes"], classes)
                    self.assertEqual(manifest["class_rows"], [float((test.astype(str) == c).sum()) for c in classes])
                    lines, scores = self.lines("pred_v", 2), self.lines("score_v", 2)
                    found = [line.rsplit(":", 1)[1] if path == self.dense else line.split()[0] for line in lines]
                    hits = numpy.mean([a == str(b) for a, b in zip(found, test)])
                    self.assertAlmostEqual(first["accuracy"], hits, places=12)
                    if form == "text":
                        w = self.weights()
                        margin = self.x @ w[:, 1:].T + w[:, 0] if bias else self.x @ w.T
                        numpy.testing.assert_allclose([[float(v) for v in s.split("|")] for s in scores], margin, atol=1e-10)
                        predicted = lines
                    else:
                        array = numpy.load(os.path.join(self.output, "linear_svm_weight_0.npy"))
                        self.assertEqual(array.shape, (1 if path == self.sparse else 3, 13 if bias else 12))
                    self.assertEqual(lines, predicted)
                    folder = self.output
                    for place in ((1, 1, "embedded"), (3, 1)):
                        again = self.results(self.job(*place, model=folder, test_input=path, predict_input=path, scores=True))
                        self.assertEqual(again["accuracy"], first["accuracy"])
                        self.assertEqual(again.get("auc"), first.get("auc"))
                        self.assertEqual(self.lines("pred_v", place[0]), lines)
                        self.assertEqual(self.lines("score_v", place[0]), scores)

    def test_a_header_and_npy_input(self):
        header = self.path("named.csv", "label," + ",".join(f"f{j}" for j in range(12)) + "\n" +
                           "".join(f"{'yes' if v > 0 else 'no'}," + ",".join(f"{c:.17g}" for c in row) + "\n"
                                   for row, v in zip(self.x, self.y)))
        matrix = os.path.join(self.folder, "rows.npy")
        numpy.save(matrix, numpy.hstack([self.x, self.y[:, None].astype(float)]))
        plain = self.fit(2)["objective"]
        self.assertAlmostEqual(self.fit(2, training_input=header, target="label")["objective"] / plain, 1, delta=1e-9)
        self.assertEqual(self.manifest()["classes"], ["no", "yes"])
        self.assertAlmostEqual(self.fit(3, training_input=matrix)["objective"] / plain, 1, delta=1e-9)
        self.assertEqual(self.manifest()["classes"], ["-1", "1"])

    def test_a_class_that_a_worker_never_sees_and_idle_workers(self):
        order = numpy.argsort(self.three, kind="stable")
        path = write_rows(self.path("sorted.csv"), self.x[order], self.three[order], False)
        plain = self.fit(1, training_input=self.dense, tolerance=1e-8)["objective"]
        for workers in (2, 4):
            self.assertAlmostEqual(self.fit(workers, training_input=path, tolerance=1e-8)["objective"] / plain, 1, delta=1e-9)
        few = self.path("few.svm", "b 1:1 3:2\na 2:1\nc 3:1\n")
        values = [self.fit(workers, training_input=few, predict_input=few, class_weight="balanced")["objective"]
                  for workers in (1, 2, 6)]
        self.assertLessEqual(max(values) / min(values) - 1, 1e-9)
        self.assertEqual([line.split()[0] for line in self.lines("pred_v", 6)], ["b", "a", "c"])

    def test_spellings_of_numbers_are_one_class(self):
        path = self.path("spelled.svm", "+1 1:1\n1.0 1:2\n-1 1:-1\n-1e0 1:-2 2:1\n1 2:1\n")
        self.fit(2, training_input=path)
        self.assertEqual((self.manifest()["classes"], self.manifest()["class_rows"]), (["-1", "1"], [2.0, 3.0]))
        ten = self.path("ten.svm", "".join(f"{d} {d + 1}:1\n" for d in (10, 9, 2, 0, 1)))
        self.fit(2, training_input=ten)
        self.assertEqual(self.manifest()["classes"], ["0", "1", "2", "9", "10"])

    def test_validation_and_early_stopping(self):
        half = write_rows(self.path("half.svm"), self.x[:80], self.y[:80], True)
        rest = write_rows(self.path("rest.svm"), self.x[80:], self.y[80:], True)
        for loss in ("hinge", "squared_hinge"):
            with self.subTest(loss=loss):
                keys = {"training_input": half, "validation_input": rest, "loss": loss, "C": 30}
                self.fit(2, **keys)
                curve = self.curve()
                losses = [line["validate_loss"] for line in curve]
                w = self.weights()[0]
                short = numpy.maximum(0, 1 - self.y[80:] * (self.x[80:] @ w[1:] + w[0]))
                self.assertAlmostEqual(losses[-1] / (short ** (2 if loss == "squared_hinge" else 1)).mean(), 1, delta=1e-9)
                hits = ((self.x[80:] @ w[1:] + w[0] > 0) == (self.y[80:] > 0)).mean()
                self.assertAlmostEqual(curve[-1]["validate_accuracy"], hits, places=9)
                self.assertEqual([line["round"] for line in curve], list(range(1, len(curve) + 1)))
                self.fit(3, patience=2, **keys)
                stopped = self.curve()
                self.assertLessEqual(len(stopped), len(curve))
                w = self.weights()[0]
                short = numpy.maximum(0, 1 - self.y[80:] * (self.x[80:] @ w[1:] + w[0]))
                reached = (short ** (2 if loss == "squared_hinge" else 1)).mean()
                self.assertAlmostEqual(reached / min(line["validate_loss"] for line in stopped), 1, delta=1e-9)

    def test_bad_input_and_bad_configs(self):
        bad = self.path("bad.svm", "+1 1:1\n-1 1:x\n")
        self.assertIn(bad + ":2:", self.job(2, status=4, training_input=bad))
        for text, said in (("a 1:1\na 1:2\n", "found only the class a, want at least 2"),
                           ("a 1:1\ninf 1:2\n", ":2:1: found label"),
                           ("a 1:1\n1:2 2:2\n", 'one.svm:2:1: found "1:2", want a label'),
                           ("a,\x01\n1,b\n", "found"), ("1,a\n1,\n", ":2:3: found an empty label")):
            self.assertIn(said, self.job(2, status=4, training_input=self.path("one.svm", text)))
        other = self.path("other.svm", "7 1:1\n")
        self.assertIn(other + ":1:1: found label \"7\", want a class of the model: -1, 1",
                      self.job(2, status=4, training_input=self.sparse, test_input=other))
        short = self.path("short.txt", "1\n2\n")
        self.assertIn("found 2 weights, want one for each of 400 rows",
                      self.job(2, status=4, training_input=self.sparse, row_weights=short))
        minus = self.path("minus.txt", "1\n" * 399 + "-1\n")
        self.assertIn("found a weight below 0", self.job(3, status=4, training_input=self.sparse, row_weights=minus))
        for keys, said in (({"class_weight": ["a"]}, '"class_weight": found "a", want balanced, or class=weight'),
                           ({"class_weight": ["2=1"]}, "found class 2, want one of the training data: -1, 1"),
                           ({"C": 0}, '"C"'), ({"patience": 3}, '"patience": only with validation_input')):
            text = self.job(mode="embedded", status=3, training_input=self.sparse, **keys)
            self.assertRegex(text, r"json:1:\d+: ")
            self.assertIn(said, text)
        self.assertIn("raise rounds", self.job(2, status=1, training_input=self.sparse, loss="hinge", rounds=2))
        self.fit(1)
        folder = self.output
        self.assertIn("found a model of linear_svm, want one of lr", self.job(1, status=4, program="lr", model=folder,
                                                                             predict_input=self.sparse))


if __name__ == "__main__":
    unittest.main()
