#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Objectives and metrics in Python: the built-in losses written there give the built-in's trees; early stopping against an
oracle; jobs, errors, Ctrl-C, and what the model says."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, program, run_program  # noqa: E402
from process_support import MPI  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
import scipy.sparse  # noqa: E402
from paracel._model import Model  # noqa: E402
from test_estimators import Folder, classification, regression  # noqa: E402

SEEDS = (1, 2, 3)

# A module that workers of a job import.
LOSSES = """
import numpy as np
def squared(y, raw):
    return raw - y, np.ones(len(y))
def logistic(y, raw):
    p = 1 / (1 + np.exp(-raw))
    return p - y, p * (1 - p)
def softmax(y, raw):
    p = np.exp(raw - raw.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p - (y[:, np.newaxis] == np.arange(raw.shape[1])), 2 * p * (1 - p)
def absolute(y, prediction):
    return np.abs(y - prediction).mean()
class Scaled:
    @staticmethod
    def squared(y, raw):
        return 2 * (raw - y), np.full(len(y), 2.0)
def fails(y, raw):
    raise ZeroDivisionError("no luck")
seven = 7
"""


def boosted(kind, data, **more):
    """Trees of an estimator of that kind."""
    return getattr(paracel, "GradientBoosting" + kind)(n_estimators=15, **more).fit(*data)


class Objectives(Folder):
    def setUp(self):
        super().setUp()
        with open(self.path("own_losses.py"), "w", encoding="utf-8") as file:
            file.write(LOSSES)
        sys.path.insert(0, self.folder)
        sys.modules.pop("own_losses", None)
        import own_losses
        self.losses = own_losses
        self.addCleanup(sys.path.remove, self.folder)

    def same_trees(self, one, other, exactly=True):
        self.assertEqual(set(one.model_.arrays), set(other.model_.arrays))
        for name, array in one.model_.arrays.items():
            if exactly:
                self.assertEqual(array.tobytes(), other.model_.arrays[name].tobytes(), name)
            else:
                np.testing.assert_allclose(array, other.model_.arrays[name], rtol=1e-5, atol=1e-7, err_msg=name)

    def test_squared_error(self):
        for seed in SEEDS:
            X, y = regression(seed=seed)
            weight = np.random.RandomState(seed).randint(0, 4, len(y)).astype(float)  # rows of 0 are left out
            for data in ((X, y), (X, y, weight), (scipy.sparse.csr_matrix(X), y)):
                built_in = boosted("Regressor", data, subsample=0.8)
                own = boosted("Regressor", data, subsample=0.8, objective=self.losses.squared,
                              first_margin=built_in.model_.manifest["first_margin"])
                self.same_trees(built_in, own)
                self.assertEqual(built_in.predict(X).tobytes(), own.predict(X).tobytes())
            # From 0: the oracle's first tree is that of the targets, as they are.
            own = paracel.GradientBoostingRegressor(n_estimators=1, learning_rate=1.0, l2_regularization=0.0,
                                                    objective=self.losses.squared).fit(X, y)
            leaf = own.apply(X)[:, 0]
            means = {n: y[leaf == n].mean() for n in np.unique(leaf)}
            np.testing.assert_allclose(own.predict(X), [means[n] for n in leaf], rtol=1e-5)

    def test_classes(self):
        for seed in SEEDS:
            X, y = classification(seed=seed)
            names = np.where(y > 0, "yes", "no")
            built_in = boosted("Classifier", (X, names))
            own = boosted("Classifier", (X, names), objective=self.losses.logistic,
                          first_margin=built_in.model_.manifest["first_margin"])
            self.same_trees(built_in, own, exactly=False)
            self.assertEqual(own.predict(X).tolist(), built_in.predict(X).tolist())
            X, y = classification(classes=3, seed=seed)
            built_in, own = boosted("Classifier", (X, y)), boosted("Classifier", (X, y), objective=self.losses.softmax)
            self.same_trees(built_in, own, exactly=False)
            np.testing.assert_allclose(own.decision_function(X), built_in.decision_function(X), rtol=1e-5, atol=1e-6)

    def test_a_ranker_gets_the_groups(self):
        X, y = classification(classes=3)
        group = np.repeat(["b", "a", "c"], 100)
        seen = []

        def pointwise(labels, raw, groups):
            seen.append(groups)
            return raw - labels, np.ones(len(labels))

        own = paracel.GradientBoostingRanker(n_estimators=15, objective=pointwise).fit(X, y, group)
        plain = boosted("Regressor", (X, y), objective=self.losses.squared)
        self.same_trees(own, plain)
        self.assertEqual(seen[0].tolist(), [1] * 100 + [0] * 100 + [2] * 100)
        part = np.arange(0, 300, 3)
        measured = []

        def metric(labels, raw, groups):
            self.assertEqual((labels.tolist(), len(groups)), (y[part].tolist(), len(part)))
            measured.append(raw)
            return -np.corrcoef(labels, raw)[0, 1]

        model = paracel.GradientBoostingRanker(n_estimators=15, eval_metric=metric)
        model.fit(X, y, group, eval_set=(X[part], y[part], group[part]))
        np.testing.assert_allclose(measured[-1], model.predict(X[part]), rtol=1e-6)

    def test_early_stopping(self):
        for seed in SEEDS:
            X, y = regression(seed=seed)
            check, rest = (X[:100], y[:100] + np.random.RandomState(seed).randn(100)), (X[100:], y[100:])
            every = boosted("Regressor", rest).set_params(n_estimators=150, learning_rate=0.3).fit(*rest)
            predictions = [every._forest.rows(check[0])]
            margin = np.full(100, every.model_.manifest["first_margin"])
            values = []
            for t in range(150):
                margin = margin + every._forest.value[every._forest.leaf[every._forest.leaves(predictions[0], t)], 0]
                values.append(self.losses.absolute(check[1], margin))
            best = 0
            for t, value in enumerate(values):
                if value < values[best]:
                    best = t
                if t - best >= 5:
                    break
            self.assertLess(t, 149)
            for how in ({}, {"objective": self.losses.squared, "first_margin": every.model_.manifest["first_margin"]}):
                model = paracel.GradientBoostingRegressor(n_estimators=150, learning_rate=0.3, early_stopping_rounds=5,
                                                          eval_metric=self.losses.absolute, **how).fit(*rest, eval_set=check)
                self.assertEqual(model.n_iter_, best + 1)
                self.assertAlmostEqual(model.model_.manifest["validate_metric"], values[best], places=9)

    def test_a_metric_gets_probabilities_of_a_built_in_loss(self):
        for classes in (2, 3):
            X, y = classification(classes=classes)
            got = []

            def metric(labels, prediction):
                self.assertEqual(labels.dtype, np.int64)
                got.append(prediction)
                return 1.0

            model = paracel.GradientBoostingClassifier(n_estimators=5, eval_metric=metric).fit(X, y, eval_set=(X, y))
            wanted = model.predict_proba(X) if classes > 2 else model.predict_proba(X)[:, 1]
            np.testing.assert_allclose(got[-1], wanted, rtol=1e-6)
            self.assertEqual(len(got), 5)

    def test_jobs(self):
        X, y = regression()
        check = X[::3], y[::3]
        how = dict(eval_metric=self.losses.absolute, early_stopping_rounds=3, learning_rate=0.5)
        for objective in (self.losses.squared, self.losses.Scaled.squared):
            fits = [paracel.GradientBoostingRegressor(n_estimators=30, objective=objective, n_workers=n, **how)
                    .fit(X, y, eval_set=check) for n in (None, 1, 2)]
            for fit in fits[1:]:
                self.same_trees(fits[0], fit)
                self.assertEqual(fits[0].model_.manifest["validate_metric"], fit.model_.manifest["validate_metric"])
        named = [boosted("Classifier", classification(classes=3), objective="own_losses:softmax", n_workers=n)
                 for n in (None, 2)]
        self.same_trees(*named)
        if MPI:
            by_mpi = boosted("Classifier", classification(classes=3), objective="own_losses:softmax", n_workers=2, launcher="mpi")
            self.same_trees(named[0], by_mpi)

    def test_what_a_job_cannot_import(self):
        X, y = regression()
        for objective in (lambda y, raw: (raw, raw), "own_losses:no_such", "own_losses:seven", "no_such_module:f", "squared", 7):
            for workers in (None, 2) if not callable(objective) else (2,):
                with self.subTest(objective=objective, workers=workers):
                    with self.assertRaisesRegex(ValueError, "^parameter objective: found .*, want a function"
                                                if not callable(objective) else "which the workers of a job cannot import; want"):
                        boosted("Regressor", (X, y), objective=objective, n_workers=workers)
        with self.assertRaisesRegex(ValueError, "^parameter objective: not in a job, whose workers may have parts of a group"):
            paracel.GradientBoostingRanker(objective=self.losses.squared, n_workers=2).fit(X, np.ones(len(y)), np.ones(len(y)))

    def test_errors(self):
        X, y = regression()
        calls = []

        def later(y, raw):
            calls.append(len(y))
            if len(calls) == 3:
                raise KeyError("third")
            return raw - y, np.ones(len(y))

        ones = np.ones(len(y))
        for objective, kind, words in (
                (later, KeyError, "third"),
                (lambda y, raw: (raw[:-1], ones), ValueError, r"gradient of shape \(299,\), want \(300,\)"),
                (lambda y, raw: (raw - y, 1.0), ValueError, r"hessian of shape \(\), want \(300,\)"),
                (lambda y, raw: (np.where(np.arange(300) == 7, np.nan, raw), ones), ValueError, "gradient nan in row 7"),
                (lambda y, raw: (raw, ones * np.inf), ValueError, "hessian inf in row 0"),
                (lambda y, raw: (raw, ones * 1e31), ValueError, r"hessian 1e\+31 in row 0, want numbers up to 1e\+30"),
                (lambda y, raw: (raw, -ones), ValueError, "hessian -1 in row 0, want 0 or more"),
                (lambda y, raw: raw, ValueError, "returned an array of shape .* want .gradient, hessian."),
                (lambda y, raw: (raw, ["x"] * 300), ValueError, "as hessian, want numbers"),
                (lambda y: y, TypeError, "takes 1 positional argument"),
                (lambda y, raw: paracel.Ridge().fit(X, y), paracel.Error, "ridge: another program is running, which called"),
                (lambda y, raw: None, ValueError, "returned NoneType None, want")):
            with self.subTest(words):
                with self.assertRaisesRegex(kind, words):
                    boosted("Regressor", (X, y), objective=objective)
        for metric, kind, words in ((lambda y, p: np.nan, ValueError, "returned nan, want a finite number"),
                                    (lambda y, p: p, ValueError, "returned an array of shape .300,., want a number"),
                                    (lambda y, p: 1 / 0, ZeroDivisionError, "division by zero")):
            with self.subTest(words):
                with self.assertRaisesRegex(kind, words):
                    paracel.GradientBoostingRegressor(eval_metric=metric).fit(X, y, eval_set=(X, y))
        for how, words in (({"eval_metric": self.losses.absolute}, "^parameter eval_metric: fit needs eval_set"),
                           ({"objective": later, "first_margin": 1e31}, "parameter first_margin: found 1e.?31, want at most")):
            with self.assertRaisesRegex(ValueError, words):
                boosted("Regressor", (X, y), **how)
        with self.assertRaisesRegex(ValueError, "^parameter objective: with an eval_set it needs eval_metric, too"):
            paracel.GradientBoostingRegressor(objective=later).fit(X, y, eval_set=(X, y))
        begun = time.monotonic()
        with self.assertRaisesRegex(paracel.Error, "ZeroDivisionError: no luck"):
            boosted("Regressor", (X, y), objective=self.losses.fails, n_workers=2)
        self.assertLess(time.monotonic() - begun, 60)
        self.assertEqual(len(boosted("Regressor", (X, y)).predict(X)), 300)  # the process is as before

    def test_ctrl_c_inside_an_objective(self):
        code = ("import time, numpy as np, paracel\nX = np.random.RandomState(0).rand(500, 3)\ncalls = []\n"
                "def slow(y, raw):\n    calls.append(1)\n    if len(calls) == 3:\n        print('inside', flush=True)\n"
                "        time.sleep(1000)\n    return raw - y, np.ones(len(y))\n"
                "try:\n    paracel.GradientBoostingRegressor(objective=slow).fit(X, X[:, 0])\n"
                "except KeyboardInterrupt:\n    print('interrupted', len(calls))\n"
                "print(paracel.Ridge().fit(X, X[:, 0]).score(X, X[:, 0]) > 0.9)\n")
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "inside\n")
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            self.assertEqual(process.stdout.read(), "interrupted 3\nTrue\n")
            self.assertLess(time.monotonic() - begun, 30)

    def test_the_model_says_so(self):
        X, y = classification()
        own = boosted("Classifier", (X, y), objective=self.losses.logistic, first_margin=0.25)
        self.assertEqual(own.model_.manifest["settings"]["objective"], "own_losses:logistic")
        own.save(self.path("model"))
        loaded = paracel.load_model(self.path("model"))
        self.assertEqual(loaded.decision_function(X).tobytes(), own.decision_function(X).tobytes())
        self.assertEqual(loaded.predict(X).tobytes(), own.predict(X).tobytes())
        with self.assertRaisesRegex(AttributeError, "no probabilities, as its objective is own_losses:logistic"):
            loaded.predict_proba(X)
        np.save(self.path("rows.npy"), X)
        config = {"model": self.path("model"), "predict_input": self.path("rows.npy"), "output": self.path("out")}
        run_program("gbdt", self.config("config.json", config))
        said = np.loadtxt(self.path("out/pred_v_0"))
        np.testing.assert_allclose(said, own.decision_function(X), rtol=1e-12)
        np.save(self.path("rows.npy"), np.column_stack([X, y]))
        self.refused({"model": self.path("model"), "test_input": self.path("rows.npy"), "output": self.path("out")},
                     "found a model with an objective of its own, whose value is unknown, want predict_input")
        self.refused({"model": self.path("model"), "predict_input": self.path("rows.npy"), "xgboost": True,
                      "output": self.path("out")}, "found a model with an objective of its own, which XGBoost does not have")
        self.refused({"training_input": self.path("rows.npy"), "loss": "log", "objective": "x:y", "output": self.path("out")},
                     'key "objective": found "x:y", want none: it names a function of an estimator in Python')
        self.refused({"training_input": self.path("rows.npy"), "loss": "log", "initial_model": self.path("model"),
                      "output": self.path("out")}, "found a model trained with an objective of your own, want one like this")

    def refused(self, config, words):
        done = subprocess.run([program("gbdt"), "--cfg_file", self.config("config.json", config)], capture_output=True, text=True,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(words, done.stderr)

    def test_three_classes_of_a_saved_model(self):
        X, y = classification(classes=3)
        own = boosted("Classifier", (X, y), objective=self.losses.softmax)
        own.save(self.path("model"))
        np.save(self.path("rows.npy"), X)
        config = {"model": self.path("model"), "predict_input": self.path("rows.npy"), "output": self.path("out")}
        run_program("gbdt", self.config("config.json", config))
        with open(self.path("out/pred_v_0"), encoding="utf-8") as lines:
            said = np.array([[float(n) for n in line.split("|")] for line in lines])
        np.testing.assert_allclose(said, own.decision_function(X), rtol=1e-12)

    def test_going_on(self):
        X, y = regression()
        whole = boosted("Regressor", (X, y), objective=self.losses.squared, first_margin=2.0)
        model = boosted("Regressor", (X, y), objective=self.losses.squared, first_margin=2.0)
        half = paracel.GradientBoostingRegressor(n_estimators=7, objective=self.losses.squared, first_margin=2.0).fit(X, y)
        half.set_params(n_estimators=15, warm_start=True).fit(X, y)
        self.same_trees(half, whole)
        self.same_trees(half, model)
        half.set_params(n_estimators=20, objective=None)
        with self.assertRaisesRegex(ValueError, "found a model trained with an objective of your own"):
            half.fit(X, y)

    def test_first_margin_of_a_built_in_loss(self):
        X, y = regression()
        model = boosted("Regressor", (X, y), first_margin=3.5)
        self.assertEqual(model.model_.manifest["first_margin"], 3.5)
        self.assertEqual(Model.read(self.saved(model)).manifest["first_margin"], 3.5)

    def saved(self, model):
        model.save(self.path("saved"))
        with open(self.path("saved/model.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["settings"]["objective"], "")
        return self.path("saved")


if __name__ == "__main__":
    unittest.main()
