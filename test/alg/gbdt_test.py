#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Gradient-boosted trees, tested by running jobs: equal to exact boosting, the same trees for any number of workers and in every
mode, missing values, categories, early stopping, the exported model, the figures of three data sets. Options: names of tests."""
import math
import os
import random
import struct
import unittest

import gbdt_oracle
from gbdt_oracle import single
from tree_case import PLACES, TreeCase
from xgboost_model import XgboostModel


class GbdtTest(XgboostModel, TreeCase):
    program = "gbdt"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(3)
        # Few distinct values, some missing; those missing in feature 2 are informative.
        cls.x, cls.margin = [], []
        for _ in range(400):
            row = [single(round(dice.gauss(0, 1), 1)) for _ in range(5)] + [1.0]
            signal = row[0] * row[1] + 2 * (row[2] > 0.3) + math.sin(row[3])
            if dice.random() < 0.15:
                row[2] = None
                signal += 1.5
            if dice.random() < 0.1:
                row[4] = None
            cls.x.append(row)
            cls.margin.append(signal + dice.gauss(0, 0.5))
        cls.targets = cls.table("targets.csv", [round(m, 3) for m in cls.margin])
        cls.labels = cls.table("labels.csv", [int(m > 1) for m in cls.margin])
        cls.defaults = {"training_input": cls.labels, "loss": "log", "rounds": 10}
        cls.words = cls.table("words.csv", [("low", "middle", "high")[(m > 0.3) + (m > 1.5)] for m in cls.margin])

    # ---- the oracle

    def same_as_oracle(self, path, loss, rounds, weight=None, **keys):
        x, y = gbdt_oracle.load(path)
        reg = keys.get("lambda", 1.0)
        rest = {k: v for k, v in keys.items() if k in ("growth", "max_leaves", "max_depth", "gamma", "min_child_weight",
                                                       "min_child_rows", "rate")}
        oracle = gbdt_oracle.Boosting(x, y, loss, reg=reg, **rest)
        for _ in range(rounds):
            oracle.grow()
        for workers in (1, 3):
            found = self.fit(workers, 1, training_input=path, loss=loss, rounds=rounds, predict_input=path, **keys)
            ours = found["train_rmse"] ** 2 if loss == "squared" else found["loss"]
            self.assertAlmostEqual(ours / oracle.value(), 1, delta=1e-6)
            predicted = [float(p[0] if loss == "squared" else p[1].split("|")[1]) for p in self.predictions(workers)]
            for p, row in zip(predicted, x):
                margin = oracle.predict(row)
                self.assertAlmostEqual(p, margin if loss == "squared" else 1 / (1 + math.exp(-margin)), delta=2e-6)
            self.assertEqual(len(self.trees()["feature"]), sum(2 * len(t.leaves()) - 1 for t in oracle.trees))

    def test_one_round_is_that_of_the_oracle(self):
        for path, loss in ((self.targets, "squared"), (self.labels, "log")):
            for keys in ({}, {"growth": "depth", "max_depth": 3}, {"max_leaves": 5, "lambda": 0.0, "min_child_rows": 5},
                         {"growth": "depth", "max_leaves": 6, "gamma": 2.0, "min_child_weight": 8.0}):
                with self.subTest(loss=loss, **keys):
                    self.same_as_oracle(path, loss, 1, **keys)

    def test_some_rounds_are_those_of_the_oracle(self):
        self.same_as_oracle(self.targets, "squared", 4, max_leaves=6)
        self.same_as_oracle(self.labels, "log", 4, growth="depth", max_depth=2)

    # ---- the same trees

    def test_the_trees_are_the_same_for_any_number_of_workers_and_in_every_mode(self):
        dice = random.Random(9)
        rows = [[dice.gauss(0, 1), dice.expovariate(1), dice.choice((0.0, 0.0, 0.0, dice.random())), float(dice.randrange(12)),
                 dice.uniform(1e6, 1e6 + 1)] for _ in range(3000)]
        for row in rows:
            if dice.random() < 0.1:
                row[1] = None
        wide = self.table("wide.csv", [int(r[0] + (r[3] % 3) + dice.gauss(0, 1) > 1) for r in rows], rows)
        for loss, path, keys in (("log", wide, {"categorical": ["3"], "subsample": 0.7, "colsample": 0.6}),
                                 ("log", wide, {"growth": "depth", "max_bins": 40}), ("squared", self.targets, {}),
                                 ("softmax", self.words, {"max_leaves": 7})):
            seen, printed = [], []
            for place in PLACES:
                with self.subTest(loss=loss, place=place, **keys):
                    found = self.fit(*place, training_input=path, test_input=path, loss=loss, **keys)
                    found.pop("output")
                    found.pop("auc", None)
                    seen.append(self.arrays())
                    printed.append(found)
                    self.assertEqual(seen[-1], seen[0])
                    self.assertEqual(printed[-1], printed[0])

    def test_more_workers_than_rows_and_a_class_that_one_worker_lacks(self):
        few = self.table("few.csv", [0, 0, 1, 1, 1], [[float(v)] for v in (1, 2, 3, 4, 5)])
        first = None
        for workers in (1, 3, 8):
            found = self.fit(workers, 1, training_input=few, test_input=few, min_child_rows=1, rounds=20)
            self.assertEqual(found["accuracy"], 1)
            first = first or self.arrays()
            self.assertEqual(self.arrays(), first)
        order = sorted(range(len(self.x)), key=lambda i: self.margin[i])
        words = [("low", "middle", "high")[(self.margin[i] > 0.3) + (self.margin[i] > 1.5)] for i in order]
        path = self.table("sorted.csv", words, [self.x[i] for i in order])
        for workers in (1, 4):
            found = self.fit(workers, 1, training_input=path, test_input=path, loss="softmax")
            first = (found["log_loss"], self.arrays()) if workers == 1 else first
            self.assertEqual((found["log_loss"], self.arrays()), first)

    def test_constant_columns_alone_give_the_mean(self):
        path = self.table("flat.csv", [1.0, 2.0, 6.0] * 20, [[3.5, None, 0.0]] * 60)
        for workers in (1, 4):
            found = self.fit(workers, training_input=path, loss="squared", predict_input=path, categorical=["2"])
            self.assertEqual(found["trees"], 10)
            self.assertEqual({float(p[0]) for p in self.predictions(workers)}, {3.0})

    # ---- features

    def test_missing_values_go_where_they_were_learned_to_go(self):
        rows = [[None] if i % 2 else [float(i % 10)] for i in range(200)]
        path = self.table("missing.csv", [int(i % 2 == 1 or i % 10 >= 8) for i in range(200)], rows)
        found = self.fit(2, training_input=path, test_input=path, rounds=50, rate=0.3)
        self.assertEqual(found["accuracy"], 1)
        # Values missing in a feature that had none missing in training: they go left.
        whole = self.table("whole.csv", [int(v >= 5) for v in range(10)] * 10, [[float(v)] for v in range(10)] * 10)
        empty = self.table("empty.csv", [0, 0], [[None], [-1.0]])
        self.fit(2, training_input=whole, predict_input=empty)
        lines = self.predictions(2)
        self.assertEqual(lines[0], lines[1])
        for spelled in ("NA", "nan", "?", "null"):
            other = self.path("spelled.csv", f"{spelled},0\n-1,0\n")
            self.fit(1, training_input=whole, predict_input=other)
            self.assertEqual(self.predictions(1), lines)

    def test_other_spellings_of_missing_values_are_kept_by_the_model(self):
        rows = [[None] if i % 2 else [float(i % 10)] for i in range(200)]
        labels = [int(i % 2 == 1 or i % 10 >= 8) for i in range(200)]
        spelled = "".join(f"{'-999.0' if i % 4 == 1 else 'unknown' if i % 4 == 3 else i % 10},{label}\n"
                          for i, label in enumerate(labels))
        plain, other = self.table("empty.csv", labels, rows), self.path("spelled.csv", spelled)
        self.fit(2, training_input=plain, predict_input=plain, rounds=20)
        right, trees = self.predictions(2), self.arrays()
        self.fit(2, training_input=other, predict_input=other, rounds=20, missing=["unknown", -999])
        self.assertEqual((self.predictions(2), self.arrays()), (right, trees))
        model = self.output
        self.job(2, model=model, predict_input=other)
        self.assertEqual(self.predictions(2), right)
        self.job(2, model=model, predict_input=self.path("others.csv", spelled.replace("-999.0", "none")),
                 missing=["none", "unknown"])
        self.assertEqual(self.predictions(2), right)
        self.assertIn('spelled.csv:2:1: found "unknown", want a number',
                      self.job(1, status=4, training_input=self.path("spelled.csv", "1,0\nunknown,1\n" * 3), loss="log"))

    def test_categories(self):
        dice = random.Random(4)
        kind = [dice.randrange(30) for _ in range(3000)]
        effect = [dice.gauss(0, 1) for _ in range(30)]
        rows = [[float(k), dice.gauss(0, 1)] for k in kind]
        y = [effect[k] + 0.1 * dice.gauss(0, 1) for k in kind]
        path = self.table("kinds.csv", y, rows, "kind,noise,y")
        error = {}
        for name, keys in (("sorted", {"categorical": ["kind"]}), ("one", {"categorical": ["kind"], "one_hot_at_most": 255}),
                           ("number", {})):
            error[name] = self.fit(2, training_input=path, loss="squared", max_leaves=4, rounds=5, rate=0.5, **keys)["train_rmse"]
        self.assertLess(error["sorted"], 0.35)
        self.assertLess(error["sorted"], error["one"])
        self.assertLess(error["sorted"], error["number"])
        # One against all others is optimal for two groups of which one has one member.
        path = self.table("single.csv", [int(k == 7) for k in kind], rows, "kind,noise,y")
        found = self.fit(2, training_input=path, test_input=path, categorical=["kind"], one_hot_at_most=255, max_leaves=2,
                         rounds=30, rate=0.5)
        self.assertEqual(found["accuracy"], 1)
        # By hand: the left side of the first split has the categories with the least means.
        small = self.table("groups.csv", [5, 5, 1, 1, 4, 4, 0, 0] * 10, [[float(c)] for c in (0, 0, 1, 1, 2, 2, 3, 3)] * 10)
        self.fit(2, training_input=small, loss="squared", categorical=["0"], one_hot_at_most=0, max_leaves=2, rounds=1,
                 **{"lambda": 0})
        trees = self.trees()
        self.assertIn(trees["category"], ([0, 2], [1, 3]))
        self.assertAlmostEqual(trees["gain"][0], 80 * 4.0, delta=1e-6)  # the groups' means are 4.5 and 0.5

    def test_more_categories_than_bins(self):
        rows = [[float(1000 + i % 300)] for i in range(6000)]
        y = [1.0 if i % 300 < 20 else 0.0 for i in range(6000)]
        path = self.table("many.csv", y, rows)
        first = None
        for workers in (1, 3):
            found = self.fit(workers, training_input=path, loss="squared", categorical=["0"], min_child_rows=1, max_leaves=2,
                             rounds=1, rate=1, **{"lambda": 0})
            first = first or (found["train_rmse"], self.arrays())
            self.assertEqual((found["train_rmse"], self.arrays()), first)
        self.assertLess(first[0], 0.01)

    def test_weights_are_like_repeated_rows(self):
        weight = [1 + (i % 3) for i in range(len(self.x))]
        rows = [row[:2] + [float(w)] + row[2:] for row, w in zip(self.x, weight)]
        y = [int(m > 1) for m in self.margin]
        weighted = self.table("weighted.csv", y, rows, "a,b,w,c,d,e,f,y")
        repeated = self.table("repeated.csv", [v for v, w in zip(y, weight) for _ in range(w)],
                              [r for r, w in zip(self.x, weight) for _ in range(w)], "a,b,c,d,e,f,y")
        one = self.fit(2, training_input=weighted, weight="w", min_child_rows=1, min_child_weight=4)
        two = self.fit(2, training_input=repeated, min_child_rows=1, min_child_weight=4)
        self.assertAlmostEqual(one["loss"] / two["loss"], 1, delta=1e-6)
        numbered = self.table("numbered.csv", y, rows)
        again = self.fit(1, training_input=numbered, weight="2", min_child_rows=1, min_child_weight=4)
        self.assertEqual(again["loss"], one["loss"])
        bad = self.path("bad_weight.csv", "1,2,0\n3,-1,1\n")
        self.assertIn(bad + ':2:3: found "-1", want a weight of 0 or more', self.job(status=4, training_input=bad, loss="log",
                                                                                     weight="1"))

    def test_weights_of_classes_are_weights_of_their_rows(self):
        words = [("low", "middle", "high")[(m > 0.3) + (m > 1.5)] for m in self.margin]
        for given, of in ((["low=2", "high=0.25"], {"low": 2, "middle": 1, "high": 0.25}),
                          ("balanced", {w: len(words) / (3 * words.count(w)) for w in words})):
            first = None
            for workers in (1, 3):
                found = self.fit(workers, training_input=self.words, loss="softmax", class_weight=given)
                first = first or (found["loss"], self.arrays())
                self.assertEqual((found["loss"], self.arrays()), first)
            weighted = self.table("class_weighted.csv", words, [row + [of[w]] for row, w in zip(self.x, words)])
            found = self.fit(2, training_input=weighted, loss="softmax", weight="6")
            self.assertEqual((found["loss"], self.arrays()), first)
        self.assertIn("found class lo, want one of the training data: high, low, middle",
                      self.job(2, status=3, training_input=self.words, loss="softmax", class_weight=["lo=2"]))
        self.assertIn('"class_weight": only where labels are classes',
                      self.job(2, status=3, training_input=self.targets, loss="squared", class_weight="balanced"))

    def test_libsvm_and_npy_give_the_trees_of_csv(self):
        dice = random.Random(5)
        rows = [[single(dice.gauss(0, 1)) if dice.random() < 0.5 else 0.0 for _ in range(6)] for _ in range(500)]
        y = [int(r[0] + r[1] * r[2] > 0) for r in rows]
        csv = self.table("same.csv", y, rows)
        self.fit(2, training_input=csv)
        first = self.arrays()
        sparse = self.path("same.svm", "".join(
            f"{label:+d} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v != 0) + "\n"
            for row, label in zip(rows, y)))
        self.fit(2, training_input=sparse, predict_input=sparse, test_input=sparse)
        self.assertEqual(self.arrays(), first)
        npy = os.path.join(self.folder, "same.npy")
        self.write_npy(npy, [row + [label] for row, label in zip(rows, y)])
        self.fit(3, training_input=npy, predict_input=npy)
        self.assertEqual(self.arrays(), first)

    @staticmethod
    def write_npy(path, rows):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
        header += " " * (63 - (len(header) + 10) % 64) + "\n"
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            for row in rows:
                file.write(struct.pack(f"<{len(row)}d", *row))

    def test_standard_input_and_other_forms_of_missing_values_and_weights(self):
        with open(self.labels, encoding="ascii") as file:
            lines = file.readlines()
        self.fit(2)
        first = self.arrays()
        self.fit(2, training_input="-", standard_input="".join(lines))
        self.assertEqual(self.arrays(), first)
        # With a header, and the weight between the features; in .npy a missing value is a NaN.
        rows = [[math.nan if v is None else v for v in row] for row in self.x]
        y = [int(m > 1) for m in self.margin]
        weight = [float(1 + i % 3) for i in range(len(y))]
        weighted = [row[:1] + [w] + row[1:] for row, w in zip(rows, weight)]
        path = self.table("weights.csv", y, weighted, "a,w,b,c,d,e,f,y")
        self.fit(2, training_input=path, weight="w", predict_input=path)
        first, lines = self.arrays(), self.lines("pred_v", 2)
        self.fit(2, training_input=path, weight="w", predict_input=self.table("plain.csv", y, rows, "a,b,c,d,e,f,y"))
        self.assertEqual(self.lines("pred_v", 2), lines)
        npy = os.path.join(self.folder, "weights.npy")
        self.write_npy(npy, [row + [label] for row, label in zip(weighted, y)])
        self.fit(3, training_input=npy, weight="1")
        self.assertEqual(self.arrays(), first)
        # libsvm: omitted values are 0.
        zeros = [[0.0 if math.isnan(v) else v for v in row] for row in weighted]
        self.fit(1, training_input=self.table("zeros.csv", y, zeros), weight="1", categorical=["6"])
        first = self.arrays()
        sparse = self.path("weights.svm", "".join(
            f"{label} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v != 0) + "\n" for row, label in zip(zeros, y)))
        self.fit(3, training_input=sparse, weight="1", categorical=["6"], predict_input=sparse)
        self.assertEqual(self.arrays(), first)
        self.assertIn("found no weight above 0", self.job(2, status=4, training_input=sparse, loss="log", weight="9"))

    def test_xgboosts_form_has_the_offset_of_a_column_far_from_0(self):
        rows = [[None if row[0] is None else row[0] + 5000.0, row[1]] for row in self.x]
        path = self.table("offset.csv", [round(m, 3) for m in self.margin], rows)
        self.exported(path, rows, "squared")
        self.assertIn("offset", self.manifest()["arrays"])

    def test_early_stopping(self):
        half = len(self.x) // 2
        y = [int(m > 1) for m in self.margin]
        train, held = self.table("half.csv", y[:half], self.x[:half]), self.table("held.csv", y[half:], self.x[half:])
        first = None
        for workers in (1, 3):
            found = self.fit(workers, training_input=train, validation_input=held, early_stopping=5, rounds=500, rate=0.3,
                             test_input=held, training_curve=True)
            self.assertLess(found["rounds"], 500)
            self.assertEqual(found["trees"], found["rounds"] - 5)
            self.assertAlmostEqual(found["validate_loss"], found["log_loss"], places=12)
            curve = self.curve()
            self.assertEqual([line["round"] for line in curve], list(range(1, int(found["rounds"]) + 1)))
            least = min(line["validate_loss"] for line in curve)
            self.assertEqual([line["validate_loss"] for line in curve].index(least) + 1, found["trees"])
            self.assertAlmostEqual(least, found["validate_loss"], places=14)
            losses = [line["loss"] for line in curve]
            self.assertEqual(losses, sorted(losses, reverse=True))
            first = first or self.arrays()
            self.assertEqual(self.arrays(), first)

    def test_importance_and_leaves(self):
        self.fit(2, training_input=self.targets, loss="squared", predict_input=self.targets, leaves=True, rounds=5, max_leaves=4)
        with open(os.path.join(self.output, "importance"), encoding="ascii") as file:
            lines = [line.split() for line in file]
        self.assertEqual(sorted(int(name) for name, _, _ in lines), list(range(6)))
        gains = [float(gain) for _, gain, _ in lines]
        self.assertEqual(gains, sorted(gains, reverse=True))
        self.assertEqual(lines[-1][1:], ["0", "0"])  # the constant feature
        self.assertEqual(sum(float(count) for _, _, count in lines), 15)
        trees = self.trees()
        for leaves, predicted in zip(self.lines("leaves", 2), self.predictions(2)):
            total = self.manifest()["first_margin"]
            for t, leaf in enumerate(leaves.split("|")):
                node = int(trees["tree_begin"][t]) + int(leaf)
                self.assertEqual(trees["feature"][node], -1)
                total += trees["value"][int(trees["leaf"][node])]
            self.assertAlmostEqual(total, float(predicted[0]), places=12)

    # ---- models

    def test_a_model_predicts_as_the_run_that_made_it(self):
        for loss, path in (("squared", self.targets), ("log", self.labels), ("softmax", self.words)):
            for form in ("text", "npy"):
                with self.subTest(loss=loss, format=form):
                    first = self.fit(2, training_input=path, loss=loss, predict_input=path, test_input=path, format=form)
                    lines = self.lines("pred_v", 2)
                    again = self.results(self.job(3, model=self.output, predict_input=path, test_input=path))
                    self.assertEqual(self.lines("pred_v", 3), lines)
                    for name in ("rmse", "accuracy", "auc", "log_loss"):
                        self.assertEqual(first.get(name), again.get(name))

    def test_words_and_probabilities(self):
        self.fit(2, training_input=self.words, loss="softmax", predict_input=self.words, rounds=20)
        self.assertEqual(self.manifest()["classes"], ["high", "low", "middle"])
        right = 0
        with open(self.words, encoding="ascii") as file:
            for line, (word, numbers) in zip(file, self.predictions(2)):
                p = [float(v) for v in numbers.split("|")]
                self.assertAlmostEqual(sum(p), 1, places=12)
                self.assertEqual(("high", "low", "middle")[p.index(max(p))], word)
                right += line.rstrip().endswith("," + word)
        self.assertGreater(right, 300)

    def test_a_header_names_the_features(self):
        y = [int(m > 1) for m in self.margin]
        self.table("named.csv", y, header="a,b,c,d,e,f,y")
        named = os.path.join(self.folder, "named.csv")
        self.fit(2, training_input=named, predict_input=named)
        lines = self.lines("pred_v", 2)
        turned = self.table("turned.csv", [row[0] if row[0] is not None else "" for row in self.x],
                            [[0.0] + row[:0:-1] for row in self.x], "unread,f,e,d,c,b,a")
        self.job(2, model=self.output, predict_input=turned)
        self.assertEqual(self.lines("pred_v", 2), lines)
        rows = [[0.0 if v is None else v for v in (row[1], row[0])] for row in self.x]
        plain = self.path("plain.svm", "".join(f"0 1:{b!r} 2:{a!r}\n" for b, a in rows))
        self.fit(2, training_input=named, features=["b", "a"], predict_input=plain)
        self.assertEqual(self.manifest()["names"], ["b", "a"])
        lines = self.lines("pred_v", 2)
        self.job(3, model=self.output, predict_input=self.table("plain_again.csv", y, rows, "b,a,y"))
        self.assertEqual(self.lines("pred_v", 3), lines)

    def test_the_exported_model(self):
        kinds = [[float(i % 9)] + row for i, row in enumerate(self.x)]
        mixed = self.table("mixed.csv", [int(m + (i % 9 in (2, 5)) > 1) for i, m in enumerate(self.margin)], kinds)
        done = []
        for path, rows, loss, categorical in ((self.targets, self.x, "squared", ()), (self.labels, self.x, "log", ()),
                                              (self.words, self.x, "softmax", ()), (mixed, kinds, "log", (0,))):
            with self.subTest(loss=loss, categorical=categorical):
                keys = {"categorical": [str(c) for c in categorical]} if categorical else {}
                done.append((*self.exported(path, rows, loss, **keys), rows, loss, categorical))
        for file, predicted, rows, loss, categorical in done:
            self.check_xgboost(file, rows, predicted, loss, categorical)

    # ---- refusals

    def test_wrong_inputs_are_refused_with_their_place(self):
        for lines, keys, said in (
                ("1,2,0\n1,x,1\n", {}, ':2:3: found "x", want a number'),
                ("1,2,0\n1,1\n", {}, " found 2 fields, want 3 as in the first line"),
                ("1,2,0\n3,4,\n", {}, ":2:5: found an empty label, want a class"),
                ("1,2,0\n3,4,yes\n", {"loss": "squared"}, ':2:5: found label "yes", want a number'),
                ("1,2,0\n3,4,0\n", {}, ": found 1 class, want 2 with loss log"),
                ("1,2,0\n3,4,1\n5,6,2\n", {}, ": found 3 classes, want 2 with loss log; softmax is for more"),
                ("1,2,0\n3,4,1\n", {"categorical": ["7"]}, ':1:1: found no field "7" in a line of 3 fields'),
                ("1,2,0\n3.5,4,1\n", {"categorical": ["0"]}, ":2:1: found category 3.5, want an integer from 0"),
                ("1,2,0\n3,4,1\n", {"target": "y"}, 'found no header, want one that names "y"'),
                ("0 1:1\n1 2:2 2:3\n", {}, ":2:7: found index 2 after 2, want increasing indices"),
                ("0 1:1\n1 2:x\n", {}, ':2:5: found "x", want a number'),
                ("", {}, ":1:1: found no line, want samples")):
            with self.subTest(lines=lines, **keys):
                path = self.path("wrong", lines)
                told = self.job(2, status=4, **{"training_input": path, "loss": "log", **keys})
                self.assertIn(said, told)
                self.assertIn(path, told)
        test = self.path("test.csv", "1,2,3,4,5,6,7\n")
        self.assertIn(':1:13: found label "7", want a class of the model: 0, 1',
                      self.job(2, status=4, training_input=self.labels, loss="log", test_input=test))
        narrow = self.path("narrow.csv", "1,2,3,1\n")
        self.assertIn("found 4 fields in the first line, want 7: 6 features and a label",
                      self.job(status=4, training_input=self.labels, loss="log", test_input=narrow))

    def test_wrong_configs_are_refused(self):
        for keys, said in (({"early_stopping": 3}, "needs validation_input"), ({"max_leaves": 0}, "no max_depth"),
                           ({"max_leaves": 1}, "want 0, or 2 or more"), ({"rate": 0}, '"rate"'),
                           ({"max_bins": 256}, '"max_bins"'),
                           ({"loss": "hinge"}, '"loss"'), ({"model": self.folder}, "not with training_input")):
            self.assertIn(said, self.job(mode="embedded", status=3, **{"training_input": self.labels, "loss": "log", **keys}))

    def test_a_damaged_model_is_refused(self):
        self.fit(1)
        model = self.output
        good = self.trees()
        for name, at, value, said in (("left", 0, 0, "found child 0"), ("right", 0, 10**6, "found child 1000000"),
                                      ("feature", 0, 6, "found feature 6, want less than 6"),
                                      ("tree_begin", 1, 0, "without nodes"), ("tree_begin", -1, 10**6, "inconsistent lengths"),
                                      ("category_count", 0, 5, "categories"), ("leaf", -1, 10**6, "found leaf 1000000"),
                                      ("left", 0, -3, "found -3 in left")):
            with self.subTest(array=name, value=value):
                damaged = list(good[name])
                damaged[at] = value
                kept = self.bytes_of(model, name)
                self.write(model, name, "|".join(f"{v:.17g}" for v in damaged) + "\n")
                self.assertIn(said, self.job(mode="embedded", status=4, model=model, predict_input=self.labels))
                self.write(model, name, kept)
        self.job(mode="embedded", model=model, predict_input=self.labels)

    @staticmethod
    def bytes_of(model, name):
        with open(os.path.join(model, f"{name}_0"), encoding="ascii") as file:
            return file.read()

    @staticmethod
    def write(model, name, content):
        with open(os.path.join(model, f"{name}_0"), "w", encoding="ascii") as file:
            file.write(content)

    # ---- the figures

    def test_higgs(self):
        self.assertGreaterEqual(self.higgs(rounds=100)["auc"], 0.825)

    def test_bike_hour(self):
        self.assertLessEqual(self.bike_hour(loss="squared", rounds=100)["rmse"], 42.0)

    def test_optdigits(self):
        self.assertGreaterEqual(self.optdigits(loss="softmax", rounds=100)["accuracy"], 0.97)


if __name__ == "__main__":
    unittest.main()
