#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Estimators inside of scikit-learn's tools, and without scikit-learn."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, in_site  # noqa: E402

in_package("sklearn")

import paracel  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.ensemble import BaggingRegressor  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.multiclass import OneVsRestClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from test_estimators import classification, regression  # noqa: E402

# scikit-learn is not found there.
WITHOUT = """
import sys
sys.modules["sklearn"] = None
import numpy as np
import paracel
r = np.random.RandomState(0)
X = r.randn(200, 3)
y = np.where(X[:, 0] > 0, "yes", "no")
model = paracel.LogisticRegression(C=10.0)
try:
    model.predict(X)
except ValueError as e:
    print(e)
assert model.fit(X, y).score(X, y) > 0.97, model.score(X, y)
assert model.set_params(C=0.1).get_params()["C"] == 0.1
assert paracel.Ridge().fit(X, X @ [1, 2, 3]).score(X, X @ [1, 2, 3]) > 0.99
assert paracel.KMeans(n_clusters=2).fit_predict(X).shape == (200,)
assert paracel.TruncatedSVD(n_components=2).fit_transform(X).shape == (200, 2)
for wrong in (lambda: model.set_params(c=1), lambda: model.fit(X * np.nan, y), lambda: model.predict(X[:, :2]),
              lambda: model.fit(X, y[:10]), lambda: model.fit(X, X[:, 0])):
    try:
        wrong()
    except ValueError as e:
        print(str(e).split(", want")[0])
print(model)
"""
SAID = """this LogisticRegression has not been fitted: call fit first
found parameter c of LogisticRegression
found NaN or infinity in X
found X with 2 features
found y of shape (10,)
Unknown label type: found continuous numbers
"""


class WithSklearn(unittest.TestCase):
    def test_pipeline_and_search(self):
        X, y = classification(classes=3)
        search = GridSearchCV(make_pipeline(StandardScaler(), paracel.LinearSVC()), {"linearsvc__C": [0.01, 1.0]}, cv=3, n_jobs=2)
        self.assertGreater(search.fit(X, y).best_score_, 0.7)
        self.assertIsInstance(search.best_estimator_[-1], paracel.LinearSVC)

    def test_cross_validation_and_ensembles(self):
        X, y = regression()
        self.assertGreater(cross_val_score(paracel.Lasso(alpha=0.01), X, y).min(), 0.9)
        bagged = BaggingRegressor(paracel.Ridge(), 3, random_state=0).fit(X, y)
        self.assertGreater(bagged.score(X, y), 0.9)

    def test_meta_estimators_of_classes(self):
        X, y = classification(classes=3)
        model = OneVsRestClassifier(paracel.FactorizationMachineClassifier()).fit(X, y)
        self.assertGreater(model.score(X, y), 0.7)
        calibrated = CalibratedClassifierCV(paracel.LinearSVC(), cv=3).fit(X, y)
        self.assertGreater(calibrated.score(X, y), 0.7)

    def test_clone_keeps_parameters_only(self):
        X, y = classification()
        fitted = paracel.RandomForestClassifier(n_estimators=3, max_depth=2).fit(X, y)
        copy = clone(fitted)
        self.assertEqual(copy.get_params(), fitted.get_params())
        self.assertFalse(hasattr(copy, "model_"))

    def test_frames(self):
        try:
            import pandas as pd
        except ImportError:
            self.skipTest("no pandas")
        X, y = classification()
        frame = pd.DataFrame(X, columns=list("abcdef"))
        fitted = paracel.LogisticRegression().fit(frame, pd.Series(y))
        self.assertEqual(fitted.feature_names_in_.tolist(), list("abcdef"))
        self.assertEqual(fitted.coef_.tobytes(), paracel.LogisticRegression().fit(X, y).coef_.tobytes())
        with self.assertRaisesRegex(ValueError, "feature names"):
            fitted.predict(frame[list("fedcba")])
        distances = paracel.KMeans(n_clusters=2).set_output(transform="pandas").fit_transform(frame)
        self.assertEqual(distances.columns.tolist(), ["kmeans0", "kmeans1"])

    def test_without_sklearn(self):
        done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, env=in_site(), check=False)
        self.assertEqual(done.stderr, "")
        self.assertTrue(done.stdout.startswith(SAID), done.stdout)


if __name__ == "__main__":
    unittest.main()
