#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Softmax regression, tested by running jobs: the figures on optdigits, the gradient at the result, scikit-learn's solution, any
number of workers in every mode. Options: names of tests."""
import os
import unittest

import numpy

from alg_job import MPI, AlgorithmCase
from tables import thin_matrix, write_rows


class SoftmaxTest(AlgorithmCase):
    program = "softmax"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(8)
        cls.x = thin_matrix(random, 300, 9)
        score = cls.x @ random.normal(size=(9, 4)) + random.normal(size=(300, 4))
        cls.y = score.argmax(1)
        cls.words = numpy.array(["red", "green", "deep blue", "black"])[cls.y]
        cls.dense = write_rows(os.path.join(cls.folder, "words.csv"), cls.x, cls.words, False)
        cls.sparse = write_rows(os.path.join(cls.folder, "numbers.svm"), cls.x, cls.y * 3 - 2, True)
        cls.defaults = {"training_input": cls.dense}

    def weights(self, workers):
        """(names, a row of weights a feature)"""
        lines = [line.split("\t") for line in self.lines("softmax_weight", workers)]
        return [name for name, _ in lines], numpy.array([[float(v) for v in row.split("|")] for _, row in lines])

    @staticmethod
    def log_probabilities(x, w):
        score = x @ w[1:] + w[0]
        return score - numpy.logaddexp.reduce(score, axis=1)[:, None]

    def test_the_figures_of_optdigits(self):
        parts = []
        for name in ("optdigits.tra", "optdigits.tes"):
            rows = numpy.loadtxt(self.shared("optdigits", name), delimiter=",")
            parts.append(write_rows(self.path(name + ".csv"), rows[:, :64] / 16, rows[:, 64].astype(int), False))
        values = []
        for method, workers, servers in (("newton", 1, 1), ("newton", 2, 1), ("newton", 4, 2), ("lbfgs", 2, 1)):
            with self.subTest(method=method, workers=workers):
                found = self.fit(workers, servers, training_input=parts[0], test_input=parts[1], method=method)
                self.assertAlmostEqual(found["objective"] / 585.69072, 1, delta=1e-6)
                self.assertAlmostEqual(found["accuracy"], 0.9482, delta=6e-4)
                values.append(found["objective"])
        self.assertLessEqual(max(values) / min(values) - 1, 1e-7)
        self.assertEqual(self.manifest()["classes"], [str(d) for d in range(10)])

    def test_the_gradient_is_zero_in_every_mode(self):
        classes = sorted(set(self.words))
        label = numpy.array([classes.index(v) for v in self.words])
        for method in ("newton", "lbfgs"):
            values = []
            for place in [(1, 1, "embedded"), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI else []):
                with self.subTest(method=method, place=place):
                    found = self.fit(*place, C=0.7, method=method, tolerance=1e-9)
                    names, w = self.weights(place[0])
                    self.assertEqual(names, ["bias"] + [str(j) for j in range(9)])
                    log_p = self.log_probabilities(self.x, w)
                    loss = -log_p[numpy.arange(300), label].sum()
                    self.assertAlmostEqual(found["objective"] / ((w[1:] ** 2).sum() / 2 + 0.7 * loss), 1, delta=1e-12)
                    slope = 0.7 * (numpy.exp(log_p) - numpy.eye(4)[label])
                    self.assertLess(numpy.abs(self.x.T @ slope + w[1:]).max(), 1e-5)
                    self.assertLess(numpy.abs(slope.sum(0)).max(), 1e-5)
                    self.assertAlmostEqual(w[0].sum(), 0, places=12)
                    values.append(found["objective"])
            self.assertLessEqual(max(values) / min(values) - 1, 1e-10)

    def test_it_is_the_solution_of_scikit_learn(self):
        LogisticRegression = self.library("sklearn.linear_model").LogisticRegression
        weight = numpy.round(numpy.random.default_rng(3).uniform(0, 3, 300), 3)
        weights = self.path("weights.txt", "".join(f"{v}\n" for v in weight))
        for given in (False, True):
            for classes in (None, "balanced"):
                keys = {"row_weights": weights} if given else {}
                if classes:
                    keys["class_weight"] = classes
                theirs = LogisticRegression(multi_class="multinomial", solver="newton-cg", C=0.5, tol=1e-7, max_iter=1000,
                                            class_weight=classes)
                theirs.fit(self.x, self.words, sample_weight=weight if given else None)
                for workers in (1, 3):
                    with self.subTest(weights=given, classes=classes, workers=workers):
                        self.fit(workers, C=0.5, tolerance=1e-10, **keys)
                        w = self.weights(workers)[1]
                        self.assertLess(numpy.abs(w[1:] - theirs.coef_.T).max(), 1e-5)
                        self.assertLess(numpy.abs(w[0] - theirs.intercept_ + theirs.intercept_.mean()).max(), 1e-5)

    def test_models_and_predictions(self):
        for path, labels in ((self.dense, self.words), (self.sparse, (self.y * 3 - 2).astype(str))):
            classes = sorted(set(labels), key=float) if path == self.sparse else sorted(set(labels))
            first_lines = None
            for form, one_file in (("text", False), ("npy", False), ("text", True)):
                with self.subTest(path=path, form=form, one_file=one_file):
                    keys = {"output_files": 1} if one_file else {}
                    first = self.fit(2, training_input=path, predict_input=path, test_input=path, scores=True,
                                     format=form, **keys)
                    folder, manifest = self.output, self.manifest()
                    self.assertEqual(manifest["classes"], classes)
                    if not one_file and form == "text":
                        first_lines, scores = self.lines("pred_v", 2), self.lines("score_v", 2)
                        log_p = self.log_probabilities(self.x, self.weights(2)[1])
                        found = [[float(v) for v in s.split("|")] for s in scores]
                        numpy.testing.assert_allclose(found, numpy.exp(log_p), atol=1e-12)
                        found = [line.rsplit(":", 1)[1] if path == self.dense else line.split()[0] for line in first_lines]
                        self.assertEqual(found, [classes[c] for c in log_p.argmax(1)])
                        own = log_p[numpy.arange(300), [classes.index(v) for v in labels]]
                        self.assertAlmostEqual(first["log_loss"], -own.mean(), places=12)
                    for place in ((1, 1, "embedded"), (3, 1)):
                        again = self.results(self.job(*place, model=folder, test_input=path, predict_input=path, scores=True))
                        self.assertEqual(again["accuracy"], first["accuracy"])
                        self.assertAlmostEqual(again["log_loss"], first["log_loss"], places=14)
                        self.assertEqual(self.lines("pred_v", place[0]), first_lines)
                        self.assertEqual(self.lines("score_v", place[0]), scores)

    def test_names_of_features_are_in_the_model(self):
        header = self.path("named.csv", "a,b,kind\n1,0,x\n0,1,y\n2,0,x\n0,2,z\n")
        self.fit(2, training_input=header)
        self.assertEqual(self.weights(2)[0], ["bias", "a", "b"])
        self.fit(1, training_input=header, features=["b"], target="kind", bias=False)
        self.assertEqual(self.weights(1)[0], ["b"])

    def test_two_classes_are_logistic_regression(self):
        two = write_rows(self.path("two.csv"), self.x, numpy.where(self.y < 2, 0, 1), False)
        found = self.fit(2, training_input=two, test_input=two, tolerance=1e-10)
        w = self.weights(2)[1]
        self.assertLess(numpy.abs(w[:, 0] + w[:, 1]).max(), 1e-7)
        self.assertGreater(found["auc"], 0.7)

    def test_a_class_that_a_worker_never_sees_and_idle_workers(self):
        order = numpy.argsort(self.words, kind="stable")
        path = write_rows(self.path("sorted.csv"), self.x[order], self.words[order], False)
        plain = self.fit(1, tolerance=1e-8)["objective"]
        for workers in (2, 4):
            self.assertAlmostEqual(self.fit(workers, training_input=path, tolerance=1e-8)["objective"] / plain, 1, delta=1e-10)
        few = self.path("few.svm", "b 1:1 3:2\na 2:1\nc 3:1\n")
        values = [self.fit(workers, training_input=few)["objective"] for workers in (1, 2, 6)]
        self.assertLessEqual(max(values) / min(values) - 1, 1e-9)

    def test_validation_and_early_stopping(self):
        half = write_rows(self.path("half.csv"), self.x[:50], self.words[:50], False)
        rest = write_rows(self.path("rest.csv"), self.x[50:], self.words[50:], False)
        classes = sorted(set(self.words))
        label = [classes.index(v) for v in self.words[50:]]
        for workers in (1, 3):
            self.fit(workers, training_input=half, validation_input=rest, C=100, patience=2)
            curve = self.curve()
            log_p = self.log_probabilities(self.x[50:], self.weights(workers)[1])
            loss = -log_p[numpy.arange(250), label].mean()
            self.assertAlmostEqual(loss / min(line["validate_loss"] for line in curve), 1, delta=1e-9)
            best = min(curve, key=lambda line: line["validate_loss"])
            self.assertAlmostEqual(best["validate_accuracy"], (log_p.argmax(1) == label).mean(), places=12)
            self.assertLess(best["round"], len(curve))
            self.fit(workers, training_input=half, validation_input=rest, C=100)
            self.assertGreaterEqual(len(self.curve()), len(curve))

    def test_bad_input_and_bad_configs(self):
        one = self.path("a.csv", "1,a\n2,a\n")
        self.assertIn("found only the class a, want at least 2", self.job(2, status=4, training_input=one))
        self.assertIn(":2:1: found", self.job(2, status=4, training_input=self.path("b.csv", "1,a\nx,b\n")))
        self.assertIn('"patience": only with', self.job(mode="embedded", status=3, training_input=self.dense, patience=1))
        self.assertIn("raise rounds", self.job(2, status=1, training_input=self.dense, rounds=1))
        self.assertRegex(self.job(mode="embedded", status=3, training_input=self.dense, C=-1), r'json:1:\d+: key "C"')
        many = self.path("many.csv", "".join(f"1,c{i}\n" for i in range(70000)))
        self.assertIn("65537:3: found more than 65536 classes", self.job(1, status=4, training_input=many))


if __name__ == "__main__":
    unittest.main()
