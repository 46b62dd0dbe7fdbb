# SPDX-License-Identifier: BSD-3-Clause
"""trees.py sklearn | lightgbm | xgboost | lambdarank | forest | regression_forest SAMPLES: 100 trees of 31 leaves, or a
forest of 100, with a thread for each processor that it may use, on dense CSV; labels are 0 and 1, those of regression_forest
numbers. lambdarank (LightGBM) reads libsvm with groups. lightgbm and xgboost are not in Debian; where they are missing the row
says so."""
import os
import sys

import numpy

import reading

what, path = sys.argv[1:3]
threads = len(os.sched_getaffinity(0))


def ndcg(y, p, starts, positions):
    """The mean over the groups, which begin at `starts`; one without a relevant row counts as 1."""
    discount = 1 / numpy.log2(2 + numpy.arange(positions))
    found = []
    for begin, end in zip(starts, [*starts[1:], len(y)]):
        gain = 2.0 ** y[begin:end] - 1
        got, best = gain[numpy.argsort(-p[begin:end], kind="stable")][:positions], numpy.sort(gain)[::-1][:positions]
        most = best @ discount[:len(best)]
        found.append(got @ discount[:len(got)] / most if most > 0 else 1.0)
    return numpy.mean(found)


if what == "lambdarank":
    import lightgbm
    from sklearn.datasets import load_svmlight_file
    x, y, query = load_svmlight_file(path, query_id=True, dtype=numpy.float32)
    starts = numpy.flatnonzero(numpy.concatenate([[True], query[1:] != query[:-1]]))
    sizes = numpy.diff([*starts, len(y)])
    settings = {"objective": "lambdarank", "num_leaves": 31, "learning_rate": 0.1, "lambda_l2": 1, "num_threads": threads,
                "verbose": -1}
    x = x.toarray()
    p = lightgbm.train(settings, lightgbm.Dataset(x, y, group=sizes), 100).predict(x)
    print("ndcg %.17g" % ndcg(y, p, starts, 10))
    sys.exit()
data = reading.table(path)
x, y = numpy.ascontiguousarray(data[:, :-1], dtype=numpy.float32), data[:, -1]
if what == "forest":
    from sklearn.ensemble import RandomForestClassifier
    model = RandomForestClassifier(100, oob_score=True, random_state=0, n_jobs=threads).fit(x, y)
    print("oob_accuracy %.17g" % model.oob_score_)
    sys.exit()
if what == "regression_forest":
    from sklearn.ensemble import RandomForestRegressor
    model = RandomForestRegressor(100, max_features=1 / 3, oob_score=True, random_state=0, n_jobs=threads).fit(x, y)
    print("oob_rmse %.17g" % numpy.sqrt(numpy.mean((model.oob_prediction_ - y) ** 2)))
    sys.exit()
if what == "sklearn":
    from sklearn.ensemble import HistGradientBoostingClassifier
    model = HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=31, learning_rate=0.1, l2_regularization=1,
                                           early_stopping=False).fit(x, y)
    p = model.predict_proba(x)[:, 1]
elif what == "lightgbm":
    import lightgbm
    settings = {"objective": "binary", "num_leaves": 31, "learning_rate": 0.1, "lambda_l2": 1, "num_threads": threads,
                "verbose": -1}
    p = lightgbm.train(settings, lightgbm.Dataset(x, y), 100).predict(x)
else:
    import xgboost
    settings = {"objective": "binary:logistic", "tree_method": "hist", "grow_policy": "lossguide", "max_leaves": 31,
                "max_depth": 0, "eta": 0.1, "max_bin": 255, "nthread": threads}
    rows = xgboost.QuantileDMatrix(x, y, max_bin=255)
    p = xgboost.train(settings, rows, 100).predict(rows)
p = numpy.clip(p.astype(float), 1e-15, 1 - 1e-15)
print("loss %.17g" % -numpy.mean(y * numpy.log(p) + (1 - y) * numpy.log(1 - p)))
