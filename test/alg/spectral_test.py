#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""spectral_clustering, tested by running jobs: it finds the clusters planted by datagen.py, its eigenvalues equal SciPy's, and
any number of workers gives the same labels."""
import os
import random
import unittest

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.sparse import coo_matrix, diags
from scipy.sparse.linalg import eigsh

import oracles
from alg_job import MPI, AlgorithmCase


def rand_index(a, b):
    """The adjusted Rand index."""
    a, b = (np.unique(x, return_inverse=True)[1] for x in (a, b))
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    together, left, right, n = ((x * (x - 1) / 2).sum() for x in (table, table.sum(1), table.sum(0), np.array([len(a)])))
    return (together - left * right / n) / ((left + right) / 2 - left * right / n)


def eigenpairs(edges, n, k):
    """The k smallest eigenvalues of I - D^-1/2 W D^-1/2, and their vectors as columns; edges: (i, j, weight) with
    0 <= i, j < n, no vertex without weight."""
    i, j, weight = (np.array(x) for x in zip(*[e for e in edges if e[0] != e[1]]))
    w = coo_matrix((weight, (i, j)), shape=(n, n)).tocsr()
    w = w + w.T
    scale = diags(np.asarray(w.sum(0)).ravel() ** -0.5)
    values, vectors = eigsh(scale @ w @ scale, k=k, which="LA", tol=1e-12, v0=np.random.default_rng(0).normal(size=n))
    return 1 - values[::-1], vectors[:, ::-1]


def least_inertia(vectors):
    """Of ten runs of k-means on the rows, scaled to length 1."""
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    runs = (kmeans2(rows, rows.shape[1], iter=100, minit="++", seed=seed)[0] for seed in range(10))
    return min(oracles.kmeans(rows, centres, 0)[0] for centres in runs)


class Spectral(AlgorithmCase):
    program = "spectral_clustering"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.planted = cls.generate("planted.txt", "partition", "-n", 2000, "--parts", 4, "--p_in", 0.05, "--p_out", 0.005,
                                   "--seed", 3)

    def found(self, workers=1, servers=1, mode="local", **keys):
        """The job's output, and {id: label}."""
        said = self.results(self.job(workers, servers, mode, **keys))
        lines = [line.split("\t") for line in self.lines("label", workers)]
        return said, {a: int(b) for a, b in lines}

    def values(self, said):
        return np.array([said[f"eigenvalue_{j + 1}"] for j in range(sum(name.startswith("eigenvalue_") for name in said))])

    def test_the_planted_partition_is_found_by_any_workers_in_every_mode(self):
        with open(self.planted, encoding="utf-8") as file:
            edges = [(*map(int, line.split("\t")), 1.0) for line in file]
        with open(self.planted + ".truth", encoding="utf-8") as file:
            truth = dict(line.split() for line in file)
        want, vectors = eigenpairs(edges, 2000, 4)
        first = None
        runs = [(1, 1, "embedded"), (1, 1, "local"), (2, 1, "local"), (4, 3, "local")] + [(2, 1, "mpi")] * MPI
        for workers, servers, mode in runs:
            said, labels = self.found(workers, servers, mode, input=self.planted, kclusters=4)
            np.testing.assert_allclose(self.values(said), want, atol=1e-8)
            with open(os.path.join(self.output, "eigenvalues_0"), encoding="utf-8") as file:
                np.testing.assert_allclose([float(x) for x in file.read().split("|")], want, atol=1e-8)
            self.assertEqual((said["converged"], said["clusters"], said["isolated"]), ("yes", 4, 0))
            self.assertGreaterEqual(rand_index(list(labels.values()), [truth[v] for v in labels]), 0.98)
            self.assertEqual(labels["0"], 0)
            first = first or (said, labels)
            self.assertEqual(labels, first[1])
            self.assertAlmostEqual(said["inertia"] / first[0]["inertia"], 1, places=9)
        metrics = self.curve()
        for part in [[m for m in metrics if m["stage"] == 1]] + [[m for m in metrics if m.get("run") == r] for r in range(10)]:
            self.assertEqual([m["round"] for m in part], list(range(1, len(part) + 1)))
        self.assertEqual({m["run"] for m in metrics if m["stage"] == 2}, set(range(10)))
        self.assertAlmostEqual(least_inertia(vectors) / first[0]["inertia"], 1, places=6)

    def test_runs_are_the_same_bits(self):
        seen = []
        for _ in range(2):
            said, labels = self.found(3, 2, input=self.planted, kclusters=4, seed=5)
            seen.append((labels, {name: value for name, value in said.items() if name != "output"}))
        self.assertEqual(seen[0], seen[1])

    def test_weights_count_twice_given_pairs_are_summed_and_loops_ignored(self):
        # Two halves that differ only in their weights: every pair is an edge.
        rng = random.Random(2)
        edges = [(i, j, rng.uniform(1, 2) if i % 2 == j % 2 else 0.1) for i in range(30) for j in range(i)]
        text = "".join(f"v{i:02},v{j:02},{w / 2!r}\nv{j:02},v{i:02},{w / 2!r}\n" for i, j, w in edges) + "v03,v03,1000\n"
        for workers in (1, 3):
            said, labels = self.found(workers, input=self.path("weights.csv", text), kclusters=2)
            np.testing.assert_allclose(self.values(said), eigenpairs(edges, 30, 2)[0], atol=1e-8)
            self.assertEqual(labels, {f"v{i:02}": i % 2 for i in range(30)})

    def test_vertices_without_edges_have_no_label(self):
        # Two triangles; 5 has only a self-loop, 3 and 9 no edges, 4 an edge of weight 0.
        edges = self.path("two.txt", "8 7 1\n7 6 1\n6 8 1\n1 10 1\n10 2 1\n2 1 1\n5 5 1\n4 1 0\n")
        vertices = self.path("vertices.txt", "".join(f"{v}\n" for v in range(1, 11)))
        want = {str(v): 0 if v in (1, 2, 10) else 1 if v in (6, 7, 8) else -1 for v in range(1, 11)}
        for workers in (1, 2, 4):
            said, labels = self.found(workers, input=edges, vertices=vertices, kclusters=2)
            self.assertEqual(labels, want)
            np.testing.assert_allclose(self.values(said), [0, 0], atol=1e-8)
            self.assertEqual((said["vertices"], said["isolated"], said["clusters"]), (10, 4, 2))

    def test_as_many_clusters_as_vertices_and_a_worker_without_any(self):
        # An edge has the eigenvalues 0 and 2; the vector of 2 is not needed to distinguish the vertices of two edges.
        said, labels = self.found(4, input=self.path("pairs.txt", "1 2\n3 4\n"), kclusters=2)
        self.assertEqual(labels, {"1": 0, "2": 0, "3": 1, "4": 1})
        said, labels = self.found(1, input=self.path("path.txt", "1 2\n2 3\n"), kclusters=3)
        np.testing.assert_allclose(self.values(said), [0, 1], atol=1e-8)
        self.assertEqual(labels, {"1": 0, "2": 1, "3": 2})

    def test_npy_has_the_same_labels_and_dump_says_whether(self):
        _, labels = self.found(2, input=self.planted, kclusters=4)
        self.job(2, input=self.planted, kclusters=4, format="npy")
        arrays = self.manifest()["arrays"]
        ids, label = (np.concatenate([np.load(os.path.join(self.output, f)) for f in arrays["label"][key]])
                      for key in ("ids", "files"))
        self.assertEqual({str(a): int(b) for a, b in zip(ids, label)}, labels)
        self.assertEqual(np.load(os.path.join(self.output, *arrays["eigenvalues"]["files"])).shape, (4,))
        self.job(1, mode="embedded", input=self.planted, kclusters=4, dump=False)
        self.assertFalse(os.path.exists(os.path.join(self.output, "label_0")))

    def test_steps_that_are_used_up_are_said(self):
        said, labels = self.found(2, input=self.planted, kclusters=4, rounds=1, n_init=1)
        self.assertEqual((said["converged"], said["rounds"], len(labels)), ("no", 1, 2000))

    def test_a_long_path_is_cut_in_the_middle_or_said_not_to_converge(self):
        path = self.path("long_path.txt", "".join(f"{i} {i + 1}\n" for i in range(800)))
        said, labels = self.found(mode="embedded", input=path, kclusters=2)
        self.assertEqual((said["converged"], self.manifest()["converged"], self.stderr), ("yes", True, ""))
        want = 1 - np.cos(np.pi * np.arange(2) / 800)
        np.testing.assert_allclose(self.values(said), want, atol=1e-12)
        # The vertex in the middle belongs to either half.
        self.assertEqual([labels[str(i)] for i in range(801) if i != 400], [0] * 400 + [1] * 400)
        said, labels = self.found(mode="embedded", input=path, kclusters=2, rounds=20)
        self.assertEqual((said["converged"], self.manifest()["converged"]), ("no", False))
        self.assertIn("warning: not converged after 20 rounds: the residual of an eigenvector is ", self.stderr)
        self.assertIn("labels may be wrong; raise rounds, basis or tolerance", self.stderr)

    def test_the_basis_grows_if_rounds_would_not_suffice(self):
        path = self.path("path_601.txt", "".join(f"{i} {i + 1}\n" for i in range(600)))
        for workers in (1, 2):
            said, labels = self.found(workers, input=path, kclusters=2, rounds=600)
            self.assertEqual(said["converged"], "yes")
            np.testing.assert_allclose(self.values(said), 1 - np.cos(np.pi * np.arange(2) / 600), atol=1e-12)
            self.assertEqual([labels[str(i)] for i in range(601) if i != 300], [0] * 300 + [1] * 300)
        said, _ = self.found(mode="embedded", input=path, kclusters=2, rounds=600, basis=40)
        self.assertEqual(said["converged"], "no")
        self.assertIn("raise rounds, basis or tolerance", self.stderr)

    def test_wrong_input_and_keys_are_refused(self):
        for text, want in (("1 2 3\n4 5 x\n", "bad.txt:2:5"), ("1 2 3\n4\n", "bad.txt:2:"), ("\n", "found no edge"),
                           ("1 1 3\n", "found no edge"), ("1 2 3\n2 3 -1\n", "bad.txt:2:5: found \"-1\""),
                           ("1 2 nan\n", "bad.txt:1:5")):
            self.assertIn(want, self.job(2, status=4, input=self.path("bad.txt", text), kclusters=1))
        few = self.path("few.txt", "1 2\n3 3\n")
        for keys, want in (({"kclusters": 3}, "vertices with edges, 2"), ({}, 'key "kclusters"'),
                           ({"kclusters": 0}, 'key "kclusters"'), ({"kclusters": 1, "tolerance": 0}, 'key "tolerance"'),
                           ({"kclusters": 1, "n_init": 0}, 'key "n_init"'), ({"kclusters": 1, "color": 2}, "color")):
            self.assertIn(want, self.job(1, mode="embedded", status=3, input=few, **keys))
        self.assertIn("vertices with edges, 2", self.job(2, status=3, input=few, kclusters=3))


if __name__ == "__main__":
    unittest.main()
