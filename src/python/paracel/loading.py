# SPDX-License-Identifier: BSD-3-Clause
"""What Paralg's loaders return. Matrices in compressed rows are scipy.sparse.csr_matrix where SciPy is installed."""
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Samples:
    """This worker's rows of a data set.

    Attributes
    ----------
    X : ndarray of shape (rows, features), or csr_matrix
        float64, or float32 with the option `float32`.
    y : ndarray of shape (rows,)
        float64: -1 or +1 for binary labels, an index into `classes`, or the target.
    weight, group : ndarray of shape (rows,), or empty
    classes, names : list of str
        Labels of classes; names of the features, from a header.
    first_row, rows_total : int
        The number of X[0] among the rows of all workers, and how many those are.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    group: np.ndarray
    classes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    first_row: int = 0
    rows_total: int = 0


@dataclass
class SparseRows:
    """This worker's rows of a sparse matrix.

    Attributes
    ----------
    X : csr_matrix of shape (rows, columns with an entry here)
    row_ids, column_ids : ndarray of uint64, or list of str
        The ids of X's rows and columns.
    column_number : ndarray of uint64
        The numbers of X's columns among those of all workers.
    first_row, rows_total, columns_total, entries_total : int
        The number of X[0] among the rows of all workers; totals over all workers.
    """

    X: Any
    row_ids: Any
    column_ids: Any
    column_number: np.ndarray
    first_row: int = 0
    rows_total: int = 0
    columns_total: int = 0
    entries_total: int = 0


def compressed_rows(value, column, begin, columns):
    """A csr_matrix that shares the arrays, or without SciPy the tuple (data, indices, indptr, shape)."""
    shape = (len(begin) - 1, columns)
    arrays = value, column.view(np.int32), begin.view(np.int64)
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        return *arrays, shape
    return csr_matrix(arrays, shape=shape)


def samples_of(found):
    if found["dense"]:
        matrix = found["value"].reshape(found["rows"], found["columns"])
    else:
        matrix = compressed_rows(found["value"], found["column"], found["row_begin"], found["columns"])
    return Samples(matrix, found["label"], *(found[name] for name in ("weight", "group", "classes", "names", "first_row",
                                                                        "rows_total")))


def sparse_rows_of(found):
    matrix = compressed_rows(found["value"], found["column"], found["begin"], len(found["column_ids"]))
    return SparseRows(matrix, *(found[name] for name in ("row_ids", "column_ids", "column_number", "first_row", "rows_total",
                                                           "columns_total", "entries_total")))
