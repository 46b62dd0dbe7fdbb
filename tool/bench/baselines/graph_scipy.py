# SPDX-License-Identifier: BSD-3-Clause
"""graph_scipy.py wcc|scc|bfs|pagerank EDGES [SOURCE]: SciPy."""
import sys

import numpy
from scipy.sparse import csgraph

import reading

what, path = sys.argv[1:3]
graph, ids = reading.adjacency(path)
if what in ("wcc", "scc"):
    count, label = csgraph.connected_components(graph, connection="weak" if what == "wcc" else "strong")
    print("components", count)
    print("largest", numpy.bincount(label).max())
elif what == "bfs":
    order = csgraph.breadth_first_order(graph, int(numpy.searchsorted(ids, int(sys.argv[3]))), return_predecessors=False)
    print("reached", len(order))
else:
    n = len(ids)
    out = numpy.asarray(graph.sum(axis=1)).ravel()
    lost = out == 0
    share = numpy.divide(1, out, where=~lost, out=numpy.zeros(n))
    into = graph.T.tocsr()
    x = numpy.full(n, 1 / n)
    for _ in range(200):
        new = 0.15 / n + 0.85 * (into @ (x * share) + x[lost].sum() / n)
        step = abs(new - x).sum()
        x = new
        if step <= 1e-10:
            break
    print("top_score %.17g" % x.max())
