# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests of initial_model: runs of any program in one process, and the arrays of models."""
import os

import numpy

from alg_job import AlgorithmCase


class InitialModelCase(AlgorithmCase):
    program = "initial_model"

    def arrays(self):
        """The bytes of every array of the model, and its ids."""
        found = {}
        for name, array in self.manifest()["arrays"].items():
            for file in [*array["files"], *array.get("ids", [])]:
                with open(os.path.join(self.output, file), "rb") as part:
                    found[name] = found.get(name, b"") + part.read()
        return found

    def run_program(self, program, workers=0, **keys):
        """(results, arrays) of a run; without workers in one process."""
        return self.results(self.job(workers, program=program, **keys)), self.arrays()

    def refused(self, program, message, status=4, **keys):
        self.assertIn(message, self.job(0, program=program, status=status, **keys))

    def numbers(self, text):
        """Of the lines of an array, without their names."""
        return numpy.array([float(v) for line in text.decode().splitlines() for v in line.split("\t")[-1].split("|")])

    def rows(self, name, workers):
        """{id: line} of an array."""
        return dict(line.split("\t") for line in self.lines(name, workers))
