# SPDX-License-Identifier: BSD-3-Clause
"""classes_sklearn.py softmax SAMPLES | gaussian SAMPLES: scikit-learn on dense CSV whose last field is a class_<number>."""
import sys

import numpy

what, path = sys.argv[1:3]
with open(path, "rb") as file:
    width = file.readline().count(b",") + 1
    file.seek(0)
    rows = numpy.fromstring(file.read().replace(b",class_", b" ").replace(b",", b" "), sep=" ").reshape(-1, width)
x, y = rows[:, :-1], rows[:, -1]
if what == "softmax":
    from sklearn.linear_model import LogisticRegression
    model = LogisticRegression(C=1, solver="lbfgs", tol=1e-3, max_iter=10000).fit(x, y)
    own = model.predict_log_proba(x)[numpy.arange(len(y)), numpy.searchsorted(model.classes_, y)]
    print("objective %.17g" % ((model.coef_ ** 2).sum() / 2 - own.sum()))
else:
    from sklearn.naive_bayes import GaussianNB
    print("accuracy %.17g" % GaussianNB().fit(x, y).score(x, y))
