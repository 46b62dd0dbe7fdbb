#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Generates input for the algorithms: the same bytes for the same options and seed.

    tool/datagen.py -m classification -o training.dat -n 2500 -k 100
    tool/datagen.py -m regression -o training.dat -n 2500 -k 10

classification: lines f1,...,fk,label with label 0 or 1. Features are standard normal; the label is the side of a
hyperplane on which the sample lies after noise of a fifth of the spread, and one label in a hundred is turned around.
regression: lines f1,...,fk,target; the target is a linear function of the features and noise of a tenth of the spread.
In both the hyperplane depends on `informative` features, which are the first ones; the others are noise.
"""

import argparse
import math
import os
import random
import sys


def weights(rng, k):
    """A normal vector of length 1 on the first features, at most 10 and at least a tenth of them."""
    informative = min(k, max(10, k // 10))
    w = [rng.gauss(0, 1) for _ in range(informative)]
    length = math.sqrt(sum(x * x for x in w))
    return [x / length for x in w]


def classification(rng, n, k):
    w = weights(rng, k)
    for _ in range(n):
        row = [rng.gauss(0, 1) for _ in range(k)]
        side = sum(a * b for a, b in zip(w, row)) + rng.gauss(0, 0.2)
        label = side > 0
        if rng.random() < 0.01:
            label = not label
        yield row, "1" if label else "0"


def regression(rng, n, k):
    w = [100 * x for x in weights(rng, k)]
    for _ in range(n):
        row = [rng.gauss(0, 1) for _ in range(k)]
        target = sum(a * b for a, b in zip(w, row)) + rng.gauss(0, 10)
        yield row, "%.9g" % target


METHODS = {"classification": classification, "regression": regression}


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("found %s, want 1 or more" % text)
    return value


def main(argv=None):
    parser = argparse.ArgumentParser(description="Generate input for the algorithms.")
    parser.add_argument("-m", "--method", required=True, choices=sorted(METHODS), help="what to generate")
    parser.add_argument("-o", "--out", "--output", dest="output", required=True, help="the file to write")
    parser.add_argument("-n", "--datasize", dest="size", type=positive, default=2500, help="samples (2500)")
    parser.add_argument("-k", "--nfeatures", dest="k", type=positive, default=100, help="features (100)")
    parser.add_argument("-s", "--sep", default=",", help="separator (,)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (0)")
    options = parser.parse_args(argv)

    rows = METHODS[options.method](random.Random(options.seed), options.size, options.k)
    # One format for a whole row is twice as fast as one a number.
    sep = options.sep.replace("%", "%%")
    line = sep.join(["%.9g"] * options.k) + sep
    temporary = options.output + ".tmp"
    try:
        with open(temporary, "w", encoding="ascii", newline="\n") as out:
            for row, last in rows:
                out.write(line % tuple(row) + last + "\n")
        os.replace(temporary, options.output)
    except OSError as e:
        print("datagen.py: error: %s: %s" % (options.output, e.strerror), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
