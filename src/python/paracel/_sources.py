# SPDX-License-Identifier: BSD-3-Clause
"""Columns by name: of data frames (pandas, polars), Arrow tables and data sets, and files of Parquet or Arrow.

None of these packages is imported unless an object of it, or a file, is there. Columns are arrays of NumPy, without a copy where
the source has numbers without missing values; missing numbers are NaN.
"""
import glob
import os
import sys
from typing import Any, NamedTuple

import numpy as np

_ENDINGS = (".parquet", ".arrow", ".feather")


class Categories(NamedTuple):
    """Texts, or categories of a type that has them.

    Attributes
    ----------
    codes : ndarray of int of shape (rows,)
        Indices into `names`; -1: missing.
    names : list of str, or of numbers
    """

    codes: Any
    names: Any


class Piece(NamedTuple):
    """A row group of a Parquet file, or a record batch of an Arrow file."""

    path: str
    group: int
    rows: int


def pyarrow():
    """The package. Raises ImportError."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ImportError("files of Parquet and Arrow need the package pyarrow, which is not installed: pip install pyarrow") \
            from None
    return pyarrow


def are_files(source):
    """Whether it names files of Parquet or Arrow, or has a list of such names."""
    names = [source] if isinstance(source, (str, os.PathLike)) else source
    return isinstance(names, (list, tuple)) and len(names) > 0 and all(
        isinstance(n, (str, os.PathLike)) and os.fspath(n).endswith(_ENDINGS) for n in names)


def pieces_of(files):
    """The row groups of files, in their order; a name may be a pattern. Reads the files' metadata only.

    Returns
    -------
    list of Piece
    list of str
        The columns' names, the same in all files.
    """
    arrow, names, pieces, columns = pyarrow(), [], [], None
    for name in [files] if isinstance(files, (str, os.PathLike)) else files:
        name = os.fspath(name)
        found = [name] if os.path.exists(name) else sorted(glob.glob(name))
        if not found:
            raise FileNotFoundError(f"{name}: found no such file, want one of Parquet or Arrow, or a pattern of their names")
        names += found
    for path in names:
        try:
            if path.endswith(".parquet"):
                about = arrow.parquet.ParquetFile(path)
                rows = [about.metadata.row_group(i).num_rows for i in range(about.metadata.num_row_groups)]
            else:
                about = arrow.ipc.open_file(arrow.memory_map(path))
                rows = [about.get_batch(i).num_rows for i in range(about.num_record_batches)]
        except (arrow.ArrowInvalid, OSError) as e:
            raise ValueError(f"{path}: cannot be read: {e}") from None
        here = (about.schema_arrow if path.endswith(".parquet") else about.schema).names
        if columns is not None and sorted(here) != sorted(columns):
            raise ValueError(f"{path}: found columns {', '.join(here)}, want {', '.join(columns)} as in {names[0]}")
        columns = here if columns is None else columns
        pieces += [Piece(path, i, n) for i, n in enumerate(rows)]
    return pieces, columns


# ---- one column of a batch


def _refuse(name, found):
    raise ValueError(f"column {name}: found {found}, want numbers, booleans, texts or categories")


def _of_arrow(name, values):
    arrow = pyarrow()
    kind = values.type
    if isinstance(values, arrow.ChunkedArray):
        values = values.combine_chunks()
    if arrow.types.is_dictionary(kind):
        if values.dictionary.null_count:
            values = values.dictionary_decode().dictionary_encode()
        codes = values.indices.fill_null(-1) if values.indices.null_count else values.indices
        return Categories(codes.to_numpy(zero_copy_only=False).astype(np.int64), values.dictionary.to_pylist())
    if str(kind) == "string_view":
        values, kind = values.cast(arrow.large_string()), arrow.large_string()
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return _of_arrow(name, values.dictionary_encode())
    if arrow.types.is_boolean(kind):
        values = values.cast(arrow.int8()) if values.null_count else values
    elif arrow.types.is_decimal(kind) or arrow.types.is_null(kind):
        values = values.cast(arrow.float64())
    elif not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind)):
        _refuse(name, kind)
    return values.to_numpy(zero_copy_only=False)


def of_pandas(name, series):
    kind = series.dtype
    if isinstance(kind, np.dtype) and kind.kind in "biuf":
        return series.to_numpy()
    pandas = sys.modules["pandas"]
    if isinstance(kind, pandas.CategoricalDtype):
        return Categories(series.cat.codes.to_numpy().astype(np.int64), series.cat.categories.tolist())
    if pandas.api.types.is_numeric_dtype(kind):  # with missing values of their own
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if not (pandas.api.types.is_object_dtype(kind) or pandas.api.types.is_string_dtype(kind)):
        _refuse(name, kind)
    codes, names = pandas.factorize(series)
    names = list(names)
    if names and all(isinstance(n, (bool, int, float, np.number)) for n in names):
        return np.append(np.array(names, dtype=np.float64), np.nan)[codes]
    others = [n for n in names if not isinstance(n, str)]
    if others:
        _refuse(name, type(others[0]).__name__)
    return Categories(codes, names)


def _of_polars(name, series):
    polars = sys.modules["polars"]
    kind = series.dtype
    if (kind == polars.Boolean and series.null_count()) or kind == polars.Null or isinstance(kind, polars.Decimal):
        series, kind = series.cast(polars.Float64), polars.Float64
    if kind.is_numeric() or kind == polars.Boolean:
        return series.to_numpy()
    if kind in (polars.String, polars.Categorical, polars.Enum):
        values = series.cast(polars.String)
        names = values.drop_nulls().unique(maintain_order=True)
        codes = values.replace_strict(names, np.arange(len(names)), default=-1, return_dtype=polars.Int64)
        return Categories(codes.to_numpy(), names.to_list())
    _refuse(name, kind)


# ---- sources: names, rows, might_be_texts(name), and batches(names), lists of columns


class _Memory:
    """A data frame of pandas or polars: one batch."""

    strict = True  # columns in the order of the fit, as scikit-learn wants

    def __init__(self, frame, convert, numeric):
        self.frame, self.convert, self.numeric = frame, convert, numeric
        self.names, self.rows = list(frame.columns), len(frame)

    def might_be_texts(self, name):
        return not self.numeric(self.frame[name].dtype)

    def batches(self, names):
        yield [self.convert(n, self.frame[n]) for n in names]


class _Arrow:
    """A table, a record batch, a data set, or the pieces of files."""

    strict = False

    def __init__(self, schema, rows, read):
        self.names, self.rows, self.schema, self.read = schema.names, rows, schema, read

    def might_be_texts(self, name):
        types, kind = pyarrow().types, self.schema.field(name).type
        return not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))

    def batches(self, names):
        for batch in self.read(names):
            if batch.num_rows:
                yield [_of_arrow(n, batch.column(n)) for n in names]


def source_of_pieces(pieces, files):
    """A source of some of the pieces `files`, perhaps of none."""
    arrow = pyarrow()
    opened = {}

    def open_file(path):
        if path not in opened:
            opened.clear()
            parquet = path.endswith(".parquet")
            opened[path] = arrow.parquet.ParquetFile(path) if parquet else arrow.ipc.open_file(arrow.memory_map(path))
        return opened[path]

    def read(names):
        for path, index, _ in pieces:
            file = open_file(path)
            try:
                if path.endswith(".parquet"):
                    yield from file.read_row_group(index, columns=names).to_batches()
                else:
                    yield file.get_batch(index)
            except (arrow.ArrowInvalid, OSError) as e:
                raise ValueError(f"{path}: row group {index}: cannot be read: {e}") from None

    about = open_file(files[0].path)
    return _Arrow(about.schema_arrow if files[0].path.endswith(".parquet") else about.schema, sum(p.rows for p in pieces), read)


def source_of(of):
    package = type(of).__module__.partition(".")[0]
    if package == "pandas" and hasattr(of, "columns"):
        plain = lambda kind: isinstance(kind, np.dtype) and kind.kind in "biuf"  # noqa: E731
        return _Memory(of, of_pandas, plain)
    if package == "polars" and type(of).__name__ in ("DataFrame", "LazyFrame"):
        return _Memory(of.collect() if hasattr(of, "collect") else of, _of_polars, lambda kind: kind.is_numeric())
    if package == "pyarrow":
        arrow = pyarrow()
        if isinstance(of, (arrow.Table, arrow.RecordBatch)):
            table = of if isinstance(of, arrow.Table) else arrow.Table.from_batches([of])
            return _Arrow(table.schema, table.num_rows, lambda names: table.select(names).to_batches())
        if hasattr(of, "to_batches") and hasattr(of, "count_rows"):
            return _Arrow(of.schema, of.count_rows(), lambda names: of.to_batches(columns=names))
    if are_files(of):
        pieces, _ = pieces_of(of)
        if not pieces:
            raise ValueError(f"{of}: found no row, want some")
        return source_of_pieces(pieces, pieces)
    if isinstance(of, (str, os.PathLike)):
        raise ValueError(f"found the name {os.fspath(of)!r}, want names of files that end in {', '.join(_ENDINGS)}")
    return None
