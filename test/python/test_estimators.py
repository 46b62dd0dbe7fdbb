#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Estimators against the command line on the same data: the same bits. Models of one read by the other. Errors."""
import ast
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import SOURCE, in_package, run_program  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
import scipy.sparse  # noqa: E402
from paracel import _programs  # noqa: E402
from paracel._estimator import ProgramEstimator  # noqa: E402
from paracel._model import Model  # noqa: E402


def classification(rows=300, features=6, classes=2, seed=1):
    r = np.random.RandomState(seed)
    X = r.randn(rows, features)
    y = np.argmax(X @ r.randn(features, classes) + 0.7 * r.randn(rows, classes), axis=1)
    return X, y.astype(float)


def regression(rows=300, features=6, seed=2):
    r = np.random.RandomState(seed)
    X = r.randn(rows, features)
    return X, X @ r.randn(features) + 0.3 * r.randn(rows) + 5


def counts(rows=300, features=6, seed=3):
    r = np.random.RandomState(seed)
    X = r.poisson(2.0, (rows, features)).astype(float)
    return X, (X @ r.randn(features) > 0).astype(float)


# Estimator, its data, and the config of the command line with the same meaning.
CASES = {
    "LogisticRegression": (paracel.LogisticRegression(), classification(),
                           {"method": "newton", "rounds": 1000, "beta": 0.5 / 300, "penalize_bias": False}),
    "LogisticRegression l1": (paracel.LogisticRegression(penalty="l1", C=0.5, tol=1e-4), classification(),
                              {"C": 0.5, "bias": True}),
    "LogisticRegression of three": (paracel.LogisticRegression(), classification(classes=3), {"tolerance": 1e-6}),
    "SoftmaxRegression": (paracel.SoftmaxRegression(C=0.3), classification(classes=3), {"C": 0.3}),
    "LinearSVC": (paracel.LinearSVC(), classification(classes=3), {}),
    "LinearSVC hinge": (paracel.LinearSVC(loss="hinge", C=0.1), classification(), {"loss": "hinge", "C": 0.1}),
    "LinearSVR": (paracel.LinearSVR(epsilon=0.2), regression(), {"epsilon": 0.2}),
    "Ridge": (paracel.Ridge(alpha=2.0), regression(), {"penalty": 2}),
    "Lasso": (paracel.Lasso(alpha=0.1), regression(), {"penalty": 0.1}),
    "ElasticNet": (paracel.ElasticNet(alpha=0.1), regression(), {"penalty": 0.1, "l1_ratio": 0.5}),
    "GaussianNB": (paracel.GaussianNB(), classification(classes=3), {"distribution": "gaussian"}),
    "MultinomialNB": (paracel.MultinomialNB(alpha=0.5), counts(), {"distribution": "multinomial", "alpha": 0.5}),
    "BernoulliNB": (paracel.BernoulliNB(), counts(), {"distribution": "bernoulli"}),
    "GradientBoostingClassifier": (paracel.GradientBoostingClassifier(n_estimators=20), classification(),
                                   {"loss": "log", "rounds": 20}),
    "GradientBoostingRegressor": (paracel.GradientBoostingRegressor(n_estimators=20, subsample=0.7, random_state=5),
                                  regression(), {"loss": "squared", "rounds": 20, "subsample": 0.7, "seed": 5}),
    "RandomForestClassifier": (paracel.RandomForestClassifier(n_estimators=10), classification(classes=3),
                               {"type": "classification", "trees": 10}),
    "RandomForestRegressor": (paracel.RandomForestRegressor(n_estimators=10, random_state=3), regression(),
                              {"type": "regression", "trees": 10, "seed": 3}),
    "FactorizationMachineClassifier": (paracel.FactorizationMachineClassifier(n_factors=2), classification(),
                                       {"loss": "log", "method": "als", "k": 2, "beta_w": 0.1, "beta_v": 0.1}),
    "FactorizationMachineRegressor": (paracel.FactorizationMachineRegressor(solver="adagrad", n_factors=2), regression(),
                                      {"method": "adagrad", "k": 2, "beta_w": 0.1, "beta_v": 0.1}),
}


def program_of(estimator, data):
    """The program's name: of logistic regression it depends on the data."""
    if isinstance(estimator, paracel.LogisticRegression):
        return "lr_l1" if estimator.penalty == "l1" else "softmax" if len(set(data[1])) > 2 else "lr"
    return estimator._program


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def config(self, name, keys):
        with open(self.path(name), "w", encoding="utf-8") as out:
            json.dump(keys, out)
        return self.path(name)

    def same_arrays(self, one, other):
        self.assertEqual(one.arrays.keys(), other.arrays.keys())
        for name, array in one.arrays.items():
            self.assertEqual(array.dtype, other.arrays[name].dtype, name)
            self.assertEqual(array.tobytes(), other.arrays[name].tobytes(), name)


class CommandLine(Folder):
    def test_same_bits(self):
        for name, (estimator, (X, y), keys) in CASES.items():
            with self.subTest(name):
                np.save(self.path("data.npy"), np.column_stack([X, y]))
                config = {"training_input": self.path("data.npy"), "output": self.path(name), "format": "npy", **keys}
                run_program(program_of(estimator, (X, y)), self.config("config.json", config))
                fitted = estimator.fit(X, y)
                self.same_arrays(fitted.model_, Model.read(self.path(name)))

    def test_sparse_rows_are_those_of_libsvm(self):
        X, y = counts()
        with open(self.path("data.svm"), "w", encoding="utf-8") as out:
            for row, label in zip(X, y):
                out.write(f"{label:g} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v) + "\n")
        for name in ("LogisticRegression", "Ridge", "MultinomialNB", "RandomForestRegressor", "FactorizationMachineClassifier"):
            with self.subTest(name):
                estimator, _, keys = CASES[name]
                config = {"training_input": self.path("data.svm"), "output": self.path(name), "format": "npy", **keys}
                run_program(program_of(estimator, (X, y)), self.config("config.json", config))
                fitted = estimator.fit(scipy.sparse.csr_matrix(X), y)
                self.same_arrays(fitted.model_, Model.read(self.path(name)))

    def test_kmeans(self):
        X, _ = classification()
        np.save(self.path("data.npy"), X)
        config = {"input": self.path("data.npy"), "output": self.path("out"), "format": "npy", "kclusters": 5, "seed": 7}
        run_program("kmeans", self.config("config.json", config))
        fitted = paracel.KMeans(n_clusters=5, random_state=7).fit(X)
        written = Model.read(self.path("out"))
        self.assertEqual(written.arrays["labels"].tolist(), fitted.labels_.tolist())
        self.assertEqual(fitted.predict(X).tolist(), fitted.labels_.tolist())
        del written.arrays["labels"]
        self.same_arrays(fitted.model_, written)

    def test_ratings(self):
        r = np.random.RandomState(4)
        users, items, ratings = r.randint(0, 40, 600), r.randint(0, 30, 600), r.randint(1, 6, 600) * 1.0
        _, first = np.unique(users * 100 + items, return_index=True)
        users, items, ratings = users[first], items[first], ratings[first]
        with open(self.path("ratings.csv"), "w", encoding="utf-8") as out:
            out.writelines(f"{u},{i},{x}\n" for u, i, x in zip(users, items, ratings))
        for name, estimator, key, keys in (
                ("als", paracel.ALS(n_factors=4), "rating_input", {"k": 4}),
                ("mf", paracel.MatrixFactorization(n_factors=4), "input", {"k": 4, "rounds": 20})):
            with self.subTest(name):
                config = {key: self.path("ratings.csv"), "output": self.path(name), "format": "npy", **keys}
                run_program(name, self.config("config.json", config))
                fitted = estimator.fit(users, items, ratings)
                self.same_arrays(fitted.model_, Model.read(self.path(name)))
                named = estimator.fit([f"u{u:02}" for u in users], [f"i{i:02}" for i in items], ratings)
                self.assertEqual(named.user_ids_[:2].tolist(), ["u00", "u01"])
                expected = named.predict(["u03", "nobody"], ["i05", "i05"])
                named.save(self.path("named"))
                loaded = paracel.load_model(self.path("named"))
                self.assertEqual(loaded.predict(["u03", "nobody"], ["i05", "i05"]).tolist(), expected.tolist())

    def test_svd(self):
        X, _ = classification(rows=40, features=8)
        with open(self.path("entries.csv"), "w", encoding="utf-8") as out:
            out.writelines(f"{i},{j},{float(X[i, j])!r}\n" for i in range(40) for j in range(8))
        config = {"input": self.path("entries.csv"), "output": self.path("out"), "format": "npy", "k": 3}
        run_program("svd", self.config("config.json", config))
        fitted = paracel.TruncatedSVD(n_components=3)
        left = fitted.fit_transform(X)
        written = Model.read(self.path("out"))
        self.assertEqual(fitted.components_.T.tobytes(), written.arrays["V"].tobytes())
        np.testing.assert_array_equal(left, written.arrays["U"] * written.arrays["sigma"])


class Documents(Folder):
    def test_readme(self):
        with open(os.path.join(SOURCE, "src", "python", "README.md"), encoding="utf-8") as file:
            text = file.read()
        for name in ("estimators", "objective"):
            with self.subTest(name):
                (code,) = re.findall(rf"<!-- file: {name}\.py -->\n```python\n(.*?)```", text, re.DOTALL)
                done = subprocess.run([sys.executable, "-c", code], cwd=self.folder, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_parameters_are_keys_of_the_programs(self):
        estimators = [c for c in (getattr(paracel, n) for n in dir(paracel) if not n.startswith("_"))
                      if isinstance(c, type) and issubclass(c, ProgramEstimator)]
        self.assertGreater(len(estimators), 20)
        for estimator in estimators:
            with self.subTest(estimator.__name__):
                lines = []
                self.assertEqual(_programs.run(estimator._program, ["--schema"], lambda _, line: lines.append(line)), 0)
                keys = {key["name"] for key in json.loads("".join(lines))["keys"]}
                self.assertLessEqual({p.key for p in estimator._parameters.values() if p.key}, keys)
                self.assertIn(estimator._program, estimator.__doc__)
                for name in estimator._parameters:
                    self.assertIn(f"\n{name} : default ", estimator.__doc__)


class Stub(unittest.TestCase):
    """What the build has written for type checkers is what there is."""

    def setUp(self):
        with open(os.path.join(os.path.dirname(paracel.__file__), "_toolbox.pyi"), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        (listed,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
        self.listed = ast.literal_eval(listed)

    def test_names_and_parameters(self):
        self.assertEqual(sorted(self.listed), sorted(paracel._module_of))
        for name in self.listed:
            found = getattr(paracel, name)
            with self.subTest(name):
                if name in self.functions:
                    wanted = [n for n in inspect.signature(found).parameters if n != "job"]
                    arguments = self.functions[name].args
                    self.assertEqual([a.arg for a in arguments.args + arguments.kwonlyargs][:len(wanted)], wanted)
                elif name in self.classes:
                    init = next(n for n in self.classes[name].body if getattr(n, "name", "") == "__init__")
                    wanted = list(inspect.signature(found.__init__).parameters)[1:]
                    self.assertEqual([a.arg for a in init.args.kwonlyargs], wanted)

    def test_attributes_of_fitted_models(self):
        common = {n.target.id for n in self.classes["ProgramEstimator"].body if isinstance(n, ast.AnnAssign)}
        for name, (estimator, data, _) in CASES.items():
            with self.subTest(name):
                declared = {n.target.id for n in self.classes[type(estimator).__name__].body if isinstance(n, ast.AnnAssign)}
                fitted = {n for n in vars(estimator.fit(*data)) if n.endswith("_") and not n.startswith("_")}
                self.assertLessEqual(fitted, declared | common)


class Models(Folder):
    def test_round_trips(self):
        for name, (estimator, (X, y), _) in CASES.items():
            with self.subTest(name):
                fitted = estimator.fit(X, y)
                fitted.save(self.path(name))
                loaded = paracel.load_model(self.path(name))
                self.assertEqual(fitted.predict(X).tolist(), loaded.predict(X).tolist())
                if hasattr(fitted, "predict_proba"):
                    self.assertEqual(fitted.predict_proba(X).tobytes(), loaded.predict_proba(X).tobytes())

    def test_programs_predict_the_same_with_saved_models(self):
        for name, (estimator, (X, y), _) in CASES.items():
            with self.subTest(name):
                fitted = estimator.fit(X, y)
                fitted.save(self.path(name))
                np.save(self.path("rows.npy"), X)
                config = {"model": self.path(name), "predict_input": self.path("rows.npy"), "output": self.path("out")}
                run_program(program_of(estimator, (X, y)), self.config("config.json", config))
                with open(self.path("out/pred_v_0"), encoding="utf-8") as lines:
                    texts = [line.strip().split(":")[-1].split("\t")[0] for line in lines]
                said = np.array(texts, dtype=float)
                if program_of(estimator, (X, y)) in ("lr", "lr_l1"):
                    np.testing.assert_allclose(said, fitted.predict_proba(X)[:, 1], rtol=1e-12)
                else:
                    np.testing.assert_allclose(said, fitted.predict(X), rtol=1e-12)

    def test_models_in_text_form(self):
        X, y = classification()
        np.save(self.path("data.npy"), np.column_stack([X, y]))
        for name, keys in (("lr", CASES["LogisticRegression"][2]), ("linear_svm", {}),
                           ("naive_bayes", {"distribution": "gaussian"})):
            with self.subTest(name):
                config = {"training_input": self.path("data.npy"), "output": self.path(name), **keys}
                run_program(name, self.config("config.json", config))
                loaded = paracel.load_model(self.path(name))
                self.assertGreater(np.mean(loaded.predict(X) == y), 0.7)

    def test_classes_of_texts_are_in_the_model(self):
        X, y = classification()
        fitted = paracel.LogisticRegression().fit(X, np.where(y > 0, "yes", "no"))
        fitted.save(self.path("out"))
        self.assertEqual(paracel.load_model(self.path("out")).classes_.tolist(), ["no", "yes"])

    def test_what_is_no_model(self):
        with self.assertRaisesRegex(ValueError, "found no model of a program"):
            paracel.load_model(self.folder)
        self.config("model.json", {"algorithm": "tea", "arrays": {}})
        with self.assertRaisesRegex(ValueError, "found a model of tea, want one of als, "):
            paracel.load_model(self.folder)


class Errors(unittest.TestCase):
    def test_parameters_have_their_names(self):
        X, y = classification()
        with self.assertRaisesRegex(ValueError, r"^KMeans: parameter n_init: found number 0, want an integer >= 1"):
            paracel.KMeans(n_init=0).fit(X)
        with self.assertRaisesRegex(ValueError, r"^LinearSVC: parameter loss.*\"cubic\""):
            paracel.LinearSVC(loss="cubic").fit(X, y)

    def test_warnings(self):
        X, y = classification()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            paracel.KMeans(n_clusters=8, max_iter=1).fit(X)
        self.assertTrue(any("not converged after 1 rounds" in str(w.message) for w in caught), caught)
        self.assertEqual({w.filename for w in caught}, {__file__})

    def test_a_failure_leaves_the_process_usable(self):
        X, y = classification()
        expected = paracel.LinearSVC().fit(X, y).coef_
        with self.assertRaisesRegex(paracel.Error, "rounds"):
            paracel.LinearSVC(max_iter=1, tol=1e-12).fit(X, y)
        self.assertEqual(paracel.LinearSVC().fit(X, y).coef_.tobytes(), expected.tobytes())

    def test_printed_lines_go_to_python(self):
        code = ("import paracel, numpy as np, sys\nX = np.arange(20.).reshape(10, 2)\n"
                "paracel.KMeans(n_clusters=2).fit(X)\nprint('only this')\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.stdout, done.stderr), ("only this\n", ""))

    def test_ctrl_c_ends_a_fit(self):
        code = ("import paracel, numpy as np\nprint('ready', flush=True)\nX = np.random.RandomState(0).rand(200_000, 20)\n"
                "try:\n    paracel.GradientBoostingRegressor(n_estimators=100_000).fit(X, X[:, 0])\n"
                "except KeyboardInterrupt:\n    print('interrupted')\n"
                "print(paracel.Ridge().fit(X, X[:, 0]).score(X, X[:, 0]) > 0.9)\n")
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            time.sleep(3)
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            self.assertEqual(process.stdout.read(), "interrupted\nTrue\n")
            self.assertLess(time.monotonic() - begun, 30)

    def test_threads_take_turns(self):
        X, y = regression()
        expected = paracel.Ridge().fit(X, y).coef_.tolist()
        found = []
        threads = [threading.Thread(target=lambda: found.append(paracel.Ridge().fit(X, y).coef_.tolist())) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [expected] * 4)

    def test_a_worker_of_a_job(self):
        code = ("import paracel\ntry:\n    paracel.Ridge().fit([[1.0], [2.0]], [1, 2])\n"
                "except paracel.Error as e:\n    print(e)\n"
                "print(len(paracel.Ridge(n_workers=1).fit([[1.0], [2.0]], [1, 2]).coef_))")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                              env={**os.environ, "PARACEL_RENDEZVOUS": "paracel1;0;tcp://127.0.0.1:1", "PARACEL_RANK": "0"})
        self.assertEqual((done.stdout, done.stderr), ("Ridge: this process is a worker of a job, and a program would join it; "
                                                      "want n_workers\n1\n", ""))

    def test_a_job_of_paralg_is_open(self):
        X, y = regression()

        class Job(paracel.Paralg):
            def solve(self):
                self.write("x", 1.0)

        job = Job()
        job.solve()
        try:
            with self.assertRaisesRegex(paracel.Error, "^Ridge: this process is in a job of Paralg, want paracel.leave"):
                paracel.Ridge().fit(X, y)
        finally:
            del job
            paracel.leave()
        paracel.Ridge().fit(X, y)


if __name__ == "__main__":
    unittest.main()
