#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Logistic regression, tested by running jobs: its quality, the same results for any number of workers and servers and in every
mode, its files, and errors in the input. The data sets a9a and agaricus are looked for in $PARACEL_TEST_DATA, else in
../shared/data; tests that need them are skipped otherwise. Options: names of tests, as in unittest."""
import gzip
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
DATA = os.environ.get("PARACEL_TEST_DATA") or os.path.join(os.path.dirname(SOURCE), "shared", "data")
LR = os.path.join(BUILD, "bin", "lr")
PACED = os.path.join(BUILD, "lib", "test_plugins", "libpaced_updates.so")
SERIAL = os.path.join(BUILD, "bin", "lr_serial")
PRUN = os.path.join(SOURCE, "prun.py")

A9A_ROWS = 32561
A9A_OPTIMUM = 0.32337958


def data(*name):
    path = os.path.join(DATA, *name)
    return path if os.path.exists(path) else None


def run(command, timeout=120, **environment):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                          timeout=timeout, env={**os.environ, **environment}, cwd=SOURCE)


class LrCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="lr_test_")
        cls.train = os.path.join(cls.folder, "train.csv")
        cls.small = os.path.join(cls.folder, "small.csv")
        for path, n, k in ((cls.train, 2500, 100), (cls.small, 203, 5)):
            run([sys.executable, "-B", os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o", path,
                 "-n", str(n), "-k", str(k), "--seed", "5"]).check_returncode()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        self.count = 0

    def config(self, text=None, **keys):
        """Writes a config and returns its name; `output` is a new folder unless given."""
        self.count += 1
        base = os.path.join(self.folder, f"{self.id().split('.')[-1]}_{self.count}")
        self.output = keys.setdefault("output", base + "_out")
        path = base + ".json"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if text is not None else json.dumps(keys, indent=2))
        return path

    def job(self, workers, servers, mode="local", timeout=120, **keys):
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01, **keys}
        config = self.config(**keys)
        if mode == "embedded":
            return run([LR, "--cfg_file", config], timeout)
        command = [sys.executable, "-B", PRUN, "-w", str(workers), "-p", str(servers), "-c", config, "-m", mode,
                   "--output-dir", config + ".run"]
        return run(command + [LR], timeout, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def train_model(self, workers, servers, mode="local", timeout=120, **keys):
        done = self.job(workers, servers, mode, timeout, **keys)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.output, "model.json"), encoding="utf-8") as file:
            return json.load(file)

    def theta(self):
        with open(os.path.join(self.output, "lr_theta_0"), encoding="ascii") as file:
            return file.read()


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
        done = run([SERIAL, self.train, "--beta", "0.01"])
        optimum = float(done.stdout.split()[1])
        for method, rounds, alpha in (("dgd", 100, 1), ("ipm", 100, 0.001), ("downpour", 100, 0.001), ("agd", 20, 0.002)):
            with self.subTest(method):
                model = self.train_model(4, 2, training_input=self.train, method=method, rounds=rounds, alpha=alpha)
                self.assertLess(abs(model["objective"] / optimum - 1), 0.005)


class Sameness(LrCase):
    def near(self, a, b, tolerance=1e-9):
        self.assertEqual(len(a), len(b))
        scale = max(1.0, max(abs(x) for x in a))
        self.assertLessEqual(max(abs(x - y) for x, y in zip(a, b)), tolerance * scale)

    def test_dgd_is_the_serial_program_for_any_workers_and_servers_and_in_every_mode(self):
        path = os.path.join(self.folder, "serial_theta")
        run([SERIAL, self.small, "--method", "dgd", "--alpha", "1", "--rounds", "20", "--beta", "0.01", "--theta",
             path]).check_returncode()
        with open(path, encoding="ascii") as file:
            serial = [float(x) for x in file.read().split("|")]
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

    def test_dgd_of_sparse_data_is_the_serial_program(self):
        sparse = os.path.join(self.folder, "sparse.svm")
        with open(self.small, encoding="ascii") as rows, open(sparse, "w", encoding="ascii") as out:
            for number, row in enumerate(rows):
                *features, label = row.split(",")
                kept = [f"{j}:{x}" for j, x in enumerate(features, 1) if (number + j) % 3 == 0]
                out.write(" ".join([("+1" if label.strip() == "1" else "-1")] + kept) + "\n")
        for keys, options in (({}, []), ({"bias": False}, ["--no_bias"]), ({"penalize_bias": False}, ["--free_bias"])):
            path = os.path.join(self.folder, "sparse_theta")
            run([SERIAL, sparse, "--method", "dgd", "--alpha", "1", "--rounds", "20", "--beta", "0.01", "--theta", path,
                 *options]).check_returncode()
            with open(path, encoding="ascii") as file:
                serial = [float(x) for x in file.read().split("|")]
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
        # Standard input is worker 0's; a long load is shown, and this one continues until it has been.
        config = self.config(training_input="-", method="dgd", rounds=20, alpha=1.0, beta=0.01)
        said = config + ".said"

        def words():
            with open(said, "rb") as file:
                return file.read()

        with open(said, "wb") as into, \
                subprocess.Popen([sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-c", config, "--output-dir", config + ".run",
                                  LR], stdin=subprocess.PIPE, stdout=into, stderr=into, cwd=SOURCE) as job:
            job.stdin.write(text * (300000 // len(text)))
            job.stdin.flush()
            until = time.monotonic() + 60
            while b"loading " not in words() and job.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            job.communicate(text, timeout=60)
        self.assertEqual(job.returncode, 0, words())
        self.assertIn(b"loading ", words())

    def test_debug_prints_the_objective_of_each_round(self):
        done = self.job(1, 1, "embedded", debug=True, rounds=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        for number in (1, 2, 3):
            self.assertIn(f"round {number}: objective 0.", done.stdout)
        self.assertIn("\nobjective 0.", done.stdout)


class Models(LrCase):
    """The predictions of a saved model in either format equal those computed with NumPy."""

    def setUp(self):
        super().setUp()
        self.sparse = os.path.join(self.folder, "models.svm")
        table = numpy.loadtxt(self.small, delimiter=",")
        self.dense = table[:, :-1]
        self.positive = table[:, -1] == 1
        # Feature 6 is unknown to the models of small.csv.
        self.holed = self.dense.copy()
        with open(self.sparse, "w", encoding="ascii") as file:
            for number, (row, label) in enumerate(zip(self.holed, self.positive)):
                row[number % 5] = 0
                file.write(" ".join(["+1" if label else "-1"] + [f"{j + 1}:{row[j]:.17g}" for j in numpy.flatnonzero(row)])
                           + " 6:3\n")

    def use(self, model, workers, servers=1, mode="local", **keys):
        """The job's output and the lines of pred_v_*, with a saved model and no training keys in the config."""
        config = self.config(model=model, **keys)
        command = [LR, "--cfg_file", config] if mode == "embedded" else [
            sys.executable, "-B", PRUN, "-w", str(workers), "-p", str(servers), "-c", config, "-m", "local", "--output-dir",
            config + ".run", LR]
        done = run(command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = []
        for rank in range(workers):
            with open(os.path.join(self.output, f"pred_v_{rank}"), encoding="ascii") as file:
                lines += file.read().splitlines()
        self.assertFalse(os.path.exists(os.path.join(self.output, "model.json")))
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line), lines

    def saved(self, form, **keys):
        """Trains; returns the folder of the model, and its theta as read by NumPy."""
        manifest = self.train_model(2, 2, format=form, test_input=self.small, predict_input=self.small, **keys)
        entry = manifest["arrays"]["lr_theta"]
        self.assertEqual((manifest["format"], manifest["algorithm"], entry["dtype"]), (form, "lr", "<f8"))
        path = os.path.join(self.output, entry["files"][0])
        theta = numpy.load(path) if form == "npy" else numpy.loadtxt(path, delimiter="|")
        self.assertEqual(list(theta.shape), entry["shape"])
        return self.output, theta, manifest["test"]

    def test_both_forms_predict_what_numpy_computes(self):
        for bias in (True, False):
            thetas = []
            for form in ("text", "npy"):
                folder, theta, tested = self.saved(form, bias=bias)
                thetas.append(theta.tolist())
                self.assertEqual(len(theta), 6 if bias else 5)
                with open(os.path.join(folder, "pred_v_0"), encoding="ascii") as file:
                    first = file.read().splitlines()
                with open(os.path.join(folder, "pred_v_1"), encoding="ascii") as file:
                    first += file.read().splitlines()
                for path, x in ((self.small, self.dense), (self.sparse, self.holed)):
                    margin = x @ theta[-5:] + (theta[0] if bias else 0)
                    wanted = 1 / (1 + numpy.exp(-margin))
                    for place in ((1, 1, "embedded"), (1, 1), (3, 2)):
                        with self.subTest(form=form, bias=bias, input=path, place=place):
                            said, lines = self.use(folder, *place, test_input=path, predict_input=path)
                            dense = path == self.small
                            found = [float(line.rsplit(":", 1)[1] if dense else line.split()[0]) for line in lines]
                            numpy.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
                            self.assertAlmostEqual(float(said["accuracy"]), numpy.mean((margin >= 0) == self.positive), 9)
                            if dense:  # the training run reported the same
                                self.assertEqual(lines, first)
                                self.assertAlmostEqual(float(said["auc"]), tested["auc"], 9)
                                self.assertAlmostEqual(float(said["log_loss"]), tested["log_loss"], 9)
            self.assertEqual(thetas[0], thetas[1])

    def test_the_manifest_is_a_model_too(self):
        folder, _, _ = self.saved("npy")
        self.assertEqual(self.use(folder, 2, predict_input=self.small)[1],
                         self.use(os.path.join(folder, "model.json"), 1, mode="embedded", predict_input=self.small)[1])

    def refused(self, status, text, workers=2, **keys):
        config = self.config(**keys)
        for command in ([LR, "--cfg_file", config],
                        [sys.executable, "-B", PRUN, "-w", str(workers), "-p", "1", "-c", config, "-m", "local",
                         "--output-dir", config + ".run", LR]):
            done = run(command)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertIn(text, done.stdout + done.stderr)

    def test_a_wrong_model_ends_the_job_with_status_4(self):
        folder, theta, _ = self.saved("npy")
        with open(os.path.join(folder, "model.json"), encoding="utf-8") as file:
            good = file.read()
        narrow = os.path.join(self.folder, "narrow.csv")
        with open(narrow, "w", encoding="ascii") as file:
            file.write("1,2\n")
        self.refused(4, narrow + ":1:", model=folder, predict_input=narrow)
        wrong = os.path.join(self.folder, "wrong")
        os.makedirs(wrong)
        path = os.path.join(wrong, "model.json")
        array = os.path.join(wrong, "lr_theta_0.npy")
        changes = [
            (good.replace('"algorithm": "lr"', '"algorithm": "ridge"'), theta, "found a model of ridge, want one of lr"),
            ('{"format": "paracel-lr-v1"}', theta, "found no model, want a manifest"),
            (good[:len(good) // 2], theta, "model.json"),
            (good, theta[:-1], "array lr_theta: found 5 elements in its files, want the shape"),
            (good, theta.astype("f4"), "found elements of type <f4, want <f8"),
            (good, None, "lr_theta_0.npy"),
            (good.replace("lr_theta_0.npy", "../lr_theta_0.npy"), theta, "want one beside the manifest"),
            (good.replace('"shape": [6]', '"shape": [1]'), theta[:1], "found no weights"),
        ]
        for text, values, said in changes:
            with self.subTest(said):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                if values is None:
                    os.remove(array)
                else:
                    numpy.save(array, values)
                self.refused(4, said, model=wrong, predict_input=self.small)
        with open(path, "w", encoding="utf-8") as file:
            file.write(good.replace('"format": "npy"', '"format": "text"').replace("lr_theta_0.npy", "lr_theta_0"))
        with open(os.path.join(wrong, "lr_theta_0"), "w", encoding="ascii") as file:
            file.write("1|2|x|4|5|6\n")
        self.refused(4, 'lr_theta_0:1: found "x|4|5|6", want numbers with | between them', model=wrong,
                     predict_input=self.small)

    def test_a_model_and_training_exclude_each_other_and_one_is_needed(self):
        folder, _, _ = self.saved("text")
        self.refused(3, 'key "model": not with training_input', model=folder, training_input=self.small)
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01}
        for name in keys:
            self.refused(3, f'key "{name}" is missing', **{k: v for k, v in keys.items() if k != name})
        self.refused(3, 'key "model": no such file or folder', model="/no/such", predict_input=self.small)


class Refusals(LrCase):
    def refused(self, status, text, done):
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, status, said)
        self.assertIn(text, said)
        self.assertNotIn("terminate called", said)

    def test_bad_data_is_refused_with_file_line_and_column(self):
        good = "1,2,1\n3,4,0\n"
        table = [
            (good + "5,abc,1\n", ':3:3: found "abc", want a number'),
            (good + "5,nan,1\n", ':3:3: found "nan", want a finite number'),
            (good + "inf,6,1\n", ':3:1: found "inf", want a finite number'),
            (good + "5,1\n", ":3:4: found 2 fields, want 3 as in the first line"),
            (good + "5,6,7,1\n", ":3:6: found 4 fields, want 3 as in the first line"),
            (good + "5,6,2\n", ':3:5: found label "2", want 0 or 1'),
            ("1 1:1\n-1 0:1\n", ":2:4: found index 0, want 1 or more"),
            ("1 1:1\n-1 4000000000:1\n", ":2:4: found index 4000000000, want at most 134217728"),
            ("1 2:1 1:1\n", ":1:7: found index 1 after 2, want increasing indices"),
            ("3 1:1\n", ':1:1: found label "3", want -1, 0 or +1'),
            ("1 1:1 x\n", ':1:7: found "x", want index:value'),
            ("", ":1:1: found no line, want samples"),
            ("\n\n", ":1:1: found no line, want samples"),
        ]
        for number, (text, message) in enumerate(table):
            with self.subTest(message):
                path = os.path.join(self.folder, f"bad{number}")
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                self.refused(4, path + message, self.job(1, 1, "embedded", training_input=path))
                if text.count(",") != 0:
                    continue  # as test input it would have a different number of columns
                self.refused(4, path + message, self.job(1, 1, "embedded", test_input=path))

    def test_bad_data_in_the_last_part_ends_the_job_with_status_4(self):
        path = os.path.join(self.folder, "late")
        with open(self.small, encoding="ascii") as rows, open(path, "w", encoding="ascii") as file:
            file.write(rows.read() + "oops,1,2,3,4,1\n")
        self.refused(4, path + ':204:1: found "oops", want a number', self.job(4, 2, training_input=path))

    def test_labels_of_three_kinds_over_several_workers_are_refused(self):
        path = os.path.join(self.folder, "labels")
        with open(path, "w", encoding="ascii") as file:
            file.write("0 1:1\n1 1:2\n" * 22 + "-1 1:1\n1 1:2\n" * 20)
        self.refused(4, "found labels 0 and -1", self.job(2, 1, training_input=path))

    def test_a_test_input_of_another_width_is_refused_before_training(self):
        path = os.path.join(self.folder, "narrow")
        with open(path, "w", encoding="ascii") as file:
            file.write("1,2,1\n")
        done = self.job(1, 1, "embedded", test_input=path)
        self.refused(4, "found 3 fields in the first line, want 6: 5 features and a label", done)
        self.assertFalse(os.path.exists(os.path.join(self.output, "metrics.jsonl")))

    def test_a_bad_config_is_refused_before_any_process_starts(self):
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01}
        table = [
            ({"alhpa": 1}, 'key "alhpa" is unknown; did you mean "alpha"?'),
            ({"rounds": "ten"}, 'key "rounds": found string "ten", want an integer >= 1'),
            ({"rounds": 0}, 'key "rounds": found number 0, want an integer >= 1'),
            ({"alpha": 0}, 'key "alpha": found number 0, want a number > 0'),
            ({"method": "sgd"}, 'key "method": found string "sgd", want one of dgd, ipm, downpour, agd'),
            ({"training_input": "/no/such"}, 'key "training_input": no such file or folder: /no/such'),
            ({"output": self.small + "/out"}, 'key "output"'),
            ({"debug": "maybe"}, 'key "debug": found string "maybe", want true or false'),
        ]
        for change, message in table:
            with self.subTest(message):
                config = self.config(**{**keys, **change})
                done = run([LR, "--cfg_file", config])
                self.refused(3, message, done)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn(config, done.stderr)
                name = next(iter(change))
                done = run([sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-c", config, "-m", "local", "--output-dir",
                            config + ".run", LR])
                self.refused(3, name, done)
                self.assertFalse(os.path.exists(config + ".run"))
        missing = dict(keys)
        del missing["alpha"]
        self.refused(3, 'key "alpha" is missing', run([LR, "--cfg_file", self.config(**missing)]))
        self.refused(3, "not JSON", run([LR, "--cfg_file", self.config(text='{"rounds": 1,}')]))
        self.refused(3, "cannot be read", run([LR, "--cfg_file", "/no/such.json"]))
        self.refused(3, "no config file given", run([LR]))

    def test_bsp_is_refused_for_methods_whose_updates_are_immediate(self):
        self.refused(3, 'key "consistency": found "bsp"', self.job(1, 1, "embedded", method="agd", consistency="bsp"))

    def test_an_unknown_option_is_a_usage_error(self):
        self.refused(2, "nonsense", run([LR, "--nonsense"]))
        self.refused(2, "extra", run([LR, "--cfg_file", "x", "extra"]))

    def test_a_step_that_is_too_large_is_said_to_diverge(self):
        for mode in ("embedded", "local"):
            for method, alpha in (("dgd", 1e5), ("ipm", 1e3), ("downpour", 1e3), ("agd", 1e3)):
                with self.subTest(mode=mode, method=method):
                    done = self.job(2, 1, mode, method=method, alpha=alpha, rounds=50, beta=0.1)
                    self.refused(1, "diverged", done)
                    self.assertIn("lower alpha", done.stdout + done.stderr)
                    self.assertFalse(os.path.exists(os.path.join(self.output, "model.json")))

    def test_an_update_function_that_is_not_there_ends_the_job_with_status_5(self):
        self.refused(5, "no_such_function", self.job(2, 1, update_func="no_such_function"))
        self.refused(5, "libnothing.so", self.job(2, 1, update_file="libnothing.so"))


class Deaths(LrCase):
    def checkpoint(self, workers, folder, **keys):
        """A job that writes checkpoints to `folder`, and resumes from the newest one there."""
        keys = {"training_input": self.small, "method": "dgd", "rounds": 20, "alpha": 1.0, "beta": 0.01, **keys}
        config = self.config(**keys)
        command = [sys.executable, "-B", PRUN, "-w", str(workers), "-p", "1", "-c", config, "-m", "local",
                   "--output-dir", config + ".run"]
        return run(command + (["--resume", folder] if os.path.exists(folder) else
                              ["--checkpoint-dir", folder, "--checkpoint-every", "10"]) + [LR])

    def process_of(self, job, rank):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    named = b"PARACEL_RANK=%d" % rank in file.read().split(b"\0")
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if named and parent == job.pid:
                return int(pid)
        return self.fail(f"no process of worker {rank}")

    def test_after_an_ejection_the_objective_is_the_mean_over_the_rows_that_are_left(self):
        with open(self.train, encoding="ascii") as file:
            lines = file.readlines()
        size = sum(map(len, lines))
        ends = numpy.cumsum([len(line) for line in lines])
        begins = ends - [len(line) for line in lines]  # a line belongs to the worker in whose part it begins
        left = [line for line, at in zip(lines, begins) if not size / 3 <= at < 2 * size / 3]
        rest = os.path.join(self.folder, "rest.csv")
        with open(rest, "w", encoding="ascii") as file:
            file.writelines(left)
        optimum = {path: float(run([SERIAL, path, "--beta", "0.01"]).stdout.split()[1]) for path in (self.train, rest)}
        for method, rounds, alpha in (("dgd", 3000, 1), ("ipm", 2000, 0.001), ("downpour", 300, 0.0005)):
            with self.subTest(method):
                config = self.config(training_input=self.train, method=method, rounds=rounds, alpha=alpha, beta=0.01,
                                     update_file=PACED, update_func="paced_add")
                checkpoints = config + ".ckpt"
                command = [sys.executable, "-B", PRUN, "-w", "3", "-p", "1", "-c", config, "-m", "local",
                           "--output-dir", config + ".run", "--on-worker-death", "eject", "--checkpoint-dir", checkpoints,
                           "--checkpoint-every", str(rounds // 10), LR]
                killed = config + ".killed"  # while this does not exist, rounds are slow
                job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, cwd=SOURCE,
                                       env=dict(os.environ, TEST_ENOUGH=killed))
                metrics = os.path.join(self.output, "metrics.jsonl")
                try:
                    until = time.monotonic() + 30
                    while job.poll() is None and time.monotonic() < until:
                        if os.path.exists(metrics) and os.path.getsize(metrics) > 500:
                            break
                        time.sleep(0.01)
                    os.kill(self.process_of(job, 1), signal.SIGKILL)
                    with open(killed, "w", encoding="ascii"):
                        pass
                    said = job.communicate(timeout=60)[0]
                finally:
                    job.kill()
                self.assertEqual(job.returncode, 0, said)
                self.assertIn("worker 1 was ejected", said)
                with open(metrics, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                self.assertEqual([line["round"] for line in lines], list(range(1, rounds + 1)))
                with open(os.path.join(self.output, "model.json"), encoding="utf-8") as file:
                    model = json.load(file)
                self.assertEqual(model["training_rows"], len(left))
                # A third of the rows were lost: the optimum without them is a different one, not a third smaller.
                self.assertGreaterEqual(model["objective"], optimum[rest] * (1 - 1e-9))
                self.assertLess(model["objective"], optimum[rest] * 1.005)
                self.assertGreater(model["objective"], 0.9 * optimum[self.train])
                self.assertAlmostEqual(lines[-1]["objective"], model["objective"], delta=1e-12)
                # The keys of all rounds are removed from the servers.
                sizes = []
                for folder in sorted(os.listdir(checkpoints)):
                    sizes.append(os.path.getsize(os.path.join(checkpoints, folder, "server-0-0.ckpt")))
                self.assertGreaterEqual(len(sizes), 2)
                self.assertLess(sizes[-1], sizes[0] + 10000)

    def test_a_checkpoint_of_data_with_other_columns_is_refused(self):
        wide = os.path.join(self.folder, "wide.csv")
        run([sys.executable, "-B", os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o", wide, "-n",
             "203", "-k", "101", "--seed", "5"]).check_returncode()
        for first, then, sizes in ((wide, self.small, (102, 6)), (self.small, wide, (6, 102))):
            for method in ("dgd", "ipm", "downpour"):
                with self.subTest(sizes=sizes, method=method):
                    folder = os.path.join(self.folder, f"ckpt_{sizes[0]}_{method}")
                    keys = {"method": method, "alpha": 0.001}
                    self.assertEqual(self.checkpoint(2, folder, training_input=first, **keys).returncode, 0)
                    for workers in (2, 3):
                        done = self.checkpoint(workers, folder, training_input=then, rounds=40, **keys)
                        self.assertEqual(done.returncode, 4, done.stderr)
                        self.assertIn(f"{then}: theta of the checkpoint has {sizes[0]} elements, the data have "
                                      f"{sizes[1]} (", done.stderr)

    def test_a_checkpoint_of_fewer_or_more_samples_is_refused_where_their_order_counts(self):
        half = os.path.join(self.folder, "half.csv")
        with open(self.small, encoding="ascii") as file, open(half, "w", encoding="ascii") as to:
            to.writelines(file.readlines()[:100])
        for first, then in ((self.small, half), (half, self.small)):
            for method, status in (("ipm", 4), ("dgd", 0)):
                with self.subTest(first=first, method=method):
                    folder = os.path.join(self.folder, f"ckpt_{os.path.basename(first)}_{method}")
                    keys = {"method": method, "alpha": 0.001}
                    self.assertEqual(self.checkpoint(2, folder, training_input=first, **keys).returncode, 0)
                    done = self.checkpoint(2, folder, training_input=then, rounds=40, **keys)
                    self.assertEqual(done.returncode, status, done.stderr)
                    if status != 0:
                        self.assertIn("the checkpoint has an order of ", done.stderr)


class Schema(LrCase):
    def test_the_program_publishes_its_keys(self):
        done = run([LR, "--schema"])
        self.assertEqual(done.returncode, 0)
        schema = json.loads(done.stdout)
        self.assertEqual(schema["format"], "paracel-schema-v1")
        names = {key["name"] for key in schema["keys"]}
        self.assertLessEqual({"training_input", "test_input", "predict_input", "output", "update_file", "update_func",
                              "model", "format", "method", "rounds", "alpha", "beta", "debug", "seed", "ssp_switch",
                              "limit_s", "batch_size", "tolerance", "bias", "penalize_bias", "consistency"}, names)
        with open(LR, "rb") as file:
            self.assertIn(b"paracel-schema-v1", file.read())

    def test_help_explains_every_key(self):
        done = run([LR, "--help"])
        self.assertEqual(done.returncode, 0)
        for name in ("training_input", "limit_s", "consistency"):
            self.assertIn(f"\n  {name} ", done.stdout)

    def test_the_config_that_is_shipped_has_only_known_keys(self):
        with open(os.path.join(SOURCE, "alg", "logistic_regression", "lr.json"), encoding="utf-8") as file:
            shipped = json.load(file)
        names = {key["name"] for key in json.loads(run([LR, "--schema"]).stdout)["keys"]}
        self.assertLessEqual(set(shipped), names)


if __name__ == "__main__":
    unittest.main()
