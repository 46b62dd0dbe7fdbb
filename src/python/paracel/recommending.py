# SPDX-License-Identifier: BSD-3-Clause
"""Around recommendations: interviews of new users, the number of neighbours, the penalty of factors.

Each function takes the keywords of a job, too: `n_workers`, `n_servers`, `replicas`, `launcher`.
"""
import os
from typing import Any, NamedTuple

import numpy as np

from paracel._docs import complete
from paracel._inputs import Table, Text, lines_of
from paracel._model import Model, metrics_of
from paracel._run import Words, job_of, lines_into, memory_folder
from paracel.ratings import ratings_of

_NO_ITEM = 2**64 - 1


class Interviews(NamedTuple):
    """What an interview knows of users.

    Attributes
    ----------
    users : array of shape (users,)
        Ascending.
    factors : array of shape (users, k)
        The estimates.
    node : array of int of shape (users,)
        The last node of each, 0 is the root.
    question : array of shape (users,)
        The item to ask about next; None: the interview is over.
    """

    users: Any
    factors: Any
    node: Any
    question: Any


class InterviewTrees:
    """Trees of questions for new users, from `dtr`.

    Attributes
    ----------
    items : array of shape (trees, nodes)
        The item that a node asks about, of node i the children 2i + 1, for those who like it, and 2i + 2; None: no question.
    factors : array of shape (trees, nodes, k)
        The mean of the users at a node.
    summary : dict
        What the program prints: users, items, error_0, ...
    """

    def __init__(self, numbers, factors, ids, summary):
        self._numbers, self.factors, self._ids, self.summary = numbers, factors, ids, summary
        self.items = self._named(numbers)

    def _named(self, numbers):
        out = np.full(numbers.shape, None, dtype=object)
        asked = numbers != _NO_ITEM
        out[asked] = self._ids[numbers[asked].astype(np.int64)]
        return out

    @complete
    def interview(self, users, items, answers, *, tree=0, **job):
        """Descends with each user's answers as far as they go.

        Parameters
        ----------
        users, items : array of shape (answers,)
        answers : array of shape (answers,)
            From 0 on a like. Answers to questions that are not asked are ignored, of two the last one counts.
        tree : int
            Its number.

        Returns
        -------
        Interviews
        """
        users, items = np.asarray(users), np.asarray(items)
        known, numbers = np.unique(users, return_inverse=True)
        place = {i: p for p, i in enumerate(self._ids.tolist())}
        others = len(place)
        asked = np.array([place.get(i, others) for i in items.tolist()], dtype=np.int64)
        job = job_of("interview", job)
        with memory_folder(job.top) as folder:
            output = os.path.join(folder, "output")
            for name, text in (("tree_0", f"tree_{tree}\t" + "|".join(map(str, self._numbers[tree].tolist())) + "\n"),
                               (f"average_user_factor_{tree}", lines_of(self.factors[tree], "|").text.decode())):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
                    out.write(text)
            config = {"model": folder, "tree_start_index": int(tree), "tree_end_index": int(tree), "format": "npy"}
            job.run_to(output, "dtr", config, {"predict_input": Table(numbers, asked, np.asarray(answers, dtype=float))},
                       words=Words("interview"))
            model = Model.read(output)
            found = sorted(line for file in sorted(os.listdir(output)) if file.startswith("interview_")
                           for line in _fields(os.path.join(output, file)))
        order = np.argsort(model.ids["predictions"])
        question = np.array([line[2] if len(line) > 2 else _NO_ITEM for line in found], dtype=np.uint64)
        return Interviews(known[np.array([line[0] for line in found], dtype=np.int64)], model.arrays["predictions"][order],
                          np.array([line[1] for line in found], dtype=np.int64), self._named(question))


def _fields(path):
    with open(path, encoding="utf-8") as lines:
        return [[int(f) for f in line.split("\t") if f.strip()] for line in lines]


@complete
def dtr(user_factors, item_factors, *, level, trees=1, item_ids=None, **job):
    """Trees of questions about items, by whose answers new users are placed among the known ones. Program: ``dtr``.

    Parameters
    ----------
    user_factors, item_factors : array of shape (users, k) and (items, k)
        Of any factorization: a user likes an item if the product of the two is at least 0.
    level : int
        Levels of a tree, 1 to 20.
    trees : int
        Tree n asks the n-th best item first.
    item_ids : array of shape (items,), optional
        Default: the numbers of the rows.

    Returns
    -------
    InterviewTrees

    Examples
    --------
    >>> import numpy as np
    >>> import paracel
    >>> users = np.array([[1.0, 0.2], [0.9, -0.1], [-1.0, 0.1], [-0.8, 0.3]])
    >>> trees = paracel.dtr(users, np.array([[1.0, 0.0], [0.0, 1.0]]), level=1, item_ids=["action", "love"])
    >>> trees.items.tolist()
    [['action']]
    """
    users, items = (np.asarray(f, dtype=np.float64) for f in (user_factors, item_factors))
    ids = np.arange(len(items)) if item_ids is None else np.asarray(item_ids)
    if users.ndim != 2 or items.ndim != 2 or ids.shape != (len(items),):
        raise ValueError(f"found factors of shapes {users.shape} and {items.shape} and ids of shape {ids.shape}, want a row for "
                         "each user and item")
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    if (ids[1:] == ids[:-1]).any():
        raise ValueError(f"item_ids: found {ids[1:][ids[1:] == ids[:-1]][0]!r} twice, want each once")
    inputs = {"user_fac_input": lines_of(users, "|", range(len(users))),
              "item_fac_input": lines_of(items[order], "|", range(len(items)))}
    summary = {}
    model = job_of("dtr", job).run("dtr", {"level": int(level), "tree_end_index": int(trees) - 1}, inputs,
                                   on_line=lines_into(summary), words=Words("dtr", {"tree_end_index": "trees"}))
    return InterviewTrees(model.arrays["trees"], model.arrays["average_user_factors"], ids, summary)


class Neighbours(NamedTuple):
    """How many neighbours each user should have.

    Attributes
    ----------
    k : array of int of shape (users,)
        0: a user without neighbours.
    summary : dict
        What the program prints: base_rmse with all of them, rmse with k, sum_k, ...
    """

    k: Any
    summary: Any


@complete
def adjust_ktop_sparse(ratings, neighbours, *, least_k=1, **job):
    """For each user the number of neighbours that predicts the known ratings best. Program: ``adjust_ktop_sparse``.

    Parameters
    ----------
    ratings : SciPy sparse matrix of shape (users, items)
    neighbours : SciPy CSR matrix of shape (users, users)
        The similar users, the most similar first, as `similarities` returns them.
    least_k : int
        No fewer.

    Returns
    -------
    Neighbours

    Examples
    --------
    >>> import paracel
    >>> from scipy.sparse import csr_matrix
    >>> ratings = csr_matrix([[5.0, 4, 0, 1], [5, 5, 0, 1], [1, 0, 5, 5], [4, 4, 1, 2]])
    >>> paracel.adjust_ktop_sparse(ratings, paracel.similarities(ratings, topk=3)).k.tolist()
    [2, 1, 1, 2]
    """
    users, items, values = ratings_of(ratings)
    lists = neighbours.tocsr()
    begin, other, similarity = (a.tolist() for a in (lists.indptr, lists.indices, lists.data))
    text = "".join(f"{u}\t" + "|".join(f"{other[j]}:{similarity[j]!r}" for j in range(begin[u], begin[u + 1])) + "\n"
                   for u in range(lists.shape[0]) if begin[u] < begin[u + 1])
    summary = {}
    model = job_of("adjust_ktop_sparse", job).run(
        "adjust_ktop_sparse", {"lower bound": int(least_k)},
        inputs={"rating_input": Table(users, items, values), "sim_input": Text(text)}, on_line=lines_into(summary),
        words=Words("adjust_ktop_sparse", {"lower bound": "least_k"}))
    k = np.zeros(lists.shape[0], dtype=np.int64)
    k[model.ids["ktop"].astype(np.int64)] = model.arrays["ktop"]
    return Neighbours(k, summary)


class Penalties(NamedTuple):
    """Errors by penalty.

    Attributes
    ----------
    penalties, train_rmse, validate_rmse : array of shape (penalties,)
    best : float
        The penalty with the least validate_rmse.
    summary : dict
        What the program prints: validate_pairs, validate_skipped, ...
    """

    penalties: Any
    train_rmse: Any
    validate_rmse: Any
    best: Any
    summary: Any


@complete
def als_validate(ratings, held_out, ids, factors, penalties, *, solve="users", **job):
    """Errors of one step of alternating least squares against given factors, for some penalties. Program: ``als_validate``.

    Parameters
    ----------
    ratings, held_out : tuple of users, items and ratings, sparse matrix, or frame
        What is solved for, and what its predictions are compared with.
    ids : array of shape (items,)
        The items (or users, with `solve`) that have factors; all of `ratings` must be among them.
    factors : array of shape (items, k)
    penalties : sequence of float
        What is tried.
    solve : str
        ``users`` or ``items``: which side is solved.

    Returns
    -------
    Penalties

    Examples
    --------
    >>> import paracel
    >>> ratings = (["ann", "ann", "bob", "bob"], [1, 2, 1, 2], [2.0, 4.0, 1.0, 2.0])
    >>> found = paracel.als_validate(ratings, (["bob"], [3], [3.0]), [1, 2, 3], [[1.0], [2.0], [3.0]], [0.0, 10.0])
    >>> found.best, found.validate_rmse.round(3).tolist()
    (0.0, [0.0, 2.0])
    """
    if solve not in ("users", "items"):
        raise ValueError(f"solve: found {solve!r}, want 'users' or 'items'")
    tables = [ratings_of(*r) if isinstance(r, tuple) else ratings_of(r) for r in (ratings, held_out)]
    given = 1 if solve == "users" else 0
    ids = np.asarray(ids)
    lacking = np.setdiff1d(tables[0][given], ids)
    if len(lacking):
        raise ValueError(f"ids: found none for {lacking[0]!r}, want factors of all {'items' if given else 'users'} that have "
                         "ratings")
    numbers = []
    for side in range(2):
        parts = [t[side] for t in tables] + ([ids] if side == given else [])
        numbers.append(np.split(np.unique(np.concatenate(parts), return_inverse=True)[1].ravel(),
                                np.cumsum([len(p) for p in parts])[:-1]))
    inputs = {name: Table(numbers[0][i], numbers[1][i], tables[i][2])
              for i, name in enumerate(("rating_input", "validate_input"))}
    inputs["factor_input"] = lines_of(factors, "|", numbers[given][2].tolist())
    summary = {}
    config = {"pattern": "fmap" if solve == "users" else "smap", "lambdas": [float(p) for p in penalties]}
    job = job_of("als_validate", job)
    with memory_folder(job.top) as folder:
        job.run_to(folder, "als_validate", config, inputs, words=Words("als_validate", {"lambdas": "penalties"}),
                   on_line=lines_into(summary))
        lines = metrics_of(folder)
    columns = [np.array([line[name] for line in lines], dtype=np.float64) for name in ("lambda", "train_rmse", "validate_rmse")]
    return Penalties(*columns, float(summary["best_lambda"]), summary)
