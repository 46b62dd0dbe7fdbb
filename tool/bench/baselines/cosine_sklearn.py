# SPDX-License-Identifier: BSD-3-Clause
"""cosine_sklearn.py sparse|dense ROWS TOPK, or between A TOPK B: scikit-learn's cosine similarities, the best TOPK of each
row (of A among the rows of B), in blocks."""
import sys

import numpy
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import normalize

import reading

what, path, topk = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = normalize(reading.ratings(path) if what == "sparse" else reading.table(path)[:, 1:])
other = normalize(reading.table(sys.argv[4])[:, 1:]) if what == "between" else rows
best, kept = -1.0, 0
for first in range(0, rows.shape[0], 500):
    similar = cosine_similarity(rows[first:first + 500], other)
    if other is rows:
        own = numpy.arange(len(similar))
        similar[own, first + own] = -numpy.inf
    k = min(topk, similar.shape[1] - (other is rows))
    top = numpy.argpartition(-similar, k - 1, axis=1)[:, :k]
    values = numpy.take_along_axis(similar, top, axis=1)
    order = numpy.argsort(-values, axis=1)
    values = numpy.take_along_axis(values, order, axis=1)
    best = max(best, values[:, 0].max())
    kept += (values > 0).sum()
print("best_similarity %.17g" % best)
print("neighbours", kept)
