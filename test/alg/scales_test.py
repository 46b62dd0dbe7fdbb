#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ratings, factors and targets of any size in programs that add up squares: the result is that of numbers near 1, or the run ends
with an error that names the cause, or a warning does. Options: names of tests."""
import unittest

import numpy

from alg_job import AlgorithmCase


class ScalesTest(AlgorithmCase):
    program = "scales"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(1)
        cls.users, cls.items = random.normal(size=(30, 2)), random.normal(size=(20, 2))
        cls.pairs = [(u, i) for u in range(30) for i in range(20) if random.random() < 0.6]
        cls.x = random.normal(size=(200, 2))
        cls.y = cls.x @ [1, -0.5] + 0.2 * random.normal(size=200)

    def ratings(self, size):
        return self.path("ratings.csv", "".join(f"{u},{i},{(abs(self.users[u] @ self.items[i]) + 3) * size!r}\n"
                                                for u, i in self.pairs))

    def factors(self, name, rows, size):
        return self.path(name, "".join(f"{k}\t" + "|".join(repr(float(v) * size) for v in row) + "\n"
                                       for k, row in enumerate(rows)))

    def test_ratings(self):
        programs = (("mf", "input", {"k": 2, "rounds": 3}), ("mf", "input", {"k": 2, "method": "bfgs"}),
                    ("mf", "input", {"k": 0, "rounds": 3}), ("als", "rating_input", {"k": 2, "rounds": 3}),
                    ("als", "rating_input", {"k": 2, "rounds": 3, "implicit": True, "confidence": 1}),
                    ("als", "rating_input", {"factor_input": self.factors("given", self.items, 1)}))
        for program, key, keys in programs:
            for size, what in ((1e-200, "found only ratings below 1e-146, whose squares underflow; want a factor of at least "),
                               (1e160, "whose squares overflow; want at most ")):
                for workers in (1, 2):
                    with self.subTest(program=program, size=size, workers=workers, **keys):
                        said = self.job(workers, program=program, status=4, **keys, **{key: self.ratings(size)})
                        self.assertIn("ratings.csv: found ", said)
                        self.assertIn(what, said)

    def test_als_fits_ratings_of_any_other_size(self):
        for size in (1e-140, 1e-20, 1e20, 1e140):
            found = self.results(self.job(program="als", k=2, rounds=5, rating_input=self.ratings(size)))["rmse"]
            self.assertLess(found / size, 1.1)  # the ratings' standard deviation

    def test_a_minimiser_that_starts_too_far_from_large_ratings_says_so(self):
        said = self.job(program="mf", k=2, method="bfgs", input=self.ratings(1e20))
        self.assertIn("not converged", self.stderr)
        self.assertIn("the ratings have a standard deviation of ", self.stderr)
        self.assertIn("and start and the penalties are meant for about 1", self.stderr)
        self.assertIn("rounds", said)
        self.job(program="mf", k=2, method="bfgs", input=self.ratings(1))
        self.assertNotIn("warning", self.stderr)

    def test_factors_of_decision_trees(self):
        def tree(of_users, of_items, status=0):
            said = self.job(2, program="dtr", level=3, status=status, user_fac_input=self.factors("users", self.users, of_users),
                            item_fac_input=self.factors("items", self.items, of_items))
            return said if status else self.lines("tree", 1)
        right = tree(1, 1)
        for sizes in ((1e-100, 1), (1e-140, 1e-140), (1, 1e-200), (1, 1e200), (1e100, 1e100)):
            self.assertEqual(tree(*sizes), right, sizes)
        for sizes, what in (((1e-200, 1), "users: found only factors below 1e-146, whose squares underflow; want a factor"),
                            ((1e-140, 1e-200), "items: found only factors whose products with those of users underflow"),
                            ((1e140, 1e200), "items: found factors whose products with those of users overflow"),
                            ((1e160, 1), "users: found factors of a user whose sum of squares is not finite")):
            self.assertIn(what, tree(*sizes, status=4))

    def test_targets_of_support_vector_regression(self):
        def table(size):
            return self.path("rows.csv", "".join(f"{a!r},{b!r},{v * size!r}\n"
                                                 for (a, b), v in zip(self.x.tolist(), self.y.tolist())))
        for keys in ({}, {"loss": "squared_epsilon_insensitive"}):
            self.job(program="linear_svr", training_input=table(1e-9), **keys)
            self.assertIn("every target is within epsilon of a constant, which is the model; lower epsilon (now 0.1)",
                          self.stderr)
        said = self.job(program="linear_svr", status=1, training_input=table(1e-60), epsilon=1e-61)
        self.assertIn("the targets have a standard deviation of ", said)
        self.assertIn("and C and epsilon are meant for about 1", said)

    def test_columns_with_penalties_to_match(self):
        """F of columns that are multiplied by s is F with a penalty, or a weight of the losses, that is multiplied by s^2, of the
        absolute values by s."""
        free = {"penalize_bias": False}
        programs = [
            ("linear_svr", -2, {"bias": False}), ("linear_svr", -2, {"bias": False, "method": "dual"}),
            ("linear_svr", -2, {"bias": False, "loss": "squared_epsilon_insensitive"}),
            ("linear_svr", -2, {"bias": False, "loss": "squared_epsilon_insensitive", "method": "lbfgs"}),
            ("linear_svm", -2, {"bias": False}), ("linear_svm", -2, {"bias": False, "method": "lbfgs"}),
            ("linear_svm", -2, {"bias": False, "loss": "hinge"}),
            ("linear_svm", -2, {"bias": False, "loss": "hinge", "method": "dual"}),
            ("softmax", -2, {"bias": False}), ("softmax", -2, {"bias": False, "method": "lbfgs"}),
            ("lr", 2, {"method": "newton", "rounds": 100, **free}), ("lr", 2, {"method": "lbfgs", "rounds": 500, **free}),
            ("lr_l1", -1, {"bias": True}), ("ridge", 2, {}), ("lasso", 1, {"tolerance": 1e-9})]
        key_of = {"lr": "beta", "ridge": "penalty", "lasso": "penalty"}

        def fit(program, power, size, keys):
            labels = self.y if program in ("linear_svr", "ridge", "lasso") else (self.y > 0).astype(int)
            rows = self.path("rows.csv", "".join(f"{a * size!r},{b * size!r},{y}\n"
                                                 for (a, b), y in zip(self.x.tolist(), labels.tolist())))
            factor = 0.05 * size**power
            found = self.results(self.job(0, program=program, training_input=rows, **keys, **{key_of.get(program, "C"): factor}))
            return found["objective"] / (factor if power < 0 else 1)

        for program, power, keys in programs:
            wanted = fit(program, power, 1, keys)
            for size in (1e-100, 1e-20, 1e20, 1e100, 1e140):
                with self.subTest(program=program, size=size, **keys):
                    self.assertAlmostEqual(fit(program, power, size, keys) / wanted, 1, delta=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
