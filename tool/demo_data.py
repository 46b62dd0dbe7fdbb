#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Generates the demo's input: training and test files with lines `f1,...,fk,label`.

The source is a data set of scikit-learn (a line `samples,features,class names`, then `f1,...,fk,label`). Columns are standardised
with mean and standard deviation of the training part, so that one step size suits all of them. Uses only the standard library;
the same seed gives the same files.
"""
import argparse
import csv
import math
import random
import sys


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        samples, features = (int(field) for field in next(lines)[:2])
        rows = [[float(field) for field in line] for line in lines if line]
    if len(rows) != samples or any(len(row) != features + 1 for row in rows):
        raise ValueError(f"{path}: the first line promises {samples} samples of {features} features")
    return rows


def standardise(rows, by):
    means, deviations = [], []
    for column in range(len(by[0]) - 1):
        values = [row[column] for row in by]
        mean = math.fsum(values) / len(values)
        variance = math.fsum((v - mean) ** 2 for v in values) / len(values)
        means.append(mean)
        deviations.append(math.sqrt(variance) or 1.0)
    return [[(v - m) / d for v, m, d in zip(row, means, deviations)] + [row[-1]] for row in rows]


def write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(",".join(repr(v) for v in row[:-1]) + f",{int(row[-1])}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source")
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--test-share", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        rows = read(options.source)
    except (OSError, ValueError, StopIteration) as problem:
        print(f"demo_data.py: error: {problem}", file=sys.stderr)
        return 4
    random.Random(options.seed).shuffle(rows)
    cut = round(len(rows) * options.test_share)
    test, train = rows[:cut], rows[cut:]
    write(options.test, standardise(test, train))
    write(options.train, standardise(train, train))
    print(f"{len(train)} samples to train on, {len(test)} to test on, {len(rows[0]) - 1} features")
    return 0


if __name__ == "__main__":
    sys.exit(main())
