#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a user may get wrong: each mistake is an exception that names what is wrong, found, and wanted, and the next fit is as if
nothing had happened. Arrays of every layout and type give the same model."""
import multiprocessing
import os
import subprocess
import sys
import threading
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, in_site  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
import scipy.sparse  # noqa: E402
from paracel import ALS, GaussianNB, KMeans, LogisticRegression, Ridge, Word2Vec  # noqa: E402
from paracel import GradientBoostingRegressor as Boosting  # noqa: E402
from test_estimators import Folder, classification, regression  # noqa: E402

X, T = regression(rows=60, features=4)
Y = classification(rows=60, features=4)[1].astype(int)
RIDGE = Ridge().fit(X, T)
EDGES = [("a", "b"), ("b", "c")]

# What is done, and words of the ValueError (or of the exception named first).
MISTAKES = [
    # a job's parameters
    (lambda: Ridge(n_workers=0).fit(X, T), "parameter n_workers: found 0, want None or a whole number above 0"),
    (lambda: Ridge(n_workers="2").fit(X, T), "parameter n_workers: found '2', want None or a whole number above 0"),
    (lambda: Ridge(n_workers=2.5).fit(X, T), "parameter n_workers: found 2.5"),
    (lambda: Ridge(n_workers=True).fit(X, T), "parameter n_workers: found True"),
    (lambda: Ridge(n_workers=1, n_servers=0).fit(X, T), "parameter n_servers: found 0, want a whole number above 0"),
    (lambda: Ridge(n_workers=1, replicas=2).fit(X, T), "parameter replicas: found 2, want at most n_servers, which is 1"),
    (lambda: Ridge(launcher="k8s").fit(X, T), "parameter launcher: found 'k8s', want 'local', 'mpi'"),
    # other parameters
    (lambda: Ridge(alpha=np.nan).fit(X, T), "Ridge: parameter alpha: found nan, want a finite number"),
    (lambda: Ridge(alpha=-np.inf).fit(X, T), "Ridge: parameter alpha: found -inf, want a finite number"),
    (lambda: Ridge(alpha=None).fit(X, T), "Ridge: parameter alpha: found None, want a value such as 1.0"),
    (lambda: LogisticRegression(C="1").fit(X, Y), "LogisticRegression: parameter C: found '1', want a number"),
    (lambda: LogisticRegression(tol=None).fit(X, Y), "parameter tol: found None, want a number"),
    (lambda: LogisticRegression(penalty="l1", tol=-1).fit(X, Y), "parameter tol: found number -1.0, want a number"),
    (lambda: LogisticRegression(max_iter=10.5).fit(X, Y), "parameter max_iter: found number 10.5, want an integer"),
    (lambda: LogisticRegression(class_weight=[1, 2]).fit(X, Y), r"class_weight: found \[1, 2\], want None, 'balanced' or"),
    (lambda: LogisticRegression(class_weight={5: 1}).fit(X, Y), r"found class 5, want one of \[0, 1\]"),
    (lambda: KMeans(random_state="a").fit(X), "KMeans: parameter random_state: found 'a': want None, a whole number"),
    (lambda: KMeans(n_clusters="8").fit(X), "KMeans: parameter n_clusters: found '8', want a number"),
    (lambda: GaussianNB(class_prior=1).fit(X, Y), "GaussianNB: parameter class_prior: found 1: "),
    (lambda: Boosting(max_depth="a").fit(X, T), "parameter max_depth: found 'a': "),
    (lambda: Boosting(categorical_features=["a"]).fit(X, T), "parameter categorical_features: found 'a', want numbers or names"),
    # rows
    (lambda: Boosting().fit(X, T, eval_set=X), r"found eval_set, a ndarray, want the tuple \(X, y\)"),
    (lambda: Boosting().fit(X, T, eval_set=[(X, T)]), r"found eval_set, a list of 1, want the tuple \(X, y\)"),
    (lambda: Boosting().fit(X, T, eval_set=(X[:, :3], T)), "3 features"),
    (lambda: Ridge().fit(X, T[:10]), "10|inconsistent"),
    (lambda: Ridge().fit(np.where(X > 1, np.nan, X), T), "NaN"),
    (lambda: Ridge().fit(X.astype(str), T), "want a matrix of numbers|numeric"),
    (lambda: Ridge().fit(np.zeros((60, 2), "M8[s]"), T), "want (a matrix of )?numbers"),
    (lambda: Ridge().fit(np.empty((0, 4)), []), r"0 sample|no row|shape \(0, 4\)"),
    (lambda: Ridge().fit(X * 1e200, T), "X: column .: found numbers up to"),
    (lambda: RIDGE.predict(scipy.sparse.csr_matrix(np.ones((2, 5)))), "5 features"),
    (lambda: LogisticRegression().fit(X, None), "requires y"),
    # ratings, graphs, texts
    (lambda: ALS().fit(np.array([None, 1], dtype=object), [1, 2], [1.0, 2.0]), "found ids of types NoneType, int, want all"),
    (lambda: ALS(n_factors=1).fit([1, 2], [1, 2], [1.0, 2.0]).predict([1, 2], [1]), r"shapes \(2,\) and \(1,\)"),
    (lambda: ALS().fit([], [], []), "^ALS: ratings:1:1: found no rating"),
    (lambda: paracel.pagerank(EDGES, [1.0]), r"found weights of shape \(1,\), want one for each of 2 edges"),
    (lambda: paracel.pagerank([(0.0, np.nan)]), "found a vertex NaN"),
    (lambda: paracel.pagerank(EDGES, damping=2), "^pagerank: parameter damping: found number 2"),
    (lambda: paracel.bfs(EDGES, "z"), "^bfs: parameter source: found 'z', want the id of a vertex of the graph"),
    (TypeError, lambda: paracel.wcc(EDGES, workers=2), r"wcc\(\) got an unexpected keyword argument 'workers'"),
    (lambda: paracel.similarities([1.0, 2.0]), r"of shape \(2,\), want \(rows, features\)"),
    (lambda: paracel.wc(3), "found text that is neither a str, bytes nor"),
    (lambda: Word2Vec().fit([[1, 2]]), "found text that is neither a str, bytes nor"),
    (KeyError, lambda: Word2Vec(min_count=1, vector_size=4).fit(["a b"] * 9)["z"], "'z'"),
]


class Mistakes(unittest.TestCase):
    def test_each_is_said(self):
        for *kind, mistake, words in MISTAKES:
            with self.subTest(words):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.assertRaisesRegex(kind[0] if kind else ValueError, words, mistake)
        self.assertEqual(Ridge().fit(X, T).coef_.tobytes(), RIDGE.coef_.tobytes())

    def test_errors_of_a_job_are_what_they_are_without_estimators(self):
        self.addCleanup(paracel.leave)
        with paracel.Paralg() as job:
            self.assertRaises(paracel.MissingKeyError, job.read, "none")
            job.write("text", "x")
            self.assertRaises(paracel.ValueTypeError, job.incr, "text", 1)

    def test_a_warning_is_that_of_its_fit(self):
        for model, wanted in ((Ridge(alpha="1"), 1), (Ridge(), 0), (Ridge(alpha="1"), 1), (KMeans(n_clusters=2), 0)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(X, T)
            self.assertEqual(len([w for w in caught if "taken as 1" in str(w.message)]), wanted, model)


class Layouts(unittest.TestCase):
    def test_the_same_model(self):
        whole = np.round(X * 8)
        expected = Ridge().fit(whole, T).coef_
        wide = np.zeros((60, 8))
        wide[:, ::2] = whole
        read_only = whole.copy()
        read_only.setflags(write=False)
        for name, rows in (("Fortran", np.asfortranarray(whole)), ("strided", wide[:, ::2]), ("big-endian", whole.astype(">f8")),
                           ("float32", whole.astype("f4")), ("float16", whole.astype("f2")), ("int8", whole.astype("i1")),
                           ("objects", whole.astype(object)), ("long double", whole.astype("g")), ("lists", whole.tolist()),
                           ("read-only", read_only), ("big-endian int", whole.astype(">i4"))):
            with self.subTest(name):
                self.assertEqual(Ridge().fit(rows, T).coef_.tobytes(), expected.tobytes())
        expected = Ridge().fit((whole > 0).astype(float), T).coef_
        self.assertEqual(Ridge().fit(whole > 0, T).coef_.tobytes(), expected.tobytes())
        expected = Ridge().fit(scipy.sparse.csr_matrix(whole), T).coef_
        for kind in ("csc", "coo", "lil", "dok"):
            with self.subTest(kind):
                rows = scipy.sparse.csr_matrix(whole).asformat(kind)
                self.assertEqual(Ridge().fit(rows, T).coef_.tobytes(), expected.tobytes())


class Models(Folder):
    def test_broken_ones(self):
        RIDGE.save(self.path("model"))
        array = self.path("model/ridge_theta_0.npy")
        size = os.path.getsize(array)
        for cut in (size - 8, 100, 3, 0):
            os.truncate(array, cut)
            with self.assertRaisesRegex(ValueError, "the array ridge_theta cannot be read, the model is not complete"):
                paracel.load_model(self.path("model"))
        os.remove(array)
        with self.assertRaisesRegex(ValueError, "the array ridge_theta cannot be read.*No such file"):
            paracel.load_model(self.path("model"))
        os.truncate(self.path("model/model.json"), 10)
        with self.assertRaisesRegex(ValueError, "found no model of a program"):
            paracel.load_model(self.path("model"))

    def test_words_that_are_no_utf8(self):
        self.assertEqual(paracel.wc(b"a\xff b a\xff"), {"a\udcff": 2, "b": 1})


def fitted(queue, workers):
    try:
        queue.put(Ridge(n_workers=workers).fit(X, T).coef_.tobytes())
    except paracel.Error as error:
        queue.put(str(error))


class Processes(unittest.TestCase):
    def in_another(self, kind, workers=None):
        context = multiprocessing.get_context(kind)
        queue = context.Queue()
        process = context.Process(target=fitted, args=(queue, workers))
        process.start()
        found = queue.get(timeout=120)
        process.join()
        self.assertEqual(process.exitcode, 0)
        return found

    def test_forked_and_spawned_ones_fit(self):
        for kind in ("fork", "spawn"):
            with self.subTest(kind):
                self.assertEqual(self.in_another(kind), RIDGE.coef_.tobytes())
        np.testing.assert_allclose(np.frombuffer(self.in_another("fork", 2)), RIDGE.coef_, rtol=1e-9)

    def test_one_forked_inside_a_job_is_told_so(self):
        paracel.Paralg().write("x", 1.0)
        try:
            self.assertIn("was forked after its parent had joined a job", self.in_another("fork"))
        finally:
            paracel.leave()

    def test_threads_take_turns(self):
        found = {}
        threads = [threading.Thread(target=lambda a=a: found.update({a: Ridge(alpha=a).fit(X, T).coef_})) for a in (1, 2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for alpha, coef in found.items():
            self.assertEqual(coef.tobytes(), Ridge(alpha=alpha).fit(X, T).coef_.tobytes())
        self.assertEqual(len(found), 4)

    def test_without_standard_streams(self):
        code = ("import paracel, numpy as np\nX = np.arange(20.).reshape(10, 2)\n"
                "for n in (None, 1):\n    paracel.Ridge(n_workers=n).fit(X, X[:, 0])\n")
        done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code], env=in_site(), check=False)
        self.assertEqual(done.returncode, 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, for a small /dev/shm")
    def test_a_full_memory_folder(self):
        code = ("import paracel, numpy as np\nX = np.ones((100_000, 10))\n"
                "try:\n    paracel.Ridge(n_workers=1).fit(X, X[:, 0])\n"
                "except OSError as error:\n    print(error)\n"
                "import os\nprint(os.listdir('/dev/shm'))\n"
                "print(paracel.Ridge().fit(X, X[:, 0]).n_features_in_)\n")
        done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"',
                               sys.executable, code], env=in_site(), capture_output=True, text=True, check=False)
        if "unshare" in done.stderr or "mount" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        said, left, features = done.stdout.splitlines()
        self.assertIn("No space left on device", said)
        self.assertEqual((left, features), ("[]", "10"))


if __name__ == "__main__":
    unittest.main()
