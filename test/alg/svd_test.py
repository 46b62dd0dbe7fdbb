#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""svd, tested by running jobs: equal to NumPy, for any number of workers and servers. movielens-small is
looked for in $PARACEL_SHARED_DATA, else in ../shared/data."""
import os
import unittest

import numpy as np

from factor_support import FactorCase

MOVIELENS = [517.583139787, 243.769434847, 204.306178321, 162.470287770, 156.309569768, 145.234553008, 136.817518826,
             122.992568850, 118.741523814, 116.328734581]


class Svd(FactorCase):
    program = "svd"

    def triplets(self, found):
        u, v = ({key: np.array(row) for key, row in self.rows(name).items()} for name in "UV")
        sigma = np.array([float(found[f"sigma_{j + 1}"]) for j in range(int(found["rank"]))])
        return u, sigma, v

    def check(self, found, entries, k):
        """Values, orthogonality, residuals and signs, compared with the dense matrix."""
        u, sigma, v = self.triplets(found)
        rows, columns = sorted(u, key=int), sorted(v, key=int)
        row, column = ({key: n for n, key in enumerate(keys)} for keys in (rows, columns))
        a = np.zeros((len(rows), len(columns)))
        for r, c, x in entries:
            a[row[str(r)], column[str(c)]] += x
        us, vs = np.array([u[r] for r in rows]), np.array([v[c] for c in columns])
        want = np.linalg.svd(a, compute_uv=False)[:k]
        np.testing.assert_allclose(sigma, want, rtol=5e-10)
        for basis in (us, vs):
            self.assertLessEqual(np.abs(basis.T @ basis - np.eye(k)).max(), 1e-10)
        self.assertLessEqual(np.linalg.norm(a @ vs - us * sigma, axis=0).max(), 1e-9 * sigma[0])
        self.assertLessEqual(np.linalg.norm(a.T @ us - vs * sigma, axis=0).max(), 1e-9 * sigma[0])
        for j in range(k):
            self.assertGreater(us[np.abs(us[:, j]).argmax(), j], 0)
        return us, sigma, vs

    def test_movielens_has_its_ten_values(self):
        path = self.shared("movielens-small", "ratings.csv")
        for workers, servers in ((1, 1), (2, 1), (4, 3)):
            found = self.job(workers, servers, input=path, k=10)
            np.testing.assert_allclose([float(found[f"sigma_{j + 1}"]) for j in range(10)], MOVIELENS, rtol=1e-8)
            self.assertLessEqual(float(found["residual"]), 1e-9 * MOVIELENS[0])
            self.assertEqual(found["converged"], "yes")
            self.assertEqual((len(self.rows("U")), len(self.rows("V"))), (671, 9066))
            for name in "UV":
                basis = np.array(list(self.rows(name).values()))
                self.assertLessEqual(np.abs(basis.T @ basis - np.eye(10)).max(), 1e-10)

    def test_the_same_for_any_workers_and_servers_and_in_every_mode(self):
        first = None
        for workers, servers, mode in ((1, 1, "embedded"), (1, 1, "local"), (2, 1, "local"), (4, 3, "local"), (2, 1, "mpi")):
            found = self.job(workers, servers, mode, input=self.train, k=6)
            us, sigma, vs = self.check(found, self.ratings[: len(self.ratings) * 4 // 5], 6)
            if first is None:
                first = (us, sigma, vs)
            np.testing.assert_allclose(sigma, first[1], rtol=1e-9)
            np.testing.assert_allclose(us, first[0], atol=1e-7)
            np.testing.assert_allclose(vs, first[2], atol=1e-7)

    def test_runs_are_the_same_bits(self):
        seen = []
        for _ in range(2):
            self.job(3, 2, input=self.train, k=5)
            seen.append(self.bytes_of("U", "V", "sigma"))
        self.assertEqual(seen[0], seen[1])

    def test_npy_matrix_market_and_duplicates(self):
        entries = self.ratings[:300]
        numbers = [sorted({e[side] for e in entries}) for side in (0, 1)]
        lines = [f"{numbers[0].index(r) + 1} {numbers[1].index(c) + 1} {x}" for r, c, x in entries]
        market = self.write("m.mtx", "%%MatrixMarket matrix coordinate real general\n" +
                            f"{len(numbers[0])} {len(numbers[1])} {len(lines)}\n" + "\n".join(lines) + "\n")
        halves = self.write("halves.csv", [(r, c, x / 2) for r, c, x in entries * 2])
        one = self.job(2, 1, input=market, k=4, format="npy")
        manifest = self.manifest()
        for name, shape in (("U", [len(numbers[0]), 4]), ("V", [len(numbers[1]), 4]), ("sigma", [4])):
            array = np.concatenate([np.load(os.path.join(self.output, f)) for f in manifest["arrays"][name]["files"]])
            self.assertEqual(list(array.shape), shape)
        two = self.job(3, 1, input=halves, k=4)
        for j in range(4):
            self.assertAlmostEqual(float(one[f"sigma_{j + 1}"]) / float(two[f"sigma_{j + 1}"]), 1, places=9)

    def test_fewer_triplets_when_the_rank_is_less(self):
        found = self.job(4, 1, input=self.write("thin.csv", "1,1,3\n1,2,4\n"), k=5)
        self.assertEqual((found["rank"], found["converged"]), ("1", "yes"))
        self.assertAlmostEqual(float(found["sigma_1"]), 5, places=12)
        found = self.job(2, 1, input=self.write("zero.csv", "1,1,0\n2,2,0\n"), k=2)
        self.assertEqual(found["rank"], "0")

    def test_values_of_all_magnitudes(self):
        a = np.random.default_rng(0).normal(size=(80, 20)) * 10.0 ** -np.arange(20)
        want = np.linalg.svd(a, compute_uv=False)[:12]
        for size in (1, 1e-200, 1e200):
            path = self.write("graded.csv", [(i, j, repr(float(a[i, j] * size))) for i in range(80) for j in range(20)])
            found = self.job(2, 1, input=path, k=12)
            self.assertEqual((found["converged"], found["rank"]), ("yes", "12"))
            sigma = np.array([float(found[f"sigma_{j + 1}"]) for j in range(12)]) / size
            np.testing.assert_allclose(sigma, want, rtol=0, atol=1e-14 * want[0])

    def test_a_step_is_a_line_of_metrics_and_steps_that_are_used_up_are_said(self):
        found = self.job(2, 1, input=self.train, k=5, rounds=2)
        self.assertEqual((found["rounds"], found["converged"]), ("2", "no"))
        self.assertEqual([m["round"] for m in self.curve()], [1, 2])

    def test_wrong_input_and_keys_are_refused(self):
        self.assertIn("bad.csv:2:5", self.job(2, 1, status=4, input=self.write("bad.csv", "1,2,3\n4,5,x\n"), k=2))
        self.assertIn("found no entry", self.job(2, 1, status=4, input=self.write("none.csv", "\n"), k=2))
        for keys, text in (({"k": 0}, 'key "k"'), ({"tolerance": 0}, 'key "tolerance"'), ({"rounds": 0}, 'key "rounds"')):
            self.assertIn(text, self.job(1, 1, status=3, input=self.train, **keys))


if __name__ == "__main__":
    unittest.main()
