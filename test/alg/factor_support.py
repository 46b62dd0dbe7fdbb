# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of mf, als and svd: generated ratings, running a job, reading its output and files."""
import os
import random
import unittest

from alg_job import DATA, AlgorithmCase


def numbers_said(text):
    """The `name value` lines of a run."""
    said = {}
    for line in text.splitlines():
        words = line.split(" ", 1)
        if len(words) == 2:
            said[words[0]] = words[1]
    return said


class FactorCase(AlgorithmCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(7)
        users, items, k = 60, 45, 4
        w = [[draw.gauss(0, 0.6) for _ in range(k)] for _ in range(users)]
        h = [[draw.gauss(0, 0.6) for _ in range(k)] for _ in range(items)]
        cls.ratings = []
        for u in range(users):
            for i in range(items):
                if draw.random() < 0.35:
                    r = 3.5 + sum(a * b for a, b in zip(w[u], h[i])) + draw.gauss(0, 0.2)
                    cls.ratings.append((10 + 3 * u, 5 + 2 * i, min(5.0, max(0.5, round(2 * r) / 2))))
        draw.shuffle(cls.ratings)
        cls.train = cls.write("train.csv", cls.ratings[: len(cls.ratings) * 4 // 5])
        cls.held_out = cls.ratings[len(cls.ratings) * 4 // 5:]
        cls.test = cls.write("test.csv", cls.held_out)

    @classmethod
    def write(cls, name, rows):
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(rows if isinstance(rows, str) else "".join(",".join(map(str, row)) + "\n" for row in rows))
        return path

    @classmethod
    def movielens(cls):
        """The stride-5 split of movielens-small, or a skip."""
        path = os.path.join(DATA, "movielens-small", "ratings.csv")
        if not os.path.exists(path):
            raise unittest.SkipTest(f"no movielens-small in {DATA} (PARACEL_SHARED_DATA)")
        train, test = os.path.join(cls.folder, "ml_train.csv"), os.path.join(cls.folder, "ml_test.csv")
        if not os.path.exists(test):
            with open(path, encoding="ascii") as file:
                lines = file.readlines()
            with open(train, "w", encoding="ascii") as file:
                file.writelines(line for i, line in enumerate(lines) if i % 5 != 4)
            with open(test, "w", encoding="ascii") as file:
                file.writelines(line for i, line in enumerate(lines) if i % 5 == 4)
        return train, test

    def job(self, *where, status=0, **keys):
        """Runs a job; a key that is None is left out. Returns its results as a dict of texts, or with a status its output."""
        said = super().job(*where, status=status, **{name: value for name, value in keys.items() if value is not None})
        return said if status else numbers_said(said)

    def rows(self, name, folder=None):
        """A keyed array in text form over all its files: {id: [numbers]}."""
        folder = folder or self.output
        found = {}
        for part in self.manifest(folder)["arrays"][name]["files"]:
            with open(os.path.join(folder, part), encoding="utf-8") as file:
                for line in file:
                    key, values = line.rstrip("\n").split("\t")
                    self.assertNotIn(key, found)
                    found[key] = [float(v) for v in values.split("|")]
        return found

    def bytes_of(self, *names):
        """The files of these arrays, in rank order, as bytes."""
        found = []
        for name in names:
            for file in sorted(os.listdir(self.output)):
                if file.rsplit("_", 1)[0] == name:
                    with open(os.path.join(self.output, file), "rb") as part:
                        found.append(part.read())
        return found
