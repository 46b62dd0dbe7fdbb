#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The best number of neighbours, tested by running jobs: equal to the definition for any number of workers, and the figures of
movielens, end to end from sim_sparse's output."""
import os
import random
import unittest

import numpy

import oracles
from alg_job import MPI, AlgorithmCase


class AdjustKtopTest(AlgorithmCase):
    program = "adjust_ktop_sparse"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(4)
        cls.ratings = os.path.join(cls.folder, "ratings")
        cls.swapped = os.path.join(cls.folder, "swapped")
        users = generator.sample(range(10**6), 90)
        with open(cls.ratings, "w", encoding="ascii") as file, open(cls.swapped, "w", encoding="ascii") as swapped:
            for user, item in sorted({(generator.choice(users), generator.randrange(50)) for _ in range(1500)}):
                rating = generator.randrange(1, 11) / 2
                file.write(f"{user},{item},{rating}\n")
                swapped.write(f"{item},{user},{rating}\n")
        cls.similar = os.path.join(cls.folder, "similar")
        with open(cls.similar, "w", encoding="ascii") as file:
            for user in users + [5 * 10**6]:
                # Some users are unknown, some lists are short or empty.
                others = generator.sample(users + [7 * 10**6, 8 * 10**6], generator.randrange(0, 30))
                values = sorted((generator.random() for _ in others), reverse=True)
                file.write(f"{user}\t" + "|".join(f"{o}:{v!r}" for o, v in zip(others, values)) + "\n")

    def results_of(self, workers, servers=1, mode="local", **keys):
        said = self.results(self.job(workers, servers, mode, rating_input=self.ratings, sim_input=self.similar, **keys))
        return said, self.lines("ktop_result", workers)

    def test_equal_to_the_oracle_for_1_2_4_workers(self):
        for lower in (1, 5):
            expected, wanted = oracles.adjust_ktop(self.ratings, self.similar, lower)
            for workers, servers, mode in ((1, 1, "embedded"), (2, 1, "local"), (4, 3, "local")) + (
                    ((2, 1, "mpi"),) if MPI else ()):
                with self.subTest(lower=lower, workers=workers, mode=mode):
                    said, found = self.results_of(workers, servers, mode, **{"lower bound": lower})
                    self.assertEqual(found, wanted)
                    for name in ("base_rmse", "rmse"):
                        self.assertAlmostEqual(said[name], expected[name], delta=1e-12)
                    self.assertEqual(said["sum_k"], expected["sum_k"])
                    self.assertEqual(said["users"], 91)

    def test_ratings_by_item_give_the_same(self):
        _, wanted = self.results_of(1)
        self.job(2, rating_input=self.swapped, sim_input=self.similar, fmt="smap")
        self.assertEqual(self.lines("ktop_result", 2), wanted)

    def test_npy(self):
        _, wanted = self.results_of(1)
        self.job(2, rating_input=self.ratings, sim_input=self.similar, format="npy")
        array = self.manifest()["arrays"]["ktop"]
        found = []
        for numbers, names in zip(array["files"], array["ids"]):
            with open(os.path.join(self.output, names), encoding="utf-8") as file:
                found += zip(file.read().splitlines(), numpy.load(os.path.join(self.output, numbers)))
        self.assertEqual([f"{name}\t{k}" for name, k in found], wanted)

    def test_bad_input_is_refused_with_its_place(self):
        bad = self.path("bad", "1\t2:0.5\n2\t3:0.5|4\n")
        for workers, mode in ((1, "embedded"), (2, "local")):
            self.assertIn("bad:2:9: ", self.job(workers, 1, mode, status=4, rating_input=self.ratings, sim_input=bad))
        self.assertIn('"lower bound"', self.job(1, 1, "embedded", status=3, rating_input=self.ratings,
                                                sim_input=self.similar, **{"lower bound": 0}))

    def test_the_figures_of_movielens(self):
        ratings = self.shared("movielens-small", "ratings.csv")
        for workers in (1, 2, 4):
            self.job(workers, program="sim_sparse", input=ratings, topk=50)
            lists = self.output
            said = self.results(self.job(workers, rating_input=ratings, sim_input=os.path.join(lists, "similarities_*")))
            self.assertAlmostEqual(said["base_rmse"], 0.984998, delta=5e-7)
            self.assertAlmostEqual(said["rmse"], 0.942320, delta=5e-7)
            self.assertEqual(said["sum_k"], 16184)


if __name__ == "__main__":
    unittest.main()
