#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A run whose rounds do not suffice says so, with the key to raise; one whose rounds do suffice says nothing."""
import random
import unittest

from alg_job import AlgorithmCase

# Program, the file and the key that names it, keys of a run that is too short, and of one that is not.
RUNS = [
    ("svd", "ratings", "input", {"k": 2, "rounds": 1}, {"rounds": 300}),
    ("spectral_clustering", "edges", "input", {"kclusters": 2, "rounds": 1}, {"rounds": 300}),
    ("kmeans", "points", "input", {"kclusters": 5, "rounds": 1}, {"rounds": 300}),
    ("kmeans", "points", "input", {"kclusters": 5, "rounds": 1, "batch_size": 20, "tolerance": 1e-12}, {"tolerance": 0}),
    ("pagerank", "edges", "input", {"rounds": 2}, {"rounds": 300}),
    ("label_propagation", "edges", "input", {"rounds": 1}, {"rounds": 100}),
    ("als", "ratings", "rating_input", {"k": 2, "rounds": 2, "tolerance": 1e-9}, {"tolerance": 0}),
    ("mf", "ratings", "input", {"k": 2, "rounds": 2, "tolerance": 1e-9}, {"tolerance": 0}),
    ("mf", "ratings", "input", {"k": 2, "method": "cg", "rounds": 2}, {"rounds": 5000}),
    ("gLDA", "text", "input", {"k_topics": 3, "alpha": 0.1, "beta": 0.1, "iters": 30, "tolerance": 1e-12}, {"tolerance": 0}),
]
# Programs whose model.json says whether a run has converged.
FLAGGED = {"svd", "spectral_clustering", "kmeans"}


class ConvergenceTest(AlgorithmCase):
    def test_too_few_rounds_are_said(self):
        dice = random.Random(3)
        files = {"ratings": "".join(f"{u},{i},{dice.randrange(1, 6)}\n" for u in range(30) for i in range(20)),
                 "edges": "".join(f"{a} {b}\n" for a in range(60) for b in {dice.randrange(60) for _ in range(3)} if a != b),
                 "points": "".join(f"{dice.gauss(0, 1)},{dice.gauss(0, 1)}\n" for _ in range(200)),
                 "text": "".join(" ".join(dice.choice("abcdefghijkl") for _ in range(20)) + "\n" for _ in range(40))}
        files = {name: self.path(name + ".txt", text) for name, text in files.items()}
        for program, file, key, short, enough in RUNS:
            with self.subTest(program=program, **short):
                self.job(mode="embedded", program=program, **{key: files[file]}, **short)
                self.assertRegex(self.stderr, r"^warning: .* (after|at step) \d+.*raise (rounds|iters)")
                if program in FLAGGED:
                    self.assertIs(self.manifest()["converged"], False)
                self.job(mode="embedded", program=program, **{key: files[file]}, **{**short, **enough})
                self.assertNotIn("warning", self.stderr)
                if program in FLAGGED and enough.get("tolerance") != 0:
                    self.assertIs(self.manifest()["converged"], True)
        program, file, key, short, _ = RUNS[0]
        self.job(2, program=program, **{key: files[file]}, **short)
        self.assertIn("warning: not converged after 1 round", self.stderr)


if __name__ == "__main__":
    unittest.main()
