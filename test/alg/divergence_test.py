#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Numbers that grow without bound, in every program that computes with numbers: steps that are far too long, and input whose
squares overflow. A run ends with a sentence and without a model, or its results are finite."""
import itertools
import json
import math
import os
import random
import re
import subprocess
import unittest

from alg_job import BIN, SOURCE, AlgorithmCase

NOT_FINITE = re.compile(r"(?<![A-Za-z0-9_])[-+]?(nan|inf|infinity|null)(?![A-Za-z0-9_])", re.IGNORECASE)
# Programs with a step size: their keys, and the key that a run that diverges names.
STEPS = [
    ("ridge", {"method": "sgd", "beta": 0.01, "alpha": 1e6, "rounds": 20}, "alpha"),
    ("fm", {"method": "adagrad", "alpha": 1e5, "rounds": 20}, "alpha"),
    ("mf", {"alpha": 50, "rounds": 20}, "alpha"),
    ("mf", {"alpha": 50, "rounds": 20, "factors": "float64"}, "alpha"),
    ("word2vec", {"alpha": 1e5, "rounds": 3, "min_count": 1, "k": 8}, "alpha"),
    ("word2vec", {"alpha": 1e30, "rounds": 3, "min_count": 1, "k": 8, "loss": "hierarchical_softmax"}, "alpha"),
    ("lr", {"method": "dgd", "alpha": 1e12, "beta": 0.01, "rounds": 20}, "alpha"),
    ("lr", {"method": "ipm", "alpha": 1e12, "beta": 0.01, "rounds": 20}, "alpha"),
    ("lr", {"method": "downpour", "alpha": 1e12, "beta": 0.01, "rounds": 20}, "alpha"),
    ("lr", {"method": "agd", "alpha": 1e12, "beta": 0.01, "rounds": 20}, "alpha"),
]
NUMBERS = [("ridge", {"penalty": 1}), ("ridge", {"method": "sgd", "beta": 0.01}), ("lasso", {"lambda": 0.1}), ("linear_svr", {}),
           ("fm", {"method": "als"}), ("fm", {"method": "sgd"}), ("fm", {"method": "adagrad"}),
           ("gbdt", {"loss": "squared", "min_child_rows": 2}), ("random_forest", {"type": "regression", "trees": 5})]
CLASSES = [*(("lr", {"method": m, "rounds": 20, "alpha": 0.1, "beta": 0.01}) for m in ("ipm", "agd", "lbfgs", "newton", "owlqn")),
           ("lr_l1", {"lambda": 1}), ("softmax", {}), ("softmax", {"method": "lbfgs"}), ("linear_svm", {}),
           ("linear_svm", {"loss": "hinge"}), ("naive_bayes", {"distribution": "gaussian"}),
           ("naive_bayes", {"distribution": "multinomial"}), ("fm", {"loss": "log"}),
           ("gbdt", {"loss": "log", "min_child_rows": 2}), ("random_forest", {"type": "classification", "trees": 5})]
RATINGS = [("mf", {"input": 1, "k": 3}), ("mf", {"input": 1, "k": 3, "method": "cg"}),
           ("mf", {"input": 1, "k": 3, "method": "bfgs"}), ("als", {"rating_input": 1, "k": 3}), ("svd", {"input": 1, "k": 2})]
EDGES = [("spectral_clustering", {"kclusters": 2}), ("pagerank", {}), ("label_propagation", {})]
SIZES = (1e150, 1e200, 1e300)


class DivergenceTest(AlgorithmCase):
    @classmethod
    def setUpClass(cls):
        cls.program = "divergence"
        super().setUpClass()
        dice = random.Random(3)
        cls.rows = [[dice.gauss(0, 1) for _ in range(3)] for _ in range(60)]

    def table(self, name, size, target_size, classes):
        """Rows of three numbers; the first column is multiplied by `size`."""
        lines = []
        for x in self.rows:
            y = x[0] - x[1] + 0.5 * x[2]
            label = int(y > 0) if classes else repr(y * target_size)
            first = abs(x[0]) if classes == "counts" else x[0]
            lines.append(f"{first * size!r},{abs(x[1])!r},{abs(x[2])!r},{label}\n")
        return self.path(name, "".join(lines))

    def check(self, program, **keys):
        """A run: its status and what it says. Fails if it leaves a model after an error, or results that are not finite."""
        type(self).count += 1
        folder = os.path.join(self.folder, f"out{self.count}")
        config = self.path(f"config{self.count}.json", json.dumps({**keys, "output": folder}))
        done = subprocess.run([os.path.join(BIN, program), "--cfg_file", config], capture_output=True, text=True, timeout=120,
                              cwd=SOURCE, stdin=subprocess.DEVNULL)
        self.warned = done.stderr
        self.assertIn(done.returncode, (0, 1, 3, 4), done.stdout + done.stderr)
        if done.returncode != 0:
            self.assertFalse(os.path.exists(os.path.join(folder, "model.json")), done.stderr)
            self.assertRegex(done.stderr, "error: .{20,}")
            return done.returncode, done.stderr
        self.assertNotRegex(done.stdout, NOT_FINITE)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    found = NOT_FINITE.search(file.read())
                self.assertIsNone(found, f"{name}: {found}")
        return 0, done.stdout

    def test_steps_that_are_too_long(self):
        numbers, classes = self.table("n.csv", 1, 1, False), self.table("c.csv", 1, 1, True)
        dice = random.Random(5)
        ratings = self.path("r.csv", "".join(f"{u},{i},{dice.randrange(1, 6)}\n" for u in range(20) for i in range(8)))
        text = self.path("text.txt", "".join(" ".join(dice.choice("abcdefghij") for _ in range(9)) + "\n" for _ in range(200)))
        files = {"ridge": ("training_input", numbers), "fm": ("training_input", numbers), "lr": ("training_input", classes),
                 "mf": ("input", ratings), "word2vec": ("input", text)}
        for program, keys, key in STEPS:
            with self.subTest(program=program, **keys):
                name, path = files[program]
                status, said = self.check(program, **{name: path}, **keys)
                self.assertEqual(status, 1, said)
                self.assertRegex(said, r"diverged at round \d+.*lower " + key)

    def test_numbers_whose_squares_overflow(self):
        jobs = [(p, k, {"training_input": self.table(f"{s}_{t}.csv", s, t, False)}) for (p, k), (s, t) in itertools.product(
            NUMBERS, [(s, 1) for s in SIZES] + [(1, s) for s in SIZES])]
        jobs += [(p, k, {"training_input": self.table(f"{s}.csv", s, 1, "counts")}) for (p, k), s in
                 itertools.product(CLASSES, SIZES)]
        for size in SIZES:
            points = self.path(f"points{size}.csv", "".join(f"{i}\t{x[0] * size!r},{x[1]!r}\n" for i, x in enumerate(self.rows)))
            jobs += [("kmeans", k, {"input": points, "type": "fvec", "kclusters": 3})
                     for k in ({}, {"batch_size": 20}, {"metric": "cosine"})]
            jobs.append(("sim_dense", {}, {"input": self.path(f"dense{size}", "".join(
                f"{i},{x[0] * size!r},{x[1]!r}\n" for i, x in enumerate(self.rows))), "simbar": 0.2, "topk": 3}))
            ratings = self.path(f"ratings{size}.csv", "".join(f"{u},{i},{(1 + (u * i) % 5) * size!r}\n"
                                                              for u in range(12) for i in range(6)))
            jobs += [(p, {}, {k: ratings if v == 1 else v for k, v in keys.items()}) for p, keys in RATINGS]
            edges = self.path(f"edges{size}", "".join(f"{a} {b} {(1 + a % 3) * size!r}\n" for a in range(12) for b in range(a)
                                                      if (a < 6) == (b < 6) or a + b == 11))
            jobs += [(p, keys, {"input": edges}) for p, keys in EDGES]
        for program, keys, files in jobs:
            with self.subTest(program=program, **keys, **files):
                self.check(program, **keys, **files)

    def test_columns_whose_squares_overflow_or_underflow_are_named(self):
        runs = [(p, k, False) for p, k in (*NUMBERS, ("lasso", {"penalty": 0.01, "standardize": True}))
                if p not in ("gbdt", "random_forest")]
        unsquared = ("gbdt", "random_forest", "multinomial")
        runs += [(p, k, True) for p, k in CLASSES if p not in unsquared and k.get("distribution") not in unsquared]
        for (program, keys, classes), size in itertools.product(runs, (1e200, 1e-200)):
            with self.subTest(program=program, size=size, **keys):
                status, said = self.check(program, training_input=self.table("sizes.csv", size, 1, classes), **keys)
                if size > 1:
                    self.assertEqual(status, 4, said)
                    self.assertRegex(said, r"sizes\.csv: column 0: found numbers up to [\d.]+e\+200, whose squares overflow")
                    continue
                self.assertEqual(status, 0, said)
                self.assertRegex(self.warned, r"warning: column 0: its numbers are at most [\d.]+e-200, so that their squares "
                                              r"underflow, and it counts as constant: want a factor of at least [\d.]+e\+5\d")

    def test_priors_are_bounded_and_right_up_to_the_bound(self):
        dice = random.Random(4)
        text = self.path("priors.txt", "".join(" ".join(dice.choice("abcdefgh") for _ in range(20)) + "\n" for _ in range(40)))
        for method, (alpha, beta), key in itertools.product(("gibbs", "online"), ((1e6, 0.1), (0.1, 1e6), (1e6, 1e6)),
                                                            ("alpha", "beta")):
            keys = {"method": method, "k_topics": 2, "input": text, "iters": 10, "alpha": alpha, "beta": beta}
            with self.subTest(**keys, key=key):
                status, said = self.check("gLDA", **keys)
                self.assertEqual(status, 0, said)
                name, value = re.search(r"^(log_likelihood|bound) (\S+)", said, re.MULTILINE).groups()
                # Uniform topics: a token has the probability 1/8, and its topic, with uniform topics in a document, 1/2.
                if beta == 1e6:
                    self.assertLess(float(value), -math.log(8) + 0.01)
                if alpha == beta and name == "log_likelihood":
                    self.assertAlmostEqual(float(value), -math.log(16), delta=0.001)
                for size in (2e6, 1e300, 1e-11):
                    status, said = self.check("gLDA", **{**keys, key: size})
                    self.assertEqual(status, 3, said)
                    self.assertRegex(said, f'key "{key}": found number .*, want a number >= 1e-10 and <= 1000000')

    def test_what_needs_no_squares_takes_any_size(self):
        for size in (1e200, 1e-200):
            for program, keys in (("naive_bayes", {"distribution": "multinomial"}),
                                  ("gbdt", {"loss": "log", "min_child_rows": 2}),
                                  ("random_forest", {"type": "classification", "trees": 5})):
                with self.subTest(program=program, size=size):
                    status, said = self.check(program, training_input=self.table("any.csv", size, 1, "counts"), **keys)
                    self.assertEqual(status, 0, said)
                    self.assertNotIn("squares", self.warned)


if __name__ == "__main__":
    unittest.main()
