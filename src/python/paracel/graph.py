# SPDX-License-Identifier: BSD-3-Clause
"""Graph algorithms.

Edges are an array of shape (edges, 2) of any ids, numbers or texts; a SciPy sparse matrix whose entries are weights of edges from
row to column; or a frame (of pandas or polars, table of pyarrow, names of Parquet files) of the columns source, target and, in a
weighted graph, weight, in this order, which `paracel.Frame(frame, [names])` selects. Each function takes the keywords of a job,
too: `n_workers`, `n_servers`, `replicas`, `launcher`, `progress`.
"""
import glob
import os
import re
from typing import Any, NamedTuple

import numpy as np

from paracel._docs import complete
from paracel._frames import columns_of
from paracel._inputs import Table, Text
from paracel._model import Model
from paracel._run import Words, job_of, lines_into, memory_folder

_EXACT = 2**53  # ids beyond it are not exact as doubles


class VertexValues(NamedTuple):
    """A value for each vertex.

    Attributes
    ----------
    ids : ndarray
        The vertices, ascending.
    values : ndarray
    summary : dict
        What the program prints: numbers by name.
    """

    ids: Any
    values: Any
    summary: Any


class _Ids:
    """Ids as the program's numbers: themselves where they are whole numbers of at least 0, else their ranks."""

    def __init__(self, *arrays):
        arrays = [np.asarray(a) for a in arrays]
        self.names = None
        if any(not _are_numbers(a) for a in arrays):
            together = np.concatenate([a.ravel() for a in arrays])
            if together.dtype.kind == "f" and np.isnan(together).any():
                raise ValueError("found a vertex NaN, want ids")
            try:
                self.names, ranks = np.unique(together, return_inverse=True)
            except TypeError:  # objects that have no order
                raise ValueError("found ids of several types, want all numbers or all texts") from None
            cuts = np.cumsum([a.size for a in arrays])[:-1]
            arrays = [r.reshape(a.shape) for r, a in zip(np.split(ranks.ravel(), cuts), arrays)]
        self.arrays = [a.astype(np.int64, copy=False) for a in arrays]

    def of(self, numbers):
        numbers = numbers.astype(np.int64)
        return numbers if self.names is None else self.names[numbers]


def _are_numbers(ids):
    return ids.dtype.kind in "iu" and (ids.size == 0 or (ids.min() >= 0 and ids.max() <= _EXACT))


def _run(program, array, edges, weights, vertices, config, job, *, label=False, also=(), inputs_of=None):
    """Runs a program of graphs. `also`: further ids, as their config keys and values. Returns: VertexValues."""
    job = job_of(program, job)
    if hasattr(edges, "tocoo") and vertices is None:
        vertices = np.arange(max(edges.shape))
    *sides, weights = _edges(edges, weights)
    more = [np.asarray(ids) for ids in ([] if vertices is None else [vertices])] + [np.asarray([i]) for _, i in also]
    ids = _Ids(*sides, *more)
    numbers = ids.arrays
    inputs = {"input": Table(*numbers[:2]) if weights is None else Table(*numbers[:2], weights)}
    if vertices is not None:
        inputs["vertices"] = Table(numbers[2])
    for (key, _), number in zip(also, numbers[len(numbers) - len(also):]):
        config = {**config, key: str(number[0])}
    for key, name in also:
        if not any(np.isin(name, some) for some in (*sides, *([] if vertices is None else more[:1]))):
            raise ValueError(f"{program}: parameter {key}: found {name!r}, want the id of a vertex of the graph")
    inputs.update(inputs_of(ids) if inputs_of else {})
    summary = {}
    words = Words(program, {"damping_factor": "damping", "tolerance": "tol", "rounds": "max_iter"}, {"input": "edges"})
    model = job.run(program, config, inputs, words=words, on_line=lines_into(summary))
    values = model.arrays[array] if array else None
    return VertexValues(ids.of(model.ids[array]) if array else None, ids.of(values) if label else values, summary)


def _edges(edges, weights=None):
    """Sources, targets, and weights or None."""
    if hasattr(edges, "tocoo"):
        entries = edges.tocoo()
        return entries.row, entries.col, entries.data if weights is None else np.asarray(weights)
    columns = columns_of(edges, ("source", "target", "weight"), "edges")
    if columns is not None:
        return *columns[:2], columns[2] if len(columns) == 3 and weights is None else weights
    edges = np.asarray(edges)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"found edges of shape {edges.shape}, want (edges, 2), a sparse matrix or a frame")
    if weights is not None and np.shape(weights) != edges.shape[:1]:
        raise ValueError(f"found weights of shape {np.shape(weights)}, want one for each of {len(edges)} edges")
    return edges[:, 0], edges[:, 1], None if weights is None else np.asarray(weights)


@complete
def pagerank(edges, weights=None, *, vertices=None, damping=0.85, tol=1e-10, max_iter=200, personalization=None, **job):
    """PageRank: scores whose sum is 1.

    Parameters
    ----------
    damping : float
        The probability that a walk goes on along an edge.
    tol : float
        End when the sum of the scores' changes is at most this.
    personalization : dict from id to weight, optional
        Where jumps go to; otherwise to all vertices alike.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> ranks = paracel.pagerank([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    >>> dict(zip(ranks.ids.tolist(), ranks.values.round(3).tolist()))
    {'a': 0.333, 'b': 0.32, 'c': 0.31, 'd': 0.038}
    """
    inputs_of = None
    if personalization:
        names, shares = list(personalization), list(personalization.values())

        def inputs_of(ids):
            numbers = np.asarray(names) if ids.names is None else np.searchsorted(ids.names, names)
            if ids.names is not None and (ids.names[np.minimum(numbers, len(ids.names) - 1)] != np.asarray(names)).any():
                raise ValueError("personalization: found an id that is no vertex")
            return {"personalization": Text("".join(f"{i}\t{w!r}\n" for i, w in zip(numbers.tolist(), map(float, shares))))}
    config = {"damping_factor": float(damping), "tolerance": float(tol), "rounds": int(max_iter),
              "weights": "no" if _edges(edges, weights)[2] is None else "yes"}
    return _run("pagerank", "pagerank", edges, weights, vertices, config, job, inputs_of=inputs_of)


@complete
def bfs(edges, source, *, vertices=None, directed=True, **job):
    """The number of edges from `source` to each vertex; inf where there is no path.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> paracel.bfs([("a", "b"), ("b", "c"), ("a", "c")], "a").values
    array([0., 1., 1.])
    """
    return _run("bfs", "level", edges, None, vertices, {"directed": bool(directed)}, job, also=[("source", source)])


@complete
def sssp(edges, source, weights=None, *, vertices=None, directed=True, **job):
    """The length of the shortest path from `source` to each vertex, by weights of at least 0; inf where there is none.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> paracel.sssp([("a", "b"), ("b", "c"), ("a", "c")], "a", [1.0, 2.0, 5.0]).values
    array([0., 1., 3.])
    """
    return _run("sssp", "distance", edges, weights, vertices, {"directed": bool(directed)}, job, also=[("source", source)])


@complete
def wcc(edges, *, vertices=None, **job):
    """Weakly connected components: for each vertex the first one of its component.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> paracel.wcc([("a", "b"), ("d", "c")]).values.tolist()
    ['a', 'a', 'c', 'c']
    """
    return _run("wcc", "component", edges, None, vertices, {}, job, label=True)


@complete
def scc(edges, *, vertices=None, **job):
    """Strongly connected components: for each vertex the first one of its component.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> paracel.scc([("a", "b"), ("b", "a"), ("b", "c")]).values.tolist()
    ['a', 'a', 'c']
    """
    return _run("scc", "component", edges, None, vertices, {}, job, label=True)


@complete
def k_core(edges, *, vertices=None, **job):
    """The core number of each vertex of the simple undirected graph.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> paracel.k_core([(0, 1), (1, 2), (2, 0), (2, 3)]).values.tolist()
    [2, 2, 2, 1]
    """
    return _run("k_core", "core", edges, None, vertices, {}, job)


@complete
def triangle_count(edges, *, vertices=None, **job):
    """Triangles of the simple undirected graph; `values`: those that each vertex is in, `summary` has their number.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> found = paracel.triangle_count([(0, 1), (1, 2), (2, 0), (2, 3)])
    >>> found.values.tolist(), found.summary["triangles"]
    ([1, 1, 1, 0], 1)
    """
    return _run("triangle_count", "triangles", edges, None, vertices, {"per_vertex": True}, job)


@complete
def label_propagation(edges, *, vertices=None, max_iter=None, **job):
    """Communities: for each vertex the label, the id of a vertex, that most of its neighbours have.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> found = paracel.label_propagation([(0, 1), (1, 2), (2, 0), (7, 8), (8, 9), (9, 7)])
    >>> len(set(found.values.tolist()))
    2
    """
    config = {} if max_iter is None else {"rounds": int(max_iter)}
    return _run("label_propagation", "label", edges, None, vertices, config, job, label=True)


@complete
def mvv(edges, *, vertices=None, **job):
    """For each vertex the greatest one from which it can be reached, itself included. Program: ``mvv``.

    Returns
    -------
    VertexValues

    Examples
    --------
    >>> import paracel
    >>> paracel.mvv([("d", "a"), ("a", "b"), ("c", "b")]).values.tolist()
    ['d', 'd', 'c', 'd']
    """
    return _run("mvv", "vertex_val", edges, None, vertices, {}, job, label=True)


class Inversion(NamedTuple):
    """Scores that explain a distribution.

    Attributes
    ----------
    ids : ndarray
        The right vertices, ascending.
    scores, received : ndarray
        Of each its score, and the share of all that it receives.
    transitions : list of tuple
        (left vertex, right vertex, probability), by left vertex, the most probable first.
    summary : dict
        What the program prints: rounds, short, l1, converged.
    """

    ids: Any
    scores: Any
    received: Any
    transitions: Any
    summary: Any


@complete
def steady_state_inversion(edges, left, right, weights=None, *, epsilon=1e-4, max_iter=1000, topk=100, feasibility="after",
                           **job):
    """Scores of right vertices with which those who are at left vertices, and go on along an edge with a probability proportional
    to its weight times the score of its end, arrive in the given shares. Program: ``steady_state_inversion``.

    Parameters
    ----------
    edges : array of shape (edges, 2), SciPy sparse matrix, or frame
        From left to right vertices, which may have the same ids.
    left, right : dict from id to number
        The share of all that is at each left vertex, and that each right one receives.
    weights : array of shape (edges,), optional
    epsilon : float
        A right vertex may receive less than its share by this fraction of it.
    topk : int
        Most transitions of a left vertex.
    feasibility : str
        When to look for a proof that there are no such scores: ``after`` too many rounds, ``before``, or ``never``.

    Returns
    -------
    Inversion

    Raises
    ------
    DataError
        There are none; it names right vertices that must receive more than those before them have.

    Examples
    --------
    >>> import paracel
    >>> found = paracel.steady_state_inversion([("a", "x"), ("a", "y"), ("b", "y")], {"a": 0.5, "b": 0.5}, {"x": 0.2, "y": 0.8})
    >>> found.ids.tolist(), found.received.round(3).tolist()
    (['x', 'y'], [0.2, 0.8])
    """
    sources, targets, weights = _edges(edges, weights)
    sides = [_Ids(ids, np.array(list(shares))) for ids, shares in ((sources, left), (targets, right))]
    # Names in the order of the ids: numbers of as many digits.
    texts = [[f"{i:017d}{letter}" for i in side.arrays[0].tolist()] for side, letter in zip(sides, "LR")]
    parts = [texts[0], texts[1]] + ([] if weights is None else [map(repr, weights.astype(np.float64).tolist())])
    distribution = "".join(f"{i:017d}{letter},{float(p)!r}\n" for side, letter, shares in zip(sides, "LR", (left, right))
                           for i, p in zip(side.arrays[1].tolist(), shares.values()))
    inputs = {"bigraph_input": Text("".join(",".join(line) + "\n" for line in zip(*parts))),
              "distribution_input": Text(distribution)}
    config = {"epsilon": float(epsilon), "rounds": int(max_iter), "ktop": int(topk), "feasibility": feasibility}
    summary, transitions = {}, []

    def id_of(name):
        return sides["LR".index(name[-1])].of(np.array([int(name[:-1])]))[0]

    class names_of_ids(Words):
        def of_error(self, text):
            return re.sub(r"\b\d{17}[LR]", lambda m: str(id_of(m[0])), super().of_error(text))

    job = job_of("steady_state_inversion", job)
    with memory_folder(job.top) as folder:
        output = os.path.join(folder, "output")
        words = names_of_ids("steady_state_inversion", {"rounds": "max_iter", "ktop": "topk"})
        job.run_to(output, "steady_state_inversion", {**config, "format": "npy"}, inputs, words=words,
                   on_line=lines_into(summary))
        model = Model.read(output)
        for file in sorted(glob.glob(os.path.join(output, "transfer_prob_matrix_*"))):
            with open(file, encoding="utf-8") as lines:
                for line in lines:
                    name, _, best = line.rstrip("\n").partition("\t")
                    pairs = [pair.rsplit(":", 1) for pair in best.split("|") if pair]
                    transitions += [(id_of(name), id_of(other), float(p)) for other, p in pairs]
    numbers = np.array([int(name[:-1]) for name in model.ids["score"]], dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    return Inversion(sides[1].of(numbers[order]), model.arrays["score"][order], model.arrays["received"][order],
                     transitions, summary)
