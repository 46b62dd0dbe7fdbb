# SPDX-License-Identifier: BSD-3-Clause
"""Factorizations."""
import numpy as np

from paracel._estimator import (Parameter, Probabilities, ProgramClassifier, ProgramEstimator, ProgramRegressor, Validated,
                                class_weight, early_stopping, loads, random_state, warm_start)
from paracel._inputs import Table
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
    "early_stopping_rounds": early_stopping("patience", "rounds"),
    "warm_start": warm_start("Features go on from its weights and factors; adagrad, from its steps."),
    "random_state": random_state(),
}


class _FactorizationMachine(Validated, ProgramEstimator):
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
    X = np.asarray(X)
    rows, columns = np.nonzero(X)
    return Table(rows, columns, X[rows, columns])


def _scattered(rows, ids, count, width):
    out = np.zeros((count, width))
    out[ids.astype(np.int64), :rows.shape[1]] = rows
    return out
