# SPDX-License-Identifier: BSD-3-Clause
"""Nearest rows."""
import numpy as np

from paracel._docs import complete
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
    from scipy.sparse import csr_matrix

    X = X if hasattr(X, "tocoo") else np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"found X of shape {X.shape}, want (rows, features)")
    config = {"sim_method": metric, "topk": int(topk), "format": "fsv", "output_format": "npy"}
    if least is not None:
        config["sim_bar"] = float(least)
    parameters = {"sim_method": "metric", "sim_bar": "least"}
    model = job_of("similarities", job).run("sim_sparse", config, {"input": _entries(X)}, words=Words("similarities", parameters))
    counts = np.zeros(X.shape[0], dtype=np.int64)
    counts[model.ids["counts"].astype(np.int64)] = model.arrays["counts"]
    # Rows are in ascending order, so the lists one after the other are a CSR matrix's.
    return csr_matrix((model.arrays["neighbours"], model.ids["neighbours"].astype(np.int64),
                       np.concatenate([[0], np.cumsum(counts)])), shape=(X.shape[0], X.shape[0]))
