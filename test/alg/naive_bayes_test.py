#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Naive Bayes, tested by running jobs: the sums of its definition and scikit-learn's parameters and probabilities to 1e-10, any
number of workers in every mode. Options: names of tests."""
import os
import unittest

import numpy

from alg_job import MPI, AlgorithmCase
from tables import write_rows

KINDS = ("multinomial", "bernoulli", "gaussian")


class NaiveBayesTest(AlgorithmCase):
    program = "naive_bayes"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(7)
        cls.y = random.integers(0, 3, 500)
        cls.words = numpy.array(["spam", "ham", "other"])[cls.y]
        cls.counts = random.poisson(random.gamma(0.5, 2, (3, 20))[cls.y]).astype(float)
        cls.counts[0, 19] += 1
        # Means that are far from 0: squares around 0 would lose the digits of the variances.
        cls.reals = numpy.round(random.normal(1e5, 1, (3, 20))[cls.y] + random.normal(size=(500, 20)), 6)
        cls.holes = numpy.round(random.normal(3, 1, (500, 20)) * (random.random((500, 20)) < 0.3), 6)
        cls.holes[0, 19] = 2.5
        cls.weight = numpy.round(random.uniform(0, 3, 500), 3)
        cls.weights = os.path.join(cls.folder, "weights.txt")
        with open(cls.weights, "w", encoding="ascii") as file:
            file.writelines(f"{v}\n" for v in cls.weight)
        cls.files = {}
        for name, x in (("counts", cls.counts), ("reals", cls.reals), ("holes", cls.holes)):
            for sparse in (False, True):
                path = os.path.join(cls.folder, name + (".svm" if sparse else ".csv"))
                cls.files[name, sparse] = write_rows(path, x, cls.words, sparse)

    def fit(self, *where, **keys):
        return self.results(self.job(*where, **keys))

    def features(self, name, workers):
        lines = [line.split("\t") for line in self.lines("naive_bayes_" + name, workers)]
        self.assertEqual([k for k, _ in lines], [str(j) for j in range(len(lines))])
        return numpy.array([[float(v) for v in row.split("|")] for _, row in lines]).T

    def prior(self):
        return numpy.array([float(v) for v in self.lines("naive_bayes_log_prior", 1)[0].split("|")])

    def parameters(self, kind, workers):
        names = {"multinomial": ("log_probability",), "bernoulli": ("log_probability", "log_complement"),
                 "gaussian": ("mean", "variance")}[kind]
        return [self.prior()] + [self.features(n, workers) for n in names]

    def expected(self, kind, x, weight, alpha=1.0, smoothing=1e-9):
        """From the definition, with all rows at once."""
        classes = sorted(set(self.words))
        member = numpy.array([self.words == c for c in classes]) * weight
        total = member.sum(1)
        prior = numpy.log(total / total.sum())
        if kind == "gaussian":
            mean = member @ x / total[:, None]
            square = numpy.array([(m[:, None] * (x - a) ** 2).sum(0) / m.sum() for m, a in zip(member, mean)])
            return [prior, mean, square + smoothing * x.var(0)]
        if kind == "bernoulli":
            n = member @ (x > 0)
            return [prior] + [numpy.log((v + alpha) / (total[:, None] + 2 * alpha)) for v in (n, total[:, None] - n)]
        n = member @ x + alpha
        return [prior, numpy.log(n / n.sum(1)[:, None])]

    def test_the_parameters_are_sums_of_the_rows_in_every_mode(self):
        for kind, name, x in (("multinomial", "counts", self.counts), ("bernoulli", "counts", self.counts),
                              ("gaussian", "reals", self.reals), ("gaussian", "holes", self.holes),
                              ("bernoulli", "holes", self.holes)):
            for sparse in (False, True):
                for given in (False, True):
                    keys = {"row_weights": self.weights} if given else {}
                    wanted = self.expected(kind, x, self.weight if given else numpy.ones(500))
                    for place in [(1, 1, "embedded"), (2, 1), (4, 3)] + ([(2, 1, "mpi")] if MPI and given and sparse else []):
                        with self.subTest(kind=kind, name=name, sparse=sparse, weights=given, place=place):
                            self.fit(*place, training_input=self.files[name, sparse], distribution=kind, **keys)
                            for found, value in zip(self.parameters(kind, place[0]), wanted):
                                numpy.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-10)

    def test_it_is_equal_to_scikit_learn(self):
        naive_bayes = self.library("sklearn.naive_bayes")
        for kind, name, x, make in (("multinomial", "counts", self.counts, naive_bayes.MultinomialNB),
                                    ("bernoulli", "holes", self.holes, naive_bayes.BernoulliNB),
                                    ("gaussian", "reals", self.reals, naive_bayes.GaussianNB),
                                    ("gaussian", "holes", self.holes, naive_bayes.GaussianNB)):
            default = {"var_smoothing": 1e-9} if kind == "gaussian" else {}  # ours is of each feature's variance
            for options, theirs in ((default, {}), ({"alpha": 0.3, "fit_prior": False}, {"alpha": 0.3, "fit_prior": False}),
                                    ({"class_prior": [0.5, 0.3, 0.2], **default}, {"class_prior": [0.5, 0.3, 0.2]}),
                                    ({"var_smoothing": 1e-3}, {"var_smoothing": 1e-3})):
                if (kind == "gaussian") == ("alpha" in theirs) or ("var_smoothing" in theirs and kind != "gaussian"):
                    continue
                if kind == "gaussian" and "class_prior" in theirs:
                    theirs = {"priors": theirs["class_prior"]}
                for given in (False, True):
                    model = make(**theirs).fit(x, self.words, sample_weight=self.weight if given else None)
                    for workers, sparse in ((1, False), (3, True)):
                        with self.subTest(kind=kind, name=name, options=options, weights=given, workers=workers):
                            path = self.files[name, sparse]
                            self.fit(workers, training_input=path, distribution=kind, predict_input=path, scores=True, **options,
                                     **({"row_weights": self.weights} if given else {}))
                            found = self.parameters(kind, workers)
                            wanted = [model.theta_, model.var_] if kind == "gaussian" else [model.feature_log_prob_]
                            prior = numpy.log(model.class_prior_) if kind == "gaussian" else model.class_log_prior_
                            for a, b in zip(found, [prior, *wanted]):
                                numpy.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
                            scores = [[float(v) for v in s.split("|")] for s in self.lines("score_v", workers)]
                            numpy.testing.assert_allclose(scores, model.predict_proba(x), rtol=0, atol=1e-10)
                            lines = [s.split()[0] if sparse else s.rsplit(":", 1)[1] for s in self.lines("pred_v", workers)]
                            self.assertEqual(lines, list(model.predict(x)))

    def test_class_weights_are_weights_of_rows(self):
        balanced = 500 / (3 * numpy.array([(self.words == w).sum() for w in self.words]))
        for keys, weight in (({"class_weight": "balanced"}, balanced),
                             ({"class_weight": ["ham=2", "spam=0.25"]},
                              numpy.where(self.words == "ham", 2, numpy.where(self.words == "spam", 0.25, 1)))):
            for kind, name, x in (("multinomial", "counts", self.counts), ("gaussian", "reals", self.reals)):
                self.fit(2, training_input=self.files[name, False], distribution=kind, **keys)
                for found, value in zip(self.parameters(kind, 2), self.expected(kind, x, weight)):
                    numpy.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-10)

    def test_models_and_predictions(self):
        for kind, name in (("multinomial", "counts"), ("bernoulli", "counts"), ("gaussian", "reals"), ("gaussian", "holes")):
            for sparse in (False, True):
                path = self.files[name, sparse]
                lines = None
                for form in ("text", "npy"):
                    first = self.fit(2, training_input=path, distribution=kind, predict_input=path, test_input=path, format=form,
                                     scores=True)
                    folder = self.output
                    lines, scores = lines or self.lines("pred_v", 2), self.lines("score_v", 2)
                    labels = [s.split()[0] if sparse else s.rsplit(":", 1)[1] for s in lines]
                    self.assertAlmostEqual(first["accuracy"], numpy.mean(numpy.array(labels) == self.words), places=12)
                    classes = self.manifest()["classes"]
                    own = [float(s.split("|")[classes.index(w)]) for s, w in zip(scores, self.words)]
                    self.assertAlmostEqual(first["log_loss"], -numpy.log(numpy.maximum(own, 1e-300)).mean(), places=6)
                    for place in ((1, 1, "embedded"), (3, 1)):
                        again = self.fit(*place, model=folder, test_input=path, predict_input=path, scores=True)
                        self.assertEqual(again["accuracy"], first["accuracy"])
                        self.assertEqual(self.lines("pred_v", place[0]), lines)
                        self.assertEqual(self.lines("score_v", place[0]), scores)

    def test_a_class_that_a_worker_never_sees_one_class_and_idle_workers(self):
        order = numpy.argsort(self.words, kind="stable")
        path = write_rows(self.path("sorted.svm"), self.counts[order], self.words[order], True)
        for kind in KINDS:
            self.fit(1, training_input=self.files["counts", True], distribution=kind)
            wanted = self.parameters(kind, 1)
            for workers in (2, 4):
                self.fit(workers, training_input=path, distribution=kind)
                for a, b in zip(self.parameters(kind, workers), wanted):
                    numpy.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
            few = self.path("few.svm", "b 1:1 3:2\na 2:1\nb 3:1\n")
            found = []
            for workers in (1, 6):
                self.fit(workers, training_input=few, predict_input=few, distribution=kind)
                found.append(self.parameters(kind, workers))
            for a, b in zip(*found):
                numpy.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
            one = self.path("one.csv", "1,2,x\n3,1,x\n")
            self.assertEqual(self.fit(3, training_input=one, test_input=one, distribution=kind)["accuracy"], 1)

    def test_bad_input_and_bad_configs(self):
        # Neither comments nor headers nor blank lines are rows.
        for name, text, line in (("minus.svm", "# counts\na 1:1\nb 1:2\na 2:-1\n", 4),
                                 ("minus.csv", "\nx,z,y\n\n1,2,a\n1,-2,b\n", 5)):
            for workers in (1, 3):
                said = self.job(workers, status=4, training_input=self.path(name, text), distribution="multinomial")
                self.assertIn(f"{name}:{line}: found a number below 0, want counts", said)
        same = self.path("same.csv", "1,a\n1,b\n")
        self.assertIn("without variance", self.job(2, status=4, training_input=same, distribution="gaussian"))
        nothing = self.path("nothing.txt", "0\n1\n0\n")
        self.assertIn("found class b with rows of weight 0 only",
                      self.job(2, status=4, training_input=self.path("w.svm", "b 1:1\na 1:2\nb 2:1\n"), row_weights=nothing,
                               distribution="bernoulli"))
        base = {"training_input": self.files["counts", False]}
        for keys, said in (({}, 'key "distribution" is missing'), ({"distribution": "poisson"}, '"distribution"'),
                           ({"distribution": "gaussian", "class_prior": [0.5, 0.2]}, "whose sum is 0.7"),
                           ({"distribution": "gaussian", "class_prior": [0.5, 0.5]}, "want one for each of 3 classes"),
                           ({"distribution": "bernoulli", "binarize": -1}, '"binarize": found a number below 0')):
            self.assertIn(said, self.job(mode="embedded", status=3, **base, **keys))


if __name__ == "__main__":
    unittest.main()
