# SPDX-License-Identifier: BSD-3-Clause
"""Factorizations of ratings, and recommendations."""
from typing import Any, NamedTuple

import numpy as np

from paracel._estimator import Parameter, ProgramEstimator, loads, random_state, warm_start
from paracel._frames import columns_of
from paracel._inputs import Table
from paracel._model import Model
from paracel._sklearn import check_is_fitted


class _Ratings(ProgramEstimator):
    """Ratings of users for items: `fit(users, items, ratings)`, where users and items have any ids, `fit(matrix)`, or
    `fit(frame)`."""

    def fit(self, X, items=None, ratings=None):
        """Fits the model.

        Parameters
        ----------
        X : array of shape (ratings,), SciPy sparse matrix of shape (users, items), or frame
            The users' ids, or all ratings: a frame (of pandas or polars, table of pyarrow, names of Parquet files) has the
            columns user, item and rating, in this order; `paracel.Frame(frame, [names])` selects them.
        items : array of shape (ratings,)
            The items' ids.
        ratings : array of shape (ratings,)

        Returns
        -------
        self
        """
        users, items, ratings = ratings_of(X, items, ratings)
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
        at = [_places(place, ids) for place, ids in zip(self._place, (users, items))]
        for side, bias in zip(at, (self.user_bias_, self.item_bias_)):
            out += np.where(side >= 0, bias[side], 0.0)
        both = (at[0] >= 0) & (at[1] >= 0)
        out[both] += np.einsum("ij,ij->i", self.user_factors_[at[0][both]], self.item_factors_[at[1][both]])
        about = self.model_.manifest
        return np.clip(out, about.get("min_rating", -np.inf), about.get("max_rating", np.inf))

    def recommend(self, users, n=10, *, seen=None):
        """The items with the greatest predictions for each user, before these are limited to the range of ratings. A user that
        training did not have gets those with the greatest biases.

        Parameters
        ----------
        users : array of shape (users,)
        n : int
            Most items for a user.
        seen : tuple of users and items, sparse matrix, or frame, optional
            Pairs that are left out, in the forms of `fit`; ratings are ignored.

        Returns
        -------
        Ranked
            Of equal items the smaller first. Memory: 32 MB of scores at a time.
        """
        check_is_fitted(self)
        users = np.asarray(users)
        at = _places(self._place[0], users)
        factors = np.where(at[:, np.newaxis] >= 0, self.user_factors_[at], 0.0) if len(self.user_ids_) else \
            np.zeros((len(at), self.item_factors_.shape[1]))
        bias = self.mean_ + np.where(at >= 0, self.user_bias_[at], 0.0) if len(self.user_ids_) else np.full(len(at), self.mean_)
        left_out = _left_out(seen, users, self._place[1])
        return _ranked(users, self.item_ids_, n, len(users),
                       lambda rows: factors[rows] @ self.item_factors_.T + self.item_bias_ + bias[rows, np.newaxis], left_out)

    def similar_items(self, items, n=10):
        """The items whose factors have the greatest cosine with those of each item, without itself.

        Parameters
        ----------
        items : array of shape (items,)
        n : int

        Returns
        -------
        Ranked
        """
        check_is_fitted(self)
        items = np.asarray(items)
        at = _places(self._place[1], items)
        if (at < 0).any():
            raise KeyError(f"found item {items[at < 0][0]!r}, want items of the training")
        length = np.linalg.norm(self.item_factors_, axis=1, keepdims=True)
        unit = np.divide(self.item_factors_, length, out=np.zeros_like(self.item_factors_), where=length > 0)
        return _ranked(items, self.item_ids_, n, len(items), lambda rows: unit[at[rows]] @ unit.T, (np.arange(len(at)), at))

    def save(self, folder):
        """Writes the model into a folder that the program reads with the key ``model_input``, and `paracel.load_model`."""
        check_is_fitted(self)
        ids = {name: _stored(self._ids[0 if name in ("ubias", "W") else 1][i.astype(np.int64)])
               for name, i in self.model_.ids.items()}
        Model(self.model_.manifest, self.model_.arrays, ids).write(folder)


class Ranked(NamedTuple):
    """Lists of items, one after the other.

    Attributes
    ----------
    of : array of shape (entries,)
        What each entry is for: the users or items that were asked for, in their order.
    items : array of shape (entries,)
        The best first.
    scores : array of shape (entries,)
    """

    of: Any
    items: Any
    scores: Any


_SCORES_AT_ONCE = 4 * 2**20


def _ranked(names, items, n, count, scores_of, left_out):
    """The best items of each row of scores. `left_out`: rows and items, sorted by row."""
    rows_at_once = max(1, _SCORES_AT_ONCE // max(1, len(items)))
    of, best, values = [], [], []
    for first in range(0, count, rows_at_once):
        rows = np.arange(first, min(count, first + rows_at_once))
        scores = scores_of(rows)
        begin, end = np.searchsorted(left_out[0], [first, rows[-1] + 1])
        scores[left_out[0][begin:end] - first, left_out[1][begin:end]] = -np.inf
        for row, line in zip(rows, scores):
            some = np.arange(len(line))
            if n < len(line):  # all that are equal to the last one, as the smaller are first
                some = np.flatnonzero(line >= np.partition(line, len(line) - n)[len(line) - n]) if n > 0 else some[:0]
            some = some[np.argsort(-line[some], kind="stable")][:n]
            some = some[line[some] > -np.inf]
            of.append(np.full(len(some), row))
            best.append(some)
            values.append(line[some])
    if not of:
        return Ranked(names[:0], items[:0], np.empty(0))
    return Ranked(names[np.concatenate(of)], items[np.concatenate(best)], np.concatenate(values))


def _places(place, ids):
    """The number of each id, -1 for others."""
    return np.array([place.get(i, -1) for i in np.asarray(ids).tolist()], dtype=np.int64)


def _left_out(seen, users, place_of_item):
    """Pairs as rows of `users` and numbers of items, sorted."""
    if seen is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if isinstance(seen, tuple):
        seen_users, seen_items = (np.asarray(s) for s in seen)
    elif hasattr(seen, "tocoo"):
        seen_users, seen_items = seen.tocoo().row, seen.tocoo().col
    else:
        columns = columns_of(seen, ("user", "item", "rating"), "pairs")
        if columns is None:
            raise ValueError("found seen of another form, want (users, items), a sparse matrix or a frame")
        seen_users, seen_items = columns[:2]
    number = {u: k for k, u in enumerate(dict.fromkeys(users.tolist()))}
    of, items = _places(number, seen_users), _places(place_of_item, seen_items)
    known = (of >= 0) & (items >= 0)
    of, items = of[known], items[known]
    order = np.argsort(of, kind="stable")
    of, items = of[order], items[order]
    # A user may have been asked for more than once.
    rows = _places(number, users)
    begin, end = np.searchsorted(of, rows), np.searchsorted(of, rows, side="right")
    counts = end - begin
    at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begin, counts)
    return np.repeat(np.arange(len(rows)), counts), items[at]


def ratings_of(X, items=None, ratings=None):
    """Users, items and ratings as arrays, from what `fit` takes."""
    if hasattr(X, "tocoo"):
        matrix = X.tocoo()
        X, items, ratings = matrix.row, matrix.col, matrix.data
    elif items is None:
        columns = columns_of(X, ("user", "item", "rating"), "ratings")
        if columns is None or len(columns) < 3:
            raise ValueError("found users without items and ratings, want all three, a sparse matrix or a frame")
        X, items, ratings = columns
    users, items, ratings = np.asarray(X), np.asarray(items), np.asarray(ratings, dtype=np.float64)
    if not users.shape == items.shape == ratings.shape or users.ndim != 1:
        raise ValueError(f"found users, items and ratings of shapes {users.shape}, {items.shape} and {ratings.shape}, "
                         "want one of each for a rating")
    if not np.isfinite(ratings).all():
        raise ValueError("found ratings with NaN or infinity, want finite numbers")
    return users, items, ratings


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


_LIMITS = {
    "init_scale": Parameter(0.1, "start", "Standard deviation of the initial factors."),
    "min_rating": Parameter(None, "min_rating", "Limit of predictions; None: the least rating.", type="float | None"),
    "max_rating": Parameter(None, "max_rating", "Limit of predictions; None: the greatest rating.", type="float | None"),
}


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
        "cg_steps": Parameter(0, "cg_steps", "implicit: steps of conjugate gradients that improve a row; 0: it is solved."),
        "tol": Parameter(0.0, "tolerance", "End when the objective changes by less than this fraction in a round."),
        **_LIMITS,
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
    _further_keys = {"beta": "l2", "lambda": "l2"}
    _input = "input"
    _parameters = {
        "n_factors": Parameter(32, "k", "Number of factors."),
        "solver": Parameter("sgd", "method", "``sgd``, ``cg`` or ``bfgs``."),
        "max_iter": Parameter(20, "rounds", "Maximum number of passes."),
        "learning_rate": Parameter(0.005, "alpha", "sgd: step size."),
        "l2": Parameter(0.01, None, "Penalty: of sgd the weight of the regulariser, else of the factors."),
        "l2_bias": Parameter(0.05, "lambda_bias", "cg, bfgs: penalty of the biases."),
        "weighted": Parameter(True, "weighted", "cg, bfgs: penalties are times the number of ratings of the user or item."),
        "factor_type": Parameter("float32", "factors", "sgd: type of the factors in training, ``float32`` or ``float64``."),
        "clocks_per_round": Parameter(10, "clocks_per_round", "sgd: exchanges of the model in a pass."),
        "staleness": Parameter(0, None, "sgd: exchanges that a worker may be ahead of the slowest one."),
        "tol": Parameter(None, "tolerance", "End when the loss, or of cg and bfgs the objective in three rounds, changes by less "
                                            "than this fraction; None: the program's.", type="float | None"),
        **_LIMITS,
        "warm_start": warm_start("Users and items that it has go on, others begin as new ones."),
        "random_state": random_state(),
    }

    def _config(self):
        config = super()._config()
        if self.solver == "sgd":
            del config["lambda_bias"], config["weighted"]
            ssp = {"ssp_switch": True, "limit_s": int(self.staleness)} if self.staleness else {}
            return {**config, "beta": float(self.l2), **ssp}
        del config["alpha"], config["factors"], config["clocks_per_round"]
        return {**config, "lambda": float(self.l2)}
