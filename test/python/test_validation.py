#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are not trained on, first centres, documents and sentences as texts: the bits of the command line."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, run_program  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
from paracel._model import Model, metrics_of  # noqa: E402
from scipy.sparse import csr_matrix  # noqa: E402
from test_estimators import Folder, classification, regression  # noqa: E402

VALIDATED = (
    (paracel.SoftmaxRegression(C=50.0), 3, {"C": 50, "patience": 2}),
    (paracel.LinearSVC(C=5.0), 2, {"C": 5, "patience": 2}),
    (paracel.LinearSVC(), 3, {"patience": 2}),
    (paracel.LinearSVR(), 0, {"patience": 2}),
    (paracel.FactorizationMachineClassifier(n_factors=2), 2,
     {"loss": "log", "method": "als", "k": 2, "beta_w": 0.1, "beta_v": 0.1, "patience": 2}),
    (paracel.FactorizationMachineRegressor(n_factors=2, solver="adagrad"), 0,
     {"method": "adagrad", "k": 2, "beta_w": 0.1, "beta_v": 0.1, "patience": 2}),
    (paracel.GradientBoostingClassifier(n_estimators=60), 3, {"loss": "softmax", "rounds": 60, "early_stopping": 2}),
)


class Validation(Folder):
    def test_same_bits_and_losses(self):
        for estimator, classes, config in VALIDATED:
            with self.subTest(repr(estimator)):
                X, y = classification(classes=classes) if classes else regression()
                for name, rows in (("train", slice(0, 200)), ("held", slice(200, 300))):
                    np.save(self.path(name + ".npy"), np.column_stack([X[rows], y[rows]]))
                config = {"training_input": self.path("train.npy"), "validation_input": self.path("held.npy"), "format": "npy",
                          "output": self.path("out"), **config}
                run_program(estimator._program, self.config("config.json", config))
                labels = np.array(["a", "b", "c"])[y.astype(int)] if classes else y
                estimator.set_params(early_stopping_rounds=2)
                for held in (X[200:], csr_matrix(X[200:])):
                    estimator.fit(X[:200], labels[:200], eval_set=(held, labels[200:]))
                    self.same_arrays(estimator.model_, Model.read(self.path("out")))
                    expected = [{k: v for k, v in line.items() if k in ("round", "class") or k.startswith("validate")}
                                for line in metrics_of(self.path("out"))]
                    self.assertEqual(estimator.evaluations_, expected)
                    self.assertTrue(any(k.startswith("validate_") for k in expected[0]), expected[0])
                with self.assertRaisesRegex(ValueError, "early_stopping_rounds: fit needs eval_set"):
                    estimator.fit(X, labels)
                self.assertEqual(estimator.set_params(early_stopping_rounds=None).fit(X, labels).evaluations_, [])

    def test_a_loss_by_definition(self):
        X, y = classification(classes=3)
        model = paracel.SoftmaxRegression().fit(X[:200], y[:200], eval_set=(X[200:], y[200:]))
        right = model.predict_proba(X[200:])[np.arange(100), y[200:].astype(int)]
        self.assertAlmostEqual(model.evaluations_[-1]["validate_loss"], -np.log(right).mean(), 9)
        self.assertAlmostEqual(model.evaluations_[-1]["validate_accuracy"], model.score(X[200:], y[200:]), 9)
        with self.assertRaisesRegex(ValueError, "found class 7.0, want one of"):
            model.fit(X, y, eval_set=(X[:2], [0.0, 7.0]))
        with self.assertRaisesRegex(ValueError, "5 features"):
            model.fit(X, y, eval_set=(X[:, :5], y))


class Centres(Folder):
    def test_first_centres(self):
        for seed in range(3):
            r = np.random.RandomState(seed)
            X, centers = r.randn(200, 3), 0.1 * r.randn(4, 3)
            expected, before = centers, None
            while expected is not before:
                labels = np.argmin(((X[:, None] - expected) ** 2).sum(axis=2), axis=1)
                moved = np.stack([X[labels == k].mean(axis=0) for k in range(4)])
                before, expected = expected, expected if np.allclose(moved, expected, rtol=0, atol=1e-14) else moved
            for job in ({}, {"n_workers": 2}):
                found = paracel.KMeans(n_clusters=4, init=centers, **job).fit(X)
                np.testing.assert_allclose(found.cluster_centers_, expected, rtol=1e-9)
                self.assertEqual(found.fit(X).cluster_centers_.tolist(), found.cluster_centers_.tolist())
        batches = paracel.KMeans(n_clusters=4, init=centers, batch_size=50, max_iter=2).fit(csr_matrix(X))
        self.assertEqual(batches.cluster_centers_.shape, (4, 3))
        self.assertLess(batches.inertia_, ((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum())

    def test_wrong_centres(self):
        for wrong in (np.zeros((2, 2)), np.zeros((3, 3)), np.full((2, 3), np.nan)):
            with self.assertRaisesRegex(ValueError, r"parameter init: found an array of shape .*, want finite numbers of"):
                paracel.KMeans(n_clusters=2, init=wrong).fit(np.eye(3))


class Texts(Folder):
    def setUp(self):
        super().setUp()
        r = np.random.RandomState(2)
        topics = [[f"{t}{i}" for i in range(12)] for t in ("apfel", "börse", "chor")]
        self.documents = [r.choice(topics[k % 3], 20).tolist() for k in range(60)]
        with open(self.path("text.txt"), "w", encoding="utf-8") as out:
            out.writelines(" ".join(d) + "\n" for d in self.documents)

    def test_topics(self):
        for method, keys, config in (("gibbs", {"sampler": "mh", "optimize_every": 5}, {"sampler": "mh", "optimize_every": 5}),
                                     ("online", {"batch_size": 20, "learning_offset": 5.0, "learning_decay": 0.8, "tol": 1e-9},
                                      {"batch_size": 20, "learning_offset": 5, "learning_decay": 0.8, "tolerance": 1e-9})):
            with self.subTest(method):
                config = {"input": self.path("text.txt"), "output": self.path(method), "format": "npy", "k_topics": 3,
                          "iters": 20, "method": method, **config}
                run_program("gLDA", self.config("config.json", config))
                model = paracel.LatentDirichletAllocation(n_components=3, method=method, max_iter=20, **keys)
                for documents in (self.documents, [" ".join(d) for d in self.documents]):
                    self.same_arrays(model.fit(documents).model_, Model.read(self.path(method)))
                self.assertEqual(sorted(model.words_), sorted({w for d in self.documents for w in d}))
                self.assertEqual(model.components_.shape, (3, len(model.words_)))
                config = {"model_input": self.path(method), "predict_input": self.path("text.txt"), "output": self.path("shares"),
                          "format": "npy"}
                run_program("gLDA", self.config("config.json", config))
                found = model.transform(self.documents)
                self.assertEqual(found.tobytes(), Model.read(self.path("shares")).arrays["predictions"].tobytes())
                of_topic = np.argmax(found, axis=1)
                self.assertEqual([len(set(of_topic[k::3])) for k in range(3)], [1, 1, 1])
                model.save(self.path("saved"))
                self.assertEqual(paracel.load_model(self.path("saved")).transform(self.documents).tobytes(), found.tobytes())
        with self.assertRaisesRegex(ValueError, "found documents as counts, want texts"):
            model.transform(np.eye(36))

    def test_word_vectors(self):
        for keys in ({"loss": "hierarchical_softmax", "method": "cbow"}, {"sample": 0.1, "batch_size": 100, "window": 3}):
            config = {"input": self.path("text.txt"), "output": self.path("vectors"), "format": "npy", "k": 8, "min_count": 2,
                      **keys}
            run_program("word2vec", self.config("config.json", config))
            model = paracel.Word2Vec(vector_size=8, min_count=2, **keys).fit(self.documents)
            self.same_arrays(model.model_, Model.read(self.path("vectors")))
            self.assertEqual(model.wv.index_to_key, model.words_.tolist())

    def test_vectors_by_definition(self):
        r = np.random.RandomState(3)
        wv = paracel.WordVectors([f"w{i}" for i in range(9)], np.vstack([r.randn(8, 4), np.zeros(4)]))
        unit = wv.vectors[:8] / np.linalg.norm(wv.vectors[:8], axis=1, keepdims=True)
        target = unit[2] + unit[3] - unit[0]
        cosines = np.append(unit @ target / np.linalg.norm(target), 0.0)
        best = [i for i in np.argsort(-cosines) if i not in (0, 2, 3)]
        found = wv.most_similar(["w2", "w3"], "w0", topn=3)
        self.assertEqual([w for w, _ in found], [f"w{i}" for i in best[:3]])
        np.testing.assert_allclose([c for _, c in found], cosines[best[:3]], rtol=1e-12)
        self.assertEqual((wv.similarity("w1", "w8"), "w9" in wv, len(wv), wv.vector_size), (0.0, False, 9, 4))
        with self.assertRaisesRegex(KeyError, "found no vector of 'w9'"):
            wv.most_similar("w9")
        with self.assertRaisesRegex(ValueError, "found no word"):
            wv.most_similar()

    def test_forms_of_word2vec(self):
        wv = paracel.WordVectors(["été", "日本", "x"], np.array([[1.5, -0.1], [1e-30, 3e10], [0, 1 / 3]], dtype=np.float32))
        for binary in (False, True):
            wv.save_word2vec_format(self.path("vectors"), binary=binary)
            again = paracel.WordVectors.load_word2vec_format(self.path("vectors"), binary=binary)
            self.assertEqual((again.index_to_key, again.vectors.tobytes()), (wv.index_to_key, wv.vectors.tobytes()))
            with open(self.path("vectors"), "rb") as file:
                whole = file.read()
            with open(self.path("vectors"), "wb") as file:
                file.write(whole[:-12])
            with self.assertRaisesRegex(ValueError, "vectors: vector [23]: found [01] numbers, want 2"):
                paracel.WordVectors.load_word2vec_format(self.path("vectors"), binary=binary)
        # The program's own files.
        for form in ("text", "binary"):
            config = {"input": self.path("text.txt"), "output": self.path("vectors_" + form), "format": form, "k": 6,
                      "min_count": 1}
            run_program("word2vec", self.config("config.json", config))
        model = paracel.Word2Vec(vector_size=6, min_count=1).fit(self.documents)
        for file, binary in (("vectors_text/vectors.txt", False), ("vectors_binary/vectors.bin", True)):
            again = paracel.WordVectors.load_word2vec_format(self.path(file), binary=binary)
            self.assertEqual(again.index_to_key, model.wv.index_to_key)
            np.testing.assert_allclose(again.vectors, model.wv.vectors, rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "text.txt:1: found no header"):
            paracel.WordVectors.load_word2vec_format(self.path("text.txt"))
        with self.assertRaisesRegex(ValueError, "found word 'a b'"):
            paracel.WordVectors(["a b"], [[1.0]]).save_word2vec_format(self.path("vectors"))
        with self.assertRaisesRegex(ValueError, "found 1 different words"):
            paracel.WordVectors(["a", "a"], [[1.0], [2.0]])


if __name__ == "__main__":
    unittest.main()
