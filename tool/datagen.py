#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Generates input for the algorithms: the same bytes for the same options and seed, on any number of cores.

    tool/datagen.py -m classification -o training.dat -n 2500 -k 100
    tool/datagen.py -m rmat -o edges.txt --size 10G --jobs 2

The front end of bin/datagen, which is looked for in `--binary`, $PARACEL_BUILD, build/, and next to this file. Without it
classification and regression are generated here, more slowly, with the same bytes; the other kinds need it.
"""

import argparse
import math
import os
import random
import re
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

KINDS = """kinds (-n counts lines unless stated otherwise; the planted truth is written to <out>.truth):
  classification         f1,...,fk,label with label 0 or 1: standard normal features; the label is the side of a
                         hyperplane on which the sample lies after noise of a fifth of the spread, one label in a hundred
                         is flipped
  regression             f1,...,fk,target: a linear function of the features and noise of a tenth of the spread
                         (both depend on the first features alone, max(10, k/10) of them; truth only with --truth)
  classes                f1,...,fk,label: labels class_0, class_1, ... of --ncenters normal clusters that overlap
  mixed                  kind_1,...,x_1,...,label with a header: a third of the k features are words, one value in twenty is
                         missing; label yes or no
  ranking                <relevance> qid:<query> 1:v ... k:v: -n counts queries, --documents a query; relevance 0 to 4; some
                         features are those of the query
  friedman               f1,...,fk,target: uniform features, of which five count, by products, squares and lines (Friedman
                         1991), and noise of spread 1; friedman_classes: label 1 where the target is above 14.4, else 0
  sparse_classification  libsvm, labels -1 and +1: --nnz features of k a line, frequent ones first (Zipf's law)
  sparse_regression      the same with a real target
  similarity             id,v1,...,vk uniform in [0, 1)
  kmeans                 id<tab>v1,...,vk around one of --ncenters centres (<out>.centers); truth: id<tab>centre
  factors                id<tab>v|v|...: normal rows, as a factorisation leaves them
  mf                     user,item,rating in half steps from 0.5 to 5: planted biases and k factors; -n counts users,
                         --nnz items a user of --items, frequent ones first
  fm                     the ratings of mf as libsvm: a feature for the item, another one for the user
  als, svd               the same with real values w.h + --noise and no bias; als writes the h to <out>.H (factor_input)
  pagerank               from<tab>to: uniform sources, targets by Zipf's law; -n counts edges
  rmat                   from<tab>to: Graph500's recursive matrix over --vertices (rounded up to a power of 2); -n counts
                         edges
  partition              i<tab>j: planted partition, vertex v in part v mod --parts; -n counts vertices;
                         truth: vertex<tab>part
  steady_state           iL,jR,weight: bipartite, -n left and --items right vertices; <out>.dis: id,p with each side
                         summing to 1; truth: id,s with which every right vertex receives just its p
  wc                     lines of words by Zipf's law over --vocabulary
  lda                    `0 word:count ...` a document: k topics; with --as_text words; truth: alpha and the topics
  word2vec               lines of words of one of --parts clusters (10), and of frequent ones that are in all of them;
                         truth: word<tab>cluster; <out>.pairs: two words and whether they are in one cluster
"""


def weights(rng, k):
    """A normal vector of length 1 on the first features, at most 10 and at least a tenth of them."""
    informative = min(k, max(10, k // 10))
    w = [rng.gauss(0, 1) for _ in range(informative)]
    length = math.sqrt(add(x * x for x in w))
    return [x / length for x in w]


def add(numbers):
    """Unlike sum(), which rounds differently since Python 3.12."""
    total = 0.0
    for x in numbers:
        total += x
    return total


def classification(rng, w):
    while True:
        row = yield
        side = add(a * b for a, b in zip(w, row)) + rng.gauss(0, 0.2)
        label = side > 0
        if rng.random() < 0.01:
            label = not label
        yield "1" if label else "0"


def regression(rng, w):
    w = [100 * x for x in w]
    while True:
        row = yield
        target = add(a * b for a, b in zip(w, row)) + rng.gauss(0, 10)
        yield "%.9g" % target


LABELS = {"classification": classification, "regression": regression}
METHODS = sorted([*LABELS, "classes", "mixed", "ranking", "friedman", "friedman_classes", "sparse_classification",
                  "sparse_regression", "similarity", "kmeans", "factors", "mf", "fm", "als", "svd", "pagerank", "rmat",
                  "partition", "steady_state", "wc", "lda", "word2vec"])
# The kinds to which an option applies; options not listed apply to all.
ONLY = {
    "k": {"classification", "classes", "mixed", "ranking", "regression", "friedman", "friedman_classes", "sparse_classification",
          "sparse_regression", "similarity", "kmeans", "factors", "mf", "fm", "als", "svd", "lda"},
    "sep": set(METHODS) - {"ranking", "sparse_classification", "sparse_regression", "fm", "factors", "wc", "lda", "word2vec"},
    "documents": {"ranking"},
    "ncenters": {"kmeans", "classes"},
    "parts": {"partition", "word2vec"},
    "no_ids": {"similarity", "kmeans"},
    "nnz": {"sparse_classification", "sparse_regression", "mf", "fm", "als", "svd", "steady_state"},
    "informative": {"sparse_classification", "sparse_regression"},
    "binary_values": {"sparse_classification", "sparse_regression"},
    "zipf": {"sparse_classification", "sparse_regression", "mf", "fm", "als", "svd", "pagerank", "steady_state", "wc",
             "word2vec"},
    "items": {"mf", "fm", "als", "svd", "steady_state"},
    "noise": {"mf", "fm", "als", "svd"},
    "vertices": {"pagerank", "rmat"},
    "weighted": {"pagerank", "rmat"},
    "p_in": {"partition"},
    "p_out": {"partition"},
    "vocabulary": {"wc", "lda", "word2vec"},
    "length": {"lda", "word2vec"},
    "alpha": {"lda"},
    "beta": {"lda"},
    "as_text": {"lda"},
}
# The program's names of options, where they differ.
NAMES = {"k": "columns", "n": "rows", "ncenters": "parts"}
PLANTED = set(METHODS) - {"classification", "regression", "friedman", "friedman_classes", "mixed", "ranking", "similarity",
                          "factors", "pagerank", "rmat", "wc"}


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("found %s, want 1 or more" % text)
    return value


def positive_number(text):
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError("found %s, want more than 0" % text)
    return value


def not_negative(text):
    value = float(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError("found %s, want 0 or more" % text)
    return value


def probability(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("found %s, want 0 to 1" % text)
    return value


def size(text):
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKMGT]?)i?B?", text)
    value = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper().strip() or " ")) if match else 0
    if value < 1:
        raise argparse.ArgumentTypeError("found %s, want bytes such as 1000000, 64M or 10G" % text)
    return value


def numbers(text):
    for word in text.split(","):
        positive_number(word)
    return text


def parse(argv):
    parser = argparse.ArgumentParser(description="Generate input for the algorithms.", epilog=KINDS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("-m", "--method", required=True, choices=METHODS, help="what to generate", metavar="KIND")
    parser.add_argument("-o", "--out", "--output", dest="output", required=True, help="the file to write; - is stdout")
    parser.add_argument("-n", "--datasize", dest="n", type=positive,
                        help="number of samples (2500), queries (500), users, edges, ...")
    parser.add_argument("--size", type=size, help="instead of -n: approximate size in bytes, such as 10G")
    parser.add_argument("-k", "--nfeatures", dest="k", type=positive,
                        help="number of features (100; mixed 12, ranking 20), of factors or topics (10)")
    parser.add_argument("-s", "--sep", help="separator (a comma; for graphs a tab)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (0)")
    parser.add_argument("--jobs", type=positive, default=1, help="number of threads (1); it does not change the bytes")
    parser.add_argument("--truth", help="where to write the planted truth (<out>.truth)")
    parser.add_argument("--no_truth", action="store_true", help="do not write the planted truth")
    parser.add_argument("--binary", help="the program to run")
    parser.add_argument("--ncenters", type=positive, help="number of centres (kmeans) or classes (classes) (10)")
    parser.add_argument("--parts", type=positive, help="number of parts (partition, 4) or clusters (word2vec, 10)")
    parser.add_argument("--p_in", type=probability, help="partition: probability of an edge within a part (0.05)")
    parser.add_argument("--p_out", type=probability, help="partition: probability of an edge between parts (0.005)")
    parser.add_argument("--no_ids", action="store_true", help="similarity, kmeans: no id before the numbers")
    parser.add_argument("--nnz", type=positive_number,
                        help="mean number of entries per row: features (20), ratings (50), edges (10)")
    parser.add_argument("--zipf", type=not_negative, help="exponent of Zipf's law (words, features 1; ratings, links 0.8)")
    parser.add_argument("--informative", type=positive,
                        help="sparse_*: number of informative features, the most frequent ones (1000)")
    parser.add_argument("--binary_values", action="store_true", help="sparse_*: values are 1")
    parser.add_argument("--documents", type=positive_number, help="ranking: mean number of documents per query (20)")
    parser.add_argument("--items", type=positive,
                        help="number of items (mf, fm, als, svd, 1000) or right vertices (steady_state, n/5)")
    parser.add_argument("--noise", type=not_negative, help="mf, fm (0.5), als, svd (0.1): spread of the noise")
    parser.add_argument("--vertices", type=positive, help="number of vertices (pagerank n/10, rmat n/16)")
    parser.add_argument("--weighted", action="store_true", help="pagerank, rmat: add weights, multiples of 0.001 up to 1")
    parser.add_argument("--vocabulary", type=positive, help="number of words (wc 50000, lda 5000, word2vec 2000)")
    parser.add_argument("--length", type=positive_number,
                        help="mean number of words of a document (lda, 100) or line (word2vec, 10)")
    parser.add_argument("--alpha", type=numbers,
                        help="lda: prior of the topics in a document, one number or one for each topic (0.1)")
    parser.add_argument("--beta", type=positive_number, help="lda: prior of the words in a topic (0.05)")
    parser.add_argument("--as_text", action="store_true", help="lda: words instead of counts")
    options = parser.parse_args(argv)
    given = {name: value for name, value in vars(options).items() if value is not None and value is not False}
    for name in given:
        if name in ONLY and options.method not in ONLY[name]:
            # Paracel's command lines may contain -s and -k with every kind.
            if name not in ("sep", "k"):
                parser.error("argument --%s: not for %s" % (name, options.method))
    if options.n and options.size:
        parser.error("argument --size: not together with -n")
    if options.truth and options.no_truth:
        parser.error("argument --truth: not together with --no_truth")
    if options.truth and options.method not in PLANTED | set(LABELS):
        parser.error("argument --truth: nothing is planted in %s" % options.method)
    return options, given


def find_binary(options):
    if options.binary:
        return options.binary
    builds = [build for build in (os.environ.get("PARACEL_BUILD"), os.path.join(SOURCE, "build")) if build]
    here = os.path.dirname(os.path.abspath(__file__))  # its place when installed
    for folder in [os.path.join(build, "bin") for build in builds] + [here]:
        path = os.path.join(folder, "datagen")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def arguments(options, given):
    """The arguments of the program."""
    words = ["method=" + options.method, "output=" + options.output, "seed=%d" % abs(options.seed)]
    truth = options.truth
    if not truth and options.method in PLANTED and not options.no_truth and options.output != "-":
        truth = options.output + ".truth"
    if truth:
        words.append("truth=" + truth)
    for name, value in given.items():
        if name in ("method", "output", "seed", "truth", "no_truth", "binary"):
            continue
        if name in ONLY and options.method not in ONLY[name]:
            continue
        words.append("%s=%s" % (NAMES.get(name, name), 1 if value is True else value))
    return words


def generate(options):
    """Generates classification and regression data; returns the weights."""
    rng = random.Random(options.seed)
    k = options.k or 100
    w = weights(rng, k)
    label = LABELS[options.method](rng, w)
    # Formatting a whole row at once is twice as fast as number by number.
    sep = (options.sep if options.sep is not None else ",").replace("%", "%%")
    line = sep.join(["%.9g"] * k) + sep
    rows = math.inf if options.size else options.n or 2500
    out = sys.stdout if options.output == "-" else open(options.output + ".tmp", "w", encoding="ascii", newline="\n")
    try:
        done = written = 0
        while done < rows and written < (options.size or math.inf):
            row = [rng.gauss(0, 1) for _ in range(k)]
            next(label)
            written += out.write(line % tuple(row) + label.send(row) + "\n")
            done += 1
    finally:
        if out is not sys.stdout:
            out.close()
    if out is not sys.stdout:
        os.replace(options.output + ".tmp", options.output)
    return [100 * x for x in w] if options.method == "regression" else w


def main(argv=None):
    options, given = parse(argv)
    binary = find_binary(options)
    # Python's generator accepts a seed of any size.
    if binary and abs(options.seed) < 2**64:
        try:
            sys.stdout.flush()
            os.execv(binary, [binary, *arguments(options, given)])
        except OSError as e:
            print("datagen.py: error: %s: %s" % (binary, e.strerror), file=sys.stderr)
            return 1
    if options.method not in LABELS:
        what = "a seed below 2^64" if binary else "bin/datagen, which is not built: cmake --build build --target datagen"
        print("datagen.py: error: %s needs %s" % (options.method, what), file=sys.stderr)
        return 1
    try:
        w = generate(options)
        if options.truth:
            with open(options.truth, "w", encoding="ascii", newline="\n") as out:
                out.write("weights\t%s\n" % "|".join("%.17g" % x for x in w))
    except OSError as e:
        print("datagen.py: error: %s: %s" % (e.filename or options.output, e.strerror), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
