#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Weights of rows in all programs on samples: a field, files, repeated rows, and scikit-learn's sample_weight; weighted tests.
Options: names of tests."""
import os
import unittest

import numpy

from alg_job import AlgorithmCase

try:
    from sklearn import linear_model, metrics
except ImportError:  # the oracle; other tests do not need it
    linear_model = None


LR = {"beta": 0.05, "rounds": 1000, "gradient_tolerance": 1e-10}
# (program, keys, whether labels are classes)
EXACT = (("lr", {**LR, "method": "newton"}, True), ("lr", {**LR, "method": "lbfgs"}, True),
         ("lr", {**LR, "method": "owlqn", "l1": 0.01}, True),
         ("lr", {"beta": 0.05, "rounds": 500, "alpha": 0.2, "method": "dgd"}, True),
         ("lr_l1", {"C": 0.3, "tolerance": 1e-8}, True), ("lr_l1", {"C": 0.3, "method": "owlqn", "rounds": 5000}, True),
         ("softmax", {"tolerance": 1e-10}, True), ("linear_svm", {"tolerance": 1e-10}, True),
         ("naive_bayes", {"distribution": "gaussian"}, True),
         ("ridge", {"penalty": 2}, False), ("ridge", {"penalty": 2, "standardize": True}, False),
         ("lasso", {"penalty": 0.1, "tolerance": 1e-9}, False), ("lasso", {"penalty": 0.1, "standardize": True}, False),
         ("linear_svr", {"loss": "squared_epsilon_insensitive", "tolerance": 1e-10}, False))
OTHERS = (("gbdt", {"loss": "log", "rounds": 5, "min_child_rows": 1}, True), ("gbdt", {"loss": "squared", "rounds": 5}, False),
          ("random_forest", {"type": "classification", "trees": 5}, True),
          ("fm", {"loss": "log", "method": "als", "k": 2, "beta_v": 0.1, "rounds": 3}, True),
          ("lr", {"beta": 0.05, "rounds": 3, "alpha": 0.01, "method": "ipm"}, True),
          ("lr", {"beta": 0.05, "rounds": 2, "alpha": 0.01, "method": "agd"}, True),
          ("ridge", {"penalty": 2, "method": "sgd", "rounds": 10, "alpha": 0.01}, False))


class WeightsTest(AlgorithmCase):
    program = "weights"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(11)
        cls.x = numpy.round(random.normal(size=(90, 3)) + [0, 3, -1], 3)
        score = cls.x @ [1.0, -0.5, 0.3] + 1.8 + random.normal(size=90)
        cls.weight = random.integers(0, 4, size=90)
        cls.y = {True: (score > 0).astype(int), False: numpy.round(score, 4)}
        cls.row_weights = cls.path(cls, "row_weights.txt", "".join(f"{w}\n" for w in cls.weight))

    def csv(self, classes, weighted=False, repeated=False):
        lines = ["a,b,w,c,y" if weighted else "a,b,c,y"]
        for row, weight, label in zip(self.x, self.weight, self.y[classes]):
            a, b, c = (f"{v:g}" for v in row)
            line = ",".join([a, b, *([str(weight)] if weighted else []), c, str(label)])
            lines += [line] * (weight if repeated else 1)
        return self.path(f"rows_{classes}_{weighted}_{repeated}.csv", "\n".join(lines) + "\n")

    def libsvm(self, classes, weighted=False):
        """The weight, if any, is index 3."""
        columns = numpy.column_stack([self.x[:, :2], self.weight, self.x[:, 2]] if weighted else [self.x])
        return self.path(f"rows_{classes}_{weighted}.svm", "".join(
            " ".join([str(label), *(f"{j + 1}:{v:g}" for j, v in enumerate(row))]) + "\n"
            for row, label in zip(columns, self.y[classes])))

    def margins(self, workers, program, keys, classes, path, predict=None, **more):
        """What the model says of the unweighted rows, or of `predict`."""
        self.job(workers, mode="local" if workers > 1 else "embedded", program=program, training_input=path,
                 predict_input=predict or self.csv(classes), **keys, **more, **({"scores": True} if program in
                                                                   ("softmax", "linear_svm", "naive_bayes") else {}))
        name = "score_v" if os.path.exists(os.path.join(self.output, "score_v_0")) else "pred_v"
        return numpy.array([[float(v) for v in self.number(line).split("|")] for line in self.lines(name, workers)])

    @staticmethod
    def number(line):
        """Behind the features of CSV and the class of trees; before the features of libsvm."""
        return line.split(" ")[0] if " " in line else line.rsplit(":", 1)[-1].rsplit("\t", 1)[-1]

    def test_a_field_and_a_file_and_repeated_rows_are_the_same(self):
        for program, keys, classes in EXACT:
            with self.subTest(program=program, keys=keys):
                right = self.margins(1, program, keys, classes, self.csv(classes, repeated=True))
                self.assertGreater(numpy.abs(right - self.margins(1, program, keys, classes, self.csv(classes))).max(), 1e-3)
                for workers, path, more in ((1, self.csv(classes, weighted=True), {"weight": "w"}),
                                            (2, self.csv(classes), {"row_weights": self.row_weights}),
                                            (1, self.csv(classes, weighted=True), {"weight": 2})):
                    found = self.margins(workers, program, keys, classes, path, **more)
                    numpy.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)

    def test_classes_whose_weights_leave_nothing_are_refused(self):
        rows = self.path("nothing.csv", "a,w,y\n" + "".join(f"{i},{i % 2},{i % 2}\n" for i in range(8)))
        for program, keys, classes in EXACT + OTHERS:
            if not classes:
                continue
            with self.subTest(program=program, keys=keys):
                for workers, more in ((1, {"class_weight": ["0=0", "1=0"]}), (2, {"class_weight": ["1=0"], "weight": "w"})):
                    said = self.job(workers, mode="local" if workers > 1 else "embedded", program=program, status=3,
                                    training_input=rows, **keys, **more)
                    self.assertIn('"class_weight": leaves no row of the training data a weight above 0', said)

    def test_a_weight_by_number_is_that_of_the_training_rows(self):
        for program, keys, classes in EXACT:
            with self.subTest(program=program, keys=keys):
                train = self.csv(classes, weighted=True)
                with open(train, encoding="utf-8") as file:
                    header, *rows = file.read().splitlines()
                bare = self.path("bare.csv", "\n".join(rows) + "\n")
                order = self.path("order.csv", "\n".join(",".join(line.split(",")[::-1]) for line in [header, *rows]) + "\n")
                found = [self.results(self.job(mode="embedded", program=program, training_input=train, test_input=test,
                                               weight=weight, **keys))
                         for test, weight in ((train, "w"), (train, 2), (bare, "w"), (bare, 2), (order, 2))]
                model = self.output
                for result in found:
                    for figure in set(result) & {"accuracy", "auc", "log_loss", "rmse", "test_rmse"}:
                        self.assertEqual(result[figure], found[0][figure], figure)
                for test in (bare, order):
                    result = self.results(self.job(mode="embedded", program=program, model=model, test_input=test, weight="w"))
                    for figure in set(result) & {"accuracy", "auc", "log_loss", "rmse", "test_rmse"}:
                        self.assertEqual(result[figure], found[0][figure], figure)

    def test_sparse_rows_have_weights_too(self):
        for program, keys, classes in EXACT:
            if program != "naive_bayes":
                with self.subTest(program=program, keys=keys):
                    right = self.margins(1, program, keys, classes, self.csv(classes, weighted=True), weight="w")
                    for path, more in ((self.libsvm(classes, weighted=True), {"weight": 2}),
                                       (self.libsvm(classes), {"row_weights": self.row_weights})):
                        found = self.margins(1, program, keys, classes, path, predict=path, **more)
                        numpy.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)

    def test_a_field_and_a_file_are_the_same_for_the_others(self):
        for program, keys, classes in OTHERS:
            with self.subTest(program=program, keys=keys):
                right = self.margins(1, program, keys, classes, self.csv(classes, weighted=True), weight="w")
                found = self.margins(1, program, keys, classes, self.csv(classes), row_weights=self.row_weights)
                numpy.testing.assert_array_equal(found, right)
                self.assertGreater(numpy.abs(right - self.margins(1, program, keys, classes, self.csv(classes))).max(), 1e-3)

    @unittest.skipUnless(linear_model, "no scikit-learn")
    def test_linear_models_are_those_of_scikit_learn(self):
        total = self.weight.sum()
        small = {"tol": 1e-12, "max_iter": 100000}
        models = {
            "ridge": ({"penalty": 2}, False, linear_model.Ridge(alpha=2)),
            "lasso": ({"penalty": 0.1, "tolerance": 1e-9}, False, linear_model.Lasso(alpha=0.1, **small)),
            "lr": ({**LR, "method": "newton", "penalize_bias": False}, True,
                   linear_model.LogisticRegression(C=1 / (2 * 0.05 * total), **small)),
            "lr_l1": ({"C": 0.3, "tolerance": 1e-8}, True,
                      linear_model.LogisticRegression(penalty="l1", C=0.3, solver="liblinear", fit_intercept=False, **small)),
            "softmax": ({"C": 0.2, "tolerance": 1e-10}, True,
                        linear_model.LogisticRegression(C=0.2, multi_class="multinomial", **small)),
        }
        for program, (keys, classes, oracle) in models.items():
            with self.subTest(program=program):
                oracle.fit(self.x, self.y[classes], sample_weight=self.weight)
                right = oracle.predict_proba(self.x)[:, 1] if classes else oracle.predict(self.x)
                found = self.margins(2, program, keys, classes, self.csv(classes, weighted=True), weight="w")
                numpy.testing.assert_allclose(found[:, -1], right, rtol=2e-5, atol=2e-6)

    @unittest.skipUnless(linear_model, "no scikit-learn")
    def test_tests_with_weights_are_weighted_in_all_figures(self):
        for program, keys, classes in EXACT + OTHERS:
            with self.subTest(program=program, keys=keys):
                train = self.csv(classes)
                test = self.csv(classes, weighted=True)
                # Other labels than the model's predictions, so that weights matter.
                with open(test, encoding="utf-8") as file:
                    header, *rows = file.read().splitlines()
                if classes:
                    rows = [row[:-1] + (row[-1] if i % 3 else "10"[int(row[-1])]) for i, row in enumerate(rows)]
                test = self.path("weighted_test.csv", "\n".join([header, *rows]) + "\n")
                label = numpy.array([float(row.rsplit(",", 1)[1]) for row in rows])
                self.margins(1, program, keys, classes, train)
                model = self.output
                scores = self.margins_of_model(program, model, test)
                text = self.job(2, program=program, model=model, test_input=test, weight="w")
                found = {k: float(v) for k, v in self.results(text).items()
                         if k in ("accuracy", "auc", "log_loss", "rmse", "test_rmse")}
                self.assertTrue(found)
                if not classes:
                    right = numpy.sqrt(numpy.average((scores - label) ** 2, weights=self.weight))
                    self.assertAlmostEqual(found.get("rmse", found.get("test_rmse")), right, delta=1e-9 * right)
                    continue
                hard = scores > (0 if program == "linear_svm" else 0.5)
                self.assertAlmostEqual(found["accuracy"], numpy.average(hard == label, weights=self.weight), delta=1e-12)
                self.assertAlmostEqual(found["auc"], metrics.roc_auc_score(label, scores, sample_weight=self.weight), delta=1e-9)
                if program not in ("linear_svm", "random_forest"):  # forests have probabilities of 0
                    self.assertAlmostEqual(found["log_loss"], metrics.log_loss(label, scores, sample_weight=self.weight,
                                                                               eps=1e-16), delta=1e-6 * found["log_loss"])

    def margins_of_model(self, program, model, path):
        scores = {"scores": True} if program in ("softmax", "linear_svm", "naive_bayes", "fm") else {}
        self.job(mode="embedded", program=program, model=model, predict_input=path, weight="w", **scores)
        name = "score_v" if os.path.exists(os.path.join(self.output, "score_v_0")) else "pred_v"
        return numpy.array([float(self.number(line).split("|")[-1]) for line in self.lines(name, 1)])

    def test_refusals(self):
        rows = self.csv(True, weighted=True)
        for program, keys, classes in EXACT[::4] + OTHERS[::2]:
            text = self.job(mode="embedded", program=program, status=3, training_input=self.csv(classes, weighted=True),
                            weight="w", row_weights=self.row_weights, **keys)
            self.assertIn('key "row_weights": not together with weight, a field of the samples', text)
        few = self.path("few.txt", "1\n2\n")
        text = self.job(mode="embedded", program="ridge", status=4, penalty=1, training_input=rows, row_weights=few)
        self.assertIn("few.txt: found 2 weights, want one for each of 90 rows", text)
        zeros = self.path("zeros.csv", "w,a,y\n0,1,2\n0,2,3\n")
        text = self.job(mode="embedded", program="ridge", status=4, penalty=1, training_input=zeros, weight="w")
        self.assertIn("zeros.csv: found no weight above 0 in field w, want at least one", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
