#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs in the style of Paracel 0.3, one of each kind, compiled unchanged with the installed tree: their results equal those
of a few lines of Python, embedded, with local processes and under MPI."""
import collections
import json
import os
import random
import subprocess
import sys
import unittest

from old_support import OldPrograms, dictionary, words

ALL_WAYS = ("embedded", 1), ("local", 4), ("mpi", 2)
LOCAL = (("local", 3),)
WAYS = {"fsmap": ALL_WAYS, "fmap": LOCAL, "smap": LOCAL}


class Programs(OldPrograms):
    targets = ("old_handle", "old_graph", "old_matrix", "old_filters", "old_multi", "old_pregel", "old_messages", "old_headers")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.handle = os.path.join(cls.project, "libold_handle.so")

    def test_a_graph(self):
        rng = random.Random(11)
        edges = {}
        lines = []
        for _ in range(400):
            a, b, w = rng.randrange(90), rng.randrange(90) + 60, round(rng.uniform(0, 5), 3)
            edges[a, b] = w  # a repeated edge gets the new weight
            lines.append(f"{a},{b},{w}\n" + ("\n" if rng.random() < 0.1 else ""))
        for v in (3, 70):
            edges[v, v] = 1.0
            lines.append(f"{v},{v}\n")
        edges[61, 2 ** 63] = 0.1
        lines.append(f"61,{2 ** 63}:0.1")
        similar = {f"u{i}": [(f"u{(i * 7 + k) % 50}", round(rng.random(), 6)) for k in range(1 + i % 3)] for i in range(50)}
        files = {"input": self.write("edges.txt", "".join(lines)),
                 "similar": self.write("similar.txt", "".join(
                     f"{u} {'|'.join(f'{v}:{w}' for v, w in row)}\n" for u, row in similar.items()))}

        after = collections.defaultdict(set)
        into = collections.defaultdict(float)
        links = collections.Counter()
        vertices = sorted({v for edge in edges for v in edge})
        root = {v: v for v in vertices}

        def find(v):
            while root[v] != v:
                v = root[v]
            return v
        for (a, b), w in edges.items():
            after[a].add(b)
            into[str(b)] += w
            links[b] += 1
            root[max(find(a), find(b))] = min(find(a), find(b))
        order = {r: i for i, r in enumerate(sorted({find(v) for v in vertices}))}
        distance = {5: 0}
        queue = collections.deque([5])
        while queue:
            v = queue.popleft()
            for w in after[v]:
                if w not in distance:
                    distance[w] = distance[v] + 1
                    queue.append(w)
        for pattern, ways in WAYS.items():
            for output, said, workers in self.in_every_way("old_graph", ways, handle_file=self.handle, pattern=pattern,
                                                           source=5, **files):
                numbers = words(said)
                self.assertEqual(int(numbers["edges"]), len(edges))
                self.assertEqual(int(numbers["selfloops"]), sum(a == b for a, b in edges))
                self.assertEqual(int(numbers["components"]), len(order))

                def first(name, kind):
                    return dictionary(os.path.join(output, name + "0"), kind)
                self.assertEqual(first("out_degree_", int), {str(v): len(after[v]) for v in vertices})
                self.assertEqual(first("in_degree_", int), {str(v): links[v] for v in vertices})
                self.assertEqual(first("distance_", int), {str(v): d for v, d in distance.items()})
                self.assertEqual(first("component_", int), {str(v): order[find(v)] for v in vertices})
                self.nearly(dictionary(self.of_all(output, "in_weight_", workers)), into)
                best = dictionary(self.of_all(output, "best_", workers), str)
                self.assertEqual({u: sorted(row.split("|")) for u, row in best.items()},
                                 {u: sorted(f"{v}:{w}" for v, w in row) for u, row in similar.items()})

    def test_a_matrix(self):
        rng = random.Random(12)
        cells = collections.defaultdict(float)
        lines = []
        for _ in range(500):
            i, j, w = rng.randrange(40), rng.randrange(30), rng.uniform(-2, 2)
            cells[i, j] += w  # a repeated one is added
            lines.append(f"{i},{j},{w!r}\n")
        vectors = {f"v{i}": [rng.gauss(0, 1) for _ in range(5)] for i in range(37)}
        files = {"ratings": self.write("ratings.csv", "".join(lines)),
                 "vectors": self.write("vectors.txt", "".join(
                     f"{name}\t{'|'.join(map(repr, row))}\n" for name, row in vectors.items()))}
        product = collections.defaultdict(float)
        for (i, j), w in cells.items():
            product[str(i)] += w / (1 + j)
        gram = [sum(row[0] * row[k] for row in vectors.values()) for k in range(5)]
        for pattern, ways in WAYS.items():
            for output, said, workers in self.in_every_way("old_matrix", ways, update_file=self.handle, pattern=pattern,
                                                           **files):
                numbers = words(said)
                self.assertEqual(int(numbers["entries"]), len(cells))
                self.nearly({k: float(numbers[k]) for k in ("sparse_total", "weighted")},
                            {"sparse_total": sum(cells.values()),
                             "weighted": sum(w * (i % 3) * (j % 2) for (i, j), w in cells.items())})
                self.nearly(dictionary(self.of_all(output, "y_", workers)), product)
                self.nearly(dictionary(self.of_all(output, "norm_", workers)),
                            {name: sum(x * x for x in row) ** 0.5 for name, row in vectors.items()})
                with open(os.path.join(output, "gram_0"), encoding="utf-8") as file:
                    got = [float(x) for x in file.read().split("|")]
                self.nearly(dict(enumerate(got)), dict(enumerate(gram)))

    def test_filters(self):
        n = 101
        scores = {f"score_{i}": float(i * 37 % n) for i in range(n)}
        for output, _, _ in self.in_every_way("old_filters", ALL_WAYS, filter_file=self.handle, n=n):
            self.assertEqual(dictionary(os.path.join(output, "large_0")), {k: v for k, v in scores.items() if v >= 10})
            with open(os.path.join(output, "best_0"), encoding="utf-8") as file:
                best = [line.split(":") for line in file.read().split()]
            want = sorted(scores.items(), key=lambda kv: -kv[1])[:7]
            self.assertEqual([(k, float(v)) for k, v in best], want)

    def test_many_keys(self):
        n, rounds = 40, 6
        for limit, ways in (0, ALL_WAYS), (2, LOCAL):
            for output, said, workers in self.in_every_way("old_multi", ways, update_file=self.handle, n=n, rounds=rounds,
                                                           limit_s=limit):
                ranks = workers * (workers + 1) // 2
                sums = [sum(2 * ranks * (i + r) + 0.5 * workers * (i % 2) for r in range(rounds)) for i in range(n)]
                greatest = [workers * max((i + r) % 11 for r in range(rounds)) for i in range(n)]
                for name, want in ("sum_0", sums), ("max_0", greatest):
                    with open(os.path.join(output, name), encoding="utf-8") as file:
                        self.assertEqual([float(x) for x in file.read().split("|")], want, name)
                self.assertEqual(float(words(said)["alone"]), ranks * rounds)

    def test_messages(self):
        for _, said, workers in self.in_every_way("old_messages", (("embedded", 1), ("local", 4), ("local", 5), ("mpi", 3))):
            self.assertEqual(words(said), {"sum": str(workers * (workers - 1) // 2), "wrong": "0"})

    def test_lower_layers(self):
        rng = random.Random(14)
        folder = os.path.join(self.folder, "parts")
        os.mkdir(folder)
        cells = [(rng.randrange(40), rng.randrange(30), rng.uniform(-2, 2)) for _ in range(700)]
        for part in range(3):
            self.write(f"parts/{part}.csv", "".join(f"{i},{j},{w!r}\n" for i, j, w in cells[part::3]))
        rows = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(50)]
        files = {"input": folder, "vectors": self.write("rows.txt", "".join(
            f"r{i}\t{'|'.join(map(repr, row))}\n" for i, row in enumerate(rows)))}
        for pattern, ways in WAYS.items():
            scratch = os.path.join(self.folder, "scratch_" + pattern)
            os.mkdir(scratch)
            for _, said, _ in self.in_every_way("old_headers", ways, pattern=pattern, folder=scratch, **files):
                got = words(said)
                self.assertEqual(got.pop("wrong"), "0", said)
                self.nearly({k: float(v) for k, v in got.items()}, {
                    "lines": len(cells), "edges": len({cell[:2] for cell in cells}), "total": sum(w for _, _, w in cells),
                    "weighted": sum(w * (i % 3) * (j % 2) for i, j, w in cells), "dense": sum(map(sum, rows))})

    def test_a_worker_that_waits_for_one_that_dies_is_told_which(self):
        path = os.path.join(self.project, "old_messages")
        config = self.write("dies.json", json.dumps({"output": os.path.join(self.folder, "dies"), "die": 1}))
        prun = os.path.join(self.prefix, "bin", "prun.py")
        done = subprocess.run([prun, "-w", "3", "-p", "1", "-c", config, "-m", "local", path], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, cwd=self.folder)
        self.assertEqual(done.returncode, 10, done.stdout)
        self.assertRegex(done.stdout, "worker 1")

    def test_vertex_programs(self):
        rng = random.Random(13)
        edges = sorted({(rng.randrange(60), rng.randrange(80)) for _ in range(110)})  # some vertices only receive
        path = self.write("links.csv", "".join(f"{a},{b}\n" for a, b in edges))
        vertices = sorted({v for edge in edges for v in edge})
        after = collections.defaultdict(set)
        for a, b in edges:
            after[a].add(b)

        def levels(source):
            found = {source: 0}
            queue = collections.deque([source])
            while queue:
                v = queue.popleft()
                for w in after[v]:
                    if w not in found:
                        found[w] = found[v] + 1
                        queue.append(w)
            return found
        greatest = {str(v): max(u for u in vertices if v in levels(u)) for v in vertices}
        source = edges[0][0]
        from_source = {str(v): levels(source).get(v, 1000000) for v in vertices}
        for output, _, workers in self.in_every_way("old_pregel", ALL_WAYS, update_file=self.handle, input=path,
                                                    source=str(source)):
            self.assertEqual(dictionary(self.of_all(output, "max_", workers)), greatest)
            self.assertEqual(dictionary(self.of_all(output, "distance_", workers)), from_source)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
