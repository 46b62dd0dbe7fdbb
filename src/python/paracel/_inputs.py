# SPDX-License-Identifier: BSD-3-Clause
"""Arrays as inputs of programs: read in this process's memory, or from files in memory by the workers of a job."""
import itertools
import os

import numpy as np

from paracel import _programs

_names = itertools.count()
_TYPES = (np.float64, np.float32, np.int64, np.int32)


def _readable(array):
    """The array, or a copy in a type that the programs' reader has."""
    array = np.asarray(array)
    if array.dtype in _TYPES and array.dtype.isnative:
        return array
    if array.dtype.kind in "biu" and array.dtype != np.uint64:
        return array.astype(np.int64)
    return array.astype(np.float64)


class Table:
    """Arrays of one or two dimensions and as many rows, side by side: a matrix of doubles. The first one may be a FrameRows."""

    def __init__(self, first, *others):
        self.first, self.others = first, [np.asarray(c) for c in others]

    def _parts(self):
        """Lists of arrays side by side; each part is below the one before it."""
        if not hasattr(self.first, "parts"):
            return [[np.asarray(self.first), *self.others]]
        return self.first.parts(*self.others)

    def register(self, name):
        _programs.add_table(name, [[_readable(c) for c in part] for part in self._parts()])

    def write(self, path):
        width = sum(c.shape[1] if c.ndim == 2 else 1 for c in (self.first, *self.others))
        out = np.lib.format.open_memmap(path, mode="w+", dtype="<f8", shape=(len(self.first), width))
        with open(path, "r+b") as file:  # an error here; a page that is missing later would be the end of this process
            os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        top = 0
        for part in self._parts():
            at, end = 0, top + len(part[0])
            for c in part:
                c = c if c.ndim == 2 else c[:, np.newaxis]
                out[top:end, at:at + c.shape[1]] = c
                at += c.shape[1]
            top = end
        out.flush()


class SparseRows:
    """A CSR matrix, with labels and groups or without."""

    def __init__(self, matrix, labels=None, groups=None):
        if not matrix.has_sorted_indices or not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.shape = matrix.shape
        self.parts = [_readable(a) for a in (matrix.indptr, matrix.indices, matrix.data)]
        self.labels = [] if labels is None else [_readable(labels)]
        self.groups = [] if groups is None else [_readable(groups)]

    def register(self, name):
        _programs.add_sparse(name, self.shape[1], *self.parts, self.labels, self.groups)

    def write(self, path):
        begin, column, value = self.parts
        header = [*self.shape, len(value), bool(self.labels) + 2 * bool(self.groups)]
        with open(path, "wb") as out:
            out.write(b"\x93PARCSR1")
            for array, kind in ((header, "<u8"), *((a, "<f8") for a in self.labels + self.groups), (begin, "<u8"),
                                (value, "<f8"), (column, "<u4")):
                np.ascontiguousarray(array, dtype=kind).tofile(out)


class Text:
    """Bytes as they are."""

    def __init__(self, text):
        self.text = text.encode() if isinstance(text, str) else bytes(text)

    def register(self, name):
        _programs.add_text(name, self.text)

    def write(self, path):
        with open(path, "wb") as out:
            out.write(self.text)


def lines_of(rows, separator, ids=None):
    """Rows of numbers as lines of text, which the programs read as the same numbers; before each, if given, its id and a tab."""
    lines = [separator.join(map(repr, row)) + "\n" for row in np.asarray(rows, dtype=np.float64).tolist()]
    return Text("".join(lines if ids is None else [f"{i}\t{line}" for i, line in zip(ids, lines)]))


class in_this_process:
    """Within it the inputs, a dict by config key, have names that a program in this process reads."""

    def __init__(self, inputs):
        self.inputs = inputs

    def __enter__(self):
        self.names = {}
        try:
            for key, some in self.inputs.items():
                name = f"memory:{next(_names)}/{key}"
                some.register(name)
                self.names[key] = name
        except BaseException:
            self.__exit__()
            raise
        return self.names

    def __exit__(self, *failure):
        for name in self.names.values():
            _programs.remove(name)


def write_files(inputs, folder):
    """Writes the inputs into a folder. Returns their paths by key."""
    paths = {}
    for key, some in inputs.items():
        paths[key] = os.path.join(folder, key)
        some.write(paths[key])
    return paths
