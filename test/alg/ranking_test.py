#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gbdt with the loss lambdamart, tested by running jobs: equal to exact boosting, the same trees for any number of workers
wherever the rows of a group are, NDCG in metrics, validation and early stopping, the exported model. Options: names of tests."""
import os
import random
import unittest

import numpy

import gbdt_oracle
from gbdt_oracle import single
from tree_case import PLACES, TreeCase
from xgboost_model import XgboostModel


def numbers(lines):
    return [float(line) for line in lines]


class RankingTest(XgboostModel, TreeCase):
    program = "gbdt"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(11)
        cls.group, cls.x, cls.y = [], [], []
        for q in range(40):
            of_query = round(dice.gauss(0, 1), 1)
            for _ in range(1 + int(dice.expovariate(1 / 9))):
                row = [single(of_query)] + [single(round(dice.gauss(0, 1), 1)) for _ in range(3)]
                score = row[1] + row[2] * (of_query > 0) + dice.gauss(0, 0.4)
                if dice.random() < 0.1:
                    row[3] = None
                    score += 0.5
                cls.group.append(q)
                cls.x.append(row)
                cls.y.append(max(0, min(4, int(1 + score))))
        cls.y[:cls.group.count(0)] = [0] * cls.group.count(0)  # a group without a relevant row
        cls.queries = cls.ranking("queries.csv")
        cls.defaults = {"training_input": cls.queries, "loss": "lambdamart", "group": "q", "rounds": 8, "min_child_rows": 5,
                        "max_leaves": 8, "rate": 0.3}

    @classmethod
    def ranking(cls, name, rows=None, group=None, y=None, header="a,q,b,c,d,y"):
        """A table whose field 1 is the group."""
        rows, group, y = rows or cls.x, group or cls.group, y or cls.y
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            if header:
                file.write(header + "\n")
            for row, q, label in zip(rows, group, y):
                fields = ["" if v is None else repr(v) for v in row]
                file.write(",".join([fields[0], str(q), *fields[1:], str(label)]) + "\n")
        return path

    def shuffled(self, seed=3):
        order = list(range(len(self.y)))
        random.Random(seed).shuffle(order)
        return [[values[i] for i in order] for values in (self.x, self.group, self.y)]

    def oracle(self, rounds, x=None, group=None, y=None, **keys):
        found = gbdt_oracle.Boosting(x or self.x, y or self.y, "lambdamart", group or self.group, rate=0.3, max_leaves=8,
                                     min_child_rows=5, **keys)
        for _ in range(rounds):
            found.grow()
        return found

    # ---- the oracle

    def test_the_oracle_pushes_down_the_slope_of_its_loss(self):
        """With |dNDCG| and distances held, the first derivatives are those of sum |dNDCG| log(1 + exp(m_low - m_high)), up to a
        scale."""
        y, group = [3, 0, 1, 2, 0], [[0, 1, 2, 3, 4]]
        margin = [0.1, 0.7, -0.3, 0.2, 0.15]
        g, h = gbdt_oracle.lambdas(group, y, margin, [1.0] * 5)
        order = gbdt_oracle.ranked(group[0], margin)
        place = {row: i for i, row in enumerate(order)}
        best = gbdt_oracle.dcg(sorted(y, reverse=True))

        def loss(m):
            total = 0.0
            for i in range(5):
                for j in range(5):
                    if y[i] > y[j]:
                        discount = [1 / numpy.log2(2 + place[r]) for r in (i, j)]
                        change = (2 ** y[i] - 2 ** y[j]) * abs(discount[0] - discount[1]) / best
                        change /= 0.01 + abs(margin[i] - margin[j])
                        total += change * numpy.log1p(numpy.exp(m[j] - m[i]))
            return total

        slope, bend = [], []
        for i in range(5):
            up, down = list(margin), list(margin)
            up[i] += 1e-4
            down[i] -= 1e-4
            slope.append((loss(up) - loss(down)) / 2e-4)
            bend.append((loss(up) - 2 * loss(margin) + loss(down)) / 1e-8)
        scale = g[0] / slope[0]
        numpy.testing.assert_allclose(g, numpy.array(slope) * scale, rtol=1e-6)
        numpy.testing.assert_allclose(h, numpy.array(bend) * scale, rtol=1e-5)
        total = numpy.abs(slope).sum()
        self.assertGreater(scale * total, 0)
        self.assertLessEqual(total * scale, numpy.log2(1 + 2 * total))

    def test_rounds_are_those_of_the_oracle(self):
        y = [v + (i % 7 == 0) for i, v in enumerate(self.y)]
        rows, group, mixed = self.shuffled()
        for rounds, data, keys in ((1, (self.x, self.group, self.y), {}), (4, (self.x, self.group, y), {"truncation": 3}),
                                   (3, (rows, group, mixed), {})):
            with self.subTest(rounds=rounds, **keys):
                oracle = self.oracle(rounds, data[0], data[1], data[2], **keys)
                path = self.ranking("oracle.csv", *data)
                for workers in (1, 3):
                    found = self.fit(workers, training_input=path, rounds=rounds, predict_input=path, test_input=path, **keys)
                    self.assertAlmostEqual(found["train_ndcg"], oracle.value(), delta=1e-9)
                    self.assertAlmostEqual(found["ndcg"], oracle.value(), delta=1e-9)
                    for p, row in zip(numbers(self.lines("pred_v", workers)), data[0]):
                        self.assertAlmostEqual(p, oracle.predict(row), delta=2e-6)
                    self.assertEqual(len(self.trees()["feature"]), sum(2 * len(t.leaves()) - 1 for t in oracle.trees))

    def test_ndcg_at_positions(self):
        for positions in (1, 3, 0):
            found = self.fit(2, ndcg_at=positions, predict_input=self.queries, rounds=2)
            margin = numbers(self.lines("pred_v", 2))
            groups = [[i for i, g in enumerate(self.group) if g == q] for q in sorted(set(self.group))]
            self.assertAlmostEqual(found["train_ndcg"], gbdt_oracle.ndcg(groups, self.y, margin, positions or None), delta=1e-12)

    # ---- the same trees

    def test_the_trees_are_the_same_wherever_the_rows_of_a_group_are(self):
        rows, group, y = self.shuffled()
        for path in (self.queries, self.ranking("shuffled.csv", rows, group, y)):
            first = None
            for place in PLACES:
                with self.subTest(path=path, place=place):
                    found = self.fit(*place, training_input=path, test_input=path, subsample=0.8, colsample=0.7,
                                     validation_input=path, early_stopping=4)
                    found.pop("output")
                    first = first or (found, self.arrays())
                    self.assertEqual((found, self.arrays()), first)
        # One group across all workers, then groups of one row each: fewer rows than workers.
        for name, group in (("one", [7] * len(self.y)), ("each", list(range(len(self.y))))):
            path = self.ranking(name + ".csv", group=group)
            first = None
            for workers in (1, 4):
                found = self.fit(workers, training_input=path)
                first = first or (found["train_ndcg"], self.arrays())
                self.assertEqual((found["train_ndcg"], self.arrays()), first)
            self.assertEqual(len(set(self.trees()["value"])) == 1, name == "each")
        self.assertEqual(found["train_ndcg"], 1)

    def test_more_workers_than_rows(self):
        path = self.ranking("few.csv", [[1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]], [1, 1, 1], [0, 1, 2])
        first = None
        for workers in (1, 8):
            found = self.fit(workers, training_input=path, min_child_rows=1, min_child_weight=0, rounds=20)
            self.assertEqual(found["train_ndcg"], 1)
            first = first or self.arrays()
            self.assertEqual(self.arrays(), first)

    def test_other_formats_and_names_of_groups(self):
        self.fit(2)
        first = self.arrays()
        for name, of in (("words", lambda q: f"query {q}"), ("quoted", lambda q: f'"q, {q}"'), ("decimal", lambda q: f"{q}.0"),
                         ("large", lambda q: 9007199254740993000 + q)):
            with self.subTest(groups=name):
                self.fit(3, training_input=self.ranking("named.csv", group=[of(q) for q in self.group]))
                self.assertEqual(self.arrays(), first)
        self.fit(2, training_input=self.ranking("plain.csv", header=None), group="1")
        self.assertEqual(self.arrays(), first)
        whole = [[0.0 if v is None else v for v in row] for row in self.x]
        self.fit(2, training_input=self.ranking("whole.csv", whole), predict_input=self.ranking("whole.csv", whole))
        first, lines = self.arrays(), self.lines("pred_v", 2)
        table = numpy.column_stack([numpy.array(whole)[:, 0], self.group, numpy.array(whole)[:, 1:], self.y])
        npy = os.path.join(self.folder, "ranking.npy")
        numpy.save(npy, table)
        self.fit(3, training_input=npy, group="1")
        self.assertEqual(self.arrays(), first)
        svm = self.path("ranking.svm", "".join(
            f"{label} qid:{q} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v) + "\n"
            for row, q, label in zip(whole, self.group, self.y)))
        bare = self.path("bare.svm", "".join(" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v) + "\n" for row in whole))
        for path in (svm, bare):
            self.fit(3, training_input=svm, group="qid", predict_input=path)
            self.assertEqual((self.arrays(), self.lines("pred_v", 3)), (first, lines))
        # To predict, a table with a header needs no groups.
        lacking = self.path("lacking.csv", "a,b,c,d\n" + "".join(",".join(map(repr, row)) + "\n" for row in whole))
        self.fit(2, training_input=self.ranking("whole.csv", whole), predict_input=lacking)
        self.assertEqual(self.lines("pred_v", 2), lines)

    # ---- weights, early stopping, models

    def test_the_weight_of_a_group_counts_it_so_often(self):
        weight = [1 + q % 2 for q in self.group]
        rows = [row + [float(w)] for row, w in zip(self.x, weight)]
        again = [i for i, w in enumerate(weight) if w == 2]
        one = self.fit(2, training_input=self.ranking("weighted.csv", rows, header="a,q,b,c,d,w,y"), weight="w", min_child_rows=1,
                       min_child_weight=0.5)
        two = self.fit(2, min_child_rows=1, min_child_weight=0.5, training_input=self.ranking(
            "repeated.csv", self.x + [self.x[i] for i in again], self.group + [100 + self.group[i] for i in again],
            self.y + [self.y[i] for i in again]))
        self.assertAlmostEqual(one["train_ndcg"] / two["train_ndcg"], 1, delta=1e-9)
        zero = self.ranking("zero.csv", [row + [0.0] for row in self.x], header="a,q,b,c,d,w,y")
        self.assertIn("found no weight above 0", self.job(2, status=4, training_input=zero, weight="w", group="q",
                                                                       loss="lambdamart"))

    def test_early_stopping_at_the_greatest_ndcg(self):
        half = self.group.index(20)
        train = self.ranking("half.csv", self.x[:half], self.group[:half], self.y[:half])
        held = self.ranking("held.csv", self.x[half:], self.group[half:], self.y[half:])
        first = None
        for workers in (1, 3):
            found = self.fit(workers, training_input=train, validation_input=held, test_input=held, early_stopping=5, rounds=300,
                             training_curve=True)
            self.assertLess(found["rounds"], 300)
            self.assertEqual(found["trees"], found["rounds"] - 5)
            self.assertAlmostEqual(found["validate_ndcg"], found["ndcg"], places=12)
            curve = self.curve()
            values = [line["validate_ndcg"] for line in curve]
            self.assertEqual(values.index(max(values)) + 1, found["trees"])
            self.assertAlmostEqual(max(values), found["validate_ndcg"], places=14)
            training = [line["train_ndcg"] for line in curve]
            self.assertAlmostEqual(training[int(found["trees"]) - 1], found["train_ndcg"], places=14)
            self.assertGreater(training[-1], 0.9)
            self.assertAlmostEqual(self.manifest()["validate_ndcg"], max(values), places=14)
            first = first or self.arrays()
            self.assertEqual(self.arrays(), first)

    def test_a_model_ranks_as_the_run_that_made_it(self):
        first = self.fit(2, predict_input=self.queries, test_input=self.queries)
        lines, model = self.lines("pred_v", 2), self.output
        again = self.results(self.job(3, model=model, predict_input=self.queries, test_input=self.queries, group="q"))
        self.assertEqual((self.lines("pred_v", 3), again["ndcg"]), (lines, first["ndcg"]))
        self.assertIn('"group": test_input needs the field with the rows\' groups',
                      self.job(mode="embedded", status=3, model=model, test_input=self.queries))

    def test_the_exported_model(self):
        file, predicted = self.exported(self.queries, self.x, "lambdamart")
        self.check_xgboost(file, self.x, predicted, "lambdamart")

    def test_it_ranks_generated_queries_better_than_a_regression(self):
        with open(self.generate("planted.svm", "ranking", "-n", 700), encoding="ascii") as file:
            lines = file.readlines()
        cut = next(i for i, line in enumerate(lines) if " qid:501 " in line)
        train, test = self.path("planted.train", "".join(lines[:cut])), self.path("planted.test", "".join(lines[cut:]))
        keys = {"training_input": train, "group": "qid", "rounds": 60, "rate": 0.1, "max_leaves": 31, "min_child_rows": 20}
        ranks = self.fit(2, test_input=test, **keys)["ndcg"]
        self.fit(2, loss="squared", predict_input=test, **keys)
        margin = numbers(self.lines("pred_v", 2))
        found = [line.split(None, 2)[:2] for line in lines[cut:]]
        groups = [[i for i, (_, q) in enumerate(found) if q == f"qid:{g}"] for g in range(501, 701)]
        self.assertGreater(ranks, 0.8)
        self.assertGreater(ranks, gbdt_oracle.ndcg(groups, [int(label) for label, _ in found], margin) - 0.01)

    # ---- refusals

    def test_wrong_inputs_are_refused_with_their_place(self):
        for lines, keys, said in (
                ("1,2,1.5\n", {}, ":1:5: found label 1.5, want an integer from 0 to 30"),
                ("1,2,0\n1,2,31\n", {}, ":2:5: found label 31, want an integer from 0 to 30"),
                ("1,2,-1\n", {}, ":1:5: found label -1, want an integer from 0 to 30"),
                ("1,2,x\n", {}, ':1:5: found label "x", want a number'),
                ("1,,1\n", {}, ":1:3: found an empty group, want a number or a text"),
                ("1,2,1\n", {"group": "2"}, ":1:1: found the group where the label is, want target to name the label"),
                ("1,2,1\n", {"group": "q"}, ':1:1: found no field "q" in a line of 3 fields'),
                ("1,2,1\n", {"weight": "1"}, ':1:1: field "1" is the weight and the group'),
                ("1,2,1\n", {"categorical": ["1"]}, ':1:1: categorical field "1" is not a feature'),
                ("1 1:1\n", {"group": "qid"}, ':1:3: found "1:1", want the group, qid:7'),
                ("1 qid: 1:1\n", {"group": "qid"}, ":1:7: found an empty group"),
                ("1 qid:3 1:1\n", {}, ':1:1: found a libsvm line, want group "qid" instead of "1"')):
            with self.subTest(lines=lines, **keys):
                path = self.path("wrong", lines)
                told = self.job(2, status=4, **{"training_input": path, "loss": "lambdamart", "group": "1", **keys})
                self.assertIn(path + said, told)
        path = self.path("wrong", "1 qid:3 1:1\n")
        self.assertIn(':1:3: found "qid:3", want index:value; gbdt reads groups, with "group": "qid"',
                      self.job(2, status=4, training_input=path, loss="squared"))
        npy = os.path.join(self.folder, "wrong.npy")
        numpy.save(npy, numpy.array([[1.0, 7, 2], [1.0, 7, 2.5]]))
        self.assertIn(npy + ":2:3: found label 2.5, want an integer from 0 to 30",
                      self.job(2, status=4, training_input=npy, loss="lambdamart", group="1"))

    def test_the_group_must_be_named(self):
        self.assertIn('"group": loss lambdamart needs the field with the rows\' groups',
                      self.job(mode="embedded", status=3, training_input=self.queries, loss="lambdamart"))
        # Other losses do not use it, but it is not a feature there either.
        self.fit(2, loss="squared", group="q")
        self.assertEqual(self.manifest()["names"], ["a", "b", "c", "d"])


if __name__ == "__main__":
    unittest.main()
