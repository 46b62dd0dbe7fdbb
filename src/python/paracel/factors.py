# SPDX-License-Identifier: BSD-3-Clause
"""Factorizations."""
import numpy as np

from paracel._estimator import (Parameter, Probabilities, ProgramClassifier, ProgramEstimator, ProgramRegressor, class_weight,
                                loads, random_state, warm_start)
from paracel._inputs import Table
from paracel._model import Model
from paracel._sklearn import TransformerMixin, check_data, check_is_fitted
from paracel.linear import logistic

_FM = {
    "n_factors": Parameter(8, "k", "Factors of a feature; 0: a linear model."),
    "solver": Parameter("als", "method", "``als``: alternating least squares, without a step size; ``adagrad`` or ``sgd``: "
                                         "steps in the servers."),
    "max_iter": Parameter(20, "rounds", "Passes over the rows."),
    "l2_linear": Parameter(0.1, "beta_w", "Penalty of the weights, for each row that has the feature."),
    "l2_factors": Parameter(0.1, "beta_v", "Penalty of the factors, for each row that has the feature."),
    "learning_rate": Parameter(0.05, "alpha", "adagrad, sgd: step size."),
    "batch_size": Parameter(1000, "batch_size", "adagrad, sgd: rows between two exchanges."),
    "init_scale": Parameter(0.01, "start", "Standard deviation of the initial factors."),
    "fit_intercept": Parameter(True, "bias", "Whether there is an intercept."),
    "warm_start": warm_start("Features go on from its weights and factors; adagrad, from its steps."),
    "random_state": random_state(),
}


class _FactorizationMachine(ProgramEstimator):
    """Attributes `intercept_`, `coef_` of shape (features,) and `factors_` of shape (features, n_factors)."""

    _program = "fm"

    def _config(self):
        config = super()._config()
        if self.solver == "als":
            del config["alpha"], config["batch_size"]
        return config

    def _take(self, model):
        super()._take(model)
        names = model.manifest.get("names") or []
        number = {name: j + 1 for j, name in enumerate(names)}
        rows = model.arrays["fm_row"]
        place = [0 if i == "bias" else number.get(i) or int(i) for i in model.ids["fm_row"]]
        ordered = np.zeros_like(rows)
        ordered[place] = rows
        self.intercept_ = float(ordered[0, 0]) if model.manifest["settings"]["bias"] else 0.0
        self.coef_, self.factors_ = ordered[1:, 0], ordered[1:, 1:]
        self.n_features_in_ = len(self.coef_)
        self.n_iter_ = int(model.manifest["rounds"])

    def _margins(self, X):
        X = self._check_rows(X)
        squares = X.multiply(X) if hasattr(X, "multiply") else X.astype(np.float64) ** 2
        pairs = (X @ self.factors_) ** 2 - squares @ self.factors_ ** 2
        return self.intercept_ + X @ self.coef_ + 0.5 * np.asarray(pairs).sum(axis=1)


class FactorizationMachineClassifier(Probabilities, _FactorizationMachine, ProgramClassifier):
    """A factorization machine for two classes: a linear model with an interaction of rank `n_factors` for each pair of features.
    Program: ``fm``.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]] * 5, ["same", "other", "other", "same"] * 5
    >>> model = paracel.FactorizationMachineClassifier(n_factors=2, l2_linear=0.001, l2_factors=0.001, max_iter=100).fit(X, y)
    >>> model.predict([[0, 0], [0, 1], [1, 1]]).tolist()
    ['same', 'other', 'same']
    """

    _parameters = {**_FM, "class_weight": class_weight()}

    def _own_tags(self):
        return {"binary_only": True}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _config_for(self, X, y, weight):
        if len(self.classes_) != 2:
            raise ValueError("Only binary classification is supported. The type of the target is multiclass: found "
                             f"{len(self.classes_)} classes, want 2")
        return {"loss": "log"}

    def decision_function(self, X):
        """The margin of each row, positive for the second class.

        Returns
        -------
        array of shape (rows,)
        """
        return self._margins(X)

    def predict_proba(self, X):
        """The probability of each class.

        Returns
        -------
        array of shape (rows, 2)
        """
        second = logistic(self._margins(X))
        return np.stack([1 - second, second], axis=1)


class FactorizationMachineRegressor(_FactorizationMachine, ProgramRegressor):
    """A factorization machine for numbers. Program: ``fm``.

    Examples
    --------
    >>> import paracel
    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]] * 5, [0.0, 1.0, 1.0, 5.0] * 5
    >>> model = paracel.FactorizationMachineRegressor(n_factors=2, l2_linear=0.0, l2_factors=0.0, max_iter=100).fit(X, y)
    >>> model.predict([[1, 1]]).round(1)
    array([5.])
    """

    _parameters = {**_FM, "clamp": Parameter(False, "clamp", "Limit predictions to the range of the training targets.")}

    def predict(self, X):
        """The prediction of each row.

        Returns
        -------
        array of shape (rows,)
        """
        margins = self._margins(X)
        about = self.model_.manifest
        return np.clip(margins, about["least_target"], about["greatest_target"]) if self.clamp else margins


@loads("fm")
def _fm(model):
    return FactorizationMachineClassifier if model.manifest["settings"]["loss"] == "log" else FactorizationMachineRegressor


@loads("svd")
class TruncatedSVD(TransformerMixin, ProgramEstimator):
    """The greatest singular values of a matrix, and their vectors. Program: ``svd``.

    Attributes
    ----------
    components_ : array of shape (n_components, features)
    singular_values_ : array of shape (n_components,)
        Of a matrix of less rank there are as many as its rank, and zeros.

    Examples
    --------
    >>> import paracel
    >>> model = paracel.TruncatedSVD(n_components=1).fit([[3.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    >>> model.singular_values_.round(3).tolist()
    [5.0]
    """

    _program = "svd"
    _parameters = {
        "n_components": Parameter(2, "k", "Number of singular triplets."),
        "max_iter": Parameter(300, "rounds", "Maximum number of steps."),
        "tol": Parameter(None, "tolerance", "Greatest residual, as a fraction of the greatest value; None: the program's.",
                         type="float | None"),
        "random_state": random_state(),
    }

    def _own_tags(self):
        return {"preserves_dtype": [np.float64, np.float32]}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None):
        """Fits the model.

        Returns
        -------
        self
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X, y=None):
        """Fits the model. y is ignored.

        Returns
        -------
        array of shape (rows, n_components)
            The left vectors times the values.
        """
        X = check_data(self, X, reset=True)
        if not 1 <= self._number("n_components") <= min(X.shape):
            raise ValueError(f"parameter n_components: found {self.n_components}, want 1 to {min(X.shape)} (n_samples="
                             f"{X.shape[0]}, n_features={X.shape[1]})")
        model = self._run({"input": _entries(X)})
        left = _scattered(model.arrays.pop("U"), model.ids.pop("U"), X.shape[0], self.n_components)
        self._take(model)
        return _as(left * self.singular_values_, X)

    def _take(self, model):
        super()._take(model)
        model.arrays.pop("U", None), model.ids.pop("U", None)
        values = model.arrays["sigma"]
        ids = model.ids["V"].astype(np.int64)
        features = getattr(self, "n_features_in_", int(ids.max()) + 1 if len(ids) else 0)
        wanted = self.n_components if hasattr(self, "n_features_in_") else len(values)
        self.n_features_in_ = features
        self.components_ = _scattered(model.arrays["V"], ids, features, wanted).T
        self.singular_values_ = np.zeros(wanted)
        self.singular_values_[:len(values)] = values
        self.n_iter_ = max(1, int(model.manifest["rounds"]))

    def transform(self, X):
        """The rows in the space of the components.

        Returns
        -------
        array of shape (rows, n_components)
        """
        check_is_fitted(self)
        X = check_data(self, X, reset=False)
        return _as(X @ self.components_.T, X)

    def inverse_transform(self, X):
        """Rows of features from rows of components.

        Parameters
        ----------
        X : array of shape (rows, n_components)

        Returns
        -------
        array of shape (rows, features)
        """
        return np.asarray(X) @ self.components_

    def get_feature_names_out(self, input_features=None):
        """Names of the columns of `transform`.

        Returns
        -------
        array of str of shape (n_components,)
        """
        check_is_fitted(self)
        return np.array([f"truncatedsvd{k}" for k in range(len(self.components_))], dtype=object)


def _as(out, X):
    return np.asarray(out).astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)


def _entries(X):
    """A matrix as entries: row, column, value. All that are stored, of an array all that are not 0."""
    if hasattr(X, "tocoo"):
        X = X.tocoo()
        return Table(X.row, X.col, X.data)
    rows, columns = np.nonzero(X)
    return Table(rows, columns, X[rows, columns])


def _scattered(rows, ids, count, width):
    out = np.zeros((count, width))
    out[ids.astype(np.int64), :rows.shape[1]] = rows
    return out


class _Ratings(ProgramEstimator):
    """Ratings of users for items: `fit(users, items, ratings)`, where users and items have any ids, or `fit(matrix)`."""

    def fit(self, X, items=None, ratings=None):
        """Fits the model.

        Parameters
        ----------
        X : array of shape (ratings,), or SciPy sparse matrix of shape (users, items)
            The users' ids, or all ratings.
        items : array of shape (ratings,)
            The items' ids.
        ratings : array of shape (ratings,)

        Returns
        -------
        self
        """
        if hasattr(X, "tocoo"):
            matrix = X.tocoo()
            X, items, ratings = matrix.row, matrix.col, matrix.data
        users, items, ratings = np.asarray(X), np.asarray(items), np.asarray(ratings, dtype=np.float64)
        if not users.shape == items.shape == ratings.shape or users.ndim != 1:
            raise ValueError(f"found users, items and ratings of shapes {users.shape}, {items.shape} and {ratings.shape}, "
                             "want one of each for a rating")
        if not np.isfinite(ratings).all():
            raise ValueError("found ratings with NaN or infinity, want finite numbers")
        known = self._ids if self._goes_on() else [users[:0], items[:0]]
        (user_ids, users), (item_ids, items) = (_numbers(k, ids) for k, ids in zip(known, (users, items)))
        model = self._run({self._input: Table(users, items, ratings)})
        self._ids = [user_ids, item_ids]
        self._take(model)
        return self

    @classmethod
    def _from_model(cls, model):
        estimator = cls()
        estimator._ids = []
        ids = dict(model.ids)
        for names in (("ubias", "W"), ("ibias", "H")):
            known, numbers = _numbers(model.ids[names[0]][:0], model.ids[names[0]])
            estimator._ids.append(known)
            ids[names[0]] = numbers.astype(np.uint64)
            if names[1] in ids:
                ids[names[1]] = _numbers(known, ids[names[1]])[1].astype(np.uint64)
        estimator._take(Model(model.manifest, model.arrays, ids))
        return estimator

    def _take(self, model):
        super()._take(model)
        for side, bias, factors, ids in (("user", "ubias", "W", 0), ("item", "ibias", "H", 1)):
            names = self._ids[ids][model.ids[bias].astype(np.int64)]
            order = np.argsort(names, kind="stable")
            setattr(self, f"{side}_ids_", names[order])
            setattr(self, f"{side}_bias_", model.arrays[bias][order])
            rows = model.arrays[factors][order] if factors in model.arrays else np.zeros((len(order), 0))
            setattr(self, f"{side}_factors_", rows)
        self.mean_ = model.manifest["mean"]
        self._place = [{i: p for p, i in enumerate(ids.tolist())} for ids in (self.user_ids_, self.item_ids_)]

    def predict(self, users, items):
        """The predicted rating of each pair. Users and items that training did not have are average ones.

        Parameters
        ----------
        users, items : array of ids of shape (pairs,)

        Returns
        -------
        array of shape (pairs,)
        """
        check_is_fitted(self)
        users, items = np.asarray(users), np.asarray(items)
        if users.ndim != 1 or users.shape != items.shape:
            raise ValueError(f"found users and items of shapes {users.shape} and {items.shape}, want one of each for a pair")
        out = np.full(len(users), float(self.mean_))
        at = [np.array([place.get(i, -1) for i in ids.tolist()], dtype=np.int64)
              for place, ids in zip(self._place, (users, items))]
        for side, bias in zip(at, (self.user_bias_, self.item_bias_)):
            out += np.where(side >= 0, bias[side], 0.0)
        both = (at[0] >= 0) & (at[1] >= 0)
        out[both] += np.einsum("ij,ij->i", self.user_factors_[at[0][both]], self.item_factors_[at[1][both]])
        about = self.model_.manifest
        return np.clip(out, about.get("min_rating", -np.inf), about.get("max_rating", np.inf))

    def save(self, folder):
        """Writes the model into a folder that the program reads with the key ``model_input``, and `paracel.load_model`."""
        check_is_fitted(self)
        ids = {name: _stored(self._ids[0 if name in ("ubias", "W") else 1][i.astype(np.int64)])
               for name, i in self.model_.ids.items()}
        Model(self.model_.manifest, self.model_.arrays, ids).write(folder)


def _numbers(known, ids):
    """(the known ids and after them the others, ascending; the number of each of `ids` among them)."""
    try:
        unique, at = np.unique(ids, return_inverse=True)
    except TypeError:  # objects that have no order
        kinds = sorted({type(i).__name__ for i in ids.tolist()})
        raise ValueError(f"found ids of types {', '.join(kinds)}, want all numbers or all texts") from None
    place = {i: p for p, i in enumerate(known.tolist())}
    others = np.array([i not in place for i in unique.tolist()], dtype=bool)
    number = np.empty(len(unique), dtype=np.int64)
    number[others] = len(known) + np.arange(np.count_nonzero(others))
    number[~others] = [place[i] for i in unique[~others].tolist()]
    return np.concatenate([known, unique[others]]), number[at]


def _stored(ids):
    """Ids as a model has them: numbers of at least 0, or names."""
    if ids.dtype.kind in "iu" and (len(ids) == 0 or ids.min() >= 0):
        return ids.astype(np.uint64)
    return np.array([str(i) for i in ids.tolist()], dtype=object)


@loads("als")
class ALS(_Ratings):
    """Ratings as biases and factors by alternating least squares, explicit or implicit. Program: ``als``.

    Attributes
    ----------
    user_ids_, item_ids_, user_bias_, item_bias_, user_factors_, item_factors_ : ndarray
        Of each user and item; a prediction is ``mean_`` plus both biases plus the product of the factors.

    Examples
    --------
    >>> import paracel
    >>> model = paracel.ALS(n_factors=1).fit(["ann", "ann", "bob", "bob"], ["tea", "oil", "tea", "oil"], [5.0, 1.0, 4.0, 2.0])
    >>> tea, oil = model.predict(["ann", "ann"], ["tea", "oil"])
    >>> bool(tea > oil)
    True
    """

    _program = "als"
    _input = "rating_input"
    _parameters = {
        "n_factors": Parameter(32, "k", "Number of factors."),
        "max_iter": Parameter(10, "rounds", "Rounds of two half steps."),
        "l2": Parameter(0.1, "lambda", "Penalty of the factors."),
        "l2_bias": Parameter(0.05, "lambda_bias", "Penalty of the biases."),
        "weighted": Parameter(True, "weighted", "Penalties are times the number of ratings of the user or item."),
        "implicit": Parameter(False, "implicit", "Ratings are counts of actions."),
        "confidence": Parameter(40.0, "confidence", "implicit: weight of a count."),
        "tol": Parameter(0.0, "tolerance", "End when the objective changes by less than this fraction in a round."),
        "warm_start": warm_start("Users and items that it has go on, others begin as new ones."),
        "random_state": random_state(),
    }


@loads("mf")
class MatrixFactorization(_Ratings):
    """Ratings as biases and factors by gradient descent, conjugate gradients or L-BFGS. Program: ``mf``.

    Attributes
    ----------
    user_ids_, item_ids_, user_bias_, item_bias_, user_factors_, item_factors_ : ndarray
        Of each user and item; a prediction is ``mean_`` plus both biases plus the product of the factors.

    Examples
    --------
    >>> import paracel
    >>> model = paracel.MatrixFactorization(n_factors=1, max_iter=100, learning_rate=0.05)
    >>> model = model.fit(["ann", "ann", "bob", "bob"], ["tea", "oil", "tea", "oil"], [5.0, 1.0, 4.0, 2.0])
    >>> tea, oil = model.predict(["ann", "ann"], ["tea", "oil"])
    >>> bool(tea > oil)
    True
    """

    _program = "mf"
    _input = "input"
    _parameters = {
        "n_factors": Parameter(32, "k", "Number of factors."),
        "solver": Parameter("sgd", "method", "``sgd``, ``cg`` or ``bfgs``."),
        "max_iter": Parameter(20, "rounds", "Maximum number of passes."),
        "learning_rate": Parameter(0.005, "alpha", "sgd: step size."),
        "l2": Parameter(0.01, None, "Penalty: of sgd the weight of the regulariser, else of the factors."),
        "l2_bias": Parameter(0.05, "lambda_bias", "cg, bfgs: penalty of the biases."),
        "warm_start": warm_start("Users and items that it has go on, others begin as new ones."),
        "random_state": random_state(),
    }

    def _config(self):
        config = super()._config()
        if self.solver == "sgd":
            del config["lambda_bias"]
            return {**config, "beta": float(self.l2)}
        del config["alpha"]
        return {**config, "lambda": float(self.l2)}
