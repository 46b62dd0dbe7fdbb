# SPDX-License-Identifier: BSD-3-Clause
"""samples_sklearn.py kmeans POINTS K | ridge SAMPLES A | lasso SAMPLES A: scikit-learn on dense CSV."""
import sys

import numpy

import reading

what, path, number = sys.argv[1:4]
data = reading.table(path)
if what == "kmeans":
    from sklearn.cluster import KMeans
    model = KMeans(int(number), n_init=1, algorithm="lloyd", tol=0, max_iter=300, random_state=0).fit(data)
    print("inertia %.17g" % model.inertia_)
else:
    from sklearn.linear_model import Lasso, Ridge
    x, y, a = data[:, :-1], data[:, -1], float(number)
    if what == "ridge":
        model = Ridge(alpha=a, solver="cholesky").fit(x, y)
        rest = y - model.predict(x)
        print("objective %.17g" % (rest @ rest + a * model.coef_ @ model.coef_))
    else:
        model = Lasso(alpha=a, tol=1e-6, max_iter=10000).fit(numpy.asfortranarray(x), y)
        rest = y - model.predict(x)
        print("objective %.17g" % (rest @ rest / (2 * len(y)) + a * abs(model.coef_).sum()))
