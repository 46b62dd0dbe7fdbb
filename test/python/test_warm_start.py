#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Estimators that go on from a model: two halves beside the whole, new users and words, what is refused."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
from test_estimators import Folder, classification, counts, regression  # noqa: E402


class WarmStart(Folder):
    def same_model(self, one, other):
        self.assertEqual(set(one.model_.arrays), set(other.model_.arrays))
        for name, array in one.model_.arrays.items():
            self.assertEqual(array.tobytes(), other.model_.arrays[name].tobytes(), name)

    def test_trees_are_added(self):
        X, numbers = classification(classes=3)
        words = np.array(["low", "middle", "top"])[numbers.astype(int)]
        for estimator, y in ((paracel.GradientBoostingClassifier(subsample=0.7), words),
                             (paracel.GradientBoostingRegressor(subsample=0.7), regression()[1]),
                             (paracel.RandomForestClassifier(), words),
                             (paracel.RandomForestRegressor(), regression()[1])):
            with self.subTest(type(estimator).__name__):
                whole = type(estimator)(**{**estimator.get_params(), "n_estimators": 12}).fit(X, y)
                estimator.set_params(n_estimators=7).fit(X, y)
                estimator.save(self.path("half"))
                half = estimator.model_
                estimator.set_params(n_estimators=12, warm_start=True).fit(X, y)
                self.same_model(estimator, whole)
                self.assertEqual(estimator.predict(X).tolist(), whole.predict(X).tolist())
                loaded = paracel.load_model(self.path("half"))
                loaded.set_params(**{**estimator.get_params(), "n_workers": 2}).fit(X, y)
                self.same_model(loaded, whole)
                self.assertEqual(loaded.predict(X).tolist(), whole.predict(X).tolist())
                with self.assertRaisesRegex(ValueError, "^parameter n_estimators: found 12, want more than the 12 of the model"):
                    estimator.fit(X, y)
                again = estimator.set_params(n_estimators=7, warm_start=False).fit(X, y).model_
                self.assertEqual({k: a.tobytes() for k, a in again.arrays.items()},
                                 {k: a.tobytes() for k, a in half.arrays.items()})

    def test_rankings(self):
        X, y = classification(classes=3)
        group = np.arange(len(y)) // 10
        whole = paracel.GradientBoostingRanker(n_estimators=6).fit(X, y, group)
        model = paracel.GradientBoostingRanker(n_estimators=4).fit(X, y, group)
        model.set_params(n_estimators=6, warm_start=True)
        with self.assertRaisesRegex(ValueError, "5 features"):
            model.fit(X[:, :5], y, group)
        self.same_model(model.fit(X, y, group), whole)

    def test_classes_and_features_stay(self):
        X, y = classification(classes=3)
        model = paracel.RandomForestClassifier(n_estimators=2).fit(X, y)
        model.set_params(n_estimators=4, warm_start=True)
        with self.assertRaisesRegex(ValueError, r"^found class 3.0, want one of \[0.0, 1.0, 2.0\], which the model has"):
            model.fit(X, y + 1)
        with self.assertRaisesRegex(ValueError, "5 features"):
            model.fit(X[:, :5], y)
        self.assertEqual(len(model.fit(X[y > 0], y[y > 0]).predict_proba(X)[0]), 3)

    def test_naive_bayes_adds_rows(self):
        X, y = counts()[0], classification(classes=3)[1]
        for estimator in (paracel.GaussianNB(), paracel.MultinomialNB(), paracel.BernoulliNB(binarize=1.0)):
            with self.subTest(type(estimator).__name__):
                whole = type(estimator)(**estimator.get_params()).fit(X, y)
                estimator.partial_fit(X[:120], y[:120], classes=[0, 1, 2])
                for rows in (slice(120, 121), slice(121, 300)):
                    estimator.partial_fit(X[rows], y[rows])
                np.testing.assert_allclose(estimator.predict_joint_log_proba(X), whole.predict_joint_log_proba(X), rtol=1e-10)
                self.assertEqual(estimator.class_count_.tolist(), whole.class_count_.tolist())
                with self.assertRaisesRegex(ValueError, "^found class 7.0, want one of"):
                    estimator.partial_fit(X[:2], [1.0, 7.0])
                with self.assertRaisesRegex(ValueError, "is not the same as on last call to partial_fit"):
                    estimator.partial_fit(X[:2], [0, 1], classes=[0, 1])
                with self.assertRaisesRegex(ValueError, "have no row of class 2"):
                    type(estimator)().partial_fit(X[:4], [0, 1, 0, 1], classes=[0, 1, 2])

    def test_linear_models(self):
        X, numbers = classification(classes=3)
        words = np.array(["low", "middle", "top"])[numbers.astype(int)]
        two, targets = words == "top", regression()[1]
        for estimator, y in (
                (paracel.LogisticRegression(), two), (paracel.LogisticRegression(solver="lbfgs", fit_intercept=False), two),
                (paracel.LogisticRegression(penalty="l1"), two), (paracel.LogisticRegression(), words),
                (paracel.SoftmaxRegression(), words), (paracel.LinearSVC(), words), (paracel.LinearSVC(loss="hinge"), two),
                (paracel.LinearSVR(tol=1e-8), targets), (paracel.LinearSVR(loss="squared_epsilon_insensitive"), targets),
                (paracel.Ridge(), targets), (paracel.Lasso(alpha=0.1), targets), (paracel.ElasticNet(alpha=0.1), targets)):
            with self.subTest(estimator=str(estimator)):
                whole = type(estimator)(**estimator.get_params()).fit(X, y)
                estimator.fit(X[::2], y[::2]).save(self.path("half"))
                self.assertGreater(np.abs(estimator.coef_ - whole.coef_).max(), 1e-6)
                loaded = paracel.load_model(self.path("half"))  # of more than two classes a SoftmaxRegression
                loaded.set_params(**{name: value for name, value in estimator.get_params().items() if hasattr(loaded, name)})
                loaded.set_params(n_workers=2)
                for model in (estimator, loaded):
                    model.set_params(warm_start=True).fit(X, y)
                    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=0.02, atol=0.01)
                    np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=0.02, atol=0.01)
                    model.set_params(max_iter=1).fit(X, y)  # at the minimum there is nothing to do
                    self.assertLessEqual(model.n_iter_, 3 if y is words and isinstance(model, paracel.LinearSVC) else 1)
                    self.assertEqual(model.predict(X).shape, y.shape)
                with self.assertRaisesRegex(ValueError, "5 features"):
                    estimator.fit(X[:, :5], y)

    def test_linear_models_with_other_parameters(self):
        X, y = classification()
        model = paracel.LogisticRegression(warm_start=True).fit(X, y)
        for penalty in ("l1", "l2"):  # another program
            model.set_params(penalty=penalty).fit(X, y)
            whole = paracel.LogisticRegression(penalty=penalty).fit(X, y)
            np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-3)
        with self.assertRaisesRegex(ValueError, r"^found class 'a', want one of \[0.0, 1.0\], which the model has"):
            model.fit(X, np.where(y > 0, "a", "b"))
        with self.assertRaisesRegex(paracel.Error, "parameter fit_intercept: found false, want true as in the initial model"):
            model.set_params(fit_intercept=False).fit(X, y)
        X, y = classification(classes=3)
        for model in (paracel.LogisticRegression(warm_start=True), paracel.SoftmaxRegression(warm_start=True)):
            with self.assertRaisesRegex(ValueError, "^found no row of class 0.0, want rows of each class of the model"):
                model.fit(X, y).fit(X[y > 0], y[y > 0])
        self.assertEqual(paracel.LinearSVC(warm_start=True).fit(X, y).fit(X[y > 0], y[y > 0]).coef_.shape, (3, X.shape[1]))

    def test_kmeans(self):
        X, _ = classification(rows=500)
        model = paracel.KMeans(n_clusters=4, random_state=1).fit(X)
        inertia, rounds = model.inertia_, model.n_iter_
        model.set_params(warm_start=True).fit(X)
        self.assertEqual(model.inertia_, inertia)
        self.assertLess(model.n_iter_, rounds)

    def test_ratings_of_new_users(self):
        r = np.random.RandomState(4)
        users, items = np.divmod(r.choice(40 * 30, 500, replace=False), 30)
        ratings = r.randint(1, 6, 500) * 1.0
        names = np.array([f"u{u}" for u in users])
        for estimator in (paracel.ALS(n_factors=3, max_iter=4), paracel.MatrixFactorization(n_factors=3, max_iter=4)):
            with self.subTest(type(estimator).__name__):
                def error(model):
                    return np.mean((model.predict(names, items) - ratings) ** 2)

                first = error(estimator.fit(names, items, ratings))
                estimator.save(self.path("ratings"))
                for model in (estimator, paracel.load_model(self.path("ratings")).set_params(**estimator.get_params())):
                    model.set_params(warm_start=True).fit(names, items, ratings)
                    self.assertLess(error(model), first)
                self.assertEqual(model.predict(names, items).tolist(), estimator.predict(names, items).tolist())
                estimator.fit(np.append(names, "a new one"), np.append(items, 99), np.append(ratings, 5.0))
                self.assertEqual((len(estimator.user_ids_), estimator.user_ids_[0]), (len(set(names)) + 1, "a new one"))
                self.assertIn(99, estimator.item_ids_)
                self.assertLess(error(estimator), first)

    def test_others(self):
        X, y = regression()
        machine = paracel.FactorizationMachineRegressor(n_factors=2, max_iter=2).fit(X, y)
        whole = paracel.FactorizationMachineRegressor(n_factors=2, max_iter=7).fit(X, y)
        machine.set_params(warm_start=True, max_iter=5).fit(X, y)
        np.testing.assert_allclose(machine.predict(X), whole.predict(X), rtol=1e-8)

        words = paracel.Word2Vec(vector_size=4, min_count=1, max_iter=1).fit(["one two three", "two three"] * 5)
        words.set_params(warm_start=True).fit(["three four"] * 5)
        self.assertEqual(set(words.words_), {"one", "two", "three", "four"})

        documents = counts(rows=60)[0].astype(int)
        topics = paracel.LatentDirichletAllocation(n_components=2, max_iter=5).fit(documents)
        self.assertEqual(topics.set_params(warm_start=True).fit(documents).components_.shape, (2, 6))


if __name__ == "__main__":
    unittest.main()
