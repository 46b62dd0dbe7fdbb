# SPDX-License-Identifier: BSD-3-Clause
"""Tables for the tests of regressions: those of shared/data in TOOLBOX.md's split, and generated ones."""
import os

import numpy


class Table:
    def __init__(self, name, file, separator, target, features):
        self.name, self.file, self.separator, self.target, self.features = name, file, separator, target, features
        self.keys = {"target": target, "features": features} if features else {}


WINE = Table("wine-white", "winequality-white.csv", ";", "quality", [])
BIKE = Table("bike-hour", "hour.csv", ",", "cnt",
             "season yr mnth hr holiday weekday workingday weathersit temp atemp hum windspeed".split())


def stride_5(case, table):
    """Files of the train rows and of the test rows (i % 5 == 4), with the header; skips the test without the data."""
    source = case.shared(table.name, table.file)
    with open(source, encoding="utf-8") as file:
        header, *rows = file.read().splitlines()
    parts = []
    for part, taken in (("train", lambda i: i % 5 != 4), ("test", lambda i: i % 5 == 4)):
        chosen = [row for i, row in enumerate(rows) if taken(i)]
        parts.append(case.path(f"{table.name}.{part}.csv", "\n".join([header, *chosen]) + "\n"))
    return parts


def samples_of(table, path):
    """(features, target) of a file with a header"""
    with open(path, encoding="utf-8") as file:
        header, *rows = ([field.strip('"') for field in line.rstrip("\n").split(table.separator)] for line in file)
    names = table.features or [name for name in header if name != table.target]
    at = [header.index(name) for name in [*names, table.target]]
    x = numpy.array([[float(row[j]) for j in at] for row in rows])
    return x[:, :-1], x[:, -1]


def dense_regression(path, rows, columns, seed=3):
    """A CSV file with a linear target and noise; returns (path, x, y) with the numbers as written in the file."""
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(rows, columns)) * random.uniform(0.5, 2, columns) + random.normal(size=columns)
    weights = random.normal(size=columns) * (random.random(columns) < 0.7)
    y = x @ weights + 0.5 + random.normal(size=rows)
    table = numpy.round(numpy.column_stack([x, y]), 6)
    numpy.savetxt(path, table, fmt="%.17g", delimiter=",")
    return path, table[:, :-1], table[:, -1]


def sparse_regression(path, rows, columns, seed=4):
    """The same as libsvm, with about eight features a row; the last feature always occurs."""
    random = numpy.random.default_rng(seed)
    x = numpy.round(random.normal(size=(rows, columns)) + 1, 4) * (random.random((rows, columns)) < 8 / columns)
    x[0, -1] = 1.25
    weights = random.normal(size=columns) * (random.random(columns) < 0.5)
    y = numpy.round(x @ weights - 2 + 0.3 * random.normal(size=rows), 6)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        for row, target in zip(x, y):
            entries = [f"{j + 1}:{row[j]:.17g}" for j in numpy.flatnonzero(row)]
            file.write(" ".join([f"{target:.17g}", *entries]) + "\n")
    return path, x, y


def thin_matrix(random, rows, columns):
    """Numbers of three decimals, two fifths of them 0; the last column always occurs."""
    x = numpy.round(random.normal(size=(rows, columns)) * (random.random((rows, columns)) < 0.6), 3)
    x[0, columns - 1] = 0.5
    return x


def write_rows(path, x, labels, sparse):
    """The samples as libsvm, or as CSV without a header."""
    with open(path, "w", encoding="utf-8") as file:
        for row, label in zip(x, labels):
            if sparse:
                file.write(" ".join([str(label)] + [f"{j + 1}:{row[j]:.17g}" for j in numpy.flatnonzero(row)]) + "\n")
            else:
                file.write(",".join([f"{v:.17g}" for v in row] + [str(label)]) + "\n")
    return path
