# SPDX-License-Identifier: BSD-3-Clause
"""What estimators need of scikit-learn 1.2 or newer, or a small replacement where it is absent: then there are no
tags."""
import inspect

import numpy as np

from paracel import _frames

try:
    import sklearn
    from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, RegressorMixin, TransformerMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted
except ImportError:
    sklearn = None

if sklearn is not None:
    try:
        from sklearn.utils.validation import validate_data as _validate
        _FINITE = "ensure_all_finite"
    except ImportError:
        _FINITE = "force_all_finite"

        def _validate(estimator, X, **how):
            return estimator._validate_data(X, **how)

    def _check_matrix(estimator, X, *, reset, allow_nan=False, **how):
        finite = "allow-nan" if allow_nan else True
        found = _validate(estimator, X, reset=reset, accept_sparse="csr", **{_FINITE: finite}, **how)
        checked = found[0] if "y" in how else found
        if checked.dtype.kind not in "biuf":  # dates, categories of texts
            raise ValueError(f"found X of type {checked.dtype}, want numbers")
        return found

    def check_weight(weight, X):
        """None, or an array of a float64 for each row of X."""
        return None if weight is None else _check_sample_weight(weight, X, dtype=np.float64)

else:
    class NotFittedError(ValueError, AttributeError):
        """An estimator was used before fit."""

    class BaseEstimator:
        """Parameters by name, as scikit-learn's."""

        def get_params(self, deep=True):
            names = list(inspect.signature(type(self).__init__).parameters)[1:]
            return {name: getattr(self, name) for name in names}

        def set_params(self, **params):
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise ValueError(f"found parameter {name} of {type(self).__name__}, want one of {', '.join(known)}")
                setattr(self, name, value)
            return self

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_params().items())})"

    class ClassifierMixin:
        def score(self, X, y, sample_weight=None):
            return np.average(self.predict(X) == np.asarray(y), weights=sample_weight)

    class RegressorMixin:
        def score(self, X, y, sample_weight=None):
            y = np.asarray(y, dtype=float)
            mean = np.average(y, weights=sample_weight)
            rest = np.average((y - self.predict(X)) ** 2, weights=sample_weight)
            return 1 - rest / np.average((y - mean) ** 2, weights=sample_weight)

    class ClusterMixin:
        def fit_predict(self, X, y=None, **how):
            return self.fit(X, **how).labels_

    class TransformerMixin:
        def fit_transform(self, X, y=None, **how):
            return self.fit(X, **how).transform(X)

    def _check_matrix(estimator, X, *, reset, allow_nan=False, **how):
        sparse = hasattr(X, "tocsr")
        X = X.tocsr() if sparse else np.asarray(X)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ValueError(f"found X of shape {X.shape} and type {X.dtype}, want a matrix of numbers")
        numbers = X.data if sparse else X
        if not allow_nan and numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise ValueError("found NaN or infinity in X, want finite numbers")
        if reset:
            estimator.n_features_in_ = X.shape[1]
        elif X.shape[1] != estimator.n_features_in_:
            raise ValueError(f"found X with {X.shape[1]} features, want {estimator.n_features_in_}")
        if "y" not in how:
            return X
        return X, _labels(X, **how)

    def check_weight(weight, X):
        if weight is None:
            return None
        weight = np.asarray(weight, dtype=np.float64)
        if weight.shape != (X.shape[0],):
            raise ValueError(f"found sample_weight of shape {weight.shape}, want a number for each of {X.shape[0]} rows")
        return weight

    def check_classification_targets(y):
        if y.dtype.kind == "f" and (y != np.floor(y)).any():
            raise ValueError("Unknown label type: found continuous numbers, want classes")

    def check_is_fitted(estimator):
        if not hasattr(estimator, "n_features_in_"):
            raise NotFittedError(f"this {type(estimator).__name__} has not been fitted: call fit first")


def _labels(X, y, y_numeric=False, **_):
    y = np.asarray(y)
    if y.shape != (X.shape[0],):
        raise ValueError(f"found y of shape {y.shape}, want a number or class for each of {X.shape[0]} rows")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("found NaN or infinity in y, want finite numbers or classes")
    return y.astype(float) if y_numeric else y


def check_data(estimator, X, *, reset, allow_nan=False, **how):
    """X, or with y X and y, as arrays, CSR matrices, or, with `reset`, for a frame FrameRows. `reset`: they define the
    features."""
    frame = X if isinstance(X, _frames.FrameRows) else _frames.frame_of(X)
    if frame is None or (sklearn is not None and _frames.is_plain(X, frame, estimator)):
        if reset:
            estimator._categories = {}
            estimator.__dict__.pop("feature_names_in_", None)
        return _check_matrix(estimator, X, reset=reset, allow_nan=allow_nan, **how)
    rows = _frames.check_frame(estimator, frame, reset=reset, allow_nan=allow_nan)
    return (rows, _labels(rows, **how)) if "y" in how else rows


def check_supervised(estimator, X, y, **how):
    """X and y, which must be there."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    return check_data(estimator, X, y=y, **how)
