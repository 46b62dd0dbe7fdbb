#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What every program on samples does with the same awkward input: right results, or a refusal that names the place. Classes and
targets, a constant column, a class that all but one worker never see, more workers than rows, missing values, words as features.
Options: names of tests."""
import unittest

import numpy

from alg_job import AlgorithmCase

LR = {"alpha": 1.0, "beta": 0.01, "rounds": 200}
# (program, keys, whether predictions are labels; otherwise probabilities of the second one)
CLASSIFIERS = (("lr", {**LR, "method": "lbfgs"}, False), ("lr", {**LR, "method": "dgd"}, False), ("lr_l1", {"C": 1.0}, False),
               ("softmax", {}, True), ("linear_svm", {"loss": "hinge"}, True), ("linear_svm", {}, True),
               ("naive_bayes", {"distribution": "gaussian"}, True),
               ("fm", {"loss": "log", "method": "als", "k": 2, "beta_v": 0.1}, True))
REGRESSIONS = (("ridge", {"method": "exact", "penalty": 0.1}), ("lasso", {"penalty": 0.01}), ("linear_svr", {}),
               ("fm", {"method": "als", "k": 2, "beta_w": 0.1, "beta_v": 0.1}))


class LinearInputsTest(AlgorithmCase):
    program = "lr"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(7)
        cls.x = numpy.round(random.normal(size=(80, 4)), 3)
        cls.score = cls.x @ [1.0, -2.0, 0.5, 0.0] + 0.3 * random.normal(size=80)

    def rows(self, name, labels, constant=None, order=slice(None)):
        """CSV; with a last column that is the same number everywhere, if given."""
        x = self.x if constant is None else numpy.column_stack([self.x, numpy.full(80, constant)])
        text = "".join(",".join([*(f"{v:g}" for v in row), str(label)]) + "\n"
                       for row, label in list(zip(x, labels))[order])
        return self.path(name, text)

    def labels(self, words):
        return numpy.where(self.score > 0, "yes" if words else "1", "no" if words else "0")

    def predictions(self, workers):
        return [line.rsplit(":", 1)[1] for line in self.lines("pred_v", workers)]

    def test_a_constant_column_changes_no_prediction(self):
        """It only adds to the bias: where the bias is penalised, predictions near the decision boundary may differ."""
        for program, keys, words in CLASSIFIERS:
            with self.subTest(program=program, keys=keys):
                labels = self.labels(words)
                plain = self.rows("plain.csv", labels)
                self.results(self.job(2, program=program, training_input=plain, predict_input=plain, **keys))
                expected = self.predictions(2)
                hits = numpy.mean([a.startswith("y") == (b == "yes") if words else (float(a) > 0.5) == (b == "1")
                                   for a, b in zip(expected, labels)])
                self.assertGreater(hits, 0.9)
                path = self.rows("constant.csv", labels, constant=3.5)
                for workers in (1, 3):
                    self.job(workers, program=program, training_input=path, predict_input=path, **keys)
                    found = self.predictions(workers)
                    same = numpy.mean([a == b if words else (float(a) > 0.5) == (float(b) > 0.5)
                                       for a, b in zip(found, expected)])
                    self.assertGreaterEqual(same, 0.95)
        for program, keys in REGRESSIONS:
            with self.subTest(program=program):
                values = []
                for constant, workers in ((None, 1), (3.5, 1), (3.5, 3), (0, 3)):
                    path = self.rows("target.csv", self.score, constant)
                    self.job(workers, program=program, training_input=path, predict_input=path, **keys)
                    values.append([float(v) for v in self.predictions(workers)])
                    self.assertLess(numpy.abs(values[-1] - self.score).mean(), 0.5)
                numpy.testing.assert_allclose(values[1], values[2], rtol=1e-3, atol=1e-3)

    def test_a_class_that_only_one_worker_sees(self):
        for program, keys, words in CLASSIFIERS:
            labels = self.labels(words)
            order = numpy.argsort(labels, kind="stable")
            path = self.path("sorted.csv", "".join(",".join([*(f"{v:g}" for v in self.x[i]), labels[i]]) + "\n" for i in order))
            found = []
            for workers in (1, 4):
                with self.subTest(program=program, keys=keys, workers=workers):
                    found.append(self.results(self.job(workers, program=program, training_input=path, test_input=path, **keys)))
                    self.assertGreater(found[-1]["accuracy"], 0.9)
            self.assertAlmostEqual(found[0]["accuracy"], found[-1]["accuracy"], delta=0.03)

    def test_more_workers_than_rows(self):
        for program, keys, words in CLASSIFIERS:
            path = self.path("few.csv", "1,0,yes\n-1,0.5,no\n2,1,yes\n" if words else "1,0,1\n-1,0.5,0\n2,1,1\n")
            for workers in (1, 5):
                with self.subTest(program=program, keys=keys, workers=workers):
                    found = self.results(self.job(workers, program=program, training_input=path, test_input=path, **keys))
                    self.assertGreaterEqual(found["accuracy"], 2 / 3)
        for program, keys in REGRESSIONS:
            path = self.path("few.csv", "1,0,2\n-1,0.5,-1\n2,1,3\n")
            values = []
            for workers in (1, 5):
                self.job(workers, program=program, training_input=path, predict_input=path, **keys)
                values.append([float(v) for v in self.predictions(workers)])
            with self.subTest(program=program):
                numpy.testing.assert_allclose(values[0], values[1], rtol=1e-3, atol=1e-3)

    def test_missing_values_and_words_are_refused_with_their_place(self):
        for program, keys, *_ in CLASSIFIERS + REGRESSIONS:
            for field in ("", "nan", "NA", "red"):
                with self.subTest(program=program, field=field):
                    path = self.path("awkward.csv", f"1,2,0\n3,{field},1\n5,6,1\n")
                    text = self.job(1, status=4, mode="embedded", program=program, training_input=path, **keys)
                    self.assertIn(path + ":2:3: found", text)

    def test_labels_that_are_words(self):
        path = self.rows("words.csv", self.labels(True))
        for program, keys, _ in CLASSIFIERS:
            with self.subTest(program=program):
                found = self.results(self.job(2, program=program, training_input=path, test_input=path, **keys))
                self.assertGreater(found["accuracy"], 0.9)


if __name__ == "__main__":
    unittest.main()
