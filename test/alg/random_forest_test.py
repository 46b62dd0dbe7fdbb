#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random forests, tested by running jobs: a tree equal to one by definition, the same forest for any number of workers and in
every mode, out-of-bag error, categories, weights, the figures of three data sets. Options: names of tests."""
import math
import os
import random
import unittest

import forest_oracle
import gbdt_oracle
from alg_job import LONG, ONLY_LONG
from tree_case import PLACES, TreeCase


class RandomForestTest(TreeCase):
    program = "random_forest"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(8)
        cls.x, cls.margin = [], []
        for _ in range(300):
            row = [gbdt_oracle.single(round(dice.gauss(0, 1), 1)) for _ in range(4)]
            signal = row[0] * row[1] + (row[2] > 0.3)
            if dice.random() < 0.15:
                row[2] = None
                signal += 1
            cls.x.append(row)
            cls.margin.append(signal + dice.gauss(0, 0.3))
        cls.targets = cls.table("targets.csv", [round(m, 3) for m in cls.margin])
        cls.labels = cls.table("labels.csv", [int(m > 0.5) for m in cls.margin])
        cls.defaults = {"training_input": cls.labels, "type": "classification", "trees": 20}
        cls.words = cls.table("words.csv", [("low", "middle", "high")[(m > 0) + (m > 1)] for m in cls.margin])

    def test_a_tree_of_all_rows_and_features_is_that_of_the_oracle(self):
        for path, kind in ((self.labels, "classification"), (self.targets, "regression")):
            for keys in ({}, {"min_leaf": 7}, {"max_depth": 3}):
                with self.subTest(type=kind, **keys):
                    x, y = gbdt_oracle.load(path)
                    tree = forest_oracle.Tree(x, y, sorted(set(y)) if kind == "classification" else (), **keys)
                    for workers in (1, 3):
                        found = self.fit(workers, training_input=path, type=kind, trees=1, bootstrap=False, features_per_split=4,
                                         predict_input=path, **keys)
                        self.assertEqual(found["nodes"], tree.nodes())
                        self.assertEqual(found["oob_rows"], 0)
                        for line, row in zip(self.predictions(workers), x):
                            ours = [float(v) for v in line[-1].split("|")]
                            theirs = tree.predict(row)
                            for a, b in zip(ours, theirs if kind == "classification" else [theirs]):
                                self.assertAlmostEqual(a, b, delta=1e-6)

    def test_the_forest_is_the_same_for_any_number_of_workers_and_in_every_mode(self):
        for path, keys in ((self.labels, {"categorical": []}), (self.words, {"max_depth": 4}),
                           (self.targets, {"type": "regression", "min_leaf": 3})):
            first = None
            for place in PLACES:
                with self.subTest(place=place, **keys):
                    found = self.fit(*place, training_input=path, test_input=path, **keys)
                    found.pop("output")
                    found.pop("auc", None)
                    first = first or (found, self.arrays())
                    self.assertEqual((found, self.arrays()), first)
        again = self.fit(1, training_input=path, seed=1, **keys)
        self.assertNotEqual(again["oob_rmse"], first[0]["oob_rmse"])

    def test_more_workers_than_rows(self):
        few = self.table("few.csv", [0, 0, 0, 1, 1], [[float(v)] for v in (1, 2, 3, 8, 9)])
        first = None
        for workers in (1, 8):
            found = self.fit(workers, training_input=few, test_input=few, trees=50)
            self.assertEqual(found["accuracy"], 1)
            first = first or self.arrays()
            self.assertEqual(self.arrays(), first)

    def test_a_class_that_one_worker_lacks_and_a_constant_column(self):
        order = sorted(range(len(self.x)), key=lambda i: self.margin[i])
        words = [("low", "middle", "high")[(self.margin[i] > 0) + (self.margin[i] > 1)] for i in order]
        path = self.table("sorted.csv", words, [[2.5] + self.x[i] for i in order])
        first = None
        for workers in (1, 4):
            found = self.fit(workers, training_input=path, test_input=path)
            first = first or (found["log_loss"], self.arrays())
            self.assertEqual((found["log_loss"], self.arrays()), first)
            with open(os.path.join(self.output, "importance"), encoding="ascii") as file:
                self.assertEqual(file.readlines()[-1], "0\t0\t0\n")
        # Nothing but constants: every tree is a leaf, and says how frequent the classes are.
        flat = self.table("flat.csv", words, [[1.0, None]] * len(words))
        found = self.fit(3, training_input=flat, test_input=flat, trees=10)
        self.assertEqual(found["nodes"], 10)
        self.assertAlmostEqual(found["accuracy"], max(words.count(w) for w in words) / len(words), delta=1e-9)

    def test_the_out_of_bag_error_is_that_of_new_rows(self):
        dice = random.Random(2)
        rows = [[dice.gauss(0, 1) for _ in range(6)] for _ in range(4000)]
        y = [int(r[0] + r[1] * r[2] + dice.gauss(0, 0.5) > 0) for r in rows]
        train, test = self.table("oob.csv", y[:2000], rows[:2000]), self.table("new.csv", y[2000:], rows[2000:])
        found = self.fit(2, training_input=train, test_input=test, trees=100, debug=True)
        self.assertEqual(found["oob_rows"], 2000)
        self.assertAlmostEqual(found["oob_accuracy"], found["accuracy"], delta=0.03)
        self.assertGreater(found["accuracy"], 0.8)
        curve = [line["oob_accuracy"] for line in self.curve()]
        self.assertEqual(len(curve), 100)
        self.assertGreater(curve[-1], curve[0])
        # About a third of the rows are not drawn for a tree, and the drawn ones weigh as much as all.
        with open(os.path.join(self.output, "node_rows_0"), encoding="ascii") as file:
            drawn = [float(v) for v in file.read().split("|")]
        with open(os.path.join(self.output, "tree_begin_0"), encoding="ascii") as file:
            roots = [drawn[int(v)] for v in file.read().split("|")[:-1]]
        self.assertAlmostEqual(sum(roots) / len(roots), 2000, delta=25)

    def test_weights_are_mean_draws(self):
        y = [int(m > 0.5) for m in self.margin]
        rows = [row + [float(w)] for row, w in zip(self.x, (i % 2 * 2 for i in range(len(y))))]
        weighted = self.table("weighted.csv", y, rows, "a,b,c,d,w,y")
        found = self.fit(2, training_input=weighted, weight="w", trees=60)
        with open(os.path.join(self.output, "node_rows_0"), encoding="ascii") as file:
            self.assertAlmostEqual(float(file.read().split("|")[0]), 300, delta=80)
        self.assertEqual(found["trees"], 60)
        # A row of weight 0 counts nowhere.
        odd = self.table("odd.csv", y, [row[:4] + [float(i % 2)] for i, row in enumerate(rows)], "a,b,c,d,w,y")
        wrong = self.table("wrong.csv", [v if i % 2 else 1 - v for i, v in enumerate(y)],
                           [row[:4] + [float(i % 2)] for i, row in enumerate(rows)], "a,b,c,d,w,y")
        one = self.fit(2, training_input=odd, weight="w")
        first = self.arrays()
        two = self.fit(2, training_input=wrong, weight="w")
        self.assertEqual(self.arrays(), first)
        self.assertEqual(one["oob_accuracy"], two["oob_accuracy"])
        balanced = self.fit(2, training_input=self.words, class_weight="balanced", trees=60)
        words = [("low", "middle", "high")[(m > 0) + (m > 1)] for m in self.margin]
        rows = [row + [len(words) / (3 * words.count(w))] for row, w in zip(self.x, words)]
        first = self.arrays()
        again = self.fit(1, training_input=self.table("balanced.csv", words, rows), weight="4", trees=60)
        self.assertEqual((self.arrays(), again["oob_accuracy"]), (first, balanced["oob_accuracy"]))
        heavy = self.table("heavy.csv", [0, 1], [[1.0, 501.0], [2.0, 1.0]])
        self.assertIn("found a weight above 500", self.job(2, status=4, training_input=heavy, type="classification", weight="1"))

    def test_weights_are_shares_if_they_are_small(self):
        rows = [[float(i), 0.01] for i in range(100)]
        path = self.table("shares.csv", ["a" if i < 50 else "b" for i in range(100)], rows, "x,w,y")
        query = self.path("query.csv", "x\n1\n90\n")
        found = self.fit(2, training_input=path, weight="w", trees=100, predict_input=query)
        self.assertGreater(found["oob_accuracy"], 0.95)
        first, last = [[float(v) for v in line[-1].split("|")] for line in self.predictions(2)]
        for shares, greatest in ((first, 0), (last, 1)):
            self.assertAlmostEqual(sum(shares), 1, places=6)
            self.assertGreater(shares[greatest], 0.95)
        # One row in each tree, on average, whatever the sum of the weights.
        one = self.table("one.csv", [3.0, 5.0], [[1.0, 1e-9], [2.0, 0.0]], "x,w,y")
        found = self.fit(2, training_input=one, weight="w", type="regression", predict_input=one, features=["x"])
        self.assertEqual(self.numbers(2), [3, 3])
        self.assertIn("weight above 0", self.job(1, status=4, training_input=self.table(
            "none.csv", [3.0, 5.0], [[1.0, 0.0], [2.0, 0.0]], "x,w,y"), weight="w", type="regression"))

    def test_a_tree_that_has_drawn_no_row_is_drawn_again(self):
        path = self.table("three.csv", [7, 7, 7], [[1.0], [2.0], [3.0]])
        first = None
        for workers in (1, 2, 4):
            found = self.fit(workers, training_input=path, type="regression", trees=200, predict_input=path)
            self.assertEqual((self.numbers(workers), found["oob_rmse"]), ([7, 7, 7], 0))
            first = first or self.arrays()
            self.assertEqual(self.arrays(), first)

    def numbers(self, workers):
        return [float(line[-1].split(":")[-1]) for line in self.predictions(workers)]

    def test_categories(self):
        dice = random.Random(4)
        kind = [dice.randrange(40) for _ in range(3000)]
        good = set(dice.sample(range(40), 17))
        rows = [[float(k), dice.gauss(0, 1)] for k in kind]
        path = self.table("kinds.csv", [int(k in good) for k in kind], rows, "kind,noise,y")
        keys = {"training_input": path, "test_input": path, "categorical": ["kind"], "trees": 1, "bootstrap": False,
                "features_per_split": 2}
        found = self.fit(2, **keys)
        self.assertEqual((found["accuracy"], found["nodes"]), (1, 3))
        found = self.fit(2, type="regression", **keys)
        self.assertEqual((found["rmse"], found["nodes"]), (0, 3))

    def test_a_model_predicts_as_the_run_that_made_it(self):
        for path, kind in ((self.words, "classification"), (self.labels, "classification"), (self.targets, "regression")):
            for form in ("text", "npy"):
                with self.subTest(type=kind, format=form):
                    first = self.fit(2, training_input=path, type=kind, predict_input=path, test_input=path, leaves=True,
                                     format=form)
                    lines, leaves = self.lines("pred_v", 2), self.lines("leaves", 2)
                    again = self.results(self.job(3, model=self.output, predict_input=path, test_input=path, leaves=True))
                    self.assertEqual((self.lines("pred_v", 3), self.lines("leaves", 3)), (lines, leaves))
                    for name in ("rmse", "accuracy", "auc", "log_loss"):
                        self.assertEqual(first.get(name), again.get(name))
        self.fit(2, training_input=self.words, predict_input=self.words)
        for word, numbers in self.predictions(2):
            p = [float(v) for v in numbers.split("|")]
            self.assertTrue(math.isclose(sum(p), 1, abs_tol=1e-6))
            self.assertEqual(("high", "low", "middle")[p.index(max(p))], word)

    def test_wrong_inputs_and_configs_are_refused(self):
        self.assertIn("found 1 class, want 2", self.job(2, status=4, training_input=self.path("one.csv", "1,0\n2,0\n"),
                                                        type="classification"))
        self.assertIn(':2:1: found "x", want a number', self.job(2, status=4, training_input=self.path("x.csv", "1,0\nx,1\n"),
                                                               type="classification"))
        for keys, said in (({"trees": 0}, '"trees"'), ({"type": "ranking"}, '"type"'), ({"model": self.folder}, "not with"),
                           ({"bootstrap": False, "weight": "1"}, "want true with weight")):
            self.assertIn(said, self.job(mode="embedded", status=3,
                                         **{"training_input": self.labels, "type": "classification", **keys}))
        other = self.path("model.json", '{"format": "npy", "algorithm": "gbdt", "arrays": {}}')
        self.assertIn("random_forest", self.job(mode="embedded", status=4, model=other, predict_input=self.labels))

    def test_optdigits(self):
        found = self.optdigits(trees=200)
        self.assertGreaterEqual(found["accuracy"], 0.970)
        self.assertAlmostEqual(found["oob_accuracy"], found["accuracy"], delta=0.01)

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_higgs(self):
        self.assertGreaterEqual(self.higgs(trees=200)["auc"], 0.80)

    @unittest.skipUnless(LONG, ONLY_LONG)
    def test_bike_hour(self):
        self.assertLessEqual(self.bike_hour(places=(2,), type="regression", trees=200)["rmse"], 50)


if __name__ == "__main__":
    unittest.main()
