#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Scale and offset of columns and targets: each program of PROGRAMS predicts the same from columns that were multiplied and
shifted, or warns with the column's name and the factor. Options: names of tests."""
import json
import os
import subprocess
import unittest

import numpy

from alg_job import BIN, AlgorithmCase

ROWS, COLUMNS = 240, 4
NAMES = ["age", "income", "ratio", "count"]
ONES, ZEROS = numpy.ones(COLUMNS), numpy.zeros(COLUMNS)
# Factors of the columns; offsets in standard deviations of a column, before the factor.
EACH = numpy.array([1e-9, 1e9, 1e-3, 1e4])
FAR = numpy.array([0, 1e9, -1e3, 1e6])
CHANGES = {
    "small": (1e-9 * ONES, ZEROS),
    "large": (1e9 * ONES, ZEROS),
    "each": (EACH, ZEROS),
    "far": (ONES, FAR),
    "large and far": (1e9 * ONES, FAR),
    "each and far": (EACH, FAR[::-1]),
}


class Program:
    """`keys(factor, target)`: of a run whose columns were multiplied by `factor` (a number where they have one in common) and
    whose target by `target`. `common`: only factors that the columns have in common leave the problem the same, since the
    penalty is that of the weights. `shifts`: whether it has an intercept that is not penalised. `value`: a prediction from the
    text that was written. `accuracy`: relative, of predictions. `fixed_target`: a factor of the target changes the problem."""

    def __init__(self, name, keys, labels="classes", common=False, shifts=True, accuracy=1e-6, scores=False,
                 fixed_target=False):
        self.name, self.keys, self.labels, self.common = name, keys, labels, common
        self.shifts, self.accuracy, self.scores, self.fixed_target = shifts, accuracy, scores, fixed_target


def fixed(**keys):
    return lambda factor, target: keys


# Without a penalty or standardised, any factors; otherwise the penalty is transformed with a common one.
PROGRAMS = {
    "ridge without a penalty": Program("ridge", fixed(penalty=0), "numbers"),
    "ridge standardised": Program("ridge", fixed(penalty=3, standardize=True), "numbers"),
    "ridge": Program("ridge", lambda s, t: {"penalty": 3 * s * s}, "numbers", common=True),
    "ridge sgd standardised": Program("ridge", fixed(penalty=3, standardize=True, method="sgd", alpha=0.01, rounds=20),
                                      "numbers"),
    "lasso standardised": Program("lasso", lambda s, t: {"penalty": 0.05 * t, "standardize": True}, "numbers"),
    "lasso": Program("lasso", lambda s, t: {"penalty": 0.05 * t * s}, "numbers", common=True),
    "lasso path standardised": Program("lasso", fixed(path=8, standardize=True), "numbers"),
    "elastic net standardised": Program("lasso", fixed(penalty=0.2, l1_ratio=0.5, standardize=True), "numbers",
                                        fixed_target=True),
    "lr newton": Program("lr", fixed(method="newton", beta=0, rounds=1000)),
    "lr lbfgs": Program("lr", fixed(method="lbfgs", beta=0, rounds=1000, gradient_tolerance=1e-9)),
    "lr owlqn": Program("lr", fixed(method="owlqn", beta=0, rounds=1000, gradient_tolerance=1e-9)),
    "lr lbfgs penalised": Program("lr", lambda s, t: {"method": "lbfgs", "beta": 0.01 * s * s, "penalize_bias": False,
                                                      "rounds": 1000, "gradient_tolerance": 1e-9}, common=True),
    "lr owlqn l1": Program("lr", lambda s, t: {"method": "owlqn", "beta": 0, "l1": 0.02 * s, "penalize_bias": False,
                                               "rounds": 1000, "gradient_tolerance": 1e-9}, common=True),
    "lr_l1": Program("lr_l1", lambda s, t: {"C": 0.3 / s, "bias": True, "tolerance": 1e-9}, common=True),
    "lr_l1 owlqn": Program("lr_l1", lambda s, t: {"C": 0.3 / s, "method": "owlqn", "tolerance": 1e-6}, common=True, shifts=False,
                           accuracy=1e-4),
    "softmax": Program("softmax", lambda s, t: {"C": 1 / (s * s), "tolerance": 1e-9}, common=True, scores=True),
    "softmax lbfgs": Program("softmax", lambda s, t: {"C": 1 / (s * s), "tolerance": 1e-9, "method": "lbfgs"}, common=True,
                             scores=True),
    "linear_svm": Program("linear_svm", lambda s, t: {"C": 1 / (s * s), "penalize_bias": False, "tolerance": 1e-9}, common=True,
                          scores=True),
    "linear_svm lbfgs": Program("linear_svm", lambda s, t: {"C": 1 / (s * s), "penalize_bias": False, "tolerance": 1e-9,
                                                            "method": "lbfgs"}, common=True, scores=True),
    "linear_svm hinge": Program("linear_svm", lambda s, t: {"C": 1 / (s * s), "penalize_bias": False, "loss": "hinge",
                                                            "tolerance": 1e-6}, common=True, scores=True, accuracy=5e-3),
    "linear_svm dual": Program("linear_svm", lambda s, t: {"C": 1 / (s * s), "bias": False, "loss": "hinge", "method": "dual",
                                                           "tolerance": 1e-6}, common=True, shifts=False, scores=True,
                               accuracy=5e-3),
    "linear_svr": Program("linear_svr", lambda s, t: {"C": t / (s * s), "penalize_bias": False, "epsilon": 0.2 * t,
                                                      "tolerance": 1e-6}, "numbers", common=True, accuracy=5e-3),
    "linear_svr squared": Program("linear_svr", lambda s, t: {"C": 1 / (s * s), "penalize_bias": False, "epsilon": 0.2 * t,
                                                              "loss": "squared_epsilon_insensitive", "tolerance": 1e-9},
                                  "numbers", common=True),
    "naive_bayes": Program("naive_bayes", fixed(distribution="gaussian"), scores=True),
}

# Methods with steps of one size, and what they need.
STEPS = {
    "lr dgd": ("lr", {"method": "dgd", "alpha": 1e-14, "beta": 0, "rounds": 2}),
    "lr ipm": ("lr", {"method": "ipm", "alpha": 1e-14, "beta": 0, "rounds": 2}),
    "fm adagrad": ("fm", {"method": "adagrad", "alpha": 1e-14, "rounds": 2}),
    "fm sgd": ("fm", {"method": "sgd", "alpha": 1e-16, "rounds": 2}),
    "ridge sgd": ("ridge", {"method": "sgd", "alpha": 1e-16, "penalty": 1, "rounds": 2}),
}


class InvarianceTest(AlgorithmCase):
    program = "invariance"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(12)
        x = random.normal(size=(ROWS, COLUMNS)) @ (numpy.eye(COLUMNS) + 0.3 * random.normal(size=(COLUMNS, COLUMNS)))
        cls.x = (x - x.mean(0)) / x.std(0)
        margin = cls.x @ [1.0, -0.7, 0.5, 0] + 0.3
        cls.targets = {"numbers": margin + 0.5 * random.normal(size=ROWS),
                       "classes": (margin + random.logistic(size=ROWS) > 0).astype(int)}
        cls.known = {}

    def table(self, labels, change=(ONES, ZEROS), sparse=False, target=(1, 0)):
        factor, offset = change
        x, y = (self.x + offset) * factor, self.targets[labels] * target[0] + target[1]
        type(self).count += 1
        path = os.path.join(self.folder, f"rows{self.count}." + ("svm" if sparse else "csv"))
        with open(path, "w", encoding="ascii") as file:
            if not sparse:
                file.write(",".join(NAMES + ["y"]) + "\n")
            for row, label in zip(x, y):
                if sparse:
                    file.write(f"{label!r} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist())) + "\n")
                else:
                    file.write(",".join(map(repr, row.tolist())) + f",{label!r}\n")
        return path

    def run_program(self, program, rows, scores=False, /, **keys):
        """The predictions of the training rows, or the class scores; and what was said on stderr."""
        type(self).count += 1
        self.output = os.path.join(self.folder, f"out{self.count}")
        keys = {"training_input": rows, "predict_input": rows, "output": self.output, **keys}
        if scores:
            keys["scores"] = True
        config = self.path(f"config{self.count}.json", json.dumps(keys))
        done = subprocess.run([os.path.join(BIN, program), "--cfg_file", config], capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = self.lines("score_v" if scores else "pred_v", 1)
        if scores:
            return numpy.array([[float(v) for v in line.split("|")] for line in lines]), done.stderr
        split = (lambda line: line.split()[0]) if rows.endswith(".svm") else (lambda line: line.rpartition(":")[2])
        return numpy.array([float(split(line)) for line in lines]), done.stderr

    def check(self, name, change=(ONES, ZEROS), sparse=False, target=(1, 0)):
        of = PROGRAMS[name]
        if name not in self.known:
            self.known[name] = self.run_program(of.name, self.table(of.labels), of.scores, **of.keys(1, 1))[0]
        wanted = self.known[name] * target[0] + target[1]
        found, said = self.run_program(of.name, self.table(of.labels, change, sparse, target), of.scores,
                                       **of.keys(float(change[0][0]), target[0]))
        self.assertEqual(said, "")
        # What the rounding of the input, and of a prediction from raw columns, leaves.
        rounding = 1e-15 * max(1, abs(change[1]).max())
        accuracy = of.accuracy + 30 * rounding
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=accuracy * numpy.abs(self.known[name]).max() * abs(target[0]) +
                                      1e-14 * abs(target[1]))

    def changes(self, of):
        for name, (factor, offset) in CHANGES.items():
            if (of.common and len(set(factor)) > 1) or (not of.shifts and offset.any()):
                continue
            yield name, (factor, offset)

    def test_scales_and_offsets_of_columns_do_not_matter(self):
        for name, of in PROGRAMS.items():
            for change_name, change in self.changes(of):
                for sparse in (False, True):
                    with self.subTest(program=name, columns=change_name, sparse=sparse):
                        self.check(name, change, sparse)

    def test_scale_and_offset_of_the_target_do_not_matter(self):
        for name, of in PROGRAMS.items():
            if of.labels != "numbers":
                continue
            for target in ((1e-9, 0), (1e9, 0), (1, 1e6), (1e5, -1e11)):
                if of.fixed_target and target[0] != 1:
                    continue
                with self.subTest(program=name, target=target):
                    self.check(name, target=target)

    def test_targets_whose_squares_overflow_or_underflow_are_refused(self):
        for name, of in PROGRAMS.items():
            if of.labels != "numbers":
                continue
            for size, what in ((1e-200, "found only targets below 1e-146, whose squares underflow; want a factor of at least 3"),
                               (1e160, "whose squares overflow; want at most 8.7e+152")):
                with self.subTest(program=name, size=size):
                    said = self.job(mode="embedded", program=of.name, status=4, **of.keys(1, 1),
                                    training_input=self.table(of.labels, target=(size, 0)))
                    self.assertIn(what, said)

    def test_rounds_that_do_not_suffice_because_of_scales_name_the_column(self):
        for name, program, keys, labels in (
                ("hinge", "linear_svm", {"loss": "hinge", "C": 100, "tolerance": 1e-9, "rounds": 3}, "classes"),
                ("squared hinge", "linear_svm", {"tolerance": 1e-9, "rounds": 2}, "classes"),
                ("svr", "linear_svr", {}, "numbers"), ("softmax", "softmax", {"tolerance": 1e-9, "rounds": 2}, "classes")):
            with self.subTest(program=name):
                said = self.job(mode="embedded", program=program, status=1, **keys,
                                training_input=self.table(labels, (numpy.array([1, 1e100, 1, 1]), ZEROS)))
                self.assertRegex(said, 'column "income" is [0-9.]+e[+][0-9]+ times as large as (column "[a-z]+"|the bias), .*: '
                                       'scale the columns, or raise rounds or tolerance')
        said = self.job(mode="embedded", program="softmax", status=1, training_input=self.table("classes"), tolerance=1e-9,
                        rounds=2)
        self.assertNotIn("scale the columns", said)

    def test_a_column_whose_rounding_is_visible_is_named_with_the_factor(self):
        far = numpy.array([0, 0, 1e11, 0])
        for name, of in PROGRAMS.items():
            if not of.shifts:
                continue
            for sparse in (False, True):
                with self.subTest(program=name, sparse=sparse):
                    keys = dict(of.keys(1, 1))
                    _, said = self.run_program(of.name, self.table(of.labels, (ONES, far), sparse), **keys)
                    self.assertEqual(said.count("warning:"), 1, said)
                    self.assertIn('column 2:' if sparse else 'column "ratio"', said)
                    self.assertIn("1e+11 times as large as their spread", said)

    def test_a_smoothing_of_all_variances_that_drowns_a_column_is_said(self):
        path = self.table("classes", (numpy.array([1, 1e-4, 1, 1]), ZEROS))
        keys = {"distribution": "gaussian", "var_smoothing": 1e-9}
        _, said = self.run_program("naive_bayes", path, **keys)
        self.assertRegex(said, r'warning: var_smoothing adds 0\.1\d* times its variance to that of column "income"')
        self.assertEqual(self.run_program("naive_bayes", self.table("classes"), **keys)[1], "")

    def test_methods_of_one_step_size_warn_of_columns_that_it_cannot_suit(self):
        factor = numpy.array([1, 1e6, 1, 1])
        for name, (program, keys) in STEPS.items():
            labels = "classes" if program == "lr" else "numbers"
            with self.subTest(program=name):
                _, said = self.run_program(program, self.table(labels, (factor, ZEROS)), **keys)
                self.assertEqual(said.count("warning:"), 1, said)
                self.assertIn('column "income" is 1', said)
                self.assertIn("e+06 times as large as", said)
                self.assertEqual(self.run_program(program, self.table(labels), **{**keys, "alpha": 1e-3})[1], "")


if __name__ == "__main__":
    unittest.main(argv=["invariance_test", "-v"] + __import__("sys").argv[1:])
