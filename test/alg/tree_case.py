# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of programs that train trees: tables with missing values, the arrays of a model, the data sets whose
figures their READMEs name."""
import os

from alg_job import MPI, AlgorithmCase

ARRAYS = ("tree_begin", "feature", "threshold", "left", "right", "leaf", "missing_left", "category_begin", "category_count",
          "gain", "cover", "node_rows", "value", "category")
# Workers, servers and mode of jobs whose results must be the same.
PLACES = [(1, 1, "embedded"), (1, 1), (2, 1), (4, 2), (7, 1)] + ([(3, 1, "mpi")] if MPI else [])


class TreeCase(AlgorithmCase):
    x = []  # rows of numbers and None

    @classmethod
    def table(cls, name, labels, rows=None, header=None):
        """A CSV file; None is an empty field."""
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="ascii") as file:
            if header:
                file.write(header + "\n")
            for row, label in zip(rows or cls.x, labels):
                file.write(",".join(["" if v is None else repr(v) for v in row] + [str(label)]) + "\n")
        return path

    def arrays(self):
        """The bytes of every array of the model."""
        found = {}
        for name in ARRAYS:
            with open(os.path.join(self.output, f"{name}_0"), "rb") as file:
                found[name] = file.read()
        return found

    def trees(self):
        return {name: [float(v) for v in data.decode().strip().split("|") if v] for name, data in self.arrays().items()}

    def predictions(self, workers):
        return [line.split("\t") for line in self.lines("pred_v", workers)]

    # ---- the figures

    def figures(self, train, test, places=(1, 2, 4), **keys):
        """The results on `test`, which are the same for these numbers of workers."""
        first = None
        for workers in places:
            found = self.fit(workers, 1, training_input=train, test_input=test, **keys)
            found.pop("output")
            first = first or (found, self.arrays())
            self.assertEqual((found, self.arrays()), first)
        return first[0]

    def parts(self, name, lines, header=""):
        """Rows i with i % 5 == 4 are for testing."""
        train = self.path(name + ".train", header + "".join(line for i, line in enumerate(lines) if i % 5 != 4))
        return train, self.path(name + ".test", header + "".join(line for i, line in enumerate(lines) if i % 5 == 4))

    def higgs(self, **keys):
        paths = []
        for part in ("train", "test"):  # its own parts; the label comes first
            with open(self.shared("higgs-lgb", "binary." + part), encoding="ascii") as file:
                rows = [line.split() for line in file]
            paths.append(self.path("higgs." + part, "".join(",".join(r[1:] + r[:1]) + "\n" for r in rows)))
        return self.figures(*paths, **keys)

    def bike_hour(self, **keys):
        with open(self.shared("bike-hour", "hour.csv"), encoding="ascii") as file:
            header, *lines = file.readlines()
        return self.figures(*self.parts("bike", lines, header), target="cnt", features=header.split(",")[2:14], **keys)

    def optdigits(self, **keys):
        with open(self.shared("optdigits", "optdigits.tra"), encoding="ascii") as file:
            lines = file.readlines()
        return self.figures(*self.parts("optdigits", lines), **keys)
