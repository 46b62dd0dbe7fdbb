# SPDX-License-Identifier: BSD-3-Clause
"""Nearest rows."""
import numpy as np

from paracel._docs import complete
from paracel._inputs import lines_of
from paracel._run import Words, job_of
from paracel.factors import _entries


@complete
def similarities(X, *, metric="cosine", topk=10, least=None, **job):
    """The most similar rows of each row of a sparse matrix. Program: ``sim_sparse``.

    Parameters
    ----------
    X : SciPy sparse matrix or array of shape (rows, features)
    metric : str
        ``cosine``, ``jaccard`` or ``pearson``.
    topk : int
        Maximum number of neighbours of a row.
    least : float, optional
        The least similarity of a pair.

    Returns
    -------
    SciPy CSR matrix of shape (rows, rows)
        The neighbours of a row are ordered: the most similar first, ties by the smaller row.

    Examples
    --------
    >>> import paracel
    >>> paracel.similarities([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], topk=1).toarray().round(3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    X = X if hasattr(X, "tocoo") else _rows(X)
    config = {"sim_method": metric, "topk": int(topk), "format": "fsv", "output_format": "npy"}
    if least is not None:
        config["sim_bar"] = float(least)
    parameters = {"sim_method": "metric", "sim_bar": "least"}
    model = job_of("similarities", job).run("sim_sparse", config, {"input": _entries(X)}, words=Words("similarities", parameters))
    return _neighbours(model, X.shape[0], X.shape[0])


@complete
def sim_dense(X, *, topk=20, least=0.0, **job):
    """The most similar rows of each row of a dense matrix, by cosine. Program: ``sim_dense``.

    Parameters
    ----------
    X : array of shape (rows, features)
    topk : int
        Maximum number of neighbours of a row.
    least : float
        The least similarity of a pair, -1 to 1.

    Returns
    -------
    SciPy CSR matrix of shape (rows, rows)
        The neighbours of a row are ordered: the most similar first, ties by the smaller row.

    Examples
    --------
    >>> import paracel
    >>> paracel.sim_dense([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]], topk=1).indices.tolist()
    [1, 0, 1]
    """
    X = _rows(X)
    return _neighbours(_dense("sim_dense", {"input": X}, topk, least, job), len(X), len(X))


@complete
def ab_sim_dense(A, B, *, topk=20, least=0.0, **job):
    """The most similar rows of a matrix B of each row of a matrix A, by cosine. Program: ``ab_sim_dense``.

    Parameters
    ----------
    A, B : array of shape (rows, features)
    topk : int
        Maximum number of neighbours of a row.
    least : float
        The least similarity of a pair, -1 to 1.

    Returns
    -------
    SciPy CSR matrix of shape (rows of A, rows of B)

    Examples
    --------
    >>> import paracel
    >>> paracel.ab_sim_dense([[1.0, 0.0]], [[0.0, 1.0], [3.0, 1.0]], topk=1).indices.tolist()
    [1]
    """
    A, B = _rows(A), _rows(B)
    return _neighbours(_dense("ab_sim_dense", {"input_a": A, "input_b": B}, topk, least, job), len(A), len(B))


def _rows(X):
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"found an array of shape {X.shape}, want (rows, features)")
    return X


def _dense(program, matrices, topk, least, job):
    config = {"topk": int(topk), "simbar": float(least), "ids": "row", "header": "no"}
    inputs = {name: lines_of(rows, ",") for name, rows in matrices.items()}
    return job_of(program, job).run(program, config, inputs, words=Words(program, {"simbar": "least"}))


def _neighbours(model, rows, columns):
    """The lists of a model as a CSR matrix."""
    from scipy.sparse import csr_matrix

    counts = np.zeros(rows, dtype=np.int64)
    counts[model.ids["counts"].astype(np.int64)] = model.arrays["counts"]
    # Rows are in ascending order, so the lists one after the other are a CSR matrix's.
    return csr_matrix((model.arrays["neighbours"], model.ids["neighbours"].astype(np.int64),
                       np.concatenate([[0], np.cumsum(counts)])), shape=(rows, columns))
