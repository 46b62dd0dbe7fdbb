#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""als and als_validate, tested by running jobs: equal to NumPy's dense solves and rounds, and independent of the
number of workers and servers. movielens-small is looked for in $PARACEL_SHARED_DATA, else in ../shared/data. PARACEL_LONG=1 runs
all seeds."""
import json
import os
import statistics
import subprocess
import unittest

import numpy as np

import factor_oracle
from alg_job import BIN, LONG
from factor_support import FactorCase

SMALL = {"k": 4, "lambda": 0.1, "lambda_bias": 0.05, "rounds": 8, "seed": 3}


def near(a, b):
    return abs(a - b) <= 1e-8 * max(1.0, abs(b))


class Als(FactorCase):
    program = "als"

    def small(self, *args, **keys):
        return self.job(*args, **{"rating_input": self.train, **SMALL, **keys})

    def model(self):
        return {name: {key: np.array(row) for key, row in self.rows(name).items()} for name in ("W", "H", "ubias", "ibias")}

    def assert_rows_near(self, rows, others, tolerance):
        self.assertEqual(set(rows), set(others))
        for key, row in rows.items():
            np.testing.assert_allclose(row, others[key], rtol=0, atol=tolerance * max(1, np.abs(row).max()))

    @property
    def training(self):
        return self.ratings[: len(self.ratings) * 4 // 5]


class Quality(Als):
    def test_movielens_reaches_the_bar_and_the_objective_never_rises(self):
        train, test = self.movielens()
        rmse = []
        for seed in range(5) if LONG else range(2):
            found = self.job(2, 1, rating_input=train, test_input=test, k=32, rounds=20, seed=seed,
                             **{"lambda": 0.1, "lambda_bias": 0.05})
            rmse.append(float(found["test_rmse"]))
            steps = [m[name] for m in self.curve() for name in ("after_users", "objective")]
            self.assertEqual(len(steps), 40)
            for before, after in zip(steps, steps[1:]):
                self.assertLessEqual(after, before * (1 + 1e-10))
        self.assertLessEqual(statistics.mean(rmse), 0.882)

    def test_equal_to_numpy(self):
        for weighted in (True, False):
            serial = factor_oracle.als(self.training, self.held_out, 4, 20, 0.1, 0.05, weighted, 3)
            found = self.small(2, 1, rounds=20, test_input=self.test, weighted=weighted)
            for name, value in serial.items():
                self.assertLess(abs(float(found[name]) / value - 1), 1e-9)


class DenseSolves(Als):
    """Compares the rows that were solved last with NumPy."""

    def test_the_last_half_step_is_the_dense_solve(self):
        for weighted in (True, False):
            self.small(2, 2, weighted=weighted)
            m = self.model()
            mean = np.mean([r for _, _, r in self.training])
            for item, h in m["H"].items():
                mine = [(str(u), r) for u, i, r in self.training if str(i) == item]
                x = np.array([np.concatenate(([1.0], m["W"][u])) for u, _ in mine])
                t = np.array([r - mean - m["ubias"][u][0] for u, r in mine])
                n = len(mine) if weighted else 1
                z = np.linalg.solve(x.T @ x + n * np.diag([0.05] + [0.1] * 4), x.T @ t)
                np.testing.assert_allclose(np.concatenate((m["ibias"][item], h)), z, rtol=0, atol=1e-8)

    def test_the_objective_is_that_of_numpy(self):
        found = self.small(3, 1)
        m = self.model()
        mean = np.mean([r for _, _, r in self.training])
        value = 0
        for u, i, r in self.training:
            w, h, a, b = m["W"][str(u)], m["H"][str(i)], m["ubias"][str(u)][0], m["ibias"][str(i)][0]
            value += (r - mean - a - b - w @ h) ** 2 + 0.1 * (w @ w + h @ h) + 0.05 * (a * a + b * b)
        self.assertTrue(near(float(found["objective"]), value))

    def test_implicit_is_the_dense_solve_and_its_objective_never_rises(self):
        found = self.small(2, 1, implicit=True, confidence=2.0, **{"lambda": 0.5})
        m = self.model()
        users, items = sorted(m["W"]), sorted(m["H"])
        w = np.array([m["W"][u] for u in users])
        h = np.array([m["H"][i] for i in items])
        r = np.zeros((len(users), len(items)))
        for u, i, value in self.training:
            r[users.index(str(u)), items.index(str(i))] = value
        p, c = (r > 0).astype(float), 1 + 2.0 * r
        for j in range(len(items)):
            z = np.linalg.solve(w.T @ (c[:, j, None] * w) + 0.5 * np.eye(4), w.T @ (c[:, j] * p[:, j]))
            np.testing.assert_allclose(h[j], z, rtol=0, atol=1e-8)
        objective = (c * (p - w @ h.T) ** 2).sum() + 0.5 * ((w * w).sum() + (h * h).sum())
        self.assertTrue(near(float(found["objective"]), objective))
        steps = [s[name] for s in self.curve() for name in ("after_users", "objective")]
        for before, after in zip(steps, steps[1:]):
            self.assertLessEqual(after, before * (1 + 1e-10))

    def test_one_unknown_user_with_a_name_does_not_make_the_others_unknown(self):
        known = self.small(2, 1, test_input=self.test, ranking=True)
        mixed = self.write("mixed.csv", [*self.held_out, ("nobody", self.held_out[0][1], 3)])
        for keys in ({}, {"model_input": self.output}):
            found = self.small(3, 1, test_input=mixed, **({"ranking": True} if not keys else {}), **keys)
            self.assertEqual(int(found["test_unknown"]), int(known["test_unknown"]) + 1)
        self.assertEqual(int(found["test_pairs"]), int(known["test_pairs"]) + 1)

    def test_an_implicit_count_in_two_parts_is_their_sum(self):
        whole = self.small(2, 1, implicit=True)
        parts = self.write("parts.csv", [(u, i, value / 2) for u, i, value in self.training for _ in range(2)])
        halves = self.small(2, 1, implicit=True, rating_input=parts)
        self.assertGreater(float(halves["objective"]), 0)
        self.assertTrue(near(float(halves["objective"]), float(whole["objective"])))

    def test_one_step_against_given_factors_is_the_dense_solve(self):
        self.small(1, 1)
        for pattern, given, rows in (("fmap", "H", 0), ("smap", "W", 1)):
            self.small(1, 1)
            factors = {key: np.array(row) for key, row in self.rows(given).items()}
            folder = os.path.join(self.output, given + "_0")
            found = self.job(3, 2, rating_input=self.train, factor_input=folder, validate_input=self.write(
                "half.csv", self.held_out + [(987654, 5, 3.0), (10, 987655, 3.0)]), pattern=pattern, **{"lambda": 0.7})
            solved = {key: np.array(row) for key, row in self.rows("W").items()}
            squares = 0
            for key, row in solved.items():
                mine = [(str(x[1 - rows]), x[2]) for x in self.training if str(x[rows]) == key]
                h = np.array([factors[other] for other, _ in mine])
                t = np.array([v for _, v in mine])
                np.testing.assert_allclose(row, np.linalg.solve(h.T @ h + 0.7 * np.eye(4), h.T @ t), rtol=0, atol=1e-8)
                squares += ((t - h @ row) ** 2).sum()
            self.assertTrue(near(float(found["rmse"]), np.sqrt(squares / len(self.training))))
            errors = [r - solved[str((u, i)[rows])] @ factors[str((i, u)[rows])] for u, i, r in self.held_out
                      if str((u, i)[rows]) in solved and str((i, u)[rows]) in factors]
            self.assertEqual(int(found["validate_pairs"]), len(errors))
            self.assertEqual(int(found["validate_skipped"]), len(self.held_out) + 2 - len(errors))
            self.assertTrue(near(float(found["validate_rmse"]), np.sqrt(np.mean(np.square(errors)))))


class Sameness(Als):
    def test_the_same_for_any_workers_and_servers_and_in_every_mode(self):
        for keys in ({}, {"implicit": True}):
            first = self.small(1, 1, **keys)
            model = self.model()
            for workers, servers, mode in ((1, 1, "embedded"), (2, 1, "local"), (4, 3, "local"), (2, 1, "mpi")):
                found = self.small(workers, servers, mode, **keys)
                self.assertLess(abs(float(found["objective"]) / float(first["objective"]) - 1), 1e-9)
                other = self.model()
                for name, rows in model.items():
                    self.assert_rows_near(rows, other[name], 1e-9)

    def test_runs_are_the_same_bits(self):
        seen = []
        for _ in range(2):
            self.small(3, 2)
            seen.append(self.bytes_of("W", "H", "ubias", "ibias"))
        self.assertEqual(seen[0], seen[1])

    def test_standard_input_is_read_once_for_users_and_items(self):
        self.small(1, 1, "embedded")
        expected = self.bytes_of("W", "H", "ubias", "ibias")
        self.output = os.path.join(self.folder, "from_stdin")
        config = self.write("stdin.json", json.dumps({"rating_input": "-", "output": self.output, **SMALL}))
        with open(self.train, "rb") as ratings:
            subprocess.run([os.path.join(BIN, "als"), "--cfg_file", config], stdin=ratings, capture_output=True, check=True,
                           timeout=60)
        self.assertEqual(self.bytes_of("W", "H", "ubias", "ibias"), expected)


class Validate(Als):
    def test_each_lambda_is_the_one_step_of_als_and_the_best_is_named(self):
        self.small(1, 1)
        h = os.path.join(self.output, "H_0")
        common = {"rating_input": self.train, "factor_input": h, "validate_input": self.test}
        lambdas = [0.01, 1.0, 30.0]
        self.job(2, 2, program="als_validate", lambdas=lambdas, **common)
        said = self.curve()
        self.assertEqual([m["lambda"] for m in said], lambdas)
        for m in said:
            one = self.job(1, 1, **common, **{"lambda": m["lambda"]})
            self.assertTrue(near(m["train_rmse"], float(one["rmse"])))
            self.assertTrue(near(m["validate_rmse"], float(one["validate_rmse"])))
        best = min(said, key=lambda m: m["validate_rmse"])["lambda"]
        found = self.job(1, 1, "embedded", program="als_validate", lambdas=lambdas, **common)
        self.assertEqual(float(found["best_lambda"]), best)
        self.assertEqual(int(found["validate_pairs"]) + int(found["validate_skipped"]), len(self.held_out))


class Results(Als):
    def test_the_model_is_read_back_in_both_formats(self):
        pairs = self.write("pairs.csv", [(u, i) for u, i, _ in self.held_out] + [(10, 99999), (88888, 5)])
        for layout in ("text", "npy"):
            found = self.small(2, 1, test_input=self.test, predict_input=pairs, format=layout)
            predictions, model = self.bytes_of("pred_v"), self.output
            again = self.job(2, 1, model_input=model, test_input=self.test, predict_input=pairs)
            self.assertEqual(predictions, self.bytes_of("pred_v"))
            self.assertEqual(found["test_rmse"], again["test_rmse"])
            if layout == "npy":
                manifest = self.manifest(model)
                parts = [np.load(os.path.join(model, f)) for f in manifest["arrays"]["H"]["files"]]
                self.assertEqual(list(np.concatenate(parts).shape), manifest["arrays"]["H"]["shape"])

    def test_lists_rank_what_implicit_ratings_mean(self):
        found = self.small(2, 1, implicit=True, test_input=self.test, recommend=5, ranking=True)
        other = self.small(1, 1, implicit=True, test_input=self.test, ranking=True)
        self.assertAlmostEqual(float(found["ndcg@10"]), float(other["ndcg@10"]), places=9)
        self.assertGreater(float(found["recall@10"]), 0.1)

    def test_tolerance_ends_the_run(self):
        found = self.small(2, 1, rounds=500, tolerance=1e-3)
        self.assertLess(int(found["rounds"]), 200)

    def test_one_rating_and_no_penalty(self):
        tiny = self.write("tiny.csv", "1,2,4.5\n1,3,4.5\n")
        found = self.job(3, 1, rating_input=tiny, k=2, rounds=3, **{"lambda": 0, "lambda_bias": 0})
        self.assertLess(float(found["objective"]), 1e-20)


class Refusals(Als):
    def test_wrong_input_is_refused_with_its_place(self):
        bad = self.write("bad.csv", "1,2,3\n4,5,x\n")
        self.assertIn("bad.csv:2:5", self.small(2, 1, status=4, rating_input=bad))
        self.assertIn("found no rating", self.small(2, 1, status=4, rating_input=self.write("none.csv", "\n")))
        self.assertIn("found the rating -1", self.small(2, 1, status=4, implicit=True,
                                                        rating_input=self.write("minus.csv", "1,2,3\n4,5,-1\n")))
        for text, place in (("5\t1|2\n7\t1|x\n", "factors:2:5"), ("5\t1|2\n7\t1\n", "factors:2:"), ("5,1\n", "factors:1:1"),
                            ("", "factors:1:1"), ("5\t1|nan\n", "factors:1:5")):
            factors = self.write("factors", text)
            self.assertIn(place, self.small(2, 1, status=4, factor_input=factors))
        self.assertIn('found no factors of "', self.small(2, 1, status=4, factor_input=self.write("factors", "5\t1|2\n")))

    def test_wrong_keys_are_refused(self):
        for keys, text in (({"lambda": -1}, 'key "lambda"'), ({"rating_input": None}, 'key "rating_input"'),
                           ({"implicit": True, "k": 0}, 'key "k"'), ({"pattern": "linesplit"}, 'key "pattern"'),
                           ({"test_input": self.test, "validate_input": self.test}, 'key "validate_input"')):
            self.assertIn(text, self.small(1, 1, status=3, **keys))
        self.assertIn('key "lambdas"', self.job(1, 1, status=3, program="als_validate", rating_input=self.train,
                                                factor_input=self.train, validate_input=self.train, lambdas=[]))


if __name__ == "__main__":
    unittest.main()
