#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""lbfgs, newton and owlqn of logistic regression against SciPy, for any number of workers."""
import json
import os
import sys
import unittest

import numpy
import scipy.special

import oracles
from lr_case import LR, PRUN, LrCase, data, run, samples_of


class Minimize(LrCase):
    def setUp(self):
        super().setUp()
        self.x, self.y = samples_of(self.train)

    def lines(self):
        with open(os.path.join(self.output, "metrics.jsonl"), encoding="ascii") as file:
            return [json.loads(line) for line in file]

    def minimize(self, workers, mode="local", **keys):
        keys = {"training_input": self.train, "rounds": 1000, "beta": 0.001, "gradient_tolerance": 1e-8, **keys}
        done = self.job(workers, 1, mode, alpha=1.0, **keys)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.output, "model.json"), encoding="utf-8") as file:
            return json.load(file), done.stdout

    def test_all_methods_find_the_optimum_of_scipy(self):
        for bias, penalize in ((True, True), (True, False), (False, True)):
            best, theta = oracles.lr(self.x, self.y, 0.001, bias, penalize)
            for method in ("lbfgs", "newton", "owlqn"):
                for workers, mode in ((1, "embedded"), (2, "local"), (3, "local")):
                    if workers == 3 and not penalize:
                        continue
                    with self.subTest(method=method, workers=workers, bias=bias, penalize=penalize):
                        model, said = self.minimize(workers, mode, method=method, bias=bias, penalize_bias=penalize)
                        self.assertAlmostEqual(model["objective"], best, delta=1e-9 * best)
                        numpy.testing.assert_allclose(model["theta"], theta, rtol=1e-3, atol=1e-4)
                        self.assertIn("ended the gradient is within its tolerance", said)
                        lines = self.lines()
                        self.assertEqual([line["round"] for line in lines], list(range(1, model["rounds"] + 1)))
                        for line in lines:
                            self.assertLessEqual({"objective", "gradient_norm", "evaluations", "products", "seconds"},
                                                 set(line))

    def test_columns_of_everyday_scales_are_fitted(self):
        random = numpy.random.default_rng(6)
        n = 1000
        people = numpy.column_stack([random.normal(40, 12, n), random.normal(2.5e6, 1e6, n), random.random(n),
                                     random.poisson(3, n)])
        times = numpy.column_stack([random.normal(1.6e9, 1e7, n), random.normal(size=n)])
        for x in (people, times):
            z = (x - x.mean(0)) / x.std(0)
            y = numpy.where(z @ numpy.arange(1.0, 1 + x.shape[1]) / 2 + random.logistic(size=n) > 0, 1.0, -1.0)
            path = os.path.join(self.folder, "everyday.csv")
            numpy.savetxt(path, numpy.column_stack([x, y > 0]), fmt="%.17g", delimiter=",")
            best, theta = oracles.lr(z, y, 0, True, True)
            for method in ("lbfgs", "newton", "owlqn"):
                with self.subTest(method=method, columns=x.shape[1]):
                    model, said = self.minimize(1, "embedded", training_input=path, method=method, beta=0,
                                                gradient_tolerance=1e-6)
                    self.assertAlmostEqual(model["objective"], best, delta=1e-9)
                    numpy.testing.assert_allclose(numpy.array(model["theta"][1:]) * x.std(0), theta[1:], rtol=1e-4)
                    self.assertIn("ended the gradient is within its tolerance", said)

    def test_owlqn_fulfils_the_optimality_conditions_of_its_l1_penalty(self):
        beta, l1 = 0.001, 0.02
        for workers in (1, 2):
            model, _ = self.minimize(workers, method="owlqn", beta=beta, l1=l1)
            theta = numpy.array(model["theta"])
            x = numpy.hstack([numpy.ones((len(self.x), 1)), self.x])
            slope = -self.y * scipy.special.expit(-self.y * (x @ theta))
            gradient = x.T @ slope / len(x) + 2 * beta * theta
            self.assertGreater(numpy.sum(theta == 0), 5)
            self.assertGreater(numpy.sum(theta != 0), 5)
            self.assertLess(numpy.max(numpy.abs(gradient[theta == 0])), l1 * 1.0001)
            numpy.testing.assert_allclose(gradient[theta != 0], -l1 * numpy.sign(theta[theta != 0]), atol=1e-6)

    def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(self):
        for method in ("lbfgs", "newton", "owlqn"):
            with self.subTest(method=method):
                self.minimize(2, method=method)
                wanted = self.theta()
                checkpoints = self.output + "_checkpoints"
                config = self.config(training_input=self.train, rounds=1000, beta=0.001, gradient_tolerance=1e-8,
                                     method=method)
                command = [sys.executable, "-B", PRUN, "-w", "2", "-p", "1", "-m", "local", "-c", config, "--output-dir",
                           config + ".run"]
                done = run(command + ["--checkpoint-dir", checkpoints, "--checkpoint-every", "2", LR])
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(self.theta(), wanted)
                first = sorted(os.listdir(checkpoints))[0]
                done = run(command + ["--resume", os.path.join(checkpoints, first), LR])
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(self.theta(), wanted)
                self.assertEqual(self.lines()[0]["round"], int(first) + 1)

    def test_a9a(self):
        path = data("a9a", "a9a")
        if path is None:
            self.skipTest("a9a is not here")
        for method, accuracy in (("newton", 1e-9), ("lbfgs", 1e-6)):
            model, _ = self.minimize(2, training_input=path, bias=False, beta=0.5 / 32561, method=method)
            self.assertAlmostEqual(32561 * model["objective"], 10529.5625846, delta=10529.5626 * accuracy)

    def test_wrong_settings_are_refused_with_the_key(self):
        keys = {"training_input": self.small, "rounds": 5, "beta": 0.1}
        for more, text in (({"method": "dgd"}, 'key "alpha" is missing'),
                           ({"method": "newton", "l1": 0.1}, 'key "l1": only with "method": "owlqn"'),
                           ({"method": "newton", "update_func": "paracel_add"},
                            'key "update_func": not with method newton'),
                           ({"method": "lbfgs", "gradient_tolerance": -1}, 'key "gradient_tolerance": found')):
            done = run([LR, "--cfg_file", self.config(**keys, **more)])
            self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
            self.assertIn(text, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + ["-v"] + sys.argv[1:])
