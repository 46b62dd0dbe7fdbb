#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that train trees: results do not depend on the scale or the offset of targets and columns."""
import os
import random
import unittest

from tree_case import TreeCase

PROGRAMS = {"gbdt": {"loss": "squared", "rounds": 40, "min_child_rows": 5},
            "random_forest": {"type": "regression", "trees": 20}}
OFFSETS, SCALES = (1e5, 1e7, 1e9), (1e-9, 1e-4, 1e9)


class TreeInvarianceTest(TreeCase):
    @classmethod
    def setUpClass(cls):
        cls.program = "gbdt"
        super().setUpClass()
        dice = random.Random(11)
        cls.x = [[dice.gauss(0, 1), dice.gauss(0, 1), dice.random()] for _ in range(600)]
        cls.y = [5 * (x[0] > 0) + 2 * x[1] + 0.1 * dice.gauss(0, 1) for x in cls.x]

    def quality(self, name, x, y, program, **keys):
        """The error on other rows in units of the targets' scale, and the number of leaves."""
        train, test = self.table(name + "_a.csv", y[:450], x[:450]), self.table(name + "_b.csv", y[450:], x[450:])
        found = self.results(self.job(mode="embedded", program=program, training_input=train, test_input=test,
                                      predict_input=test, **PROGRAMS[program], **keys))
        return found["rmse"], len(self.trees()["value"])

    def test_targets(self):
        for program in PROGRAMS:
            rmse, leaves = self.quality("plain", self.x, self.y, program)
            self.assertLess(rmse, 0.8)
            for offset in OFFSETS:
                with self.subTest(program=program, offset=offset):
                    moved, now = self.quality("moved", self.x, [y + offset for y in self.y], program)
                    self.assertAlmostEqual(moved, rmse, delta=0.02 * rmse + 1e-15 * offset)
                    self.assertAlmostEqual(now, leaves, delta=0.02 * leaves)
            for scale in SCALES:
                with self.subTest(program=program, scale=scale):
                    scaled, now = self.quality("scaled", self.x, [y * scale for y in self.y], program)
                    self.assertAlmostEqual(scaled / scale, rmse, delta=1e-3 * rmse)
                    self.assertAlmostEqual(now, leaves, delta=0.02 * leaves)

    def test_columns(self):
        for program in PROGRAMS:
            rmse, leaves = self.quality("columns", self.x, self.y, program)
            for scale in SCALES:
                with self.subTest(program=program, scale=scale):
                    scaled, now = self.quality("wide", [[x[0] * scale, x[1] / scale, x[2]] for x in self.x], self.y, program)
                    self.assertAlmostEqual(scaled, rmse, delta=1e-3 * rmse)
                    self.assertAlmostEqual(now, leaves, delta=0.02 * leaves)

    def test_a_column_beyond_single_precision_is_said(self):
        for program in PROGRAMS:
            for scale, what in ((1e-200, "has only numbers below 1.2e-38"), (1e-45, "has only numbers below 1.2e-38"),
                                (1e200, "has numbers beyond 1.7e38")):
                for workers in (1, 2):
                    with self.subTest(program=program, scale=scale, workers=workers):
                        train = self.table("extreme.csv", self.y, [[x[0], x[1] * scale, x[2]] for x in self.x])
                        self.job(workers, program=program, training_input=train, **PROGRAMS[program])
                        self.assertEqual(self.stderr.count("warning: column"), 1, self.stderr)
                        self.assertIn("column 1 " + what, self.stderr)

    def test_targets_beyond_single_precision_are_refused(self):
        for program in PROGRAMS:
            for scale, what in ((1e-200, "found only targets below 1e-30, want larger ones"), (1e40, "want at most 1e30")):
                with self.subTest(program=program, scale=scale):
                    train = self.table("tiny.csv", [y * scale for y in self.y], self.x)
                    self.assertIn(what, self.job(mode="embedded", program=program, status=4, training_input=train,
                                                 **PROGRAMS[program]))

    def test_offsets_of_columns(self):
        for program in PROGRAMS:
            rmse, leaves = self.quality("near", self.x, self.y, program)
            self.assertNotIn("offset", self.manifest()["arrays"])
            for offset in OFFSETS:
                with self.subTest(program=program, offset=offset):
                    x = [[1.0, row[0] + offset, row[1] - offset, row[2]] for row in self.x]
                    moved, now = self.quality("far", x, self.y, program, **(
                        {"features_per_split": 1} if program == "random_forest" else {}))
                    self.assertAlmostEqual(moved, rmse, delta=0.02 * rmse)
                    self.assertAlmostEqual(now, leaves, delta=0.02 * leaves)
                    self.assertIn("offset", self.manifest()["arrays"])
                    # The same for more workers, for a model that is read, and as libsvm.
                    csv = os.path.join(self.folder, "far_b.csv")
                    self.job(3, program=program, model=self.output, predict_input=csv, test_input=csv)
                    read = self.lines("pred_v", 3)
                    table = {name: self.path(name + ".svm", "".join(
                        f"{y!r} 1:1.0 " + " ".join(f"{j + 2}:{v!r}" for j, v in enumerate(row[1:])) + "\n" for row, y in rows))
                        for name, rows in (("a", list(zip(x, self.y))[:450]), ("b", list(zip(x, self.y))[450:]))}
                    self.job(2, program=program, training_input=table["a"], predict_input=table["b"], **{
                        **PROGRAMS[program], **({"features_per_split": 1} if program == "random_forest" else {})})
                    self.assertEqual(self.lines("pred_v", 2), read)

    def test_constant_targets_are_predicted_exactly(self):
        for program in PROGRAMS:
            for value in (7.0, 0.1, 123456789.123, -1e-9):
                with self.subTest(program=program, value=value):
                    path = self.table("constant.csv", [value] * 3, [[1.0], [2.0], [3.0]])
                    self.job(2, program=program, training_input=path, predict_input=path, **PROGRAMS[program])
                    self.assertEqual({float(line.split(":")[-1]) for line in self.lines("pred_v", 2)}, {value})


if __name__ == "__main__":
    unittest.main()
