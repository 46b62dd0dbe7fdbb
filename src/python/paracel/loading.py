# SPDX-License-Identifier: BSD-3-Clause
"""What Paralg's loaders return, and how they read Parquet. Matrices in compressed rows are scipy.sparse.csr_matrix where SciPy is
installed."""
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paracel._frames import FrameRows, of_source, words_of
from paracel._sources import Piece, pieces_of, pyarrow, source_of_pieces
from paracel.errors import DataError


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
    words : dict of int to list of str
        Of Parquet: by feature that is a category of texts, these; values of X are indices into them.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    group: np.ndarray
    classes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    first_row: int = 0
    rows_total: int = 0
    words: dict[int, list[str]] = field(default_factory=dict)


@dataclass
class Columns:
    """This worker's rows of some columns.

    Attributes
    ----------
    columns : dict of str to ndarray of shape (rows,)
        Numbers, where NaN is missing, or objects: texts, where None is missing.
    first_row, rows_total : int
        The number of the first row among the rows of all workers, and how many those are.
    """

    columns: dict[str, np.ndarray]
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


# ---- Parquet and Arrow: each worker its row groups


def agreed(comm, step):
    """What `step` returns. Where it fails on a worker, it fails on all with that error. A collective."""
    value, failure = None, ""
    try:
        value = step()
    except (ValueError, OSError) as e:
        failure = str(e)
    for text in comm.allgather(failure):
        if text:
            raise DataError(text)
    return value


def split_by_rows(rows, workers):
    """Of pieces in their order, with so many rows: (first, last) of each worker, cut where that is nearest to equal shares."""
    middle = np.cumsum(rows) - np.asarray(rows) / 2
    of = np.minimum((middle * workers / max(1, sum(rows))).astype(np.int64), workers - 1)
    return [(int(np.searchsorted(of, w)), int(np.searchsorted(of, w, side="right"))) for w in range(workers)]


def own_rows(comm, files):
    """This worker's row groups as a Frame, the number of its first row, and the number of all rows. A collective; rank 0 reads
    the metadata of all files."""
    pyarrow()
    found = agreed(comm, lambda: pieces_of(files) if comm.rank == 0 else None)
    pieces = [Piece(*p) for p in comm.bcast(None if found is None else [list(p) for p in found[0]])]
    rows = [p.rows for p in pieces]
    if sum(rows) == 0:
        raise DataError(f"{shown(files)}: found no row, want some")
    first, last = split_by_rows(rows, comm.size)[comm.rank]
    frame = agreed(comm, lambda: of_source(source_of_pieces(pieces[first:last], pieces)))
    return frame, sum(rows[:first]), sum(rows)


def shown(files):
    return os.fspath(files) if isinstance(files, (str, os.PathLike)) else ", ".join(map(os.fspath, files))


def load_columns(comm, files, columns):
    frame, first, total = own_rows(comm, files)
    names = frame.names if columns is None else list(columns)
    return Columns(agreed(comm, lambda: {n: type(frame)(frame, [n])._values(n) for n in names}), first, total)


def entries_of(comm, files, columns, values):
    """The option `own` of the loaders of entries."""
    frame, _, _ = own_rows(comm, files)

    def read():
        names = frame.names[:3] if columns is None else list(columns)
        if not 2 <= len(names) <= 3 or (values == "need" and len(names) < 3):
            raise ValueError(f"{shown(files)}: found the columns {', '.join(names)}, want those of row, column and value")
        part = type(frame)(frame, names)
        numbers = part._column(names[2], "number").astype(np.float64) if len(names) == 3 and values != "ignore" else None
        return part._ids(names[0]), part._ids(names[1]), numbers, shown(files)

    return agreed(comm, read)


def parquet_samples(comm, files, *, label="binary", target=None, features=None, weight=None, group=None, categorical=(),
                    classes=(), without_label=False, float32=False, missing=False):
    """Samples from Parquet, with the options of load_samples that make sense for it."""
    frame, first, total = own_rows(comm, files)
    labelled = label != "none" and not without_label

    def read():
        roles = [n for n in (target, weight, group) if n is not None]
        goal = target or (([n for n in frame.names if n not in roles] or [None])[-1] if labelled else None)
        names = list(features) if features else [n for n in frame.names if n not in (*roles, goal)]
        y = frame._column(goal, "label") if labelled else np.empty(0)
        part = type(frame)(frame, names)
        texts = part._text_columns()
        for n in texts:
            if n not in categorical:
                raise ValueError(f"{shown(files)}: column {n}: found texts, want numbers, or its name in categorical")
        others = [frame._column(n, what) if n else np.empty(0) for n, what in ((weight, "weight"), (group, "group"))]
        return part, names, texts, y, others

    part, names, texts, y, others = agreed(comm, read)
    here = {n: words_of(parts) for n, parts in texts.items()}
    words = {}
    for found in comm.allgather(here):
        for n, some in found.items():
            words[n] = sorted({*words.get(n, []), *some})
    words = {names.index(n): some for n, some in words.items()}

    def matrix():
        rows = FrameRows(part, words, kept=False)
        X = rows.__array__(np.float32 if float32 else np.float64)
        if not (np.isfinite(X) | (bool(missing) & np.isnan(X))).all():
            raise ValueError(f"{shown(files)}: found a missing or infinite number in the features, want finite ones")
        return X

    X = agreed(comm, matrix)
    kinds = list(classes)
    if labelled and label in ("binary", "classes"):
        kinds, y = _class_numbers(comm, files, y, label, kinds)
    elif labelled:
        y = agreed(comm, lambda: _real_labels(files, y, label))
    return Samples(X, y, *(_plain_numbers(o) for o in others), kinds, names, first, total, words)


def _plain_numbers(values):
    return values if values.dtype == object else values.astype(np.float64)


def _real_labels(files, y, label):
    if y.dtype == object:
        raise ValueError(f"{shown(files)}: found labels that are texts, want numbers")
    y = y.astype(np.float64)
    if label == "relevance" and not ((y == np.floor(y)) & (y >= 0) & (y <= 30)).all():
        raise ValueError(f"{shown(files)}: found a label that is no integer from 0 to 30, want relevances")
    return y


def _class_numbers(comm, files, y, label, known):
    """Classes as texts, ascending (numbers by value), and each row's index; of binary labels -1 or +1."""
    plain = [v if isinstance(v, str) else np.format_float_positional(v, trim="-") for v in y.tolist()]
    names = set().union(*comm.allgather(sorted(set(plain))))
    try:
        names = sorted(names, key=float)
    except ValueError:
        names = sorted(names)
    if known and not set(names) <= set(known):
        raise DataError(f"{shown(files)}: found label {sorted(set(names) - set(known))[0]!r}, want one of {', '.join(known)}")
    names = known or names
    if label == "binary" and len(names) != 2:
        raise DataError(f"{shown(files)}: found {len(names)} classes, want two")
    place = {n: i for i, n in enumerate(names)}
    numbers = np.array([place[n] for n in plain], dtype=np.float64)
    return list(names), numbers if label == "classes" else 2 * numbers - 1
