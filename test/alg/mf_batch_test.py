#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""mf by cg and bfgs: their objective against als and against the written model, any number of workers, wrong keys;
with PARACEL_LONG=1 on movielens-small ($PARACEL_SHARED_DATA, else ../shared/data), too."""
import collections
import glob
import os
import statistics
import subprocess
import sys
import unittest

from alg_job import BIN, BUILD, LONG, ONLY_LONG, PRUN, SOURCE
from factor_support import FactorCase, numbers_said

METHODS = ("cg", "bfgs")
PENALTIES = {"lambda": 0.1, "lambda_bias": 0.05}


class Batch(FactorCase):
    program = "mf"

    def batch(self, method, *args, **keys):
        return self.job(*args, **{"input": self.train, "test_input": self.test, "k": 4, "method": method, "seed": 3,
                                  "tolerance": 1e-10, **PENALTIES, **keys})

    def als(self, rounds, **keys):
        return self.job(program="als", **{"rating_input": self.train, "k": 4, "rounds": rounds, "seed": 3, **PENALTIES,
                                               **keys})

    def assert_never_rises(self, found):
        lines = self.curve()
        self.assertEqual([line["round"] for line in lines], list(range(1, int(found["rounds"]) + 1)))
        objective = [line["objective"] for line in lines]
        for before, after in zip(objective, objective[1:]):
            self.assertLessEqual(after, before * (1 + 1e-12))
        self.assertAlmostEqual(objective[-1], float(found["objective"]), delta=1e-12 * objective[-1])
        for line in lines:
            self.assertGreaterEqual(line["evaluations"], line["round"])
            self.assertGreaterEqual(line["gradient_norm"], 0)


class Objective(Batch):
    def test_it_is_that_of_als_and_not_above_its_value(self):
        for weighted in (True, False):
            keys = {} if weighted else {"weighted": False, "lambda": 0.8, "lambda_bias": 0.4}
            als = float(self.als(300, **keys)["objective"])
            for method in METHODS:
                with self.subTest(method=method, weighted=weighted):
                    found = self.batch(method, 2, 1, **keys)
                    self.assertLess(float(found["objective"]), 1.001 * als)
                    self.assertAlmostEqual(float(found["objective"]), self.objective(weighted, {**PENALTIES, **keys}),
                                           delta=1e-9 * als)
                    self.assert_never_rises(found)
                    self.assertIn("objective changes by less than its tolerance", found["ended"])

    def objective(self, weighted, keys):
        """Of the model that was written."""
        rows = {name: self.rows(name) for name in ("W", "H", "ubias", "ibias")}
        training = self.ratings[: len(self.ratings) * 4 // 5]
        mean = statistics.fmean(r for _, _, r in training)
        users = collections.Counter(str(u) for u, _, _ in training)
        items = collections.Counter(str(i) for _, i, _ in training)
        found = 0.0
        for user, item, rating in training:
            u, i = str(user), str(item)
            product = sum(a * b for a, b in zip(rows["W"][u], rows["H"][i]))
            found += (rating - mean - rows["ubias"][u][0] - rows["ibias"][i][0] - product) ** 2
        for counts, factors, bias in ((users, "W", "ubias"), (items, "H", "ibias")):
            for key, n in counts.items():
                found += (n if weighted else 1) * (keys["lambda"] * sum(x * x for x in rows[factors][key]) +
                                                   keys["lambda_bias"] * rows[bias][key][0] ** 2)
        return found

    def test_biases_alone_have_one_minimum(self):
        als = self.als(300, k=0)
        for method in METHODS:
            found = self.batch(method, 2, 1, k=0, tolerance=1e-13)
            self.assertAlmostEqual(float(found["objective"]) / float(als["objective"]), 1, delta=1e-9)

    def test_any_number_of_workers_and_servers_ends_at_the_same_objective(self):
        for method in METHODS:
            found = {(w, s): self.batch(method, w, s) for w, s in ((1, 1), (2, 1), (4, 2))}
            for name in ("objective", "loss", "rmse", "test_rmse"):
                values = [float(f[name]) for f in found.values()]
                limit = 1e-6 if name == "objective" else 1e-3
                self.assertLess(max(values) / min(values) - 1, limit, (method, name, values))

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_movielens_is_as_good_as_als(self):
        train, test = self.movielens()
        cases = [(w, seed) for w in (1, 2, 4) for seed in range(3)]
        als = {seed: float(self.als(20, rating_input=train, k=32, seed=seed)["objective"]) for seed in {s for _, s in cases}}
        for method in METHODS:
            for workers, seed in cases:
                with self.subTest(method=method, workers=workers, seed=seed):
                    found = self.batch(method, workers, 1, input=train, test_input=test, k=32, seed=seed, tolerance=None)
                    self.assertLessEqual(float(found["objective"]), 1.001 * als[seed])
                    self.assertLessEqual(float(found["test_rmse"]), 0.882)
                    self.assert_never_rises(found)


class Runs(Batch):
    def test_runs_are_the_same_bits_and_seeds_are_not(self):
        for method in METHODS:
            for workers, mode in ((1, "embedded"), (3, "local")):
                seen = []
                for seed in (3, 3, 4):
                    self.batch(method, workers, 1, mode, rounds=30, seed=seed)
                    seen.append(self.bytes_of("W", "H", "ubias", "ibias"))
                self.assertEqual(seen[0], seen[1])
                self.assertNotEqual(seen[0], seen[2])

    def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(self):
        for method in METHODS:
            with self.subTest(method=method):
                self.batch(method, 2, 1, rounds=25)
                expected = self.bytes_of("W", "H", "ubias", "ibias")
                config = os.path.join(self.folder, f"config{self.count}.json")
                folder = config + ".checkpoints"
                command = [sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-c", config, "-m", "local", "--output-dir",
                           config + ".run"]
                self.run_again(command + ["--checkpoint-dir", folder, "--checkpoint-every", "7", "--checkpoint-keep", "10"],
                               expected)
                made = [at for at in map(os.path.dirname, glob.glob(os.path.join(folder, "*", "manifest.json")))
                        if os.path.basename(at).isdigit()]
                self.assertTrue(made)
                for at in made:
                    found = self.run_again(command + ["--resume", at, "--checkpoint-dir", folder + "_2"], expected)
                    self.assertEqual(found["rounds"], "25")

    def run_again(self, command, expected):
        done = subprocess.run(command + [os.path.join(BIN, "mf")], capture_output=True, text=True, timeout=300, cwd=SOURCE,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.bytes_of("W", "H", "ubias", "ibias"), expected)
        return numbers_said(done.stdout)

    def test_the_model_is_used_as_that_of_sgd(self):
        pairs = self.write("pairs.csv", [(u, i) for u, i, _ in self.held_out] + [(10, 99999), (88888, 5)])
        found = self.batch("bfgs", 2, 1, predict_input=pairs, recommend=5, ranking=True)
        predictions, model = self.bytes_of("pred_v"), self.output
        again = self.job(1, 1, model_input=model, test_input=self.test, predict_input=pairs)
        self.assertEqual(sorted(b"".join(predictions).splitlines()),
                         sorted(b"".join(self.bytes_of("pred_v")).splitlines()))
        self.assertAlmostEqual(float(found["test_rmse"]), float(again["test_rmse"]), places=12)
        self.assertGreater(float(found["recall@10"]), 0)
        self.assertEqual(self.manifest(model)["settings"]["method"], "bfgs")

    def test_rounds_and_tolerance_end_the_run(self):
        for method in METHODS:
            found = self.batch(method, 2, 1, rounds=5)
            self.assertEqual(found["rounds"], "5")
            self.assertIn("the maximum number of steps is reached", found["ended"])
            loose = self.batch(method, 1, 1, tolerance=1e-3)
            tight = self.batch(method, 1, 1, tolerance=1e-6)
            self.assertLess(int(loose["rounds"]), int(tight["rounds"]))

    def test_one_rating_and_more_workers_than_users(self):
        tiny = self.write("tiny.csv", "1,2,4.5\n")
        for method in METHODS:
            found = self.batch(method, 4, 2, input=tiny, test_input=tiny, recommend=3)
            self.assertEqual(float(found["test_rmse"]), 0)
            self.assertLess(float(found["objective"]), 1e-9)

    def test_names_are_ids_too(self):
        named = self.write("named.csv", [(f"user {u}", f"i{i}", r) for u, i, r in self.ratings])
        found = [float(self.batch("bfgs", w, 1, input=named, test_input=named)["objective"]) for w in (1, 4)]
        self.assertAlmostEqual(found[0], found[1], delta=1e-6 * found[0])
        self.assertIn("user 10", self.rows("W"))


class Refusals(Batch):
    def test_keys_of_the_other_methods_are_refused(self):
        for key, value in (("alpha", 0.01), ("beta", 0.1), ("clocks_per_round", 2), ("factors", "float64"),
                           ("ssp_switch", True), ("consistency", "bsp")):
            for method in METHODS:
                self.assertIn(f'key "{key}": not with method {method}; only with sgd',
                              self.batch(method, 1, 1, status=3, **{key: value}))
        self.assertIn('key "update_file": not with method cg',
                      self.batch("cg", 1, 1, status=3,
                                 update_file=os.path.join(BUILD, "lib", "libmf_update.so")))
        for key, value in (("lambda", 0.1), ("lambda_bias", 0.1), ("weighted", True)):
            self.assertIn(f'key "{key}": not with method sgd',
                          self.job(1, 1, status=3, input=self.train, k=4, **{key: value}))
        for keys, text in (({"method": "newton"}, 'key "method"'), ({"method": "cg", "lambda": -1}, 'key "lambda"')):
            self.assertIn(text, self.job(1, 1, status=3, input=self.train, **keys))


if __name__ == "__main__":
    unittest.main()
