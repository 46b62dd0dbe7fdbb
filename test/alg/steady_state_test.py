#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Steady-state inversion, tested by running jobs: planted scores are found, results equal NumPy's for any number of
workers and servers and in every mode, infeasible inputs are reported with a proof, and errors in the input."""
import os
import sys
import unittest

import numpy

import oracles
from alg_job import MPI, AlgorithmCase

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "process"))
from document_samples import check_samples  # noqa: E402

def table(path, sep="\t"):
    with open(path, encoding="ascii") as file:
        return {line.split(sep)[0]: float(line.split(sep)[1]) for line in file}


class SteadyCase(AlgorithmCase):
    program = "steady_state_inversion"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.graph = cls.generate("graph", "steady_state", "-n", 400, "--items", 60, "--seed", 3)

    def job(self, workers=0, *where, graph=None, shares=None, **keys):
        """`graph`, `shares`: lists of lines."""
        for name, lines, default in (("bigraph_input", graph, self.graph),
                                     ("distribution_input", shares, self.graph + ".dis")):
            keys.setdefault(name, default if lines is None else self.path(name, "".join(line + "\n" for line in lines)))
        return super().job(workers, *where, **keys)

    def inverted(self, *where, **keys):
        """The numbers on stdout, the scores, and the transfer probabilities as {left: {right: p}}."""
        said = self.results(self.job(*where, **keys))
        scores, ways = {}, {}
        for rank in range(max(1, where[0] if where else 1)):
            scores.update(table(os.path.join(self.output, f"score_{rank}")))
        for line in self.lines("transfer_prob_matrix", rank + 1):
            left, row = line.split()
            ways[left] = {w.split(":")[0]: float(w.split(":")[1]) for w in row.split("|")}
        return said, scores, ways


class Scores(SteadyCase):
    def test_what_everybody_receives_is_what_was_planted(self):
        said, scores, ways = self.inverted(2, 1)
        self.assertEqual(said["short"], 0)
        shares = table(self.graph + ".dis", ",")
        received = dict.fromkeys(scores, 0.0)
        for left, row in ways.items():
            self.assertAlmostEqual(sum(row.values()), 1, delta=1e-12)
            for right, probability in row.items():
                received[right] += shares[left] * probability
        distance = sum(abs(received[right] - shares[right]) for right in received)
        self.assertLessEqual(distance, 1e-3)
        self.assertAlmostEqual(distance, said["l1"], delta=1e-12)
        for right, q in received.items():
            self.assertGreaterEqual(q, shares[right] * (1 - 1e-4) * (1 - 1e-12))
        # The planted scores, up to a factor.
        planted = table(self.graph + ".truth", ",")
        ratio = numpy.array([scores[right] / planted[right] for right in scores])
        self.assertLess(ratio.std() / ratio.mean(), 0.02)

    def test_they_are_the_oracles_for_any_number_of_workers_and_servers(self):
        shares = table(self.graph + ".dis", ",")
        left, right = ({name: n for n, name in enumerate(s for s in shares if s.endswith(side))} for side in "LR")
        w = numpy.zeros((len(left), len(right)))
        with open(self.graph, encoding="ascii") as file:
            for source, target, weight in (line.split(",") for line in file if line.split(",")[0] in left):
                w[left[source], right[target]] = float(weight)
        rounds, s = oracles.steady_state_inversion(w, *(numpy.array([shares[n] for n in side]) for side in (left, right)))
        expected = dict(zip(right, s))
        first = None
        for where in ((), (1, 1), (2, 3), (4, 1), (2, 1, "mpi")):
            with self.subTest(where=where):
                if len(where) == 3 and not MPI:
                    self.skipTest("no mpirun")
                said, scores, ways = self.inverted(*where)
                self.assertEqual(said["rounds"], rounds)
                self.assertEqual(set(scores), set(expected))
                self.assertLess(max(abs(scores[r] / expected[r] - 1) for r in expected), 1e-9)
                first = first or (scores, ways)
                self.assertEqual((scores, ways), first)  # to the last bit

    def test_rows_are_summed_and_those_that_lead_back_passed_over(self):
        graph = ["aL,xR,0.5", "aL,xR,0.5", "aL,yR,1", "bL,yR", "xR,aL,1", "yR,bL,7"]
        shares = ["aL,0.5", "bL,0.5", "xR,0.1", "yR,0.9", "cL,0"]
        said, scores, ways = self.inverted(2, 1, graph=graph, shares=shares)
        self.assertEqual(said["short"], 0)
        self.assertAlmostEqual(ways["aL"]["xR"], 0.2, delta=1e-4)
        self.assertEqual(ways["bL"], {"yR": 1})
        self.assertEqual(set(scores), {"xR", "yR"})

    def test_a_right_vertex_without_a_share_keeps_the_score_0(self):
        # All vertices that bL leads to have no share: what bL has is lost, without effect on the others.
        said, scores, ways = self.inverted(graph=["aL,xR,1", "aL,zR,1", "bL,zR,1"],
                                           shares=["aL,0.6", "bL,0.4", "xR,0.6", "zR,0"])
        self.assertEqual(said["short"], 0)
        self.assertEqual(scores["zR"], 0)
        self.assertEqual(ways, {"aL": {"xR": 1, "zR": 0}})

    def test_ktop_keeps_the_most_probable_ways(self):
        _, _, all_ways = self.inverted()
        _, _, few = self.inverted(2, 1, ktop=2)
        for left, row in few.items():
            best = sorted(all_ways[left].items(), key=lambda way: (-way[1], way[0]))[:2]
            self.assertEqual(list(row.items()), best)

    def test_rounds_that_do_not_suffice_are_said(self):
        said, _, _ = self.inverted(rounds=2)
        self.assertEqual(said["rounds"], 2)
        self.assertGreater(said["short"], 0)
        for rounds, converged in ((2, False), (1000, True)):
            said = self.job(rounds=rounds, format="npy")
            self.assertIs(self.manifest()["converged"], converged)
            self.assertIn("converged " + ("yes" if converged else "no"), said)
            warning = "warning: not converged after 2 rounds: the number of vertices that receive too little is "
            self.assertEqual((warning in self.stderr, "want at most 0; raise rounds or epsilon" in self.stderr),
                             (not converged, not converged), self.stderr)
        said, scores, _ = self.inverted(rounds=0)
        shares = table(self.graph + ".dis", ",")
        self.assertEqual(scores, {right: shares[right] for right in scores})

    def test_npy(self):
        _, scores, _ = self.inverted(2, 1, format="npy")
        array = self.manifest()["arrays"]["score"]
        values = numpy.concatenate([numpy.load(os.path.join(self.output, name)) for name in array["files"]])
        names = []
        for name in array["ids"]:
            with open(os.path.join(self.output, name), encoding="ascii") as file:
                names += file.read().split()
        self.assertEqual(dict(zip(names, values)), scores)


PARACELS_GRAPH = ("AL,BR,0.7 AL,CR,0.6 AR,AL,1.0 BL,AR,0.5 BL,CR,0.4 BR,BL,1.0 CL,DR,0.4 CR,CL,1.0 DL,AR,0.9 "
                  "DR,DL,1.0").split()
PARACELS_SHARES = "AL,0.16665 AR,0.16665 BL,0.125 BR,0.125 CL,0.125 CR,0.125 DL,0.08333 DR,0.08333".split()


class Wrong(SteadyCase):
    def test_paracels_own_example_is_infeasible_and_why(self):
        for feasibility in ("after", "before"):
            self.refused(4, "infeasible: AR, BR, CR must receive at least 0.4166", graph=PARACELS_GRAPH,
                         shares=PARACELS_SHARES, feasibility=feasibility)
            self.refused(4, "have 0.37498; DR must receive all of CL, 0.125, but should have 0.08333", graph=PARACELS_GRAPH,
                         shares=PARACELS_SHARES, feasibility=feasibility)
            check_samples(self, "alg/steady_state_inversion/README.md", "steady_state_test", self.stderr)
            with open(os.path.join(self.output, "infeasible_0"), encoding="ascii") as file:
                self.assertEqual(file.read().split(), ["AR", "BR", "CR"])
        said = self.job(graph=PARACELS_GRAPH, shares=PARACELS_SHARES, feasibility="never", rounds=10**6)
        self.assertIn("converged no", said)
        self.assertIn("no finite scores exist", self.stderr)
        said, _, _ = self.inverted(2, 1, graph=PARACELS_GRAPH, shares=PARACELS_SHARES, feasibility="never", rounds=50)
        self.assertGreater(said["short"], 0)

    def test_a_vertex_that_wants_more_than_its_neighbours_have(self):
        self.refused(4, "infeasible: xR must receive", graph=["aL,xR,1", "bL,yR,1"],
                     shares=["aL,0.3", "bL,0.7", "xR,0.5", "yR,0.5"])
        self.refused(4, "no edge leads to zR, which is to receive something", graph=["aL,xR,1"],
                     shares=["aL,1", "xR,0.5", "zR,0.5"])

    def test_input(self):
        shares = ["aL,1", "xR,1"]
        self.refused(4, ":2:", graph=["aL,xR,1", "aL"], shares=shares)
        self.refused(4, "vertex bL has no share", graph=["aL,xR,1", "bL,xR,1"], shares=shares)
        self.refused(4, "found an edge between aL and cL", graph=["aL,cL,1"], shares=[*shares, "cL,1"])
        self.refused(4, "want a name that ends in L or R", graph=["aL,x,1"], shares=shares)
        self.refused(4, ":1:7: found \"-1\", want a number of at least 0", graph=["aL,xR,-1"], shares=shares)
        self.refused(4, ":2:4: found \"x\", want a finite number", graph=["aL,xR,1"], shares=["xR,1", "aL,x"])
        self.refused(4, "found p -1 of aL", graph=["aL,xR,1"], shares=["aL,-1", "xR,1"])
        self.refused(4, "found vertex aL twice", graph=["aL,xR,1"], shares=["aL,1", "aL,1", "xR,1"])

    def test_config(self):
        self.refused(3, 'key "epsilon"', epsilon=0)
        self.refused(3, 'key "feasibility"', feasibility="perhaps")

    def test_the_config_that_is_shipped_has_only_known_keys(self):
        self.assert_known_keys(self.program, self.program + ".json")


if __name__ == "__main__":
    unittest.main()
