#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Logistic regression, tested by running jobs: its quality, the same results for any number of workers and servers and in
every mode, and its output.

The tests that need a9a or agaricus are skipped without them (lr_case.py). Options: names of tests, as in unittest.
"""
import gzip
import json
import math
import os
import shutil
import subprocess
import sys
import time
import unittest

import numpy

import oracles
from lr_case import BUILD, DATA, LR, PRUN, SOURCE, LrCase, data, samples_of

A9A_ROWS = 32561
A9A_OPTIMUM = 0.32337958


class Quality(LrCase):
    """The targets on a9a: no bias, beta = 1/(2n). The optimum has accuracy 0.8499 and AUC 0.9022."""

    def a9a(self, within, workers=4, servers=2, **keys):
        train, test = data("a9a", "a9a"), data("a9a", "a9a.t")
        if train is None or test is None:
            self.skipTest(f"no a9a in {DATA} (PARACEL_TEST_DATA)")
        model = self.train_model(workers, servers, training_input=train, test_input=test, beta=1 / (2 * A9A_ROWS),
                                 bias=False, **keys)
        self.assertEqual(model["training_rows"], A9A_ROWS)
        self.assertEqual(model["columns"], 123)
        self.assertGreaterEqual(model["objective"], A9A_OPTIMUM - 1e-8)
        self.assertLessEqual(model["objective"], A9A_OPTIMUM * (1 + within))
        self.assertGreaterEqual(model["test"]["accuracy"], 0.845)
        self.assertGreaterEqual(model["test"]["auc"], 0.900)
        self.assertEqual(model["test"]["rows"], 16281)

    def test_dgd_gets_within_1_percent_of_the_optimum_in_600_rounds(self):
        self.a9a(0.01, method="dgd", rounds=600, alpha=2)

    def test_ipm_gets_within_1_percent_in_10_rounds(self):
        self.a9a(0.01, method="ipm", rounds=10, alpha=0.05, decay=1)

    def test_downpour_gets_within_2_percent(self):
        self.a9a(0.02, method="downpour", rounds=6, alpha=0.01, decay=1)

    def test_agd_gets_within_2_percent(self):
        self.a9a(0.02, method="agd", rounds=5, alpha=0.01, decay=1)

    def test_every_method_separates_the_mushrooms(self):
        train, test = data("agaricus", "agaricus.txt.train"), data("agaricus", "agaricus.txt.test")
        if train is None or test is None:
            self.skipTest(f"no agaricus in {DATA} (PARACEL_TEST_DATA)")
        for method, rounds, alpha in (("dgd", 400, 5), ("ipm", 20, 0.1), ("downpour", 10, 0.05), ("agd", 5, 0.1)):
            with self.subTest(method):
                model = self.train_model(2, 2, training_input=train, test_input=test, method=method, rounds=rounds,
                                         alpha=alpha, beta=1e-6)
                self.assertEqual(model["test"]["accuracy"], 1.0)

    def test_every_method_reaches_the_optimum_of_dense_data(self):
        optimum, _ = oracles.lr(*samples_of(self.train), 0.01)
        for method, rounds, alpha in (("dgd", 100, 1), ("ipm", 100, 0.001), ("downpour", 100, 0.001), ("agd", 20, 0.002)):
            with self.subTest(method):
                model = self.train_model(4, 2, training_input=self.train, method=method, rounds=rounds, alpha=alpha)
                self.assertLess(abs(model["objective"] / optimum - 1), 0.005)


class Sameness(LrCase):
    def near(self, a, b, tolerance=1e-9):
        self.assertEqual(len(a), len(b))
        scale = max(1.0, max(abs(x) for x in a))
        self.assertLessEqual(max(abs(x - y) for x, y in zip(a, b)), tolerance * scale)

    def test_dgd_is_that_of_numpy_for_any_workers_and_servers_and_in_every_mode(self):
        serial = oracles.lr_dgd(*samples_of(self.small), 0.01, 1, 20)
        self.near(serial, self.train_model(1, 1, "embedded")["theta"])
        for workers in (1, 2, 4):
            for servers in (1, 2, 3):
                with self.subTest(workers=workers, servers=servers):
                    self.near(serial, self.train_model(workers, servers)["theta"])
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun: local and embedded mode only")
        for workers, servers in ((1, 1), (2, 1), (4, 2)):
            with self.subTest("mpi", workers=workers, servers=servers):
                self.near(serial, self.train_model(workers, servers, "mpi")["theta"])

    def test_dgd_of_sparse_data_is_that_of_numpy(self):
        sparse = os.path.join(self.folder, "sparse.svm")
        x, y = samples_of(self.small)
        x *= numpy.add.outer(numpy.arange(len(y)), numpy.arange(x.shape[1])) % 3 == 2
        with open(sparse, "w", encoding="ascii") as out:
            for row, label in zip(x, y):
                out.write(" ".join([f"{label:+.0f}"] + [f"{j + 1}:{row[j]:.17g}" for j in numpy.flatnonzero(row)]) + "\n")
        for keys in ({}, {"bias": False}, {"penalize_bias": False}):
            serial = oracles.lr_dgd(x, y, 0.01, 1, 20, **keys)
            self.near(serial, self.train_model(3, 2, training_input=sparse, **keys)["theta"])

    def test_bsp_gives_the_same_bits_run_after_run(self):
        for method, alpha in (("dgd", 1.0), ("ipm", 0.01)):
            with self.subTest(method):
                thetas = set()
                for _ in range(3):
                    self.train_model(4, 2, training_input=self.train, method=method, alpha=alpha, consistency="bsp")
                    thetas.add(self.theta())
                self.assertEqual(len(thetas), 1)

    def test_the_seed_changes_the_order_of_the_samples(self):
        first = self.train_model(2, 1, method="ipm", alpha=0.05, seed=1)["theta"]
        self.assertEqual(first, self.train_model(2, 1, method="ipm", alpha=0.05, seed=1)["theta"])
        self.assertNotEqual(first, self.train_model(2, 1, method="ipm", alpha=0.05, seed=2)["theta"])

    def test_more_workers_than_samples_is_the_same_too(self):
        tiny = os.path.join(self.folder, "tiny.csv")
        with open(tiny, "w", encoding="ascii") as file:
            file.write("1,2,1\r\n\r\n-1,0.5,0")
        one = self.train_model(1, 1, training_input=tiny, test_input=tiny, predict_input=tiny)["theta"]
        self.near(one, self.train_model(4, 2, training_input=tiny, test_input=tiny, predict_input=tiny)["theta"])

    def test_the_plug_in_of_the_user_gives_what_the_default_gives(self):
        plain = self.train_model(2, 2)["theta"]
        plugin = self.train_model(2, 2, update_file=os.path.join(BUILD, "lib", "liblr_update.so"),
                                  update_func="lr_theta_update")["theta"]
        self.assertEqual(plain, plugin)


class Results(LrCase):
    def test_writes_theta_predictions_rounds_and_the_model(self):
        done = self.job(2, 2, test_input=self.small, predict_input=self.small)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.output, "model.json"), encoding="utf-8") as file:
            model = json.load(file)
        self.assertEqual([float(x) for x in self.theta().split("|")], model["theta"])
        self.assertEqual(len(model["theta"]), 6)

        lines = []
        for rank in (0, 1):
            with open(os.path.join(self.output, f"pred_v_{rank}"), encoding="ascii") as file:
                lines += file.read().splitlines()
        with open(self.small, encoding="ascii") as file:
            rows = [[float(x) for x in row.split(",")] for row in file]
        self.assertEqual(len(lines), len(rows))
        right = 0
        for line, row in zip(lines, rows):
            features, probability = line.split(":")
            self.assertEqual([float(x) for x in features.split(",")], row[:-1])
            margin = model["theta"][0] + sum(a * b for a, b in zip(model["theta"][1:], row))
            self.assertAlmostEqual(float(probability), 1 / (1 + math.exp(-margin)), places=12)
            right += (margin >= 0) == (row[-1] == 1)
        self.assertAlmostEqual(model["test"]["accuracy"], right / len(rows), places=12)

        with open(os.path.join(self.output, "metrics.jsonl"), encoding="ascii") as file:
            metrics = [json.loads(line) for line in file]
        self.assertEqual([line["round"] for line in metrics], list(range(1, 21)))
        objectives = [line["objective"] for line in metrics]
        self.assertEqual(objectives, sorted(objectives, reverse=True))
        self.assertEqual(objectives[-1], model["objective"])
        for line in metrics:
            self.assertEqual(set(line), {"round", "objective", "gradient_norm", "seconds", "staleness"})

    def test_every_method_writes_a_line_a_round_under_every_consistency(self):
        for method in ("dgd", "ipm", "downpour", "agd"):
            for consistency in ("auto", "ssp", "asp"):
                with self.subTest(method=method, consistency=consistency):
                    model = self.train_model(3, 2, method=method, alpha=0.02, consistency=consistency,
                                             limit_s=2 if consistency == "ssp" else 0)
                    with open(os.path.join(self.output, "metrics.jsonl"), encoding="ascii") as file:
                        metrics = [json.loads(line) for line in file]
                    self.assertEqual([line["round"] for line in metrics], list(range(1, 21)))
                    self.assertEqual(metrics[-1]["objective"], model["objective"])
                    self.assertLess(metrics[-1]["objective"], metrics[0]["objective"])
                    stalest = max(line["staleness"] for line in metrics)
                    self.assertLessEqual(stalest, {"auto": 0, "ssp": 2, "asp": 20}[consistency])

    def test_predictions_of_sparse_input_are_libsvm_with_the_probability_in_front(self):
        sparse = os.path.join(self.folder, "predict.svm")
        with open(sparse, "w", encoding="ascii") as file:
            file.write("+1 1:1 4:2\n-1 2:0.5\n")
        bare = os.path.join(self.folder, "bare.svm")
        with open(bare, "w", encoding="ascii") as file:
            file.write("1:1 4:2\n2:0.5\n")
        self.train_model(1, 1, training_input=sparse, predict_input=sparse)
        with open(os.path.join(self.output, "pred_v_0"), encoding="ascii") as file:
            labelled = file.read().splitlines()
        self.assertEqual([line.split(" ", 1)[1] for line in labelled], ["1:1 4:2", "2:0.5"])
        self.assertGreater(float(labelled[0].split()[0]), 0.5)
        self.assertLess(float(labelled[1].split()[0]), 0.5)
        self.train_model(1, 1, training_input=sparse, predict_input=bare)
        with open(os.path.join(self.output, "pred_v_0"), encoding="ascii") as file:
            self.assertEqual(file.read().splitlines(), labelled)

    def test_tolerance_ends_the_run_early(self):
        for method, alpha in (("dgd", 1.0), ("ipm", 0.002), ("downpour", 0.002)):
            for ssp in (False, True):
                with self.subTest(method=method, ssp=ssp):
                    model = self.train_model(3, 2, method=method, alpha=alpha, rounds=2000, tolerance=1e-3, ssp_switch=ssp,
                                             limit_s=1)
                    self.assertLess(model["rounds"], 1500)
                    self.assertGreater(model["rounds"], 2)

    def test_a_list_a_folder_and_a_pattern_are_inputs(self):
        folder = os.path.join(self.folder, "parts")
        os.makedirs(folder)
        with open(self.small, encoding="ascii") as file:
            rows = file.read().splitlines()
        for part in range(3):
            with open(os.path.join(folder, f"p{part}.csv"), "w", encoding="ascii") as file:
                file.write("\n".join(rows[part * 70:(part + 1) * 70]))
        whole = self.train_model(2, 1)
        names = [os.path.join(folder, f"p{part}.csv") for part in range(3)]
        for source in (names, folder, os.path.join(folder, "*.csv")):
            model = self.train_model(2, 1, training_input=source)
            self.assertEqual(model["training_rows"], len(rows))
            self.assertAlmostEqual(model["objective"], whole["objective"], places=9)

    def test_compressed_files_and_standard_input_are_inputs(self):
        whole = self.train_model(2, 1)
        with open(self.small, "rb") as file:
            text = file.read()
        packed = os.path.join(self.folder, "small.csv.gz")
        with open(packed, "wb") as file:
            file.write(gzip.compress(text))
        self.assertAlmostEqual(self.train_model(3, 1, training_input=packed)["objective"], whole["objective"], places=9)
        # Worker 0 reads standard input; a long load is reported, and this one continues, line by line, until it has been.
        config = self.config(training_input="-", method="dgd", rounds=20, alpha=1.0, beta=0.01)
        said = config + ".said"

        def words():
            with open(said, "rb") as file:
                return file.read()

        with open(said, "wb") as into, \
                subprocess.Popen([sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-c", config, "--output-dir", config + ".run",
                                  LR], stdin=subprocess.PIPE, stdout=into, stderr=into, cwd=SOURCE) as job:
            job.stdin.write(text * (100000 // len(text)))  # enough to find the format
            until = time.monotonic() + 60
            line = text.splitlines(keepends=True)[0]
            while b"loading " not in words() and job.poll() is None and time.monotonic() < until:
                job.stdin.write(line)
                job.stdin.flush()
                time.sleep(0.05)
            seen = b"loading " in words()
            job.communicate(text, timeout=60)
        self.assertEqual(job.returncode, 0, words())
        self.assertTrue(seen, words())

    def test_debug_prints_the_objective_of_each_round(self):
        done = self.job(1, 1, "embedded", debug=True, rounds=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        for number in (1, 2, 3):
            self.assertIn(f"round {number}: objective 0.", done.stdout)
        self.assertIn("\nobjective 0.", done.stdout)


if __name__ == "__main__":
    unittest.main()
