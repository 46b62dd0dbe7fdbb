#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Files of edges and ratings as they are published: comments, headers, parallel edges, columns in any order, great ids. What
the programs read is compared with the same file without them, and distances with SciPy and networkx."""
import json
import os
import random
import subprocess
import unittest

from alg_job import BIN, SOURCE, AlgorithmCase

KONECT = "% sym unweighted\n% 2 4 4\n1 2\n3 4\n"
SNAP = "#FromNodeId\tToNodeId\n101\t102\n102\t104\n"
GREAT = 2 ** 53


class EdgeFiles(AlgorithmCase):
    program = "wcc"

    def values(self, name, workers):
        return dict(line.split("\t") for line in self.lines(name, workers))

    def graph(self, text, workers=2, program="wcc", **keys):
        """vertices and edges."""
        mode = "embedded" if workers == 1 else "local"
        found = self.results(self.job(workers, mode=mode, program=program, input=self.path("edges", text), **keys))
        return found["vertices"], found["edges"]

    def test_comments_are_no_edges_and_are_counted(self):
        for text, want in ((KONECT, (4, 2)), (SNAP, (3, 2)), ("// a b\n  # c d\n1 2\n", (2, 1))):
            for workers in (1, 3):
                with self.subTest(text, workers=workers):
                    self.assertEqual(self.graph(text, workers), want)
        path = self.path("konect", KONECT)
        self.job(mode="embedded", input=path)
        said = self.said(input=path)
        self.assertIn(f'{path}: skipped 2 comment lines ("comment": false reads them)', said)

    def said(self, **keys):
        """What a job in one process writes to stderr."""
        config = self.path("said.json", json.dumps({"output": os.path.join(self.folder, "said"), **keys}))
        done = subprocess.run([os.path.join(BIN, "wcc"), "--cfg_file", config], capture_output=True, text=True, cwd=SOURCE,
                              stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_ids_may_begin_like_a_comment(self):
        self.assertEqual(self.graph("#a #b\n#b c\n", comment=False), (3, 2))
        self.assertEqual(self.graph("a #b\n#b c\n"), (2, 1))

    def test_a_header_is_no_edge(self):
        for text in ("source,target\n1,2\n2,3\n", "source,target,weight\r\n1,2,5\r\n2,3,1\r\n", "\ufeff\"u\"\t\"v\"\n1\t2\n2\t3"):
            for program, keys in (("wcc", {}), ("pagerank", {}), ("bfs", {"source": "1"}), ("sssp", {"source": "1"})):
                with self.subTest(text, program=program):
                    self.assertEqual(self.graph(text, 2, program, **keys), (3, 2))
        names = "source,target\nann,bob\n"
        said = self.job(2, status=4, input=self.path("edges", names))
        self.assertIn('edges:1:1: found "source,target", which may be a header or an entry; want "header": "yes"', said)
        self.assertEqual(self.graph(names, header="yes"), (2, 1))
        self.assertEqual(self.graph(names, header="no"), (4, 2))
        path = self.path("edges", "u v\n1 2\n")
        self.assertIn(f'{path}: skipped the header {path}:1 "u v" ("header": "no" reads it)', self.said(input=path))

    def test_a_header_is_decided_on_with_all_lines(self):
        text = "a b\n" + "".join(f"{i} {i + 1}\n" for i in range(20000)) + "a c\n"
        said = self.job(2, status=4, input=self.path("edges", text))
        self.assertIn('edges:1:1: found "a b", which may be a header or an entry, as there are other names', said)
        self.assertEqual(self.graph(text, header="no"), (20004, 20002))

    def test_a_file_of_vertices_may_have_both(self):
        nodes = self.path("nodes", "# all\nid\tname\n1\tx\n2\ty\n9\tz\n")
        self.assertEqual(self.graph("1 2\n", vertices=nodes), (3, 1))

    def test_columns_are_chosen_by_name_or_number(self):
        text = "when,to,cost,from\n2001,b,2,a\n2002,c,3,b\n"
        for columns in (["from", "to", "cost"], ["3", "1", "2"], [3, 1, 2], ["from", 1, 2]):
            self.graph(text, 2, "sssp", source="a", columns=columns)
            self.assertEqual(self.values("distance", 2), {"a": "0", "b": "2", "c": "5"})
        said = self.job(2, status=4, input=self.path("edges", text), columns=["from", "till"])
        self.assertIn('edges:1:1: found no field "till" in the header, which has when, to, cost, from', said)
        for columns in (["a"], ["a", "a"], ["a", "b", "c", "d"], ["0", ""]):
            self.assertIn('"columns"', self.job(mode="embedded", status=3, input=self.path("edges", text), columns=columns))

    def test_parallel_edges_of_paths_are_alternatives(self):
        edges = self.path("edges", "a b 5\na b 3\nb c 1\n")
        both = self.path("both", "a b 5\nb a 5\nb c 1\n")
        for path, keys, want in ((edges, {}, "034"), (both, {"directed": False}, "056"), (edges, {"duplicates": "sum"}, "089"),
                                 (edges, {"duplicates": "max"}, "056"), (both, {"directed": False, "duplicates": "sum"}, None)):
            for workers in (1, 3):
                with self.subTest(keys, workers=workers):
                    self.job(workers, program="sssp", input=path, source="a", **keys)
                    found = "".join(self.values("distance", workers)[v] for v in "abc")
                    self.assertEqual(found, want or "01011")
        said = self.job(2, status=4, program="sssp", input=edges, source="a", duplicates="error")
        self.assertIn('edges:2:1: found an entry of row "a" and column "b" for the second time', said)

    def test_distances_are_those_of_scipy_and_networkx(self):
        coo_matrix = self.library("scipy.sparse").coo_matrix
        dijkstra = self.library("scipy.sparse.csgraph").dijkstra
        try:
            import networkx
        except ImportError:
            networkx = None
        rng = random.Random(3)
        edges = [(rng.randrange(60), rng.randrange(60), rng.randrange(1, 32) / 8) for _ in range(400)]
        path = self.path("multi", "".join(f"{a} {b} {w}\n" for a, b, w in edges))
        both = self.path("multi_both", "".join(f"{a} {b} {w}\n{b} {a} {w}\n" for a, b, w in edges))
        for directed in (True, False):
            lightest = {}
            for a, b, w in edges + ([] if directed else [(b, a, w) for a, b, w in edges]):
                lightest[a, b] = min(w, lightest.get((a, b), w))
            (rows, columns), weights = zip(*lightest), list(lightest.values())
            distances = dijkstra(coo_matrix((weights, (rows, columns)), shape=(60, 60)).tocsr(), indices=0)
            if networkx is not None:
                graph = networkx.MultiDiGraph() if directed else networkx.MultiGraph()
                graph.add_weighted_edges_from(edges)
                want = networkx.single_source_dijkstra_path_length(graph, 0)
                self.assertEqual({v: d for v, d in enumerate(distances) if d != float("inf")}, want)
            for name in [path] if directed else [path, both]:
                self.job(2, program="sssp", input=name, source="0", directed=directed)
                found = {int(v): float(d) for v, d in self.values("distance", 2).items()}
                self.assertEqual(found, {v: distances[v] for v in found})

    def test_duplicate_edges_of_pagerank(self):
        once, twice = "a b 2\na c 1\nb a 1\nc a 1\n", "a b 1\na b 1\na c 1\nb a 1\nc a 1\n"
        simple = "a b\na c\nb a\nc a\n"
        scores = {}
        for name, text, keys in (("once", once, {}), ("sum", twice, {}), ("simple", simple, {}),
                                 ("min", twice, {"duplicates": "min"}),
                                 ("unweighted", "a b\n" + simple, {"duplicates": "max"})):
            self.graph(text, 2, "pagerank", **keys)
            scores[name] = {k: round(float(v), 9) for k, v in self.values("pagerank", 2).items()}
        self.assertEqual(scores["sum"], scores["once"])
        self.assertEqual(scores["min"], scores["simple"])
        self.assertEqual(scores["unweighted"], scores["simple"])
        self.assertNotEqual(scores["sum"], scores["simple"])

    def test_great_ids_are_exact(self):
        least, most = GREAT + 1, 2 ** 64 - 1
        text = f"{least} {GREAT + 3}\n{most} {GREAT + 4}\n5 6\n"
        want = {str(least): str(least), str(GREAT + 3): str(GREAT + 3), str(most): str(most), str(GREAT + 4): str(most),
                "5": "5", "6": "6"}
        for program in ("mvv", "mvv_pregel"):
            for workers in (1, 2):
                with self.subTest(program, workers=workers):
                    self.graph(text, workers, program) if workers > 1 else self.job(program=program, input=self.path("e", text))
                    self.assertEqual(self.values("vertex_val", workers), want)
        # Where values are what they are named, what a double rounds is refused.
        path = self.path("e", f"{least} 6\nx6 7\n".replace("x6", "-6"))
        said = self.job(2, status=4, program="mvv", input=path)
        self.assertIn(f'e: found the id "{least}", want a number that a double represents exactly', said)
        said = self.job(2, status=4, program="mvv", input=self.path("e", text), update_func="paracel_min")
        self.assertIn(f'e: found the id "{least}", want a number that a double represents exactly', said)


class Ratings(AlgorithmCase):
    program = "mf"

    def test_the_same_ratings_in_every_form(self):
        rng = random.Random(5)
        ratings = [(u, i, rng.randrange(1, 11) / 2) for u in range(12) for i in range(9) if rng.random() < 0.6]
        forms = {
            "plain": "".join(f"{u},{i},{r}\n" for u, i, r in ratings),
            "movielens": "userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{r},97{u}\n" for u, i, r in ratings),
            "colons": "".join(f"{u}::{i}::{r}::978300760\n" for u, i, r in ratings),
            "tabs": "user\titem\trating\r\n" + "".join(f"{u}\t{i}\t{r}\r\n" for u, i, r in ratings),
            "semicolons": "# said\n" + "".join(f"{u};{i};{r}\n" for u, i, r in ratings),
        }
        order = "stars,when,film,viewer\n" + "".join(f"{r},1,{i},{u}\n" for u, i, r in ratings)
        columns = ["viewer", "film", "stars"]
        for program, name, more in (("mf", "input", {"k": 2, "rounds": 3}), ("als", "rating_input", {"k": 2, "rounds": 3}),
                                    ("svd", "input", {"k": 2}), ("sim_sparse", "input", {})):
            self.program = program
            tests = ("mf", "als")
            found = {}
            for form, text in forms.items():
                path = self.path(form, text)
                keys = {name: path, **more, **({"test_input": path, "predict_input": path} if program in tests else {})}
                found[form] = self.results(self.job(program=program, mode="local", workers=2, **keys))
            path = self.path("order", order)
            keys = {name: path, **more, **({"test_input": path, "predict_input": path} if program in tests else {})}
            found["order"] = self.results(self.job(program=program, workers=2, columns=columns, **keys))
            numbers = [order.splitlines()[0].split(",").index(name) for name in columns]
            found["numbers"] = self.results(self.job(program=program, workers=2, columns=numbers, **keys, header="yes"))
            for form, result in found.items():
                with self.subTest(program, form=form):
                    self.assertEqual(*({k: v for k, v in r.items() if k != "output" and "second" not in k}
                                       for r in (result, found["plain"])))

    def test_what_cannot_be_ratings_is_refused_with_its_place(self):
        for text, said in (("user,item,rating\n1,2,x\n", 'r:2:5: found "x", want a number'),
                           ("1::2\n", "r:1:5: found two fields, want a value after them")):
            self.assertIn(said, self.job(2, status=4, input=self.path("r", text), k=2))
        self.assertIn("want 3", self.job(mode="embedded", status=3, input=self.path("r", "1,2,3\n"), k=2, columns=["0", "1"]))


if __name__ == "__main__":
    unittest.main()
