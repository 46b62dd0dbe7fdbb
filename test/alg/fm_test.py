#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Factorization machines, tested by running jobs: quality, an oracle, a saved model, weights, early stopping, errors in
the input. (Gradients: unit.FmKernel; bytes a batch: cluster.FactorTraffic.) Options: names of tests."""
import os
import random
import unittest

import numpy

import fm_oracle
from alg_job import LONG, MPI, ONLY_LONG, AlgorithmCase
from linear_svm_test import write_rows


class FmTest(AlgorithmCase):
    program = "fm"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(4)
        cls.x = numpy.round(random.normal(size=(400, 10)) * (random.random((400, 10)) < 0.5), 3)
        cls.x[0, 9] = 0.5
        v = random.normal(size=(10, 2)) * 0.7
        sums = cls.x @ v
        margin = 0.4 + cls.x @ random.normal(size=10) + (sums ** 2 - cls.x ** 2 @ v ** 2).sum(1) / 2
        cls.y = numpy.round(margin + 0.1 * random.normal(size=400), 4)
        cls.labels = (cls.y > 0.4).astype(int)
        cls.words = numpy.array(["less", "more"])[cls.labels]
        cls.files = {}
        for name, y in (("target", cls.y), ("label", cls.labels), ("word", cls.words)):
            for sparse in (False, True):
                path = os.path.join(cls.folder, f"{name}.{'svm' if sparse else 'csv'}")
                cls.files[name, sparse] = write_rows(path, cls.x, y, sparse)

    def fit(self, *where, **keys):
        """A key that is None is left out."""
        keys = {"training_input": self.files["target", True], "k": 3, "rounds": 8, "batch_size": 100, "start": 0.1, **keys}
        if keys.get("method") == "als":
            keys = {**keys, "batch_size": None}
        return self.results(self.job(*where, **{key: value for key, value in keys.items() if value is not None}))

    def rows(self, workers):
        """(names, w_0, w, v)"""
        lines = [line.split("\t") for line in self.lines("fm_row", workers)]
        rows = numpy.array([[float(v) for v in row.split("|")] for _, row in lines])
        return [name for name, _ in lines], rows[0, 0], rows[1:, 0], rows[1:, 1:]

    def margins(self, workers, x=None):
        x = self.x if x is None else x
        _, bias, w, v = self.rows(workers)
        return bias + x @ w + ((x @ v) ** 2 - x ** 2 @ v ** 2).sum(1) / 2

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_movielens_reaches_the_bar(self):
        with open(self.shared("movielens-small", "ratings.csv"), encoding="ascii") as file:
            ratings = [line.split(",") for line in file]
        users = {u: i for i, u in enumerate(sorted({int(r[0]) for r in ratings}))}
        items = {u: i for i, u in enumerate(sorted({int(r[1]) for r in ratings}))}
        parts = {True: [], False: []}
        for i, (user, item, rating, _) in enumerate(ratings):
            parts[i % 5 == 4].append(f"{rating} {users[int(user)] + 1}:1 {len(users) + items[int(item)] + 1}:1\n")
        train, test = self.path("train.svm", "".join(parts[False])), self.path("test.svm", "".join(parts[True]))
        sgd = {"method": "sgd", "alpha": 0.01, "beta_w": 0.12, "beta_v": 0.12, "rounds": 60}
        adagrad = {"alpha": 0.05, "beta_w": 0.12, "beta_v": 0.12, "rounds": 30}
        als = {"method": "als", "beta_w": 0.1, "beta_v": 0.1, "rounds": 20, "batch_size": None}
        places = ((1, 1, sgd), (4, 3, adagrad), (2, 1, als), (2, 1, sgd), (4, 3, sgd), (1, 1, adagrad), (4, 3, als))
        for workers, servers, keys in places:
            for seed in (0, 1):
                found = self.fit(workers, servers, training_input=train, test_input=test, k=32, start=0.1, clamp=True, seed=seed,
                                 **{"batch_size": 4000, **keys})
                with self.subTest(workers=workers, seed=seed, **keys):
                    self.assertLessEqual(found["test_rmse"], 0.878)

    def test_a9a_reaches_the_bar(self):
        train, test = self.shared("a9a", "a9a"), self.shared("a9a", "a9a.t")
        for workers, servers, keys in ((1, 1, {}), (2, 3, {}), (4, 1, {"ssp_switch": True, "limit_s": 3}),
                                       (2, 1, {"method": "als", "batch_size": None, "beta_w": 0.02, "beta_v": 0.02})):
            for seed in (0, 1):
                found = self.fit(workers, servers, training_input=train, test_input=test, loss="log", k=8, start=0.01, rounds=10,
                                 seed=seed, **{"batch_size": 1000, "beta_v": 0.005, **keys})
                with self.subTest(workers=workers, seed=seed):
                    self.assertGreaterEqual(found["auc"], 0.902)

    def test_one_worker_is_the_oracle_and_more_are_as_good(self):
        for sparse in (False, True):
            for loss, name, y in (("squared", "target", self.y), ("log", "label", self.labels)):
                path = self.files[name, sparse]
                for method, alpha in (("adagrad", 0.1), ("sgd", 0.005)):
                    numbers = {"k": 3, "beta_w": 0.01, "beta_v": 0.02, "start": 0.1, "seed": 5}
                    machine = fm_oracle.Machine(self.x, y, loss, **numbers)
                    numbers.update(rounds=8, alpha=alpha)
                    machine.descend(method, 8, alpha, 100)
                    for place in ((1, 1), (1, 1, "embedded"), (2, 1), (4, 3)) + (((2, 1, "mpi"),) if MPI else ()):
                        found = self.fit(*place, training_input=path, test_input=path, loss=loss, method=method, **numbers)
                        for figure, value in machine.figures().items():
                            with self.subTest(loss=loss, method=method, place=place, figure=figure):
                                if place[0] == 1:
                                    self.assertAlmostEqual(found[figure] / value, 1, delta=1e-9)
                                elif figure != "accuracy":  # with adagrad more workers make more steps
                                    self.assertLess(found[figure], 1.1 * value)

    def test_als_is_the_oracle_for_any_number_of_workers(self):
        for sparse in (False, True):
            for loss, name, y in (("squared", "target", self.y), ("log", "label", self.labels)):
                path = self.files[name, sparse]
                for k in (0, 3):
                    numbers = {"k": k, "beta_w": 0.01, "beta_v": 0.02, "start": 0.1, "seed": 5}
                    machine = fm_oracle.Machine(self.x, y, loss, **numbers)
                    numbers["rounds"] = 8
                    self.assertGreater(machine.alternate(8), 1)
                    for place in ((1, 1), (1, 1, "embedded"), (2, 1), (4, 3)) + (((2, 1, "mpi"),) if MPI else ()):
                        found = self.fit(*place, training_input=path, test_input=path, loss=loss, method="als", **numbers)
                        for figure, value in machine.figures().items():
                            with self.subTest(loss=loss, k=k, place=place, figure=figure):
                                self.assertAlmostEqual(found[figure] / value, 1, delta=1e-9)

    def test_als_never_raises_the_objective(self):
        """Without penalties too, where equations of features that are the same have no unique solution."""
        same = numpy.hstack([self.x, self.x[:, :3]])
        for loss, y in (("squared", self.y), ("log", self.words)):
            path = write_rows(self.path("same.svm"), same, y, True)
            for beta in (0, 0.5):
                for workers in (1, 3):
                    with self.subTest(loss=loss, beta=beta, workers=workers):
                        found = self.fit(workers, 1, training_input=path, loss=loss, method="als", beta_w=beta, beta_v=beta,
                                         rounds=40, start=0.3)
                        values = [line["objective"] for line in self.curve()]
                        self.assertEqual(len(values), 40)
                        self.assertTrue(all(b <= a * (1 + 1e-10) for a, b in zip(values, values[1:])), values)
                        self.assertLess(values[-1], values[0])
                        self.assertAlmostEqual(found["objective"] / values[-1], 1, delta=1e-10)

    def test_als_ends_where_the_gradient_is_zero(self):
        """Of the objective, by its formula."""
        for loss, name in (("squared", "target"), ("log", "label")):
            self.fit(2, 1, training_input=self.files[name, True], loss=loss, method="als", beta_w=0.4, beta_v=0.3,
                     k=2, rounds=3000)
            _, bias, w, v = self.rows(2)
            margin = bias + self.x @ w + ((self.x @ v) ** 2 - self.x ** 2 @ v ** 2).sum(1) / 2
            slope = margin - self.y if loss == "squared" else 1 / (1 + numpy.exp(-margin)) - self.labels
            count = (self.x != 0).sum(0)
            self.assertLess(abs(slope.sum()), 1e-5)
            self.assertLess(numpy.abs(self.x.T @ slope + 0.4 * count * w).max(), 1e-5)
            by_v = self.x.T @ (slope[:, None] * (self.x @ v)) - (self.x ** 2).T @ slope[:, None] * v + 0.3 * count[:, None] * v
            self.assertLess(numpy.abs(by_v).max(), 1e-4)

    def test_runs_are_the_same_bits_and_seeds_are_not(self):
        seen = []
        for method in ("adagrad", "als"):
            for seed, workers, servers in ((1, 3, 2), (1, 3, 2), (2, 3, 2)):
                self.fit(workers, servers, seed=seed, method=method)
                seen.append(self.lines("fm_row", workers))
            self.assertEqual(seen[-3], seen[-2])
            self.assertNotEqual(seen[-3], seen[-1])

    def test_interactions_are_found(self):
        found = self.fit(2, 1, rounds=300, alpha=0.1, k=2, test_input=self.files["target", False])
        linear = self.fit(2, 1, rounds=300, alpha=0.1, k=0)
        self.assertLess(found["train_rmse"], 0.15)
        self.assertGreater(linear["train_rmse"], 3 * found["train_rmse"])
        self.assertAlmostEqual(found["test_rmse"], found["train_rmse"], places=12)
        margins = self.margins_of_last(linear)
        self.assertAlmostEqual(numpy.sqrt(((margins - self.y) ** 2).mean()), linear["train_rmse"], places=10)

    def margins_of_last(self, found):
        self.assertIn("objective", found)
        return self.margins(2)

    def test_models_and_predictions(self):
        for name, loss in (("target", "squared"), ("word", "log")):
            for form, one_file in (("text", False), ("npy", False), ("text", True)):
                with self.subTest(loss=loss, form=form, one_file=one_file):
                    keys = {"output_files": 1} if one_file else {}
                    scores = {"scores": True} if loss == "log" else {"clamp": True}
                    path, other = self.files[name, True], self.files[name, False]
                    first = self.fit(2, 2, training_input=path, predict_input=other, test_input=other, loss=loss, format=form,
                                     **keys, **scores)
                    folder = self.output
                    if form == "text" and not one_file:
                        names, *_ = self.rows(2)
                        self.assertEqual(names, ["bias"] + [str(j + 1) for j in range(10)])
                        margin, lines = self.margins(2), self.lines("pred_v", 2)
                        said = [line.rsplit(":", 1)[1] for line in lines]
                        self.check(loss, margin, said, first)
                    for place in ((1, 1, "embedded"), (3, 2)):
                        keys = {"scores": True} if loss == "log" else {}
                        again = self.results(self.job(*place, model=folder, test_input=other, predict_input=other, **keys))
                        for figure in ("test_rmse", "accuracy", "auc", "log_loss"):
                            if figure in first:
                                self.assertAlmostEqual(again[figure], first[figure], places=13)
                        self.assertEqual(self.lines("pred_v", place[0]), lines)

    def check(self, loss, margin, said, found):
        if loss == "squared":
            margin = numpy.clip(margin, self.y.min(), self.y.max())
            numpy.testing.assert_allclose([float(v) for v in said], margin, rtol=1e-9, atol=1e-12)
            self.assertAlmostEqual(found["test_rmse"], numpy.sqrt(((margin - self.y) ** 2).mean()), places=10)
            return
        self.assertEqual(said, ["more" if m > 0 else "less" for m in margin])
        probability = [[float(v) for v in line.split("|")] for line in self.lines("score_v", 2)]
        numpy.testing.assert_allclose(numpy.array(probability)[:, 1], 1 / (1 + numpy.exp(-margin)), rtol=1e-9)
        self.assertAlmostEqual(found["log_loss"], numpy.logaddexp(0, numpy.where(self.labels, -margin, margin)).mean(), places=10)

    def test_a_weight_is_as_many_rows(self):
        times = numpy.random.default_rng(3).integers(0, 4, 400)
        weights = self.path("weights.txt", "".join(f"{t}\n" for t in times))
        repeated = numpy.repeat(numpy.arange(400), times)
        for name, y, loss in (("target", self.y, "squared"), ("word", self.words, "log")):
            path = write_rows(self.path("repeated.svm"), self.x[repeated], y[repeated], True)
            for method in ("adagrad", "sgd", "als"):
                keys = {"loss": loss, "method": method, "batch_size": 10000, "beta_v": 0.1, "rounds": 5}
                one = self.fit(1, 1, training_input=self.files[name, True], row_weights=weights, **keys)
                other = self.fit(1, 1, training_input=path, **keys)
                self.assertAlmostEqual(one["objective"] / other["objective"], 1, delta=1e-9)
        found = self.fit(2, 1, training_input=self.files["word", True], loss="log", class_weight=["more=0"], rounds=20)
        self.assertGreater(found["loss"], 0)
        self.assertLess(self.margins(2).mean(), -1)

    def test_validation_and_early_stopping(self):
        half, rest = (write_rows(self.path(f"{i}.svm"), self.x[s], self.y[s], True)
                      for i, s in (("half", slice(0, 60)), ("rest", slice(60, 400))))
        for workers, more in ((1, {"alpha": 0.3, "batch_size": 20}), (3, {"alpha": 0.3, "batch_size": 20}),
                              (3, {"method": "als"})):
            keys = {"training_input": half, "validation_input": rest, "k": 8, "rounds": 60, **more}
            found = self.fit(workers, 2, patience=3, **keys)
            curve = self.curve()
            best = min(curve, key=lambda line: line["validate_rmse"])
            self.assertEqual(found["rounds"], best["round"])
            self.assertEqual(len(curve), best["round"] + 3)
            rmse = numpy.sqrt(((self.margins(workers)[60:] - self.y[60:]) ** 2).mean())
            self.assertAlmostEqual(rmse / best["validate_rmse"], 1, delta=1e-9)
            self.fit(workers, 2, **keys)
            whole = self.curve()
            self.assertEqual(len(whole), 60)
            self.assertEqual([line["validate_rmse"] for line in whole[:len(curve)]], [line["validate_rmse"] for line in curve])
        for method in ("adagrad", "als"):
            self.fit(2, 1, training_input=self.files["word", True], validation_input=self.files["word", False], loss="log",
                     method=method)
            margin = self.margins(2)
            loss = numpy.logaddexp(0, numpy.where(self.labels, -margin, margin)).mean()
            self.assertAlmostEqual(self.curve()[-1]["validate_loss"], loss, places=10)
            self.assertAlmostEqual(self.curve()[-1]["validate_accuracy"], ((margin > 0) == self.labels).mean(), places=12)

    def test_features_and_workers_without_samples(self):
        few = self.path("few.svm", "1 1:1 3:2\n2 2:1\n4 3:1 5:0\n")
        for workers, more in ((1, {}), (2, {}), (5, {}), (5, {"method": "als", "beta_v": 0.01})):
            self.fit(workers, 2, training_input=few, predict_input=self.path("one.svm", "0 4:9 5:7 700:1\n"), **more)
            names, bias, w, v = self.rows(workers)
            self.assertEqual(names, ["bias", "1", "2", "3", "4", "5"])
            self.assertTrue((w[3:] == 0).all() and (v[3:] == 0).all() and (w[:3] != 0).all())
            self.assertTrue(more or (v[:3] != 0).all())  # with als, a feature that occurs alone in its samples has none
            self.assertEqual(float(self.lines("pred_v", workers)[0].split()[0]), bias)
        named = self.path("named.csv", "a,b,kind\n1,0,x\n0,1,y\n2,0,x\n0,2,y\n")
        self.fit(2, 1, training_input=named, loss="log", features=["b"], target="kind", bias=False)
        names, bias, _, v = self.rows(2)
        self.assertEqual((names, bias), (["bias", "b"], 0))

    def test_bad_input_and_bad_configs(self):
        three = self.path("three.csv", "1,a\n2,b\n3,c\n")
        self.assertIn("found 3 classes, want two", self.job(2, status=4, training_input=three, loss="log"))
        self.assertIn(":1:3: found", self.job(2, status=4, training_input=three))
        self.assertIn("samples.svm:2:", self.job(2, status=4, training_input=self.path("samples.svm", "1 1:1\n2 x:1\n")))
        training = {"training_input": self.files["target", True]}
        self.assertIn("diverged at round", self.job(2, status=1, **training, alpha=1e5, k=8, rounds=50))
        for keys, said in (({"patience": 1}, '"patience": only with'), ({"scores": True}, '"scores": only with'),
                           ({"loss": "log", "clamp": True}, '"clamp": only with'), ({"k": -1}, 'key "k"'),
                           ({"alpha": 0}, 'key "alpha"'), ({"batch_size": 0}, 'key "batch_size"'),
                           ({"consistency": "asp"}, "consistency"), ({"method": "adam"}, 'key "method"')):
            self.assertIn(said, self.job(mode="embedded", status=3, **training, **keys))
        for keys, said in (({"alpha": 0.1}, '"alpha": only with method adagrad'), ({"batch_size": 9}, '"batch_size": only with'),
                           ({"consistency": "ssp"}, '"method": als has no updates')):
            self.assertIn(said, self.job(mode="embedded", status=3, **training, method="als", **keys))
        self.assertIn("model.json", self.job(1, status=4, model=self.folder, test_input=self.files["target", True]))

    def test_an_offset_of_the_targets_changes_nothing_and_an_unusual_scale_is_said(self):
        dice = random.Random(4)
        rows = [[dice.gauss(0, 1) for _ in range(4)] for _ in range(300)]
        for method in ("adagrad", "sgd", "als"):
            found = []
            for offset, scale in ((0, 1), (1e9, 1), (0, 0.005)):
                y = [scale * (x[0] - x[1] + x[2] * x[3] + 0.1 * x[0] ** 2) + offset for x in rows]
                path = self.path("moved.csv", "".join(f"{','.join(map(repr, x))},{v!r}\n" for x, v in zip(rows, y)))
                keys = {"alpha": 1e-4} if scale < 1 and method != "als" else {}
                found.append(self.fit(1, training_input=path, method=method, **keys)["train_rmse"])
                self.assertEqual("warning: the targets have a standard deviation" in self.stderr, scale < 1 and method != "als")
            # adagrad's first step of w_0, whose gradient is 0 but for rounding, is as long as any.
            self.assertAlmostEqual(found[1] / found[0], 1, delta=0.05 if method == "adagrad" else 1e-3)

    def test_a_start_that_fits_has_not_diverged(self):
        for text in ("1,2,1\n3,1,1\n", "1,2,1\n", "1,2,0\n3,1,0\n"):
            self.assertLess(self.fit(1, training_input=self.path("fits.csv", text))["train_rmse"], 0.2)


if __name__ == "__main__":
    unittest.main()
