# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of gbdt: what its model in XGBoost's form predicts, by a walk through the file and by XGBoost."""
import json
import math
import os
import struct


def single(v):
    return struct.unpack("f", struct.pack("f", v))[0]


class XgboostWalk:
    """Predicts with XGBoost's JSON model, as its documentation describes it."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            learner = json.load(file)["learner"]
        self.objective = learner["objective"]["name"]
        self.classes = max(1, int(learner["learner_model_param"]["num_class"]))
        self.base = float(learner["learner_model_param"]["base_score"])
        booster = learner["gradient_booster"]["model"]
        self.trees, self.of = booster["trees"], booster["tree_info"]
        self.names, self.types = learner["feature_names"], learner["feature_types"]

    @staticmethod
    def leaf(tree, x):
        at = 0
        sets = {node: tree["categories"][begin:begin + size] for node, begin, size in
                zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"])}
        while tree["left_children"][at] != -1:
            v = x[tree["split_indices"][at]]
            if v is None:
                left = tree["default_left"][at]
            elif tree["split_type"][at] == 1:
                left = int(v) not in sets[at]
            else:
                left = single(v) < single(tree["split_conditions"][at])
            at = tree["left_children" if left else "right_children"][at]
        return single(tree["split_conditions"][at])

    def predict(self, x):
        margins = [0.0] * self.classes
        for tree, k in zip(self.trees, self.of):
            margins[k] += self.leaf(tree, x)
        if self.objective in ("reg:squarederror", "rank:ndcg"):
            return [margins[0] + self.base]
        if self.objective == "binary:logistic":
            return [1 / (1 + math.exp(-margins[0] - math.log(self.base / (1 - self.base))))]
        total = sum(math.exp(m) for m in margins)
        return [math.exp(m) / total for m in margins]


class XgboostModel:
    """A mixin for test cases; needs TreeCase."""

    def exported(self, path, rows, loss, **keys):
        """The exported model predicts what the program does, by a walk through the file. Returns: the file, the predictions."""
        self.fit(2, **{"training_input": path, "loss": loss, "predict_input": path, "rounds": 30, **keys})
        predicted = [[float(v) for v in p[-1].split("|")] for p in self.predictions(2)]
        file = os.path.join(self.output, "xgboost.json")
        walk = XgboostWalk(file)
        output = self.output
        self.job(3, model=output, xgboost=True)
        with open(file, "rb") as first, open(os.path.join(self.output, "xgboost.json"), "rb") as later:
            self.assertEqual(first.read(), later.read())  # of the model that is read
        self.output = output
        for row, p in zip(rows, predicted):
            q = walk.predict(row)
            for a, b in zip(p[1:] if loss == "log" else p, q):
                self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(a)))
        return file, predicted

    def check_xgboost(self, file, rows, predicted, loss, categorical=()):
        """The same by XGBoost, if it is installed."""
        try:
            import numpy
            import xgboost
        except ImportError as e:
            self.skipTest(f"the walk agrees; XGBoost itself was not asked: {e}")
        booster = xgboost.Booster(model_file=file)
        types = ["c" if j in categorical else "float" for j in range(len(rows[0]))]
        data = numpy.array([[math.nan if v is None else v for v in row] for row in rows], dtype=numpy.float32)
        names = booster.feature_names
        found = booster.predict(xgboost.DMatrix(data, feature_names=names, feature_types=types if categorical else None,
                                                enable_categorical=bool(categorical)))
        ours = numpy.array([p[1] if loss == "log" else p if loss == "softmax" else p[0] for p in predicted])
        self.assertLess(numpy.abs(found - ours).max() / max(1, numpy.abs(ours).max()), 1e-6)
