#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Categorical features whose values are words, of gbdt and random_forest, tested by running jobs: equal to the same features as
integers, on any number of workers, the dictionary of the model, unknown words, the exported model. Options: names of tests."""
import os
import random
import unittest

import numpy

from tree_case import PLACES, TreeCase
from xgboost_model import XgboostModel

COLOURS = ["azure", "crimson", "gold", "green", "grey, \"dark\"", "ultramarine", "weiß", "1", "20", "3"]


class CategoriesTest(XgboostModel, TreeCase):
    program = "gbdt"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(6)
        effect = {word: dice.gauss(0, 1) for word in COLOURS}
        cls.rows, cls.y = [], []
        for i in range(1500):
            word = dice.choice(COLOURS)
            size = dice.choice(["s", "m", "l", None])
            x = round(dice.gauss(0, 1), 2)
            cls.rows.append([word, x, size])
            cls.y.append(round(effect[word] * (1 + (size == "l")) + 0.3 * x + dice.gauss(0, 0.2), 3))
        cls.words = cls.lines_of("words.csv", cls.rows)
        cls.colours = sorted(COLOURS)  # by bytes, since one is not a number
        numbers = [[cls.colours.index(w), x, None if s is None else sorted("sml").index(s)] for w, x, s in cls.rows]
        cls.numbers = cls.lines_of("numbers.csv", numbers)
        cls.x = [[float(w), x, None if s is None else float(s)] for w, x, s in numbers]
        cls.defaults = {"training_input": cls.words, "loss": "squared", "rounds": 10, "max_leaves": 8,
                        "categorical": ["colour", "size"]}

    @classmethod
    def lines_of(cls, name, rows, y=None, header="colour,x,size,y\n"):
        def field(v):
            text = "" if v is None else str(v)
            return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(header + "".join(",".join(map(field, [*row, label])) + "\n" for row, label in zip(rows, y or cls.y)))
        return path

    def test_words_are_as_the_integers_of_their_order(self):
        found = self.fit(2, training_input=self.numbers, predict_input=self.numbers, test_input=self.numbers)
        first = (found["rmse"], self.arrays(), self.lines("pred_v", 2))
        self.assertEqual(self.manifest()["words"], {"0": [], "2": []})
        for place in PLACES:
            with self.subTest(place=place):
                found = self.fit(*place, predict_input=self.words, test_input=self.words)
                self.assertEqual((found["rmse"], self.arrays(), self.lines("pred_v", place[0])), first)
                self.assertEqual(self.manifest()["categorical"], [0, 2])
                self.assertEqual(self.manifest()["words"], {"0": self.colours, "2": ["l", "m", "s"]})
        self.assertGreater(len(first[1]["category"]), 20)
        self.assertLess(found["train_rmse"], 0.7)
        # By numbers of fields, and without a header where all fields of the first line are words.
        whole = sorted(([w, s, "low" if v < 0 else "high"] for (w, _, s), v in zip(self.rows, self.y) if s),
                       key=lambda row: row[0] != "azure")
        bare = self.lines_of("bare.csv", [row[:2] for row in whole], [row[2] for row in whole], "")
        found = self.fit(3, training_input=bare, test_input=bare, loss="log", categorical=["1", "0"], header="no")
        self.assertEqual(self.manifest()["rows"], len(whole))
        self.assertIn(': found no field "1" in the header', self.job(2, status=4, training_input=bare, loss="log",
                                                                    categorical=["1", "0"]))

    def test_a_word_on_one_worker_makes_words_of_all_integers(self):
        rows = [[7 if i % 3 else 11, i % 5] for i in range(400)] + [["other", 1], ["7.0", 2], ["011", 0]]
        y = [float(r[0] == 11) + 0.1 * r[1] for r in rows]
        path = self.lines_of("mixed.csv", rows, y, "a,b,y\n")
        first = None
        for workers in (1, 2, 4):
            found = self.fit(workers, training_input=path, predict_input=path, categorical=["a", "b"], min_child_rows=1)
            self.assertEqual(self.manifest()["words"], {"0": ["11", "7", "other"], "1": []})
            first = first or (found["train_rmse"], self.arrays(), self.lines("pred_v", workers))
            self.assertEqual((found["train_rmse"], self.arrays(), self.lines("pred_v", workers)), first)
        lines = first[2]
        self.assertEqual(lines[-2], lines[2])  # 7 and 2
        self.assertEqual(lines[-1], lines[0])  # 11 and 0

    def test_unknown_words_are_missing(self):
        self.fit(2)
        model = self.output
        unknown = self.lines_of("unknown.csv", [["purple", 0.5, "s"], ["Gold", 0.5, "xl"], ["17", -1, "l"], [None, 0.5, "s"],
                                               ["", 0.5, None], ["NA", -1, "l"]])
        for workers in (1, 3):
            self.job(workers, model=model, predict_input=unknown)
            lines = self.lines("pred_v", workers)
            self.assertEqual(lines[:3], lines[3:])
        # Where categories are integers, a word is unknown, too.
        self.fit(2, training_input=self.numbers)
        again = self.lines_of("again.csv", [["purple", 0.5, 1], [None, 0.5, 1]])
        self.job(2, model=self.output, predict_input=again)
        lines = self.lines("pred_v", 2)
        self.assertEqual(lines[0], lines[1])
        # The rows that are held out may have other words.
        self.fit(2, validation_input=unknown, early_stopping=3, test_input=unknown)

    def test_a_model_predicts_as_the_run_that_made_it(self):
        for keys in ({}, {"format": "npy"}):
            self.fit(2, predict_input=self.words, test_input=self.words, **keys)
            lines, model = self.lines("pred_v", 2), self.output
            # The model knows its categories; other inputs may have their fields in another order.
            turned = self.lines_of("turned.csv", [[s, "unread", x, w] for w, x, s in self.rows], header="size,z,x,colour,y\n")
            for path in (self.words, turned):
                self.job(3, model=model, predict_input=path)
                self.assertEqual(self.lines("pred_v", 3), lines)
        numbers = os.path.join(self.folder, "numbers.npy")
        numpy.save(numbers, numpy.zeros((2, 3)))
        self.assertIn("found rows of numbers, want CSV: feature 0 of the model has words",
                      self.job(2, status=4, model=model, predict_input=numbers))

    def test_damaged_dictionaries_are_refused(self):
        self.fit(1)
        path = os.path.join(self.output, "model.json")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for old, new, said in (('"categorical": [0,2]', '"categorical": [0,3]', "found categorical feature 3, want one of 3"),
                               ('"categorical": [0,2]', '"categorical": [0,-1]', "found categorical feature -1"),
                               ('"words": {"0": [', '"words": {"1": [', "words.0"),
                               ('"words": {"0": ["1",', '"words": {"0": [{},', "words.0")):
            old, new = (part if part in text else part.replace(": ", ":") for part in (old, new))
            self.assertIn(old, text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(old, new))
            self.assertIn(said, self.job(mode="embedded", status=4, model=os.path.dirname(path),
                                         predict_input=self.words))

    def test_more_words_than_bins(self):
        rows = [[f"w{i % 300:03}"] for i in range(6000)]
        y = [1.0 if i % 300 < 20 else 0.0 for i in range(6000)]
        path = self.lines_of("many.csv", rows, y, "w,y\n")
        first = None
        for workers in (1, 3):
            found = self.fit(workers, training_input=path, categorical=["w"], min_child_rows=1, max_leaves=2, rounds=1, rate=1,
                             **{"lambda": 0})
            first = first or (found["train_rmse"], self.arrays())
            self.assertEqual((found["train_rmse"], self.arrays()), first)
        self.assertLess(first[0], 0.01)

    def test_what_is_no_category_is_refused(self):
        for text, said in (("3.5", ':3:1: found category 3.5, want an integer from 0 to 16777215, or a word'),
                           ("-1.5", ":3:1: found category -1.5, want"),
                           ("inf", ':3:1: found category "inf", want a finite number'),
                           ("\x01", ":3:1: found category"), ("x" * 1001, ":3:1: found a category of 1001 bytes")):
            path = self.path("wrong.csv", f"red,1,0\ngreen,2,1\n{text},2,1\n")
            self.assertIn(path + said, self.job(2, status=4, training_input=path, loss="squared", categorical=["0"], header="no"))

    def test_the_exported_model(self):
        file, predicted = self.exported(self.words, self.x, "squared")
        self.check_xgboost(file, self.x, predicted, "squared", (0, 2))

    def test_random_forests(self):
        keys = {"program": "random_forest", "type": "regression", "trees": 20, "seed": 3, "categorical": ["colour", "size"]}
        first = None
        for path, workers in ((self.numbers, 1), (self.words, 1), (self.words, 2), (self.words, 4)):
            found = self.results(self.job(workers, training_input=path, test_input=path, predict_input=path, **keys))
            found.pop("output")
            first = first or (found, self.arrays(), self.lines("pred_v", workers))
            self.assertEqual((found, self.arrays(), self.lines("pred_v", workers)), first)
        model = self.output
        unknown = self.lines_of("forest.csv", [["purple", 0.5, "s"], [None, 0.5, "s"]])
        self.job(2, program="random_forest", model=model, predict_input=unknown)
        lines = self.lines("pred_v", 2)
        self.assertEqual(lines[0], lines[1])


if __name__ == "__main__":
    unittest.main()
