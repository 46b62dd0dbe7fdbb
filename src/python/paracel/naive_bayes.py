# SPDX-License-Identifier: BSD-3-Clause
"""Naive Bayes."""
import numpy as np

from paracel._estimator import Parameter, Probabilities, ProgramClassifier, loads
from paracel.linear import softmax

_COMMON = {
    "fit_prior": Parameter(True, "fit_prior", "Classes have their shares of the rows; False: the same."),
    "class_prior": Parameter(None, "class_prior", "Their probabilities instead, in ascending order of the classes.",
                             lambda v: None if v is None else [float(p) for p in v],
                             type="collections.abc.Sequence[float] | None"),
}
_COUNTS = {"alpha": Parameter(1.0, "alpha", "Added to each count.")}


class _NaiveBayes(Probabilities, ProgramClassifier):
    _program = "naive_bayes"
    _least_classes = 1

    _adds = False  # rows to those of the model that is there

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Adds rows: the model is that of all rows so far.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, features)
        y : array of shape (rows,)
            Classes: numbers or texts.
        classes : array of shape (classes,), optional
            All classes, in the first call; its rows have each of them.
        sample_weight : array of shape (rows,), optional
            As of `fit`.

        Returns
        -------
        self
        """
        X, y, sample_weight = self._by_name(X, y, sample_weight)
        if "model_" not in self.__dict__:
            missing = [] if classes is None else np.setdiff1d(classes, y).tolist()
            if missing:
                raise ValueError(f"the first rows of partial_fit have no row of class {missing[0]!r}, want each of the classes")
            return self.fit(X, y, sample_weight)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={np.unique(classes).tolist()} is not the same as on last call to partial_fit, which had "
                             f"{self.classes_.tolist()}")
        self._adds = True
        try:
            return self.fit(X, y, sample_weight)
        finally:
            del self._adds

    def _goes_on(self):
        return self._adds

    def _config_for(self, X, y, weight):
        return {"distribution": self._distribution}

    def _take(self, model):
        super()._take(model)
        self.class_log_prior_ = model.arrays["naive_bayes_log_prior"]
        self.class_count_ = np.array(model.manifest["class_rows"], dtype=float)
        self._take_parameters(model.arrays)

    def predict_joint_log_proba(self, X):
        """log P(class) + sum_j log P(x_j | class).

        Returns
        -------
        array of shape (rows, classes)
        """
        return self._joint(self._check_rows(X))

    def predict(self, X):
        """The most probable class of each row.

        Returns
        -------
        array of shape (rows,)
        """
        scores = self.predict_joint_log_proba(X)
        return self.classes_[np.argmax(scores, axis=1)]

    def predict_proba(self, X):
        """The probability of each class.

        Returns
        -------
        array of shape (rows, classes)
        """
        return softmax(self.predict_joint_log_proba(X))


class GaussianNB(_NaiveBayes):
    """A feature is normal in each class. Program: ``naive_bayes``.

    Examples
    --------
    >>> import paracel
    >>> model = paracel.GaussianNB().fit([[0.0], [1.0], [9.0], [10.0]], ["low", "low", "high", "high"])
    >>> model.predict([[2.0], [8.0]]).tolist()
    ['low', 'high']
    """

    _distribution = "gaussian"
    _least_rows = 2
    _parameters = {
        **_COMMON,
        "var_smoothing": Parameter(None, "var_smoothing", "This fraction of the greatest variance of a feature is added to "
                                                          "all variances; None: to each 1e-9 of its own feature's.",
                                   type="float | None"),
    }

    def _take_parameters(self, arrays):
        self.theta_ = arrays["naive_bayes_mean"].T
        self.var_ = arrays["naive_bayes_variance"].T
        self.n_features_in_ = self.theta_.shape[1]

    def _joint(self, X):
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=float)
        out = np.empty((len(X), len(self.classes_)))
        for k, (mean, variance) in enumerate(zip(self.theta_, self.var_)):
            out[:, k] = self.class_log_prior_[k] - 0.5 * (np.log(2 * np.pi * variance).sum()
                                                          + ((X - mean) ** 2 / variance).sum(axis=1))
        return out


class _OfCounts(_NaiveBayes):
    """What it sees of features that are no counts is little."""

    def _own_tags(self):
        return {"poor_score": True}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class MultinomialNB(_OfCounts):
    """Features are counts. Program: ``naive_bayes``.

    Examples
    --------
    >>> import paracel
    >>> model = paracel.MultinomialNB().fit([[5, 1], [4, 0], [0, 6], [1, 5]], ["tea", "tea", "oil", "oil"])
    >>> model.predict([[3, 0], [1, 2]]).tolist()
    ['tea', 'oil']
    """

    _distribution = "multinomial"
    _parameters = {**_COUNTS, **_COMMON}

    def _own_tags(self):
        return {**super()._own_tags(), "requires_positive_X": True}

    def _check_training(self, X, y, sample_weight):
        X, y, weight = super()._check_training(X, y, sample_weight)
        if (X.data if hasattr(X, "tocsr") else X).min(initial=0) < 0:
            raise ValueError("Negative values in data passed to MultinomialNB (input X), want counts of at least 0")
        return X, y, weight

    def _take_parameters(self, arrays):
        self.feature_log_prob_ = arrays["naive_bayes_log_probability"].T
        self.n_features_in_ = self.feature_log_prob_.shape[1]

    def _joint(self, X):
        return X @ self.feature_log_prob_.T + self.class_log_prior_


class BernoulliNB(_OfCounts):
    """A feature is present, if it is greater than `binarize`, or not. Program: ``naive_bayes``.

    Examples
    --------
    >>> import paracel
    >>> model = paracel.BernoulliNB().fit([[1, 0], [1, 0], [0, 1], [0, 1]], [False, False, True, True])
    >>> model.predict([[0, 1]]).tolist()
    [True]
    """

    _distribution = "bernoulli"
    _parameters = {**_COUNTS, "binarize": Parameter(0.0, "binarize", "0 or more."), **_COMMON}

    def _take_parameters(self, arrays):
        self.feature_log_prob_ = arrays["naive_bayes_log_probability"].T
        self._log_complement = arrays["naive_bayes_log_complement"].T
        self.n_features_in_ = self.feature_log_prob_.shape[1]

    def _take(self, model):
        super()._take(model)
        self._threshold = model.manifest["settings"]["binarize"]

    def _joint(self, X):
        present = (X > self._threshold).astype(float)
        return (present @ (self.feature_log_prob_ - self._log_complement).T
                + (self.class_log_prior_ + self._log_complement.sum(axis=1)))


@loads("naive_bayes")
def _naive_bayes(model):
    return {"gaussian": GaussianNB, "multinomial": MultinomialNB,
            "bernoulli": BernoulliNB}[model.manifest["settings"]["distribution"]]
