# SPDX-License-Identifier: BSD-3-Clause
"""Gradient-boosted trees and random forests."""
import os
import shutil

import numpy as np

from paracel._estimator import (Parameter, Probabilities, ProgramClassifier, ProgramEstimator, ProgramRegressor, Validated,
                                class_weight, early_stopping, loads, random_state, training, warm_start, weight_failures)
from paracel._functions import Metric, Objective, function_of, name_for_workers, name_of
from paracel._model import Model
from paracel._run import Job, memory_folder
from paracel._sklearn import check_is_fitted, check_supervised, check_weight
from paracel.linear import logistic, softmax

_GREATEST = np.finfo(np.float32).max / 2


class Forest:
    """The trees of a model (alg/gbdt/forest.hpp).

    A number goes left if it is less than the node's threshold, a category right if it is in the node's set, a missing value
    (NaN) to the side that training has found.
    """

    def __init__(self, model):
        arrays = model.arrays
        self.features = model.manifest["features"]
        self.width, self.outputs = model.manifest["width"], model.manifest["outputs"]
        self.begin = arrays["tree_begin"]
        self.feature, self.threshold = arrays["feature"], arrays["threshold"].astype(np.float32)
        self.left, self.right = arrays["left"], arrays["right"]
        self.missing_left, self.leaf = arrays["missing_left"].astype(bool), arrays["leaf"]
        self.set_begin, self.set_count = arrays["category_begin"], arrays["category_count"]
        self.category, self.value = arrays["category"], arrays["value"].reshape(-1, self.width)
        self.gain = arrays["gain"]
        self.offset = arrays.get("offset")

    def __len__(self):
        return len(self.begin) - 1

    def rows(self, X):
        """Rows as the program's trees see them: float32, less the columns' offsets."""
        X = X.toarray() if hasattr(X, "toarray") else X
        X = np.asarray(X, dtype=np.float64)
        if self.offset is not None:
            X = X - self.offset
        return np.clip(X, -_GREATEST, _GREATEST).astype(np.float32)

    def leaves(self, X, tree):
        """The node, of all trees', in which each row ends."""
        at = np.full(len(X), self.begin[tree])
        inner = np.flatnonzero(self.feature[at] >= 0)
        while len(inner):
            node = at[inner]
            x = X[inner, self.feature[node]]
            left = x < self.threshold[node]
            for i in np.flatnonzero(self.set_count[node] > 0):
                begin = self.set_begin[node[i]]
                left[i] = not np.isin(x[i], self.category[begin:begin + self.set_count[node[i]]])
            left = np.where(np.isnan(x), self.missing_left[node], left)
            at[inner] = self.begin[tree] + np.where(left, self.left[node], self.right[node])
            inner = inner[self.feature[at[inner]] >= 0]
        return at

    def sums(self, X, first=0.0):
        """The sums of the trees' values.

        Returns
        -------
        array of shape (rows, outputs), or (rows, width) if that is more than 1
        """
        out = np.full((len(X), max(self.width, self.outputs)), float(first))
        for t in range(len(self)):
            value = self.value[self.leaf[self.leaves(X, t)]]
            if self.width == 1:
                out[:, t % self.outputs] += value[:, 0]
            else:
                out += value
        return out

    def apply(self, X):
        """The leaf of each row in each tree, numbered within the tree.

        Returns
        -------
        array of shape (rows, trees)
        """
        return np.stack([self.leaves(X, t) - self.begin[t] for t in range(len(self))], axis=1)

    def importances(self):
        """The share of each feature in all gains."""
        inner = self.feature >= 0
        gains = np.bincount(self.feature[inner], self.gain[inner], minlength=self.features)
        total = gains.sum()
        return gains / total if total > 0 else gains


def _limit(v):
    return 0 if v is None else int(v)


_TREES = {
    "max_bins": Parameter(255, "max_bins", "Bins of a feature, at most 255."),
    "categorical_features": Parameter(None, "categorical", "Numbers or names of the features that are categories, integers from "
                                                           "0. Columns of a frame that are texts or categories always are.",
                                      lambda v: None if v is None else list(v),
                                      type="collections.abc.Sequence[int | str] | None"),
}
_BOOSTING = {
    "n_estimators": Parameter(100, "rounds", "Maximum number of rounds; a round has a tree, or one for each of three or more "
                                             "classes."),
    "learning_rate": Parameter(0.1, "rate", "Factor of each tree."),
    "growth": Parameter("leaf", "growth", "``leaf``: the leaf that gains most is split next; ``depth``: level by level."),
    "max_leaf_nodes": Parameter(31, "max_leaves", "Leaves of a tree; None: no limit.", _limit,
                           type="int | None"),
    "max_depth": Parameter(None, "max_depth", "Depth of a tree; None: no limit.", _limit,
                           type="int | None"),
    "l2_regularization": Parameter(1.0, "lambda", "L2 penalty of the leaves."),
    "min_split_gain": Parameter(0.0, "gamma", "A split must gain more."),
    "min_samples_leaf": Parameter(20, "min_child_rows", "Minimum number of rows of a leaf."),
    "min_child_weight": Parameter(0.001, "min_child_weight", "Minimum sum of second derivatives of a leaf."),
    "subsample": Parameter(1.0, "subsample", "Share of the rows that a round uses."),
    "colsample": Parameter(1.0, "colsample", "Share of the features that a tree uses."),
    **_TREES,
    "early_stopping_rounds": early_stopping("early_stopping", "rounds"),
    "objective": Parameter(None, None, "A function ``objective(y, raw) -> (gradient, hessian)`` in place of the loss: the first "
                                       "and second derivatives of each row's loss with respect to its raw prediction.",
                           type="collections.abc.Callable[..., Any] | str | None"),
    "eval_metric": Parameter(None, None, "A function ``eval_metric(y, prediction) -> float`` that `eval_set` is followed by in "
                                         "place of the loss; the smaller, the better.",
                             type="collections.abc.Callable[..., float] | str | None"),
    "first_margin": Parameter(None, "first_margin", "The raw prediction before the first tree; None: the mean or the log odds of "
                                                    "`y`, with an `objective` and for several classes 0.", type="float | None"),
    "warm_start": warm_start("`n_estimators` counts its trees, too."),
    "random_state": random_state(),
}


class _Trees(ProgramEstimator):
    """Attributes of a forest."""

    _allow_nan = True
    _takes_categories = True  # texts, as numbers of the words in _categories, by feature

    def _config(self):
        config = super()._config()
        names = getattr(self, "feature_names_in_", np.empty(0)).tolist()
        features = {names.index(c) if c in names else c for c in config.pop("categorical", [])}
        for c in features:
            if not isinstance(c, (int, np.integer)):
                raise ValueError(f"parameter categorical_features: found {c!r}, want numbers or names of features")
        features = sorted({int(c) for c in features} | self._categories.keys())
        return {**config, "categorical": features} if features and not self._goes_on() else config

    def _earlier(self):
        earlier = super()._earlier()
        return Model({**earlier.manifest, "words": {str(c): [] for c in earlier.manifest["categorical"]}}, earlier.arrays,
                     earlier.ids)

    def _take(self, model):
        super()._take(model)
        about = model.manifest
        if "_categories" not in self.__dict__:
            self._categories = {int(c): words for c, words in about["words"].items() if words}
        about["words"] = {str(c): self._categories.get(c, []) for c in about["categorical"]}
        self._forest = Forest(model)
        self.n_features_in_ = self._forest.features
        self.feature_importances_ = self._forest.importances()

    def _further(self, key):
        """The key with the number of further rounds or trees, where a fit goes on."""
        if not self._goes_on():
            return {}
        if self.n_estimators <= self.n_iter_:
            raise ValueError(f"parameter n_estimators: found {self.n_estimators}, want more than the {self.n_iter_} of the model "
                             "that the fit goes on from")
        return {key: self.n_estimators - self.n_iter_}

    def apply(self, X):
        """The leaf of each row in each tree.

        Returns
        -------
        array of int of shape (rows, trees)
        """
        X = self._check_rows(X)
        return self._forest.apply(self._forest.rows(X))

    def __getstate__(self):
        state = super().__getstate__() if hasattr(super(), "__getstate__") else dict(self.__dict__)
        return {k: v for k, v in state.items() if k != "_forest"}

    def __setstate__(self, state):
        if hasattr(super(), "__setstate__"):
            super().__setstate__(state)
        else:
            self.__dict__.update(state)
        if "model_" in self.__dict__:
            self._forest = Forest(self.model_)


class _Boosting(_Trees):
    _further_keys = {"early_stopping": "early_stopping_rounds"}
    _notes = """
Notes
-----
`objective` and `eval_metric` are called once a round with arrays of float64: `y` as the program has it (of a classifier the
numbers of the classes in `classes_`, as integers), without rows of weight 0, and raw predictions of shape (rows,), or with
more than two classes (rows, classes); a metric of one of the program's own losses gets probabilities. Weights of rows are
applied to what the objective returns. A model with an own objective predicts raw numbers: of a classifier
`decision_function`, not `predict_proba`.

In a job each worker calls the objective with its own rows, and the first one the metric with all. Both are then functions of a
module that workers can import, or their names, ``"module:function"``.
"""

    _program = "gbdt"
    _expected_failures = weight_failures("min_samples_leaf counts rows, of which repeated ones are more", zeros=False)

    def _take(self, model):
        super()._take(model)
        self.n_iter_ = model.manifest["rounds"]

    def _margins(self, X):
        X = self._check_rows(X)
        return self._forest.sums(self._forest.rows(X), self.model_.manifest["first_margin"])

    def _config(self):
        config = {**super()._config(), "xgboost": False, **self._further("rounds")}
        if self._goes_on():
            config.pop("first_margin", None)
        return config

    def _own_functions(self, config, classes, groups):
        """Names the functions in the config. `groups`: of the rows and of those of `eval_set`, for a ranker. Returns: those of
        Job.run."""
        made = {}
        for parameter, kind, more in (("objective", Objective, groups[:1]), ("eval_metric", Metric, groups[1:])):
            given = getattr(self, parameter)
            if given is None:
                continue
            function = function_of(parameter, given)
            config[parameter] = name_of(given)
            if self.n_workers is None:
                made[parameter] = kind(function, classes, more)
            elif groups:
                raise ValueError(f"parameter {parameter}: not in a job, whose workers may have parts of a group; want "
                                 "n_workers=None")
            else:
                made[parameter] = name_for_workers(parameter, given)
        return {"objective": None, "eval_metric": None, "classes": classes, **made} if made else None

    def _groups(self, inputs):
        """Of a ranker: the groups of the rows, and of those of `eval_set`."""
        return ()

    def _run(self, inputs, config=None, program=None, functions=None):
        config = dict(config or {})
        functions = self._own_functions(config, isinstance(self, ProgramClassifier), self._groups(inputs))
        validates = "validation_input" in inputs
        if not validates and self.eval_metric is not None:
            raise ValueError("parameter eval_metric: fit needs eval_set=(X, y), which it measures")
        if validates and self.objective is not None and self.eval_metric is None:
            raise ValueError("parameter objective: with an eval_set it needs eval_metric, too")
        if self.progress and not validates and self.objective is None:
            config["training_curve"] = True  # shows a loss
        return super()._run(inputs, config, program, functions)

    def _own_objective(self):
        """The name of the model's objective; "": its loss."""
        return self.model_.manifest["settings"].get("objective", "")

    def save_xgboost(self, path):
        """Writes the trees as a model of XGBoost in JSON, which predicts the same to 1e-6.

        Its classes are the numbers of `classes_`; texts that are categories are those of their columns in ascending order.

        Parameters
        ----------
        path : path
            XGBoost wants that it ends in .json.
        """
        check_is_fitted(self)
        with memory_folder() as folder:
            model, output = os.path.join(folder, "model"), os.path.join(folder, "output")
            self._earlier().write(model)
            Job().run_to(output, "gbdt", {"model": model, "xgboost": True}, {}, words=self._words())
            shutil.copyfile(os.path.join(output, "xgboost.json"), path)


class GradientBoostingClassifier(Probabilities, Validated, _Boosting, ProgramClassifier):
    """Gradient-boosted trees for classes. Missing values are NaN; columns of a frame may be texts, which are categories. Program:
    ``gbdt``.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[float(i)] for i in range(40)], ["low"] * 20 + ["high"] * 20
    >>> model = paracel.GradientBoostingClassifier(min_samples_leaf=5).fit(X, y)
    >>> model.predict([[3.0], [33.0]]).tolist()
    ['low', 'high']
    """

    _parameters = {**_BOOSTING, "class_weight": class_weight()}

    def _config_for(self, X, y, weight):
        return {"loss": "log" if len(self.classes_) == 2 else "softmax"}

    def decision_function(self, X):
        """The margins; with two classes one number, positive for the second class.

        Returns
        -------
        array of shape (rows,) or (rows, classes)
        """
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict_proba(self, X):
        """The probability of each class.

        Returns
        -------
        array of shape (rows, classes)
        """
        margins = self.decision_function(X)
        if self._own_objective():
            raise AttributeError(f"the model has no probabilities, as its objective is {self._own_objective()}: want "
                                 "decision_function, its raw predictions")
        if margins.ndim > 1:
            return softmax(margins)
        second = logistic(margins)
        return np.stack([1 - second, second], axis=1)


class GradientBoostingRegressor(Validated, _Boosting, ProgramRegressor):
    """Gradient-boosted trees for numbers, by squared error. Missing values are NaN; columns of a frame may be texts, which are
    categories. Program: ``gbdt``.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[float(i)] for i in range(40)], [1.0] * 20 + [3.0] * 20
    >>> model = paracel.GradientBoostingRegressor(min_samples_leaf=5).fit(X, y)
    >>> model.predict([[3.0], [33.0]]).round(2)
    array([1., 3.])
    """

    _parameters = _BOOSTING

    def _config(self):
        return {**super()._config(), "loss": "squared"}

    def predict(self, X):
        """The prediction of each row.

        Returns
        -------
        array of shape (rows,)
        """
        return self._margins(X)[:, 0]


class GradientBoostingRanker(Validated, _Boosting):
    """Gradient-boosted trees that rank the rows of a group, by LambdaMART. Program: ``gbdt``.

    `objective(y, raw, group)` and `eval_metric(y, raw, group)` also get the number of each row's group, and are not for jobs.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[float(i % 10)] for i in range(40)], [int(i % 10 > 6) for i in range(40)]
    >>> model = paracel.GradientBoostingRanker(min_samples_leaf=5).fit(X, y, group=[i // 10 for i in range(40)])
    >>> better, worse = model.predict([[9.0], [2.0]])
    >>> bool(better > worse)
    True
    """

    _parameters = {
        **_BOOSTING,
        "truncation": Parameter(30, "truncation", "One row of each pair is among this many first ones of its group."),
        "ndcg_at": Parameter(10, "ndcg_at", "Positions that NDCG counts; 0: all."),
    }

    def fit(self, X, y, group, sample_weight=None, eval_set=None):
        """Fits the model.

        Parameters
        ----------
        X : array, sparse matrix, or frame of shape (rows, features)
        y : array of int of shape (rows,), or name of a column of X
            Relevances from 0 to 30.
        group : array of shape (rows,), or name of a column
            The group of each row: any values.
        sample_weight : array of shape (rows,), or name of a column, optional
        eval_set : tuple of X, y and group, optional
            Rows whose NDCG is followed.

        Returns
        -------
        self
        """
        X, y, group, sample_weight = self._by_name(X, y, group, sample_weight)
        X, y = check_supervised(self, X, y, reset=not self._goes_on(), allow_nan=True, y_numeric=True)
        features = X.shape[1]
        config = {"loss": "lambdamart", "target": features, "group": features + 1}
        if hasattr(X, "tocsr"):
            config = {"loss": "lambdamart", "group": "qid"}
        with self._following(eval_set):
            self._take(self._run(training(X, y, check_weight(sample_weight, X), _group_numbers(group, X)), config))
        return self

    _eval_parts = ("X", "y", "group")

    def _groups(self, inputs):
        some = [inputs[name] for name in ("training_input", "validation_input") if name in inputs]
        return tuple(i.groups[0] if hasattr(i, "groups") else i.others[-1] for i in some)

    def _check_evaluation(self, X, y, group):
        X, y = check_supervised(self, X, y, reset=False, allow_nan=True, y_numeric=True)
        return X, y, _group_numbers(group, X)

    def predict(self, X):
        """The margin of each row: within a group, greater is first.

        Returns
        -------
        array of shape (rows,)
        """
        return self._margins(X)[:, 0]

    def _check_rows(self, X):
        return ProgramRegressor._check_rows(self, X)


def _group_numbers(group, X):
    group = np.asarray(group)
    if group.shape != (X.shape[0],):
        raise ValueError(f"found group of shape {group.shape}, want one for each of {X.shape[0]} rows")
    return np.unique(group, return_inverse=True)[1]


_FOREST = {
    "n_estimators": Parameter(100, "trees", "Number of trees."),
    "max_features": Parameter(None, "features_per_split", "Features tested in a node; None: the square root of their number, "
                                                          "of regression a third.", _limit, type="int | None"),
    "max_depth": Parameter(None, "max_depth", "Depth of a tree; None: no limit.", _limit,
                           type="int | None"),
    "min_samples_split": Parameter(2, "min_split", "Minimum number of sampled rows of a node that is split."),
    "min_samples_leaf": Parameter(1, "min_leaf", "Minimum number of sampled rows of a leaf."),
    "bootstrap": Parameter(True, "bootstrap", "False: each tree uses every row once."),
    **_TREES,
    "warm_start": warm_start("`n_estimators` counts its trees, too."),
    "random_state": random_state(),
}


class _RandomForest(_Trees):
    _program = "random_forest"
    _expected_failures = weight_failures("how often a row is drawn is random, a function of its number")

    def _check_training(self, X, y, sample_weight):
        X, y, weight = super()._check_training(X, y, sample_weight)
        # A row's weight is how often it is drawn. Greater ones than the program accepts are taken for shares.
        return X, y, weight / weight.mean() if weight is not None and weight.max() > 500 else weight

    def _config(self):
        return {**super()._config(), **self._further("trees")}

    def _take(self, model):
        super()._take(model)
        self.n_iter_ = len(self._forest)
        score = model.manifest.get("oob_accuracy", model.manifest.get("oob_rmse"))
        if score is not None:
            self.oob_score_ = score

    def _means(self, X):
        X = self._check_rows(X)
        sums = self._forest.sums(self._forest.rows(X))
        return self.model_.manifest.get("centre", 0.0) + sums / len(self._forest)


class RandomForestClassifier(Probabilities, _RandomForest, ProgramClassifier):
    """A forest of trees for classes. Missing values are NaN. Program: ``random_forest``.

    A row's weight is how often it is drawn for a tree, on average; if one is above 500, all are divided by their mean.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[float(i)] for i in range(40)], ["low"] * 20 + ["high"] * 20
    >>> model = paracel.RandomForestClassifier(n_estimators=10).fit(X, y)
    >>> model.predict([[3.0], [33.0]]).tolist()
    ['low', 'high']
    """

    _parameters = {**_FOREST, "class_weight": class_weight()}

    def _config_for(self, X, y, weight):
        return {"type": "classification"}

    def predict(self, X):
        """The most probable class of each row.

        Returns
        -------
        array of shape (rows,)
        """
        shares = self.predict_proba(X)
        return self.classes_[np.argmax(shares, axis=1)]

    def predict_proba(self, X):
        """The probability of each class: its share in the leaves, on average.

        Returns
        -------
        array of shape (rows, classes)
        """
        return self._means(X)


class RandomForestRegressor(_RandomForest, ProgramRegressor):
    """A forest of trees for numbers. Missing values are NaN. Program: ``random_forest``.

    A row's weight is how often it is drawn for a tree, on average; if one is above 500, all are divided by their mean.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[float(i)] for i in range(40)], [1.0] * 20 + [3.0] * 20
    >>> model = paracel.RandomForestRegressor(n_estimators=10).fit(X, y)
    >>> model.predict([[3.0], [33.0]]).round(2)
    array([1., 3.])
    """

    _parameters = _FOREST

    def _config(self):
        return {**super()._config(), "type": "regression"}

    def predict(self, X):
        """The mean of the trees' predictions of each row.

        Returns
        -------
        array of shape (rows,)
        """
        return self._means(X)[:, 0]


@loads("gbdt")
def _gbdt(model):
    loss = model.manifest["settings"]["loss"]
    return {"squared": GradientBoostingRegressor, "lambdamart": GradientBoostingRanker}.get(loss, GradientBoostingClassifier)


@loads("random_forest")
def _random_forest(model):
    return RandomForestRegressor if model.manifest["settings"]["type"] == "regression" else RandomForestClassifier
