#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The graph algorithms, tested by running jobs: the same values as the oracles for any number of workers and servers and
in every mode, the known figures of two real graphs, checkpoints, formats, and errors in the input. The real graphs are looked for
in $PARACEL_SHARED_DATA, else in ../shared/data; tests that need them are skipped otherwise. $PARACEL_LONG: more workers and
servers. Options: names of tests, as in unittest."""
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import graph_oracle
from alg_job import BIN, DATA, LONG, MPI, PRUN, SOURCE, AlgorithmCase

# program: prefix of its files, oracle, config keys
PROGRAMS = {
    "wcc": ("component_", graph_oracle.wcc, {}),
    "scc": ("component_", graph_oracle.scc, {}),
    "bfs": ("level_", graph_oracle.bfs, {"source": "7"}),
    "sssp": ("distance_", graph_oracle.sssp, {"source": "7"}),
    "mvv": ("vertex_val_", graph_oracle.mvv, {}),
    "mvv_pregel": ("vertex_val_", graph_oracle.mvv, {}),
    "k_core": ("core_", graph_oracle.k_core, {}),
    "label_propagation": ("label_", graph_oracle.label_propagation, {}),
    "triangle_count": (None, graph_oracle.triangle_count, {}),
    "pagerank": ("pagerank_", graph_oracle.pagerank, {}),
}


def summary(text):
    """The `name value` lines of an output."""
    return dict(line.split(None, 1) for line in text.splitlines() if len(line.split(None, 1)) == 2)


def read_values(folder, prefix):
    values = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith(prefix) and name[len(prefix):].isdigit():
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                for line in file:
                    key, value = line.rstrip("\n").split("\t")
                    assert key not in values
                    values[key] = value
    return values


class GraphCase(AlgorithmCase):
    program = "graphs"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = random.Random(20)
        cls.edges = sorted({(rng.randrange(300), int(300 * rng.random() ** 2)) for _ in range(1100)})
        cls.weights = [rng.randrange(1, 64) / 16 for _ in cls.edges]
        cls.ids = [3 * v + 1 for v in range(330)]
        cls.graph = cls.write("edges.txt", "".join(
            f"{cls.ids[a]}\t{cls.ids[b]}\t{w}\n" for (a, b), w in zip(cls.edges, cls.weights)))
        cls.nodes = cls.write("nodes.txt", "".join(f"{i}\tname of {i}\n" for i in cls.ids))

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def job(self, program, workers, servers=1, mode="local", status=0, **keys):
        return super().job(workers, servers, mode, status, program, **{**keys, "input": keys.get("input", self.graph)})

    def result(self, program, workers, servers=1, mode="local", **keys):
        """Summary and values of the vertices."""
        said = self.job(program, workers, servers, mode, **keys)
        prefix = PROGRAMS[program][0]
        return summary(said), read_values(self.output, prefix) if prefix else {}

    def assert_same(self, program, got, want):
        self.assertEqual(got.keys(), want.keys())
        if program != "pagerank":
            # Numbers may be written as 5 or 5.0; ids and infinity are equal as text, too.
            wrong = {k: (got[k], want[k]) for k in want if got[k] != want[k] and float(got[k]) != float(want[k])}
            self.assertEqual(wrong, {})
        else:
            self.assertLess(sum(abs(float(got[k]) - float(want[k])) for k in want), 1e-9)


class Sameness(GraphCase):
    def oracle(self, program):
        prefix, oracle, keys = PROGRAMS[program]
        said, values = oracle(graph_oracle.Graph(self.graph, self.nodes), **keys)
        self.assertEqual(len(values), len(self.ids) if prefix else 0)
        return said, values

    def check(self, program, ways):
        said, values = self.oracle(program)
        for workers, servers, mode in ways:
            with self.subTest(program, workers=workers, servers=servers, mode=mode):
                got_said, got = self.result(program, workers, servers, mode, vertices=self.nodes, **PROGRAMS[program][2])
                self.assert_same(program, got, values)
                for name in said:
                    if name == "top":
                        self.assertEqual(got_said[name], said[name])
                    else:
                        self.assertTrue(math.isclose(float(got_said[name]), float(said[name]), rel_tol=1e-9), name)
                self.assertEqual(got_said["vertices"], str(len(self.ids)))

    def test_every_program_is_its_oracle_for_any_workers_and_servers(self):
        ways = [(1, 1, "embedded"), (2, 1, "local"), (4, 3, "local")]
        if LONG:
            ways = [(1, 1, "embedded")] + [(w, s, "local") for w in (1, 2, 3, 4, 5) for s in (1, 3)]
        for program in PROGRAMS:
            self.check(program, ways)

    def test_and_under_mpi(self):
        if not MPI:
            self.skipTest("no mpirun")
        for program in PROGRAMS if LONG else ("pagerank", "scc", "mvv"):
            self.check(program, [(2, 1, "mpi")])

    def test_names_instead_of_numbers_give_the_same_groups(self):
        names = {i: f"v-{i:05}" for i in self.ids}
        graph = self.write("named.csv", "".join(f"{names[self.ids[a]]},{names[self.ids[b]]}\n" for a, b in self.edges))
        for program in ("wcc", "scc", "label_propagation", "k_core"):
            with self.subTest(program):
                _, numbers = self.result(program, 1, mode="embedded")
                _, named = self.result(program, 2, input=graph)
                self.assertEqual({names[int(k)]: v if program == "k_core" else names[int(v)] for k, v in numbers.items()},
                                 named)

    def test_triangles_of_vertices_sum_to_three_times_all(self):
        said = self.job("triangle_count", 3, per_vertex=True)
        values = read_values(self.output, "triangles_")
        self.assertEqual(sum(map(int, values.values())), 3 * int(summary(said)["triangles"]))

    def test_two_runs_write_the_same_bytes(self):
        texts = []
        for _ in range(2):
            self.result("pagerank", 3)
            texts.append(read_values(self.output, "pagerank_"))
        self.assertEqual(*texts)


class PageRank(GraphCase):
    def test_the_formula_of_paracel(self):
        # Two vertices that point to each other and one that points to the first.
        graph = self.write("three.txt", "0,1\n1,0\n2,0\n")
        _, values = self.result("pagerank", 2, input=graph, paracel=True, rounds=2, tolerance=0)
        first = {0: 0.15 + 0.85 * (2 / 3), 1: 0.15 + 0.85 / 3, 2: 0.15}
        self.assertAlmostEqual(float(values["0"]), 0.15 + 0.85 * (first[1] + first[2]), places=14)
        self.assertAlmostEqual(float(values["1"]), 0.15 + 0.85 * first[0], places=14)
        self.assertAlmostEqual(float(values["2"]), 0.15, places=15)

    def test_personalisation_and_weights(self):
        graph = self.write("weighted.txt", "0 1 3\n0 2 1\n1 0 1\n")
        personal = self.write("personal.txt", "0,3\n2,1\n")
        t, x = [0.75, 0, 0.25], [0.75, 0, 0.25]
        for _ in range(300):
            x = [0.85 * x[1] + (0.15 + 0.85 * x[2]) * t[0], 0.85 * 0.75 * x[0] + (0.15 + 0.85 * x[2]) * t[1],
                 0.85 * 0.25 * x[0] + (0.15 + 0.85 * x[2]) * t[2]]
        for workers in (1, 2):
            _, values = self.result("pagerank", workers, input=graph, personalization=personal, tolerance=1e-14,
                                    rounds=1000)
            for v in range(3):
                self.assertAlmostEqual(float(values[str(v)]), x[v], places=12)

    def test_a_personalisation_that_cannot_be_is_refused(self):
        for text, place in (("7,1\n9,2\n", ":2:1: found \"9\""), ("7,-1\n", ":1:3: found \"-1\""), ("7,0\n", "no weight")):
            with self.subTest(text):
                self.job("pagerank", 2, status=4, personalization=self.write("personal.txt", text))
                self.assertIn("personal.txt", self.stderr)
                self.assertIn(place, self.stderr)


class Figures(GraphCase):
    """The figures of two real graphs in shared/TOOLBOX.md."""

    WANT = {
        "openflights": {"wcc": {"components": 7, "largest": 3304}, "scc": {"components": 45, "largest": 3259},
                        "triangle_count": {"triangles": 100837},
                        "bfs": {"reached": 3283, "depth": 7, "sum_of_levels": 8888},
                        "mvv": {"sum_of_values": 11055920}, "mvv_pregel": {"sum_of_values": 11055920},
                        "pagerank": {"top": 200, "top_score": 0.00479149686}},
        "debian-deps": {"wcc": {"components": 4663, "largest": 58102}, "scc": {"components": 61579, "largest": 243},
                        "triangle_count": {"triangles": 420673},
                        "bfs": {"reached": 267, "depth": 9, "sum_of_levels": 965},
                        "mvv": {"sum_of_values": 2503338030}, "mvv_pregel": {"sum_of_values": 2503338030},
                        "pagerank": {"top": 16807, "top_score": 0.179744512}},
    }
    SOURCE_OF = {"openflights": "200", "debian-deps": "0"}

    def test_figures(self):
        for data, programs in self.WANT.items():
            edges, nodes = (os.path.join(DATA, data, name) for name in ("edges.txt", "nodes.txt"))
            if not os.path.exists(edges):
                self.skipTest(f"no {data} in {DATA} (PARACEL_SHARED_DATA)")
            for program, want in programs.items():
                for workers in (1, 2, 4) if LONG else (2,):
                    with self.subTest(program, data=data, workers=workers):
                        keys = {"source": self.SOURCE_OF[data]} if program == "bfs" else {}
                        said, _ = self.result(program, workers, input=edges, vertices=nodes, **keys)
                        for name, value in want.items():
                            self.assertAlmostEqual(float(said[name]), value, delta=1e-9 if name == "top_score" else 0)

    def test_pagerank_is_within_1e_9_of_an_iteration_to_1e_13(self):
        for data in self.WANT:
            edges, nodes = (os.path.join(DATA, data, name) for name in ("edges.txt", "nodes.txt"))
            if not os.path.exists(edges):
                self.skipTest(f"no {data} in {DATA} (PARACEL_SHARED_DATA)")
            _, want = graph_oracle.pagerank(graph_oracle.Graph(edges, nodes))
            _, got = self.result("pagerank", 2, input=edges, vertices=nodes)
            self.assert_same("pagerank", got, want)

    def test_networkx_agrees(self):
        networkx = self.library("networkx")
        simple = networkx.Graph((u, v) for u, v in self.edges if u != v)
        simple.add_nodes_from(range(330))
        _, values = self.result("k_core", 3, vertices=self.nodes)
        self.assertEqual({self.ids[v]: k for v, k in networkx.core_number(simple).items()},
                         {int(i): int(k) for i, k in values.items()})


class Form(GraphCase):
    def test_npy_files_hold_what_the_text_files_say(self):
        import numpy
        for program in ("pagerank", "wcc", "k_core", "sssp"):
            with self.subTest(program):
                keys = PROGRAMS[program][2]
                _, text = self.result(program, 2, **keys)
                self.job(program, 2, format="npy", **keys)
                (array,) = self.manifest()["arrays"].values()
                load = lambda names: numpy.concatenate([numpy.load(os.path.join(self.output, n)) for n in names])
                got = dict(zip(map(str, load(array["ids"]).tolist()), load(array["files"]).tolist()))
                self.assertEqual(got, {k: type(got[k])(v) for k, v in text.items()})

    def test_without_dump_only_the_summary_is_left(self):
        said, values = self.result("wcc", 2, dump=False)
        self.assertEqual(values, {})
        self.assertIn("components", said)

    def test_the_vertices_of_the_edges_alone(self):
        said, values = self.result("wcc", 2)
        self.assertEqual(len(values), len({v for e in self.edges for v in e}))
        self.assertEqual(said["vertices"], str(len(values)))


class Resume(GraphCase):
    """Runs with two workers, one of which is killed when every worker has a checkpoint."""

    def killed(self, program, **keys):
        """The run's output folder."""
        output = os.path.join(self.folder, self.id().split(".")[-1] + "_" + program)
        config = self.write(os.path.basename(output) + ".json", json.dumps({"output": output, **keys}))
        folder = os.path.join(output, "checkpoint")
        with tempfile.TemporaryFile("w+") as said:
            prun = subprocess.Popen([sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-c", config, "-m", "local",
                                     "--output-dir", output + "_run", os.path.join(BIN, program)], stdout=said, stderr=said,
                                    stdin=subprocess.DEVNULL, cwd=SOURCE)
            try:
                end = time.monotonic() + 60
                while prun.poll() is None and time.monotonic() < end and len(self.whole(folder)) < 2:
                    time.sleep(0.002)
                for pid in self.workers(config, program)[-1:]:
                    os.kill(pid, signal.SIGKILL)
                status = prun.wait(60)
            finally:
                if prun.poll() is None:
                    prun.terminate()
                    prun.wait()
            said.seek(0)
            self.assertEqual(status, 10, said.read())
        self.assertGreaterEqual(len(self.whole(folder)), 2)
        return output

    @staticmethod
    def whole(folder):
        return [n for n in os.listdir(folder) if not n.endswith(".tmp")] if os.path.isdir(folder) else []

    @staticmethod
    def workers(config, program):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if os.path.basename(words[0]) == program and config in words:
                found.append(int(pid))
        return sorted(found)

    def continues(self, program, output, want, **keys):
        begun = min(int(name.split("_")[1]) for name in self.whole(os.path.join(output, "checkpoint")))
        _, values = self.result(program, 2, output=output, resume=True, **keys)
        self.assertEqual(values, want)
        if program != "mvv_pregel":
            self.assertGreaterEqual(self.curve()[0]["round"], begun)
        self.assertEqual(os.listdir(os.path.join(output, "checkpoint")), [])

    def refused(self, program, output, **keys):
        self.job(program, 2, status=1, output=output, resume=True, **keys)
        self.assertIn(os.path.join(output, "checkpoint", "pregel_"), self.stderr)
        self.assertIn("is a checkpoint of another graph", self.stderr)
        self.assertIn("other arguments", self.stderr)

    def test_a_killed_run_continues_from_its_checkpoint_and_a_foreign_one_is_refused(self):
        # A ring: levels, distances and the greatest id propagate once around it. In the other graph two edges have other targets.
        n = 4000
        ring = [(v + 1) % n for v in range(n)]
        other = list(ring)
        other[10], other[20] = other[20], other[10]
        graph, foreign = (self.write(name, "".join(f"{v} {t}\n" for v, t in enumerate(targets)))
                          for name, targets in (("ring.txt", ring), ("other_ring.txt", other)))
        levels = {str(v): str(v) for v in range(n)}
        for program, keys, want in (("bfs", {"source": "0"}, levels), ("sssp", {"source": "0"}, levels),
                                    ("mvv_pregel", {}, dict.fromkeys(levels, str(n - 1)))):
            with self.subTest(program):
                output = self.killed(program, input=graph, checkpoint_every=100, **keys)
                if keys:
                    self.refused(program, output, input=graph, source="5")
                self.refused(program, output, input=foreign, **keys)
                self.continues(program, output, want, input=graph, **keys)

    def test_so_do_components(self):
        # A path that alternates between the two workers: it has as many groups as vertices.
        n = 60000
        at = [p // 2 if p % 2 == 0 else n // 2 + p // 2 for p in range(n)]
        links = list(zip(at, at[1:]))
        graph = self.write("fro.txt", "".join(f"{a} {b}\n" for a, b in links))
        links[7] = (links[7][0], links[9][1])
        foreign = self.write("other_fro.txt", "".join(f"{a} {b}\n" for a, b in links))
        output = self.killed("wcc", input=graph, checkpoint_every=3)
        self.refused("wcc", output, input=foreign)
        self.continues("wcc", output, {str(v): "0" for v in range(n)}, input=graph)


class Wrong(GraphCase):
    def refused(self, program, status, *parts, **keys):
        self.job(program, 2, status=status, **keys)
        for part in parts:
            self.assertIn(part, self.stderr)

    def test_a_negative_weight(self):
        graph = self.write("negative.txt", "".join(f"{k} {k + 1} {1 if k != 20 else '-2.50'}\n" for k in range(40)))
        for program, keys in (("sssp", {"source": "0"}), ("pagerank", {}), ("spectral_clustering", {"kclusters": 2})):
            with self.subTest(program):
                self.refused(program, 4, 'negative.txt:21:7: found "-2.50", want a number of at least 0', input=graph,
                             **keys)

    def test_a_negative_weight_that_another_line_outweighs(self):
        graph = self.write("outweighed.txt", "0 1 5\n0 1 -3\n1 2 nan\n")
        self.refused("sssp", 4, "outweighed.txt:2:5: found \"-3\"", input=graph, source="0")
        graph = self.write("nan.txt", "0 1 5\n1 2 nan\n")
        self.refused("sssp", 4, "nan.txt:2:5: found \"nan\", want a finite number", input=graph, source="0")

    def test_a_plug_in_that_cannot_act(self):
        for key in ("update_file", "update_func"):
            self.refused("mvv_pregel", 3, f':1:2: key "{key}": not with mvv_pregel, which keeps nothing in the servers',
                         **{key: "libparacel_default.so"})
        self.refused("mvv", 3, 'key "checkpoint_every": not with mvv', checkpoint_every=2)

    def test_a_source_that_is_no_vertex(self):
        self.refused("bfs", 3, "key \"source\"", "found \"8\"", source="8")
        self.refused("sssp", 3, "key \"source\"", "found \"x\"", source="x")

    def test_ids_that_are_no_numbers_have_no_value(self):
        graph = self.write("words.txt", "1 2\n2 three\n")
        self.refused("mvv", 4, "words.txt", "three", input=graph)
        self.refused("mvv_pregel", 4, "words.txt", "three", input=graph)

    def test_a_line_without_a_target(self):
        graph = self.write("short.txt", "1 2\n2\n")
        for program in ("wcc", "triangle_count"):
            self.refused(program, 4, "short.txt:2:", input=graph)

    def test_keys_that_are_not_there(self):
        self.refused("wcc", 3, "roundz", roundz=3)
        self.refused("bfs", 3, "source")
        self.refused("pagerank", 3, "damping_factor", damping_factor=1.5)


if __name__ == "__main__":
    program = unittest.main(exit=False)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)
