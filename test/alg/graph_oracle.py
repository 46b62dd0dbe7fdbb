# SPDX-License-Identifier: BSD-3-Clause
"""Expected results of the graph algorithms, by definition or by SciPy: ({name: figure}, {id: value})."""
import numpy
from scipy.sparse import csgraph, csr_matrix, diags, tril


class Graph:
    """Lines `source target [weight]`, weights of parallel edges are summed, and the vertices of a second file. Rows of `matrix`
    and of `simple`, which has each edge in both directions with weight 1 and no loops, are in the order of `ids`."""

    def __init__(self, edges, vertices):
        def fields(path):
            with open(path, encoding="utf-8") as file:
                return [line.split() for line in file]
        edges = fields(edges)
        ids = numpy.array([[int(e[0]), int(e[1])] for e in edges])
        weights = numpy.array([float(e[2]) if len(e) > 2 else 1.0 for e in edges])
        self.ids, at = numpy.unique(numpy.r_[ids[:, 0], ids[:, 1], [int(v[0]) for v in fields(vertices)]], return_inverse=True)
        n, m = len(self.ids), len(edges)
        self.matrix = csr_matrix((weights, (at[:m], at[m:2 * m])), shape=(n, n))
        self.simple = tril(self.matrix + self.matrix.T, -1).tocsr()
        self.simple = self.simple + self.simple.T
        self.simple.data[:] = 1

    def of_vertices(self, values):
        return dict(zip(map(str, self.ids.tolist()), values.tolist()))

    def distances(self, source, unweighted):
        """(those of vertices that are reached, all)"""
        found = csgraph.dijkstra(self.matrix, unweighted=unweighted, indices=numpy.searchsorted(self.ids, int(source)))
        return found[numpy.isfinite(found)], self.of_vertices(found)


def components(graph, connection):
    """The value of a vertex is the least id of its component."""
    count, label = csgraph.connected_components(graph.matrix, connection=connection)
    _, first = numpy.unique(label, return_index=True)
    return {"components": count, "largest": numpy.bincount(label).max()}, graph.of_vertices(graph.ids[first[label]])


def wcc(graph):
    return components(graph, "weak")


def scc(graph):
    return components(graph, "strong")


def bfs(graph, source):
    reached, level = graph.distances(source, True)
    return {"reached": len(reached), "depth": reached.max(), "sum_of_levels": reached.sum()}, level


def sssp(graph, source):
    reached, distance = graph.distances(source, False)
    return {"reached": len(reached), "farthest": reached.max(), "sum_of_distances": reached.sum()}, distance


def mvv(graph):
    """Every vertex that can still be reached gets the id, in descending order of ids."""
    value = numpy.full(len(graph.ids), -1)
    for s in range(len(value) - 1, -1, -1):
        reached = csgraph.breadth_first_order(graph.matrix, s, return_predecessors=False)
        value[reached[value[reached] < 0]] = graph.ids[s]
    return {"sum_of_values": value.sum()}, graph.of_vertices(value)


def k_core(graph):
    """Vertices are removed in the order of their degrees."""
    core, left, k = numpy.zeros(len(graph.ids), int), numpy.ones(len(graph.ids), bool), 0
    while left.any():
        degree = graph.simple @ left.astype(int)
        k = max(k, int(degree[left].min()))
        core[left & (degree <= k)] = k
        left &= degree > k
    return {"degeneracy": k, "vertices_of_that_core": (core == k).sum()}, graph.of_vertices(core)


def label_propagation(graph):
    """All vertices take the most frequent label of their neighbours, ties by the smallest, until nothing changes or the labels
    equal those of two rounds ago."""
    a = graph.simple
    label, before = numpy.arange(len(graph.ids)), None
    while True:
        around = [label[a.indices[a.indptr[v]:a.indptr[v + 1]]] for v in range(len(label))]
        new = numpy.array([numpy.bincount(labels).argmax() if len(labels) else label[v] for v, labels in enumerate(around)])
        if (new == label).all() or (before is not None and (new == before).all()):
            break
        before, label = label, new
    u, v = a.nonzero()
    shares = numpy.bincount(new[u]) / len(u)
    return ({"communities": len(set(new)), "modularity": (new[u] == new[v]).mean() - (shares ** 2).sum()},
            graph.of_vertices(graph.ids[new]))


def triangle_count(graph):
    a = tril(graph.simple).tocsr()
    return {"triangles": (a @ a).multiply(a).sum()}, {}


def pagerank(graph, damping=0.85):
    """x <- (1 - d)/n + d (sum over edges of x_u w / W_u + lost mass / n), until a step is below 1e-13."""
    n = len(graph.ids)
    leaves = numpy.asarray(graph.matrix.sum(axis=1)).ravel()
    lost = leaves == 0
    into = (diags(1 / numpy.where(lost, 1, leaves)) @ graph.matrix).T.tocsr()
    x, step = numpy.full(n, 1 / n), 1
    while step > 1e-13:
        new = (1 - damping) / n + damping * (into @ x + x[lost].sum() / n)
        x, step = new, abs(new - x).sum()
    return {"top": str(graph.ids[x.argmax()]), "top_score": x.max()}, graph.of_vertices(x)
