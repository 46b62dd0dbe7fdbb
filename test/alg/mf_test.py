#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""mf, tested by running jobs: its quality, reproducibility, saved models, and errors in the input. movielens-small is looked for
in $PARACEL_SHARED_DATA, else in ../shared/data. PARACEL_LONG=1 runs all seeds."""
import math
import os
import random
import statistics
import unittest

import factor_oracle
from alg_job import BUILD, LONG, ONLY_LONG
from factor_support import FactorCase

BAR = {"k": 32, "alpha": 0.005, "beta": 0.24, "rounds": 60}
SMALL = {"k": 4, "alpha": 0.02, "beta": 0.05, "rounds": 20, "seed": 3}


class Mf(FactorCase):
    program = "mf"

    def small(self, *args, **keys):
        return self.job(*args, **{"input": self.train, "test_input": self.test, **SMALL, **keys})


class Quality(Mf):
    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_movielens_reaches_the_bar_and_beats_its_own_biases(self):
        train, test = self.movielens()
        seeds = range(5)
        for workers, servers in ((1, 1), (4, 3), (2, 1)):
            rmse, bias = [], []
            for seed in seeds:
                found = self.job(workers, servers, input=train, test_input=test, seed=seed, **BAR)
                rmse.append(float(found["test_rmse"]))
                self.assertEqual((found["test_pairs"], found["test_unknown"]), ("20000", "768"))
                found = self.job(workers, servers, input=train, test_input=test, seed=seed, **{**BAR, "k": 0})
                bias.append(float(found["test_rmse"]))
            with self.subTest(workers=workers):
                self.assertLessEqual(statistics.mean(rmse), 0.878)
                self.assertLessEqual(statistics.mean(rmse), 0.998 * statistics.mean(bias))

    def test_three_clocks_apart_the_loss_ends_within_1_percent(self):
        train, _ = self.movielens()
        loss = {}
        for s in (0, 3):
            loss[s] = statistics.mean(
                float(self.job(4, 2, input=train, seed=seed, ssp_switch=s > 0, limit_s=s, **BAR)["loss"])
                for seed in (range(5) if LONG else range(1)))
        self.assertLess(abs(loss[3] / loss[0] - 1), 0.01)

    def test_one_worker_is_the_oracle_and_more_are_as_good(self):
        training = self.ratings[: len(self.ratings) * 4 // 5]
        serial = factor_oracle.mf(training, self.held_out, 4, 20, 0.02, 0.05, 3)
        for workers, factors, limit in ((1, "float64", 1e-9), (1, "float32", 1e-4), (2, "float64", 0.1), (4, "float32", 0.1)):
            found = self.small(workers, factors=factors)
            for name, value in serial.items():
                self.assertLess(abs(float(found[name]) / value - 1), limit, (name, workers, factors))

    def test_factors_of_32_bits_are_as_good_as_those_of_64(self):
        train, test = self.movielens()
        for workers in (1, 2):
            found = [self.job(workers, 1, input=train, test_input=test, factors=factors, **BAR)
                     for factors in ("float32", "float64")]
            for name in ("objective", "test_rmse"):
                single, double = (float(f[name]) for f in found)
                self.assertLess(abs(single / double - 1), 1e-4, name)

    def test_items_that_all_workers_step_on_often_do_not_overshoot(self):
        # At least two hundred steps on each item between two exchanges, on every worker: enough for a bias to converge.
        draw = random.Random(11)
        rows = [(u, i, min(5, max(1, 2 + i % 3 + round(draw.gauss(0, 1))))) for u in range(4000) for i in range(8)]
        popular = self.write("popular.csv", rows)
        found = {w: float(self.job(w, 1, input=popular, k=4, alpha=0.01, beta=0.1, rounds=10)["rmse"]) for w in (1, 2, 4)}
        for w in (2, 4):
            self.assertLess(found[w], 1.01 * found[1], found)


class Sameness(Mf):
    def test_runs_are_the_same_bits_and_seeds_are_not(self):
        for workers, servers in ((1, 1), (3, 2)):
            seen = []
            for _ in range(2):
                self.small(workers, servers)
                seen.append(self.bytes_of("W", "H", "ubias", "ibias"))
            self.assertEqual(seen[0], seen[1])
            self.small(workers, servers, seed=4)
            self.assertNotEqual(seen[0], self.bytes_of("W", "H", "ubias", "ibias"))

    def test_one_worker_is_the_same_in_every_mode(self):
        self.small(1, 1)
        local = self.bytes_of("W", "H", "ubias", "ibias")
        for mode in ("embedded", "mpi"):
            self.small(1, 1, mode)
            self.assertEqual(local, self.bytes_of("W", "H", "ubias", "ibias"))
        self.assertEqual(len(self.small(2, 1, "mpi")["objective"].split()), 1)


class Results(Mf):
    def test_a_plug_in_may_apply_the_steps_of_the_items(self):
        self.small(2, 2, factors="float64")
        plain = self.bytes_of("W", "H", "ubias", "ibias")
        self.small(2, 2, update_file=os.path.join(BUILD, "lib", "libparacel_default.so"),
                   update_functions=["paracel_add", "paracel_add", "paracel_add"])
        self.assertEqual(plain, self.bytes_of("W", "H", "ubias", "ibias"))

    def test_the_model_predicts_what_was_said_and_is_read_back(self):
        for layout in ("text", "npy"):
            pairs = self.write("pairs.csv", [(u, i) for u, i, _ in self.held_out] + [(10, 99999), (88888, 5), (7, 8)])
            found = self.small(2, 1, predict_input=pairs, format=layout)
            predictions = self.predictions()
            model = self.output
            if layout == "text":
                self.check_predictions(predictions, found)
            again = self.job(3, 2, input=None, model_input=model, test_input=self.test, predict_input=pairs)
            self.assertEqual(predictions, self.predictions())
            self.assertAlmostEqual(float(found["test_rmse"]), float(again["test_rmse"]), places=12)

    def predictions(self):
        found = {}
        for text in self.bytes_of("pred_v"):
            for line in text.decode().splitlines():
                user, item, value = line.split(",")
                found[user, item] = float(value)
        return found

    def check_predictions(self, predictions, found):
        w, h, bu, bi = (self.rows(name) for name in ("W", "H", "ubias", "ibias"))
        training = self.ratings[: len(self.ratings) * 4 // 5]
        mean = statistics.fmean(r for _, _, r in training)
        low, high = min(r for _, _, r in training), max(r for _, _, r in training)

        def predict(user, item):
            p = mean + bu.get(user, [0])[0] + bi.get(item, [0])[0]
            if user in w and item in h:
                p += sum(a * b for a, b in zip(w[user], h[item]))
            return min(high, max(low, p))
        self.assertEqual(len(predictions), len(self.held_out) + 3)
        for (user, item), value in predictions.items():
            self.assertAlmostEqual(value, predict(user, item), places=10)
        self.assertAlmostEqual(predictions["7", "8"], mean, places=12)
        squares = [(r - predict(str(u), str(i))) ** 2 for u, i, r in self.held_out]
        self.assertAlmostEqual(float(found["test_rmse"]), math.sqrt(statistics.fmean(squares)), places=10)
        self.assertEqual(float(self.rows_of_file("miu_0")["miu"]), mean)

    def rows_of_file(self, name):
        with open(os.path.join(self.output, name), encoding="utf-8") as file:
            return dict(line.rstrip("\n").split("\t") for line in file)

    def test_lists_are_those_of_brute_force(self):
        one = None
        for workers in (1, 3):
            found = self.small(workers, 1, recommend=4, ranking=True, ranking_at=3, relevant=4.0)
            w, h, bu, bi = (self.rows(name) for name in ("W", "H", "ubias", "ibias"))
            mean = float(self.rows_of_file("miu_0")["miu"])
            seen, relevant = {}, {}
            for u, i, _ in self.ratings[: len(self.ratings) * 4 // 5]:
                seen.setdefault(str(u), set()).add(str(i))
            for u, i, r in self.held_out:
                if r >= 4.0:
                    relevant.setdefault(str(u), set()).add(str(i))
            lists = {}
            for text in self.bytes_of("recommend"):
                for line in text.decode().splitlines():
                    user, items = line.split("\t")
                    lists[user] = [(item.split(":")[0], float(item.split(":")[1])) for item in items.split("|")]
            self.assertEqual(set(lists), set(w))
            ndcg = recall = 0
            for user, wu in w.items():
                scores = sorted(((mean + bu[user][0] + bi[i][0] + sum(a * b for a, b in zip(wu, hi)), -int(i))
                                 for i, hi in h.items() if i not in seen[user]), reverse=True)
                self.assertEqual([i for i, _ in lists[user]], [str(-i) for _, i in scores[:4]])
                for (_, said), (score, _) in zip(lists[user], scores):
                    self.assertAlmostEqual(said, score, places=10)
                want = relevant.get(user, set())
                if want:
                    hits = [p for p, (_, i) in enumerate(scores[:3]) if str(-i) in want]
                    ndcg += sum(1 / math.log2(p + 2) for p in hits) / sum(1 / math.log2(p + 2)
                                                                         for p in range(min(3, len(want))))
                    recall += len(hits) / len(want)
            self.assertEqual(int(found["ranked_users"]), len(relevant))
            self.assertAlmostEqual(float(found["ndcg@3"]), ndcg / len(relevant), places=10)
            self.assertAlmostEqual(float(found["recall@3"]), recall / len(relevant), places=10)
            one = one or found
            popular = sorted(((mean + bi[i][0], -int(i)) for i in h), reverse=True)[:4]
            with open(os.path.join(self.output, "recommend_unknown_0"), encoding="utf-8") as file:
                self.assertEqual([item.split(":")[0] for item in file.read().strip().split("|")],
                                 [str(-i) for _, i in popular])

    def test_unknown_users_are_ranked_by_the_items_biases(self):
        test = self.write("cold.csv", [(77777, 5, 5.0), (77777, 99999, 5.0), (10, 99999, 5.0)])
        found = self.small(2, 1, test_input=test, ranking=True, ranking_at=100)
        self.assertEqual((found["ranked_users"], found["ranked_cold_users"]), ("2", "1"))
        self.assertAlmostEqual(float(found["recall@100"]), 0.25)  # one of two, and none of one

    def test_a_round_is_a_line_of_metrics_and_the_loss_falls(self):
        found = self.small(2, 1)
        metrics = self.curve()
        self.assertEqual([m["round"] for m in metrics], list(range(1, 21)))
        self.assertLess(metrics[-1]["running_rmse"], metrics[0]["running_rmse"])
        self.assertEqual(found["rounds"], "20")
        same = self.write("same.csv", "1,2,3\n1,4,3\n2,2,3\n")
        found = self.job(2, 1, input=same, k=0, beta=0, alpha=0.02, tolerance=0.01, rounds=500)
        self.assertEqual((float(found["loss"]), found["rounds"]), (0, "2"))
        found = self.small(2, 1, tolerance=0.05, rounds=500)
        self.assertLess(int(found["rounds"]), 100)
        self.assertEqual(len(self.curve()), int(found["rounds"]))
        for limit in (0, 3):
            found = self.small(4, 1, tolerance=0.05, rounds=500, ssp_switch=True, limit_s=limit)
            self.assertEqual(len(self.curve()), int(found["rounds"]))
            self.assertLess(int(found["rounds"]), 100)
            self.assertLessEqual(max(m["staleness"] for m in self.curve()), limit)

    def test_names_are_ids_too(self):
        named = self.write("named.csv", [(f"user {u}", f"i{i}", r) for u, i, r in self.ratings])
        one = self.job(1, 1, input=named, predict_input=named, **SMALL)
        self.assertIn("user 10", self.rows("W"))
        self.assertIn("i5", self.rows("H"))
        two = self.job(4, 2, input=named, **SMALL)
        self.assertLess(abs(float(one["rmse"]) / float(two["rmse"]) - 1), 0.1)

    def test_one_rating_and_more_workers_than_users(self):
        tiny = self.write("tiny.csv", "1,2,4.5\n")
        found = self.job(4, 2, input=tiny, test_input=tiny, recommend=3, **SMALL)
        self.assertEqual(found["test_pairs"], "1")
        self.assertEqual(float(found["test_rmse"]), 0)  # clamped to the only rating


class Refusals(Mf):
    def test_wrong_ratings_are_refused_with_file_line_and_column(self):
        for text, place in (("1,2,3\n1,x,3\n1,2\n", ":3"), ("1,2,3\n4,5,nan\n", ":2:5"), ("", "found no rating"),
                            ("\n\n", "found no rating")):
            said = self.job(2, 1, status=4, input=self.write("bad.csv", text), **SMALL)
            self.assertIn(place, said)
            self.assertIn("bad.csv", said)

    def test_names_among_numbers_are_unknown_users(self):
        found = self.job(2, 1, input=self.train, ranking=True, test_input=self.write("named_test.csv", "a,b,3\n"), **SMALL)
        self.assertEqual((found["test_pairs"], found["test_unknown"], found["ranked_cold_users"]), ("1", "1", "1"))

    def test_wrong_keys_are_refused(self):
        for keys, text in (({"alpha": 0}, 'key "alpha"'), ({"k": -1}, 'key "k"'), ({"input": None}, 'key "input"'),
                           ({"ranking": True}, 'key "ranking"'), ({"min_rating": 5, "max_rating": 1}, 'key "min_rating"')):
            self.assertIn(text, self.job(1, 1, status=3, **{"input": self.train, **SMALL, **keys}))
        self.assertIn("float32 with update_file", self.job(
            1, 1, status=3, input=self.train, update_file=os.path.join(BUILD, "lib", "libmf_update.so"), factors="float32"))
        self.assertIn("model.json", self.job(1, 1, status=4, model_input=self.folder, test_input=self.test))

    def test_an_offset_of_the_ratings_changes_nothing(self):
        for keys in ({}, {"factors": "float64"}, {"method": "bfgs", "tolerance": 1e-9}):
            found = []
            for offset in (0, 1e9):
                path = self.write("moved.csv", [(u, i, repr(r + offset)) for u, i, r in self.ratings])
                found.append(float(self.job(2, 1, input=path, **{**({} if "method" in keys else SMALL), "k": 3, **keys})["rmse"]))
            self.assertAlmostEqual(found[1] / found[0], 1, delta=1e-3)

    def test_a_step_that_is_too_large_is_said(self):
        said = self.job(2, 1, status=1, input=self.train, **{**SMALL, "alpha": 5.0})
        self.assertIn("diverged at round", said)
        self.assertIn("lower alpha", said)


if __name__ == "__main__":
    unittest.main()
