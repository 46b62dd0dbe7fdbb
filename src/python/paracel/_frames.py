# SPDX-License-Identifier: BSD-3-Clause
"""Tables with columns that have names, as features, ids and values."""
import numpy as np

from paracel._sources import Categories, of_pandas, source_of

_GREATEST_CATEGORY = 2**24 - 1  # of the programs
_MOST_WORDS = 65536


class Frame:
    """Some columns of a table, in the order that is given.

    Parameters
    ----------
    source : data frame of pandas or polars, pyarrow Table, RecordBatch or Dataset, path, or list of paths
        Files are of Parquet (.parquet) or Arrow (.arrow, .feather); a path may be a pattern.
    columns : list of str, optional
        Their names; default: all columns.

    Attributes
    ----------
    names : list of str
    shape : tuple of int
        Rows and columns.
    """

    def __init__(self, source, columns=None):
        self._source = source._source if isinstance(source, Frame) else source_of(source)
        if self._source is None:
            raise TypeError(f"found {type(source).__name__}, want a data frame of pandas or polars, a table of pyarrow, or names "
                            "of Parquet files")
        known = source.names if isinstance(source, Frame) else self._source.names
        self.names = list(known if columns is None else columns)
        for name in self.names:
            if not isinstance(name, str):
                raise TypeError(f"found a column with the name {name!r}, want texts as names of columns")
            if name not in known:
                raise ValueError(f"found no column {name}, want one of {', '.join(known)}")
        self.shape = self._source.rows, len(self.names)

    def __len__(self):
        return self.shape[0]

    def _batches(self):
        """Lists of columns: arrays of numbers, or Categories. Reads files each time."""
        return self._source.batches(self.names)

    def _text_columns(self):
        """{name: list of Categories, by batch} of the columns that have texts or categories."""
        some = [n for n in self.names if self._source.might_be_texts(n)]
        found = {n: [] for n in some}
        for batch in self._source.batches(some) if some else []:
            for name, column in zip(some, batch):
                found[name].append(column)
        return {n: parts for n, parts in found.items() if any(isinstance(p, Categories) for p in parts)}

    def _values(self, name):
        """A column as an array; of objects if it has texts, where None is missing.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        array of shape (rows,)
        """
        arrays = [_plain(b[0]) for b in Frame(self, [name])._batches()]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else np.empty(0)

    def _column(self, name, what="value"):
        """The same. Raises ValueError for a missing value."""
        whole = self._values(name)
        _refuse_missing(name, what, whole == None if whole.dtype == object else  # noqa: E711
                        np.isnan(whole) if whole.dtype.kind == "f" else np.zeros(1, dtype=bool))
        return whole

    def _ids(self, name):
        """A column of ids as `Paralg`'s loaders take them: an array of int64, or a list of different texts and for each row the
        index of one. Raises ValueError for a missing one, a fraction, or a number below 0."""
        index, parts = {}, []
        for (batch,) in Frame(self, [name])._batches():
            if isinstance(batch, Categories) and not (batch.names and all(isinstance(n, (int, np.integer)) for n in batch.names)):
                _refuse_missing(name, "id", batch.codes < 0)
                here = np.array([index.setdefault(str(n), len(index)) for n in batch.names], dtype=np.int32)
                parts.append(here[batch.codes])
                continue
            numbers = _plain(batch)
            if not ((numbers >= 0) & (numbers == np.floor(numbers))).all():  # NaN is not, either
                raise ValueError(f"column {name}: found an id that is missing or no whole number of at least 0, want such "
                                 "numbers or texts")
            parts.append(numbers.astype(np.int64))
        whole = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        return (list(index), whole.astype(np.int32)) if index else whole

    def _without(self, names):
        """The same without some columns."""
        return Frame(self, [n for n in self.names if n not in names])


def _plain(column):
    """Numbers, or an array of objects with None where a text is missing."""
    if not isinstance(column, Categories):
        return column
    if column.names and all(isinstance(n, (int, float, np.number)) for n in column.names):
        numbers = np.array(column.names)
        return np.append(numbers.astype(float), np.nan)[column.codes] if (column.codes < 0).any() else numbers[column.codes]
    names = np.empty(len(column.names) + 1, dtype=object)
    names[:-1] = column.names
    return names[column.codes]


def _refuse_missing(name, what, missing):
    if missing.any():
        raise ValueError(f"column {name}: row {int(np.argmax(missing))}: found nothing, want a {what} in each row")


def of_source(source):
    """A Frame of all columns."""
    frame = Frame.__new__(Frame)
    frame._source, frame.names, frame.shape = source, source.names, (source.rows, len(source.names))
    return frame


def frame_of(of):
    """A Frame, or None for what is none: arrays, matrices, lists of rows, frames whose columns have no texts as names."""
    if isinstance(of, Frame):
        return of
    source = None if isinstance(of, np.ndarray) else source_of(of)
    return of_source(source) if source is not None and all(isinstance(n, str) for n in source.names) else None


def columns_of(source, wanted, what):
    """The first columns of a frame as arrays: ids, numbers. None: it is no frame.

    Parameters
    ----------
    wanted : sequence of str
        What each of them is, for messages; the last one may be missing.
    """
    frame = frame_of(source)
    if frame is None:
        return None
    if not len(wanted) - 1 <= len(frame.names) <= len(wanted):
        raise ValueError(f"found the columns {', '.join(frame.names)}, want {', '.join(wanted)} of {what}: "
                         "paracel.Frame(frame, [names]) selects columns")
    return [frame._column(n, w) for n, w in zip(frame.names, wanted)]


def words_of(parts):
    """The words of a column of categories, ascending; [] if they are numbers that the programs have as categories."""
    used = {p.names[c] for p in parts for c in np.unique(p.codes).tolist() if c >= 0}
    if all(isinstance(n, (int, np.integer)) and 0 <= n <= _GREATEST_CATEGORY for n in used):
        return []
    words = sorted({str(n) for n in used} - {""})  # which is a missing value, as an empty field of CSV
    if len(words) > _MOST_WORDS:
        raise ValueError(f"found {len(words)} different texts, want at most {_MOST_WORDS} categories")
    for w in words:
        if len(w.encode("utf-8", "surrogatepass")) > 1000 or any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in w):
            raise ValueError(f"found category {w[:50]!r}, want texts of at most 1000 bytes without control characters")
    return words


class FrameRows:
    """Columns of a frame as rows of features, for programs: the arrays stay where they are.

    Parameters
    ----------
    frame : Frame
    words : dict of int to list of str
        Of features that are categories: the texts, whose numbers are the values. Others are missing values.
    kept : bool
        Whether columns are read once and stay in memory, or again each time.
    """

    dtype = np.dtype(np.float64)
    ndim = 2

    def __init__(self, frame, words=None, kept=True):
        self.frame, self.shape = frame, frame.shape
        self._number = {j: {w: i for i, w in enumerate(some)} for j, some in (words or {}).items()}
        self._kept = list(self._read()) if kept else None

    def __len__(self):
        return self.shape[0]

    def _read(self):
        for batch in self.frame._batches():
            yield [self._numbers(j, c) for j, c in enumerate(batch)]

    def _numbers(self, j, column):
        number = self._number.get(j)
        if not isinstance(column, Categories):
            if number and not np.isnan(column.astype(np.float64)).all():
                raise ValueError(f"column {self.frame.names[j]}: found numbers, want texts as in the fit")
            return column
        if number:
            table = [float(number.get(str(n), np.nan)) for n in column.names]
        elif all(isinstance(n, (bool, int, float, np.number)) for n in column.names):
            table = [float(n) for n in column.names]
        else:
            raise ValueError(f"column {self.frame.names[j]}: found texts, want numbers")
        return np.array([*table, np.nan])[column.codes]

    def parts(self, *others):
        """Lists of columns, batch by batch; after them those of `others`, which have as many rows."""
        top = 0
        for batch in self._read() if self._kept is None else self._kept:
            end = top + len(batch[0])
            yield [*batch, *(o[top:end] for o in others)]
            top = end

    def check(self, allow_nan):
        """Raises ValueError for a value that is not finite."""
        for batch in self._kept or []:
            for name, c in zip(self.frame.names, batch):
                if c.dtype.kind == "f" and not (np.isfinite(c) | (allow_nan & np.isnan(c))).all():
                    raise ValueError(f"column {name}: found NaN, infinity or a missing value, want finite numbers")

    def min(self, initial):
        return min((float(np.min(c, initial=initial)) for part in self.parts() for c in part), default=initial)

    def __array__(self, dtype=None, copy=None):
        out = np.empty(self.shape, dtype=dtype or self.dtype)
        top = 0
        for batch in self.parts():
            for j, c in enumerate(batch):
                out[top:top + len(c), j] = c
            top += len(batch[0])
        return out

    def __getitem__(self, at):
        return np.asarray(self)[at]


def is_plain(of, frame, estimator):
    """Whether it is a pandas frame of numbers alone, whose features scikit-learn finds by name itself."""
    return (isinstance(frame, Frame) and getattr(frame._source, "frame", None) is of and frame._source.convert is of_pandas
            and not any(map(frame._source.might_be_texts, frame.names)) and not getattr(estimator, "_categories", None)
            and not set(getattr(estimator, "_labels", ())) & set(frame.names))


def check_frame(estimator, frame, *, reset, allow_nan):
    """Rows of features; with `reset` they define the features, otherwise they are those of the fit."""
    if isinstance(frame, FrameRows):
        return np.asarray(frame)
    takes = getattr(estimator, "_takes_categories", False)
    if reset:
        if takes:
            texts = frame._text_columns()
            estimator._categories = {j: words_of(texts[n]) for j, n in enumerate(frame.names) if n in texts}
        estimator.feature_names_in_ = np.array(frame.names, dtype=object)
        estimator.n_features_in_ = len(frame.names)
    else:
        frame = _as_in_fit(estimator, frame)
    words = getattr(estimator, "_categories", {}) if takes else {}
    if min(frame.shape) == 0:
        raise ValueError(f"found {frame.shape[0]} rows of {frame.shape[1]} columns, want at least one of each")
    in_job = getattr(estimator, "n_workers", None) is not None  # whose workers check them
    rows = FrameRows(frame, words, kept=not (reset and in_job))
    rows.check(allow_nan)
    return rows if reset else np.asarray(rows)


def _as_in_fit(estimator, frame):
    known = getattr(estimator, "feature_names_in_", None)
    if known is None:
        if len(frame.names) != estimator.n_features_in_:
            raise ValueError(f"found {len(frame.names)} columns, want {estimator.n_features_in_} features")
        return frame
    known = known.tolist()
    if frame._source.strict:
        frame = frame._without([n for n in getattr(estimator, "_labels", ()) if n not in known])
        if frame.names != known:
            raise ValueError(f"the feature names should match those that were passed during fit: found {', '.join(frame.names)}, "
                             f"want {', '.join(known)}")
    missing = [n for n in known if n not in frame.names]
    if missing:
        raise ValueError(f"found no column {missing[0]}, want those of the fit: {', '.join(known)}")
    return Frame(frame, known)
