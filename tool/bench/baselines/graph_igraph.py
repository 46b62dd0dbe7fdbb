# SPDX-License-Identifier: BSD-3-Clause
"""graph_igraph.py pagerank|triangles EDGES: igraph; PageRank by prpack, on parallel edges as they are."""
import sys

import igraph
import numpy

import reading

what, path = sys.argv[1:3]
source, target, ids = reading.edges(path)
graph = igraph.Graph(n=len(ids), edges=numpy.stack([source, target], axis=1), directed=what == "pagerank")
del source, target, ids
if what == "pagerank":
    print("top_score %.17g" % max(graph.pagerank(damping=0.85, implementation="prpack")))
else:
    graph.simplify()
    # igraph counts triangles without listing them by their closed paths of two edges, three for each triangle.
    paths = sum(d * (d - 1) // 2 for d in graph.degree())
    print("triangles", round(graph.transitivity_undirected() * paths / 3))
