#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Decision trees, tested by running jobs: equal to the definition for any number of workers and servers and in every mode,
ties, dead nodes, and errors in the input."""
import os
import tempfile
import unittest

import numpy

import oracles
from alg_job import MPI, AlgorithmCase

NOTHING = str(2**64 - 1)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


class DtrCase(AlgorithmCase):
    program = "dtr"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = numpy.random.default_rng(4)
        cls.u = rng.normal(size=(331, 6))
        cls.users = cls.write("users", cls.u)
        # Every third item is twice the previous one, with a bit-identical split, or its negation.
        items = rng.normal(size=(60, 6))
        items[2::3] = 2 * items[1::3]
        items[0::6] = -items[1::6]
        cls.i, cls.ids = items, [7 * i + 3 for i in range(59, -1, -1)]
        cls.items = cls.write("items", items, cls.ids)

    @classmethod
    def write(cls, name, rows, ids=None):
        path = os.path.join(cls.folder, name)
        with open(path, "w", encoding="ascii") as out:
            for i, row in enumerate(rows):
                out.write("%s\t%s\n" % (ids[i] if ids else i, "|".join(repr(float(v)) for v in row)))
        return path

    def job(self, workers=0, *where, **keys):
        return super().job(workers, *where, **{"user_fac_input": self.users, "item_fac_input": self.items, "level": 4, **keys})

    def built(self, *where, **keys):
        said = self.results(self.job(*where, **keys))
        trees = dict(line.split("\t") for line in read(self.output, "tree_0").splitlines())
        trees = {name: tree.split("|") for name, tree in trees.items()}
        means = {name: [[float(v) for v in line.split("|")]
                        for line in read(self.output, "average_user_factor_" + name[5:]).splitlines()] for name in trees}
        return trees, means, {name: value for name, value in said.items() if name.startswith("error_")}

    def oracle(self, users, items, ids, level, last):
        trees, means, errors = {}, {}, {}
        for n in range(last + 1):
            tree, means[f"tree_{n}"], errors[f"error_{n}"] = oracles.dtr(users, items, ids, level, n)
            trees[f"tree_{n}"] = [NOTHING if item is None else str(item) for item in tree]
        return trees, means, errors

    def assert_equal(self, found, expected):
        self.assertEqual(found[0], expected[0])
        for name, means in expected[1].items():
            numpy.testing.assert_allclose(found[1][name], means, rtol=0, atol=1e-12)
        self.assertEqual(set(found[2]), set(expected[2]))
        for name, error in expected[2].items():
            self.assertAlmostEqual(found[2][name] / error, 1, delta=1e-10)


class Trees(DtrCase):
    def test_they_are_the_oracles_for_any_number_of_workers_and_servers(self):
        expected = self.oracle(self.u, self.i, self.ids, 4, 3)
        first = None
        for where in ((), (1, 1), (2, 3), (4, 1), (2, 1, "mpi")):
            with self.subTest(where=where):
                if len(where) == 3 and not MPI:
                    self.skipTest("no mpirun")
                found = self.built(*where, tree_end_index=3)
                self.assert_equal(found, expected)
                # Exactly equal: sums are fixed-point numbers.
                first = first or found
                self.assertEqual(found, first)

    def test_a_tree_may_be_asked_for_alone_and_without_a_cache(self):
        expected = self.built(tree_end_index=5)
        found = self.built(2, 1, tree_start_index=5, tree_end_index=5, cache_bytes=0)
        self.assertEqual(found[0]["tree_5"], expected[0]["tree_5"])
        self.assertEqual(found[1]["tree_5"], expected[1]["tree_5"])
        self.assertEqual(list(found[0]), ["tree_5"])

    def test_every_seed_agrees_with_the_oracle(self):
        for seed in range(4):
            rng = numpy.random.default_rng(seed)
            users, items = rng.normal(size=(50 + 37 * seed, 3)) + 0.5, rng.normal(size=(20, 3))
            found = self.built(2, 1, user_fac_input=self.write("seed_users", users),
                               item_fac_input=self.write("seed_items", items), level=6, tree_end_index=2)
            self.assert_equal(found, self.oracle(users, items, list(range(20)), 6, 2))

    def test_a_node_without_an_allowed_item_has_empty_children(self):
        users = self.write("few", [[1.0], [2.0], [-1.0], [-4.0]])
        items = self.write("two", [[1.0], [2.0]], [9, 5])
        trees, means, errors = self.built(user_fac_input=users, item_fac_input=items, level=3)
        # 5 and 9 split equally: the smaller id. Then one side likes all items, the other none.
        self.assertEqual(trees["tree_0"], ["5"] + [NOTHING] * 6)
        self.assertEqual(means["tree_0"], [[-0.5], [1.5], [-2.5], [0], [0], [0], [0]])
        self.assertAlmostEqual(errors["error_0"], 0.5 + 4.5)
        trees, means, _ = self.built(user_fac_input=users, item_fac_input=items, level=2, tree_start_index=1,
                                     tree_end_index=2)
        self.assertEqual(trees["tree_1"][0], "9")
        # There is no third best.
        self.assertEqual(trees["tree_2"], [NOTHING] * 3)
        self.assertEqual(means["tree_2"], [[-0.5], [0], [0]])

    def test_an_item_is_asked_once_a_tree(self):
        trees, _, _ = self.built(level=5)
        asked = [item for item in trees["tree_0"] if item != NOTHING]
        self.assertEqual(len(asked), len(set(asked)))

    def test_the_error_falls_with_every_level(self):
        errors = [self.built(level=level)[2]["error_0"] for level in (1, 2, 3, 4)]
        self.assertEqual(errors, sorted(errors, reverse=True))

    def test_names_and_a_worker_without_rows(self):
        users = self.write("three", [[1.0, 0], [0.5, 1], [-1.0, 2]], ["ann", "bob", "eve"])
        items = self.write("named", [[1.0, 0], [0, 1.0]], ["zebra", "apple"])
        trees, _, _ = self.built(4, 1, user_fac_input=users, item_fac_input=items, level=1)
        self.assertEqual(trees["tree_0"], ["zebra"])  # two to one; apple has three likes and no dislikes

    def test_npy_in_and_out(self):
        rng = numpy.random.default_rng(8)
        users, items = rng.normal(size=(101, 4)), rng.normal(size=(30, 4))
        for name, rows in (("users.npy", users), ("items.npy", items)):
            numpy.save(os.path.join(self.folder, name), rows)
        text = self.built(user_fac_input=self.write("u", users), item_fac_input=self.write("i", items))
        found = self.built(2, 1, user_fac_input=os.path.join(self.folder, "users.npy"),
                           item_fac_input=os.path.join(self.folder, "items.npy"), format="npy")
        self.assertEqual(found, text)
        model = self.manifest()
        self.assertEqual(model["arrays"]["trees"]["shape"], [1, 15])
        trees = numpy.load(os.path.join(self.output, model["arrays"]["trees"]["files"][0]))
        means = numpy.load(os.path.join(self.output, model["arrays"]["average_user_factors"]["files"][0]))
        self.assertEqual([str(i) for i in trees[0]], text[0]["tree_0"])
        self.assertEqual(means[0].tolist(), text[1]["tree_0"])


class Interviews(DtrCase):
    """New users whose answers are read, with a saved tree."""

    def setUp(self):
        super().setUp()
        self.trees, self.means, self.errors = self.built(tree_end_index=2)
        self.model = self.output

    def answers(self, rows):
        return self.path("answers", "".join(f"{user},{item},{value}\n" for user, item, value in rows))

    def asked(self, rows, *where, **keys):
        """Node, next question and estimated factors of each user; recommendations."""
        keys = {"user_fac_input": "", "item_fac_input": "", "level": 4, "model": self.model,
                "predict_input": self.answers(rows), **keys}
        self.said = self.results(self.job(*where, **keys))
        found, lists = {}, {}
        for rank in range(max(1, *where[:1]) if where else 1):
            for line in read(self.output, f"interview_{rank}").splitlines():
                user, node, question = line.split("\t")
                found[user] = [int(node), question]
            for line in read(self.output, f"predictions_{rank}").splitlines():
                user, p = line.split("\t")
                found[user].append([float(v) for v in p.split("|")])
            if "recommend" in keys:
                for line in read(self.output, f"recommend_{rank}").splitlines():
                    user, items = line.split("\t")
                    lists[user] = [(item.split(":")[0], float(item.split(":")[1])) for item in items.split("|") if item]
        return (found, lists) if "recommend" in keys else found

    def plain(self, rows, tree):
        """The same traversal, implemented in Python."""
        items, means, found = self.trees[tree], self.means[tree], {}
        given = {}
        for user, item, value in rows:
            given.setdefault(str(user), {})[str(item)] = value
        for user, of in given.items():
            node = 0
            while 2 * node + 2 < len(items) and items[node] in of:
                node = 2 * node + (1 if of[items[node]] >= 0 else 2)
            open_question = 2 * node + 2 < len(items) and items[node] != NOTHING
            found[user] = [node, items[node] if open_question else "", means[node]]
        return found

    def some_answers(self):
        rng = numpy.random.default_rng(11)
        rows = []
        for user in range(60):
            # Some know all items, some a few, some none that is asked about; 0 is a like, the last answer counts.
            for item in rng.permutation(60)[:(60, 25, 5)[user % 3]]:
                rows.append((f"new{user}", 7 * int(item) + 3, round(float(rng.normal()), 3)))
        rows += [("zero", self.trees["tree_0"][0], 0), ("twice", self.trees["tree_0"][0], 1),
                 ("twice", self.trees["tree_0"][0], -1), ("stranger", 99999, 1)]
        return rows

    def test_answers_lead_where_the_tree_says_for_any_number_of_workers(self):
        rows = self.some_answers()
        for tree in (0, 2):
            expected = self.plain(rows, f"tree_{tree}")
            for where in ((), (1, 1), (2, 1), (4, 3)):
                with self.subTest(tree=tree, where=where):
                    self.assertEqual(self.asked(rows, *where, tree_start_index=tree), expected)
                    self.assertEqual(int(self.said["users"]), 63)
                    self.assertEqual(int(self.said["unfinished"]), sum(1 for _, asked, _ in expected.values() if asked))
        self.assertEqual(self.asked(rows)["zero"][0], 1)
        self.assertEqual(self.asked(rows)["twice"][0], 2)
        self.assertEqual(self.asked(rows)["stranger"], [0, self.trees["tree_0"][0], self.means["tree_0"][0]])

    def test_those_who_built_the_tree_end_with_the_error_that_it_said(self):
        users = {line.split("\t")[0]: numpy.array([float(v) for v in line.split("\t")[1].split("|")])
                 for line in read(self.users).splitlines()}
        items = {line.split("\t")[0]: numpy.array([float(v) for v in line.split("\t")[1].split("|")])
                 for line in read(self.items).splitlines()}
        rows = [(user, item, 1 if p @ items[item] >= 0 else -1) for user, p in users.items()
                for item in self.trees["tree_0"] if item != NOTHING]
        found = self.asked(rows, 2, 1)
        error = sum(((users[user] - numpy.array(p)) ** 2).sum() for user, (_, _, p) in found.items())
        self.assertAlmostEqual(error / self.errors["error_0"], 1, delta=1e-9)

    def test_items_are_recommended_that_were_not_asked(self):
        items = {line.split("\t")[0]: numpy.array([float(v) for v in line.split("\t")[1].split("|")])
                 for line in read(self.items).splitlines()}
        rows = self.some_answers()
        given = {}
        for user, item, _ in rows:
            given.setdefault(user, set()).add(str(item))
        for where in ((), (3, 1)):
            found, lists = self.asked(rows, *where, item_fac_input=self.items, recommend=7)
            self.assertEqual(set(lists), set(found))
            for user, (_, _, p) in found.items():
                scores = sorted(((-float(numpy.array(p) @ q), int(item)) for item, q in items.items()
                                 if item not in given[user]))[:7]
                self.assertEqual(len(lists[user]), len(scores))
                for (item, score), (wanted, name) in zip(lists[user], scores):
                    self.assertAlmostEqual(score, -wanted, delta=1e-12)
                    self.assertNotIn(item, given[user])
                    self.assertAlmostEqual(score, float(numpy.array(p) @ items[item]), delta=1e-12)

    def test_npy_has_the_same_factors(self):
        rows = self.some_answers()
        text = self.asked(rows)
        self.job(2, predict_input=self.answers(rows), model=self.model, format="npy", user_fac_input="", item_fac_input="")
        arrays = self.manifest()["arrays"]["predictions"]
        names = [name for file in arrays["ids"] for name in read(self.output, file).splitlines()]
        found = numpy.concatenate([numpy.load(os.path.join(self.output, file)) for file in arrays["files"]])
        self.assertEqual(dict(zip(names, found.tolist(), strict=True)), {user: p for user, (_, _, p) in text.items()})

    def test_what_is_no_model_or_no_answer_is_refused(self):
        def refused(status, said, **keys):
            for workers in (0, 2):
                self.job(workers, status=status, **{"user_fac_input": "", "item_fac_input": "", "model": self.model,
                                                    "predict_input": self.answers([(1, 2, 3)]), **keys})
                self.assertIn(said, self.stderr)
        refused(3, "want model and predict_input together", predict_input="")
        refused(3, 'key "recommend": only with model and item_fac_input', recommend=3)
        refused(4, "tree_0: found no tree 7, want the one of tree_start_index", tree_start_index=7)
        refused(4, ":2:4: ", predict_input=self.path("few_answers", "1,2,3\n1,2\n"))
        refused(4, "found 6 factors per item, want 1 as the tree has", item_fac_input=self.items, recommend=1,
                model=self.broken("tree_0\t3", "1\n"))
        refused(4, "found tree 0 with 2 nodes, want 2^levels - 1", model=self.broken("tree_0\t3|4", "1\n2\n"))
        refused(4, 'average_user_factor_0:2:3: found "x", want a finite number',
                model=self.broken("tree_0\t3|4|5", "1|2\n1|x\n"))
        refused(4, "average_user_factor_0:2:1: found 1 numbers, want 2", model=self.broken("tree_0\t3|4|5", "1|2\n1\n"))
        refused(4, "average_user_factor_0: found 1 lines, want 3", model=self.broken("tree_0\t3|4|5", "1|2\n"))

    def broken(self, tree, means):
        folder = tempfile.mkdtemp(dir=self.folder)
        for name, text in (("tree_0", tree + "\n"), ("average_user_factor_0", means)):
            with open(os.path.join(folder, name), "w", encoding="ascii") as out:
                out.write(text)
        return folder


class Wrong(DtrCase):
    def test_input(self):
        for text, said in (("1\t2|x\n", ":1:5: found \"x\", want a finite number"), ("1\t2|nan\n", "want a finite number"),
                           ("1\t2\n2\t3|4\n", ":2:1: found 2 numbers, want 1"), ("", "found no line"), ("1\n", ":1:1:")):
            self.refused(4, said, user_fac_input=self.path("wrong", text))
        self.refused(4, "found 2 factors per user, want 6", user_fac_input=self.path("wrong", "1\t2|3\n"))
        row = "|".join("1" * 6)
        self.refused(4, "found item 4 twice", item_fac_input=self.path("wrong", f"4\t{row}\n5\t{row}\n4\t{row}\n"))

    def test_config(self):
        self.refused(3, 'key "level"', level=0)
        self.refused(3, 'key "tree_end_index": found 1, want at least tree_start_index, 2', tree_start_index=2,
                     tree_end_index=1)

    def test_the_config_that_is_shipped_has_only_known_keys(self):
        self.assert_known_keys("decision_tree_rec", "dtr.json")


if __name__ == "__main__":
    unittest.main()
