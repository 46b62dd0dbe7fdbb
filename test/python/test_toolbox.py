#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The functions of the toolbox and estimators without scikit-learn's suite: against SciPy, and with ids of any kind."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, run_program  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
from paracel._model import Model  # noqa: E402
from scipy.sparse import coo_matrix, csr_matrix  # noqa: E402
from scipy.sparse.csgraph import connected_components, dijkstra  # noqa: E402
from test_estimators import Folder, classification  # noqa: E402

N = 60


def edges(seed=1, count=90):
    r = np.random.RandomState(seed)
    pairs = np.unique(r.randint(0, N, (count, 2)), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def name(vertex):
    return f"v{vertex:03}"


def named(pairs):
    return np.array([[name(a), name(b)] for a, b in pairs.tolist()])


class Graphs(Folder):
    def setUp(self):
        super().setUp()
        self.edges = edges()
        self.matrix = csr_matrix((np.ones(len(self.edges)), self.edges.T), shape=(N, N))
        self.vertices = np.arange(N)

    def same(self, found, expected, ids=None):
        self.assertEqual(found.ids.tolist(), (self.vertices if ids is None else ids).tolist())
        np.testing.assert_allclose(found.values, expected, rtol=1e-12)

    def test_distances(self):
        expected = dijkstra(self.matrix, indices=3, unweighted=True)
        self.same(paracel.bfs(self.edges, 3, vertices=self.vertices), expected)
        weights = np.random.RandomState(2).rand(len(self.edges))
        found = paracel.sssp(self.edges, 3, weights, vertices=self.vertices)
        self.same(found, dijkstra(csr_matrix((weights, self.edges.T), shape=(N, N)), indices=3))
        self.assertEqual(found.summary["reached"], int(np.isfinite(found.values).sum()))

    def test_ids_are_texts(self):
        numbers = paracel.bfs(self.edges, 3)
        texts = paracel.bfs(named(self.edges), name(3))
        self.assertEqual(texts.ids.tolist(), [name(v) for v in numbers.ids])
        self.assertEqual(texts.values.tolist(), numbers.values.tolist())
        numbers, texts = paracel.wcc(self.edges), paracel.wcc(named(self.edges))
        self.assertEqual(texts.values.tolist(), [name(v) for v in numbers.values])
        below = paracel.wcc(self.edges - 1000)
        self.assertEqual(below.values.tolist(), (numbers.values - 1000).tolist())

    def test_components(self):
        for function, kind in ((paracel.wcc, "weak"), (paracel.scc, "strong")):
            _, labels = connected_components(self.matrix, connection=kind)
            first = np.array([np.flatnonzero(labels == k)[0] for k in labels])
            self.same(function(self.matrix), first)
            self.assertEqual(function(self.matrix).summary["components"], labels.max() + 1)

    def test_cores_and_triangles(self):
        undirected = ((self.matrix + self.matrix.T) > 0).astype(float)
        core = np.zeros(N)
        for k in range(1, N):
            left, alive = undirected.toarray(), np.ones(N, dtype=bool)
            while (few := alive & (left.sum(axis=1) < k)).any():
                alive[few] = False
                left[few] = left[:, few] = 0
            core[alive] = k
        self.same(paracel.k_core(self.matrix), core)
        cubes = (undirected @ undirected @ undirected).diagonal() / 2
        found = paracel.triangle_count(self.matrix)
        self.same(found, cubes)
        self.assertEqual(found.summary["triangles"], cubes.sum() / 3)

    def test_pagerank(self):
        def expected(jump):
            x = jump.copy()
            out = np.asarray(self.matrix.sum(axis=1)).ravel()
            for _ in range(300):
                flow = self.matrix.T @ np.divide(x, out, out=np.zeros(N), where=out > 0)
                x = 0.15 * jump + 0.85 * (flow + x[out == 0].sum() * jump)
            return x

        found = paracel.pagerank(self.edges, vertices=self.vertices, tol=1e-14)
        np.testing.assert_allclose(found.values, expected(np.full(N, 1 / N)), rtol=1e-9)
        jump = np.zeros(N)
        jump[[5, 9]] = 0.25, 0.75
        found = paracel.pagerank(self.edges, vertices=self.vertices, tol=1e-14, personalization={5: 1, 9: 3})
        np.testing.assert_allclose(found.values, expected(jump), rtol=1e-9, atol=1e-15)
        texts = paracel.pagerank(named(self.edges), vertices=[name(v) for v in self.vertices], tol=1e-14,
                                 personalization={name(5): 1, name(9): 3})
        self.assertEqual(texts.values.tolist(), found.values.tolist())

    def test_same_bits_as_text(self):
        with open(self.path("edges.txt"), "w", encoding="utf-8") as out:
            out.writelines(f"{a}\t{b}\n" for a, b in self.edges)
        for program, found in (("pagerank", paracel.pagerank(self.edges)),
                               ("label_propagation", paracel.label_propagation(self.edges))):
            config = {"input": self.path("edges.txt"), "output": self.path(program), "format": "npy"}
            run_program(program, self.config("config.json", config))
            (array,) = Model.read(self.path(program)).arrays.values()
            self.assertEqual(found.values.tolist(), array.tolist())

    def test_job(self):
        alone, job = paracel.wcc(self.matrix), paracel.wcc(self.matrix, n_workers=2)
        self.assertEqual((alone.ids.tolist(), alone.values.tolist()), (job.ids.tolist(), job.values.tolist()))

    def test_wrong_edges(self):
        with self.assertRaisesRegex(ValueError, r"found edges of shape \(3,\), want \(edges, 2\)"):
            paracel.wcc([1, 2, 3])
        with self.assertRaisesRegex(paracel.DataError, r"^sssp: edges:2:3: found -1, want a number of at least 0"):
            paracel.sssp([[0, 1], [1, 2]], 0, [1.0, -1.0])

    def test_spectral_clustering(self):
        r = np.random.RandomState(3)
        block = (r.rand(40, 40) < np.kron(np.eye(2), np.ones((20, 20))) * 0.6 + 0.02).astype(float)
        weights = np.triu(block, 1)
        weights = weights + weights.T
        found = paracel.SpectralClustering(n_clusters=2).fit(csr_matrix(weights))
        self.assertEqual(len(set(found.labels_[:20])), 1)
        self.assertEqual(len(set(found.labels_[20:])), 1)
        self.assertNotEqual(found.labels_[0], found.labels_[20])


class Words(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(paracel.wc("b a\nb c\n"), {"b": 2, "a": 1, "c": 1})
        self.assertEqual(paracel.wc(["b a", "b c"], n_workers=2), {"b": 2, "a": 1, "c": 1})

    def test_vectors(self):
        r = np.random.RandomState(0)
        topics = [[f"a{i}" for i in range(10)], [f"b{i}" for i in range(10)]]
        sentences = [list(r.choice(topics[k % 2], 8)) for k in range(400)]
        model = paracel.Word2Vec(vector_size=16, min_count=1, max_iter=20).fit(sentences)
        self.assertEqual(sorted(model.words_), sorted(topics[0] + topics[1]))
        self.assertEqual((model["a3"].shape, model["a3"].dtype, "c1" in model), ((16,), np.float32, False))
        self.assertTrue(all(w.startswith("b") for w, _ in model.most_similar("b4", topn=5)))


class Topics(Folder):
    def test_same_bits_as_libsvm(self):
        r = np.random.RandomState(4)
        topics = r.dirichlet(np.full(30, 0.05), 4)
        X = np.array([r.multinomial(60, topics[k % 4]) for k in range(120)])
        with open(self.path("data.svm"), "w", encoding="utf-8") as out:
            for row in X:
                out.write(" ".join(f"{j + 1}:{v}" for j, v in enumerate(row.tolist()) if v) + "\n")
        for method in ("gibbs", "online"):
            with self.subTest(method):
                config = {"input": self.path("data.svm"), "output": self.path(method), "format": "npy", "k_topics": 4,
                          "method": method, "iters": 30}
                run_program("gLDA", self.config("config.json", config))
                model = paracel.LatentDirichletAllocation(n_components=4, method=method, max_iter=30)
                for rows in (X, csr_matrix(X)):
                    self.same_arrays(model.fit(rows).model_, Model.read(self.path(method)))
                self.assertEqual(model.components_.shape, (4, 30))
                config = {"model_input": self.path(method), "predict_input": self.path("data.svm"),
                          "output": self.path("shares"), "format": "npy", "input_format": "libsvm"}
                run_program("gLDA", self.config("config.json", config))
                expected = Model.read(self.path("shares")).arrays["predictions"]
                self.assertEqual(model.transform(X).tobytes(), expected.tobytes())
                model.save(self.path("saved"))
                loaded = paracel.load_model(self.path("saved"))
                self.assertEqual(loaded.transform(X[:, :loaded.n_features_in_]).tobytes(), expected.tobytes())

    def test_what_is_no_count(self):
        with self.assertRaisesRegex(paracel.DataError, "^LatentDirichletAllocation: X: row 2: found 0.5, want a whole count"):
            paracel.LatentDirichletAllocation().fit([[1, 0], [2, 0.5]])


class Similarities(unittest.TestCase):
    def test_cosines(self):
        r = np.random.RandomState(5)
        X = csr_matrix(r.rand(30, 12) * (r.rand(30, 12) < 0.4))
        found = paracel.similarities(X, topk=5)
        dense = X.toarray()
        length = np.linalg.norm(dense, axis=1, keepdims=True)
        cosines = np.divide(dense, length, out=np.zeros_like(dense), where=length > 0)
        cosines = cosines @ cosines.T
        np.fill_diagonal(cosines, 0)
        for i in range(30):
            row = found[i]
            best = np.sort(cosines[i])[::-1][:5]
            np.testing.assert_allclose(row.data, best[best > 0], rtol=1e-12)
            np.testing.assert_allclose(cosines[i, row.indices], row.data, rtol=1e-12)


class Trees(Folder):
    def test_ranker(self):
        r = np.random.RandomState(7)
        X = r.randn(400, 5)
        group = np.repeat([f"q{i}" for i in range(40)], 10)
        y = np.clip(np.round(X[:, 0] + 0.3 * r.randn(400)) + 1, 0, 3)
        model = paracel.GradientBoostingRanker(n_estimators=30).fit(X, y, group)
        scores = model.predict(X)
        better = [scores[i] > scores[j] for g in np.unique(group) for i in np.flatnonzero(group == g)
                  for j in np.flatnonzero(group == g) if y[i] > y[j]]
        self.assertGreater(np.mean(better), 0.85)
        table = np.column_stack([X, y, np.unique(group, return_inverse=True)[1]])
        np.save(self.path("data.npy"), table)
        config = {"training_input": self.path("data.npy"), "output": self.path("out"), "format": "npy", "loss": "lambdamart",
                  "rounds": 30, "target": 5, "group": 6}
        run_program("gbdt", self.config("config.json", config))
        self.same_arrays(model.model_, Model.read(self.path("out")))
        sparse = paracel.GradientBoostingRanker(n_estimators=30).fit(csr_matrix(X), y, group)
        self.assertEqual(sparse.predict(X).tolist(), scores.tolist())

    def test_early_stopping(self):
        X, y = classification(rows=600)
        model = paracel.GradientBoostingClassifier(n_estimators=500, learning_rate=0.3, early_stopping_rounds=5)
        model.fit(X[:400], y[:400], eval_set=(X[400:], y[400:]))
        self.assertLess(model.n_iter_, 100)
        with self.assertRaisesRegex(ValueError, "early_stopping_rounds: fit needs eval_set"):
            model.fit(X, y)

    def test_categories_and_missing_values(self):
        r = np.random.RandomState(8)
        X = np.column_stack([r.randint(0, 12, 500), r.randn(500)]).astype(float)
        y = np.isin(X[:, 0], [1, 4, 7, 11]) * 2.0 + X[:, 1]
        X[::7, 1] = np.nan
        model = paracel.GradientBoostingRegressor(categorical_features=[0], n_estimators=50).fit(X, y)
        self.assertGreater(model.score(X[1::7], y[1::7]), 0.9)
        model.save(self.path("model"))
        np.save(self.path("rows.npy"), X)
        config = {"model": self.path("model"), "predict_input": self.path("rows.npy"), "output": self.path("out")}
        run_program("gbdt", self.config("config.json", config))
        self.assertEqual(np.loadtxt(self.path("out/pred_v_0")).tolist(), model.predict(X).tolist())


class Svd(Folder):
    def test_rows_and_columns_without_entries(self):
        matrix = coo_matrix(([3.0, 2.0, 1.0], ([1, 4, 4], [0, 3, 5])), shape=(6, 7)).tocsr()
        model = paracel.TruncatedSVD(n_components=2)
        left = model.fit_transform(matrix)
        expected = np.linalg.svd(matrix.toarray(), compute_uv=False)[:2]
        np.testing.assert_allclose(model.singular_values_, expected, rtol=1e-12)
        self.assertEqual((left.shape, model.components_.shape), ((6, 2), (2, 7)))
        np.testing.assert_allclose(left @ model.components_, matrix.toarray(), atol=1e-12)


if __name__ == "__main__":
    unittest.main()
