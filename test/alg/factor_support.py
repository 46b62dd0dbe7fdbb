# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of mf, als and svd: generated ratings, running a job, reading its output and files."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
SHARED = os.environ.get("PARACEL_SHARED_DATA") or os.path.join(os.path.dirname(SOURCE), "shared", "data")
PRUN = os.path.join(SOURCE, "prun.py")


def program(name):
    return os.path.join(BUILD, "bin", name)


def numbers_said(text):
    """The `name value` lines of a run."""
    said = {}
    for line in text.splitlines():
        words = line.split(" ", 1)
        if len(words) == 2:
            said[words[0]] = words[1]
    return said


class FactorCase(unittest.TestCase):
    name = ""  # of the program

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix=cls.name + "_test_")
        cls.count = 0
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
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def write(cls, name, rows):
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(rows if isinstance(rows, str) else "".join(",".join(map(str, row)) + "\n" for row in rows))
        return path

    @classmethod
    def movielens(cls):
        """The stride-5 split of movielens-small, or a skip."""
        path = os.path.join(SHARED, "movielens-small", "ratings.csv")
        if not os.path.exists(path):
            raise unittest.SkipTest(f"no movielens-small in {SHARED} (PARACEL_SHARED_DATA)")
        train, test = os.path.join(cls.folder, "ml_train.csv"), os.path.join(cls.folder, "ml_test.csv")
        if not os.path.exists(test):
            with open(path, encoding="ascii") as file:
                lines = file.readlines()
            with open(train, "w", encoding="ascii") as file:
                file.writelines(line for i, line in enumerate(lines) if i % 5 != 4)
            with open(test, "w", encoding="ascii") as file:
                file.writelines(line for i, line in enumerate(lines) if i % 5 == 4)
        return train, test

    def job(self, workers=1, servers=1, mode="local", status=0, program_name=None, **keys):
        """Runs a job; self.output is its folder. Returns its results as a dict, or with a status its complete output."""
        type(self).count += 1
        base = os.path.join(self.folder, f"{type(self).__name__}{self.count}")
        self.output = keys.setdefault("output", base + "_out")
        config = base + ".json"
        with open(config, "w", encoding="utf-8") as file:
            json.dump({name: value for name, value in keys.items() if value is not None}, file, indent=1)
        command = [program(program_name or self.name)]
        if mode == "embedded":
            command += ["--cfg_file", config]
        else:
            command = [sys.executable, "-B", PRUN, "-w", str(workers), "-p", str(servers), "-c", config, "-m", mode,
                       "--output-dir", config + ".run", *command]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, cwd=SOURCE,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if status != 0:
            return done.stdout + done.stderr
        return numbers_said(done.stdout)

    def rows(self, name, folder=None):
        """A keyed array in text form over all its files: {id: [numbers]}."""
        folder = folder or self.output
        found = {}
        with open(os.path.join(folder, "model.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        for part in manifest["arrays"][name]["files"]:
            with open(os.path.join(folder, part), encoding="utf-8") as file:
                for line in file:
                    key, values = line.rstrip("\n").split("\t")
                    self.assertNotIn(key, found)
                    found[key] = [float(v) for v in values.split("|")]
        return found

    def metrics(self):
        with open(os.path.join(self.output, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def bytes_of(self, *names):
        """The files of these arrays, in rank order, as bytes."""
        found = []
        for name in names:
            for file in sorted(os.listdir(self.output)):
                if file.rsplit("_", 1)[0] == name:
                    with open(os.path.join(self.output, file), "rb") as part:
                        found.append(part.read())
        return found
