#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Algorithms whose state is on the servers because the config names a plug-in: with the shipped one the result is that of the
program without a plug-in; with another rule (test/support/plugins/other_rules.cpp) it changes as the rule says; a missing
symbol or an exception of a plug-in ends the job. Options: names of tests."""
import os
import random
import unittest

import numpy

from alg_job import BUILD, AlgorithmCase

OTHER = os.path.join(BUILD, "lib", "test_plugins", "libother_rules.so")


def shipped(name):
    return os.path.join(BUILD, "lib", f"lib{name}.so")


class PluginCase(AlgorithmCase):
    def run_it(self, *where, **keys):
        return self.results(self.job(*where, **self.given(keys)))

    def given(self, keys):
        """The config; a key that is None is left out."""
        return {name: value for name, value in {**self.keys, **keys}.items() if value is not None}

    def refused(self, status, *said, **keys):
        text = self.job(2, 1, status=status, **self.given(keys))
        for part in said:
            self.assertIn(part, text)

    def not_replaceable(self, key, **keys):
        """With this key --on-worker-death wait:T is refused."""
        said = self.job(2, 1, status=2, options=("--on-worker-death", "wait:5"), **self.given(keys))
        self.assertRegex(said, rf'error: --on-worker-death wait:5: \S+:1:\d+: key "{key}": with it no process can replace a '
                               rf'worker of {self.program}, because it uses neither first_iteration nor resumable_loop')

    def numbers(self, name, workers):
        """{id: numbers} of an array in text form."""
        found = {}
        for line in self.lines(name, workers):
            key, values = line.split("\t")
            found[key] = [float(v) for v in values.split("|")]
        return found

    def table(self, name, workers):
        return numpy.array(list(self.numbers(name, workers).values()))


class HandleFileErrors:
    """For a program with a function and a filter from handle_file. `rule`: a function that has an effect."""
    rule = ""

    def test_errors_of_plug_ins_end_the_job(self):
        for key in ("update_function", "filter_function"):
            self.refused(3, f'key "{key}": given without handle_file', **{key: "f"})
        for said, rule, chosen in (("no_such_rule", "no_such_rule", "even_keys"), ("no_such_filter", self.rule, "no_such_filter"),
                                   ("not this key", self.rule, "throwing_filter")):
            with self.subTest(said):
                self.refused(5, said, handle_file=OTHER, update_function=rule, filter_function=chosen)
        self.not_replaceable("handle_file", handle_file=OTHER)


class Kmeans(PluginCase):
    program = "kmeans"

    def setUp(self):
        draw = random.Random(3)
        points = "".join(",".join(f"{draw.gauss(5 * (i % 3), 1):.3f}" for _ in range(4)) + "\n" for i in range(200))
        self.keys = {"input": self.path("points.csv", points), "kclusters": 3, "seed": 2}

    def test_the_shipped_plug_in_gives_the_same_centres_and_clusters(self):
        for keys in ({}, {"metric": "cosine"}, {"batch_size": 50, "rounds": 4}, {"kclusters": 40, "n_init": 2}):
            plain = self.run_it(2, 1, **keys)
            centres, labels = self.table("centers", 1), self.lines("labels", 2)
            for where in ((2, 2), (3, 1), (1, 1, "embedded")):
                with self.subTest(where=where, keys=keys):
                    said = self.run_it(*where, update_file=shipped("kmeans_update"), **keys)
                    self.assertAlmostEqual(said["inertia"] / plain["inertia"], 1, delta=1e-9)
                    self.assertLessEqual(numpy.abs(self.table("centers", 1) - centres).max(), 1e-9)
                    self.assertEqual(self.lines("labels", where[0]), labels)
                    groups = dict(line.split("\t") for line in self.lines("kmeans", 1))
                    named = {row: c for c, rows in groups.items() for row in rows.split("|")}
                    self.assertEqual(named, dict(line.split("\t") for line in labels))

    def test_another_rule_makes_other_centres_and_groups(self):
        self.run_it(2, rounds=1)
        centres = self.table("centers", 1)
        self.run_it(2, 2, rounds=1, update_file=OTHER, update_functions=["half_centres", "even_groups"])
        numpy.testing.assert_allclose(self.table("centers", 1), centres / 2, rtol=1e-12)
        rows = [int(row) for line in self.lines("kmeans", 1) for row in line.split("\t")[1].split("|")]
        self.assertEqual(sorted(rows), list(range(0, 200, 2)))

    def test_what_cannot_act_is_refused(self):
        self.refused(3, 'key "update_functions": given without update_file', update_functions=["a"])
        self.refused(3, "found 3 functions", update_file=OTHER, update_functions=["a", "b", "c"])
        self.refused(3, "which has no groups", update_file=OTHER, update_functions=["a", "b"], format="npy")
        self.run_it(2)
        model = self.output
        self.refused(3, 'key "update_file": not with a model', update_file=OTHER, model=model, kclusters=None)

    def test_errors_of_plug_ins_end_the_job(self):
        self.refused(3, "nothing.so", update_file="./nothing.so")
        self.refused(5, "libnothing.so", update_file="libnothing.so")
        self.refused(5, "no_such_rule", update_file=OTHER, update_functions=["no_such_rule"])
        # The centres are packed: one line with the key and the function, whatever form the request has.
        self.refused(5, 'key "', "other_rules.so:twice_number (i32, i32)", update_file=OTHER, update_functions=["twice_number"])

    def test_with_a_plug_in_no_worker_can_be_replaced(self):
        self.not_replaceable("update_file", update_file=OTHER)
        self.job(2, 1, options=("--on-worker-death", "wait:5"), **self.keys)


class WordCount(HandleFileErrors, PluginCase):
    program = "wc"
    rule = "twice_words"

    def setUp(self):
        draw = random.Random(4)
        text = "".join(f"w{int(draw.paretovariate(0.5)) % 500} " + ("\n" if i % 9 == 0 else "") for i in range(5000))
        self.keys = {"input": self.path("text", text), "dump": True, "topk": 7}

    def counts(self, workers):
        return {word: int(n) for word, n in (line.split("\t") for line in self.lines("wc", workers))}

    def test_the_shipped_plug_in_gives_the_same_files(self):
        for where in ((1, 1, "embedded"), (2, 2), (3, 1)):
            plain = self.job(*where, **self.keys)
            files = self.lines("wc", where[0])
            with self.subTest(where):
                served = self.job(*where, **self.keys, handle_file=shipped("wc_update"), update_function="wc_updater",
                                  filter_function="wc_filter")
                self.assertEqual(self.lines("wc", where[0]), files)
                self.assertEqual(served.splitlines()[:9], plain.splitlines()[:9])

    def test_another_rule_and_another_filter_change_the_counts(self):
        self.run_it(2)
        plain = self.counts(2)
        self.run_it(2, handle_file=OTHER, update_function="twice_words", filter_function="even_keys")
        even = self.counts(2)
        self.run_it(2, 2, handle_file=OTHER, update_function="twice_words", filter_function="odd_keys")
        odd = self.counts(2)
        self.assertTrue(even and odd)
        self.assertFalse(even.keys() & odd.keys())
        self.assertEqual({**even, **odd}, {word: 2 * n for word, n in plain.items()})


class Pagerank(HandleFileErrors, PluginCase):
    program = "pagerank"
    rule = "even_links"

    def setUp(self):
        draw = random.Random(5)
        # Vertices 90 ... 99 have no edges out.
        self.edges = sorted({(draw.randrange(90), draw.randrange(100)) for _ in range(400)})
        self.keys = {"input": self.path("edges", "".join(f"{a},{b}\n" for a, b in self.edges)), "tolerance": 1e-12}

    def ranks(self, workers):
        return {key: row[0] for key, row in self.numbers("pagerank", workers).items()}

    def test_the_shipped_plug_in_gives_the_same_ranks(self):
        weighted = self.path("weighted", "".join(f"n{a} n{b} {1 + (a * b) % 5}\n" for a, b in self.edges))
        for keys in ({}, {"paracel": True, "rounds": 12}, {"input": weighted}):
            self.run_it(2, **keys)
            plain = self.ranks(2)
            for where in ((2, 2), (3, 1), (1, 1, "embedded")):
                with self.subTest(where=where, keys=keys):
                    self.run_it(*where, handle_file=shipped("pagerank_handle"), **keys)
                    found = self.ranks(where[0])
                    self.assertEqual(found.keys(), plain.keys())
                    for vertex, rank in plain.items():
                        self.assertAlmostEqual(found[vertex] / rank, 1, delta=1e-9)

    def test_another_rule_and_another_filter_change_the_ranks(self):
        self.run_it(2, 2, handle_file=OTHER, update_function="even_links", filter_function="even_keys", rounds=20, tolerance=0)
        found = self.ranks(2)
        vertices = sorted({v for edge in self.edges for v in edge})
        degree = {v: sum(a == v for a, _ in self.edges) for v in vertices}
        x = {v: 1 / len(vertices) for v in vertices}
        for _ in range(20):
            lost = sum(x[v] for v in vertices if degree[v] == 0)
            new = {v: (0.15 + 0.85 * lost) / len(vertices) for v in vertices}
            for a, b in self.edges:
                if a % 2 == 0:
                    new[b] += 0.85 * x[a] / degree[a]
            x = new
        # The filter looks at <id>_pr, whose last digits are the id's.
        self.assertEqual(sorted(map(int, found)), [v for v in vertices if v % 2 == 0])
        for vertex, rank in found.items():
            self.assertAlmostEqual(rank / x[int(vertex)], 1, delta=1e-9)


class Svd(PluginCase):
    program = "svd"

    def setUp(self):
        draw = random.Random(6)
        entries = "".join(f"{i},{j},{draw.gauss(0, 1):.4f}\n" for i in range(60) for j in range(25) if draw.random() < 0.3)
        self.keys = {"input": self.path("entries", entries), "k": 4}

    def test_the_shipped_plug_in_gives_the_same_triplets(self):
        plain = self.run_it(2)
        u, v = self.table("U", 2), self.table("V", 2)
        for where in ((2, 2), (3, 1), (1, 1, "embedded")):
            with self.subTest(where):
                said = self.run_it(*where, update_file=shipped("svd_update"), update_function="svd_updater")
                self.assertEqual(said["converged"], "yes")
                for j in range(1, 5):
                    self.assertAlmostEqual(said[f"sigma_{j}"] / plain[f"sigma_{j}"], 1, delta=1e-12)
                numpy.testing.assert_allclose(self.table("U", where[0]), u, atol=1e-8)
                numpy.testing.assert_allclose(self.table("V", where[0]), v, atol=1e-8)

    def test_sums_four_times_as_large_halve_the_vectors(self):
        plain = self.run_it(2)
        said = self.run_it(2, 2, update_file=OTHER, update_function="four_times")
        for j in range(1, 5):
            self.assertAlmostEqual(said[f"sigma_{j}"] / plain[f"sigma_{j}"], 1, delta=1e-8)
        for basis in (self.table("U", 2), self.table("V", 2)):
            self.assertLessEqual(numpy.abs(basis.T @ basis - numpy.eye(4) / 4).max(), 1e-9)
        # A product with A' is a sum, too: A'u is four times as large as it should be, and so is the norm of the rest.
        self.assertEqual(said["converged"], "no")
        self.assertAlmostEqual(said["residual"] / (3 * said["sigma_1"]), 1, delta=1e-8)

    def test_errors_of_plug_ins_end_the_job(self):
        self.refused(3, 'key "update_function": given without update_file', update_function="f")
        self.refused(5, "no_such_rule", update_file=OTHER, update_function="no_such_rule")
        self.refused(5, "no more today", update_file=OTHER, update_function="throws")
        self.not_replaceable("update_file", update_file=OTHER)


class Dtr(PluginCase):
    program = "dtr"
    items = 30

    def setUp(self):
        draw = random.Random(7)

        def factors(name, count):
            return self.path(name, "".join(f"{i}\t" + "|".join(f"{draw.gauss(0, 1):.4f}" for _ in range(4)) + "\n"
                                           for i in range(count)))

        self.keys = {"user_fac_input": factors("users", 120), "item_fac_input": factors("items", self.items), "level": 3}

    def trees(self):
        return [[int(item) for item in line.split("\t")[1].split("|")] for line in self.lines("tree", 1)]

    def test_the_shipped_plug_in_gives_the_same_trees(self):
        self.run_it(2, tree_end_index=4)
        trees, means = self.trees(), self.lines("average_user_factor", 5)
        for where in ((2, 2), (3, 1), (1, 1, "embedded")):
            with self.subTest(where):
                self.run_it(*where, tree_end_index=4, handle_file=shipped("dtr_update"))
                self.assertEqual((self.trees(), self.lines("average_user_factor", 5)), (trees, means))

    def test_another_rule_and_another_filter_choose_other_items(self):
        self.run_it(2, tree_end_index=9)
        roots = [tree[0] for tree in self.trees()]
        even = next(root for root in roots if root % 2 == 0)
        plain = self.trees()[roots.index(even)]
        self.run_it(2, 2, handle_file=OTHER)
        other = self.trees()[0]
        self.assertEqual(other[0], even)  # the best that the filter accepts
        # Each worker offers the best of its half of the items, and the function keeps the worse one.
        self.assertNotEqual(other[1] < self.items // 2, plain[1] < self.items // 2)

    def test_errors_of_plug_ins_end_the_job(self):
        self.refused(5, "small_errors_filter", handle_file=shipped("wc_update"))
        self.not_replaceable("handle_file", handle_file=OTHER)
        self.run_it(2)
        model = self.output
        answers = self.path("answers", "1,2,1\n")
        self.refused(3, 'key "handle_file": not with a model', handle_file=OTHER, model=model, predict_input=answers)


class Lda(PluginCase):
    program = "gLDA"

    def setUp(self):
        draw = random.Random(8)
        text = "".join(" ".join(f"w{draw.randrange(20):02d}" for _ in range(30)) + "\n" for _ in range(60))
        self.keys = {"input": self.path("text", text), "k_topics": 3, "iters": 8, "top_words": 20}

    def test_the_shipped_plug_in_gives_the_same_counts(self):
        for where in ((2, 2), (1, 1, "embedded")):
            plain = self.run_it(*where)
            files = [self.lines(*name) for name in (("word_topic", where[0]), ("topic_counts", 1), ("lda_topics", 1))]
            for key in ("handle_file", "handle_fn"):
                with self.subTest(where=where, key=key):
                    said = self.run_it(*where, check_counts=True, **{key: shipped("lda_handle")})
                    self.assertEqual(said["log_likelihood"], plain["log_likelihood"])
                    self.assertEqual([self.lines(*name) for name in (("word_topic", where[0]), ("topic_counts", 1),
                                                                     ("lda_topics", 1))], files)

    def test_another_rule_and_another_filter_change_counts_and_topics(self):
        self.run_it(2, 2, handle_file=OTHER)
        words = self.numbers("word_topic", 2)
        totals = [float(n) for n in self.lines("topic_counts", 1)[0].split("|")]
        self.assertEqual(sum(totals), 1800)
        sums = numpy.array(list(words.values())).sum(axis=0)
        self.assertEqual(sums.tolist(), [total + len(words) for total in totals])  # one more of each word in each topic
        even = list(words)[::2]
        for line in self.lines("lda_topics", 1):
            self.assertEqual(sorted(entry.rsplit(":", 1)[0] for entry in line.split("\t")[1].split("|")), even)
        self.assertIn("counts at the beginning", self.job(2, status=1, **self.keys, handle_file=OTHER, check_counts=True))

    def test_errors_of_plug_ins_end_the_job(self):
        self.refused(5, "gLDA_word_update", handle_file=shipped("wc_update"))
        self.refused(3, 'key "handle_fn": found another plug-in', handle_file=OTHER, handle_fn=shipped("lda_handle"))


class Mf(PluginCase):
    program = "mf"
    arrays = ("W", "H", "ubias", "ibias")

    def setUp(self):
        draw = random.Random(9)
        ratings = "".join(f"{u},{i},{draw.randrange(1, 6)}\n" for u in range(30) for i in range(20) if draw.random() < 0.5)
        self.ratings = ratings.count("\n")
        self.keys = {"input": self.path("ratings", ratings), "k": 3, "rounds": 3}

    def model(self, workers):
        return [self.lines(name, workers) for name in self.arrays]

    def test_the_shipped_plug_ins_give_the_same_bits(self):
        for where, keys in (((2, 2), {}), ((3, 1), {"k": 0}), ((1, 1, "embedded"), {})):
            with self.subTest(where=where, keys=keys):
                arrays = self.arrays if "k" not in keys else self.arrays[2:]
                test = {"test_input": self.keys["input"], **keys}
                plain = self.run_it(*where, **test, factors="float64")  # as with a plug-in
                files = [self.lines(name, where[0]) for name in arrays]
                said = self.run_it(*where, **test, update_file=shipped("mf_update"), filter_file=shipped("mf_filter"),
                                   update_functions=["cnt_updater", "mf_fac_updater", "mf_bias_updater"],
                                   filter_functions=["mf_ubias_filter", "mf_ibias_filter", "mf_W_filter", "mf_H_filter"])
                self.assertEqual([self.lines(name, where[0]) for name in arrays], files)
                self.assertEqual(said["test_rmse"], plain["test_rmse"])
                self.assertEqual(said["objective"], plain["objective"])

    def test_other_rules_and_other_filters_change_the_model(self):
        self.run_it(2, rounds=2, update_file=OTHER, update_functions=["twice_number", "unmoved", "unmoved"])
        factors, biases = self.numbers("H", 2), self.numbers("ibias", 2)
        self.assertEqual({row[0] for row in biases.values()}, {0})  # as they were at the start
        said = dict(line.split("\t") for line in self.lines("miu", 1))
        self.assertEqual(float(said["rating_sz"]), 2 * self.ratings)
        users = self.numbers("W", 2)
        self.run_it(2, rounds=3, update_file=OTHER, update_functions=["twice_number", "unmoved", "unmoved"],
                    filter_file=OTHER, filter_functions=["odd_users_bias", "even_items_bias", "even_users", "odd_items"])
        self.assertEqual({key: factors[key] for key in factors if int(key) % 2 == 1}, self.numbers("H", 2))
        self.assertEqual({key for key in users if int(key) % 2 == 0}, self.numbers("W", 2).keys())
        self.assertEqual({key for key in users if int(key) % 2 == 1}, self.numbers("ubias", 2).keys())
        self.assertEqual({key for key in biases if int(key) % 2 == 0}, self.numbers("ibias", 2).keys())
        self.assertNotEqual(users["2"], self.numbers("W", 2)["2"])

    def test_filters_of_counts_write_how_many_workers_have_each_user_and_item(self):
        model = ["mf_ubias_filter", "mf_ibias_filter", "mf_W_filter", "mf_H_filter"]
        where = {"update_file": shipped("mf_update"), "filter_file": shipped("mf_filter")}
        self.run_it(2, 2, **where)
        self.assertFalse(os.path.exists(os.path.join(self.output, "cntx_0")), "they were not asked for")
        plain = self.model(2)
        self.run_it(2, 2, **where, filter_functions=[*model, "mf_cntx_filter", "mf_cnty_filter"])
        self.assertEqual(self.model(2), plain)
        users, items = ({key: row[0] for key, row in self.numbers(name, 2).items()} for name in ("cntx", "cnty"))
        self.assertEqual(users, dict.fromkeys(self.numbers("ubias", 2), 1), "a user's ratings are at one worker")
        self.assertEqual(items.keys(), self.numbers("ibias", 2).keys())
        self.assertEqual(set(items.values()), {2})  # each item is rated by half of all users
        other = ["odd_users_bias", "even_items_bias", "even_users", "odd_items", ""]
        self.run_it(2, update_file=OTHER, update_functions=["twice_number", "unmoved", "unmoved"], filter_file=OTHER,
                    filter_functions=[*other, "even_item_counts"])
        self.assertFalse(os.path.exists(os.path.join(self.output, "cntx_0")))
        self.assertEqual(self.numbers("cnty", 2), {key: [4] for key in items if int(key) % 2 == 0})
        self.refused(5, "no_such_filter", **where, filter_functions=[*model, "no_such_filter"])

    def test_what_cannot_act_is_refused_and_errors_end_the_job(self):
        self.refused(3, 'key "filter_file": given without update_file', filter_file=OTHER)
        self.refused(3, 'key "filter_functions": given without filter_file', filter_functions=["f"])
        self.refused(5, "no_such_rule", update_file=OTHER, update_functions=["twice_number", "no_such_rule"])
        self.refused(5, "no more today", update_file=OTHER, update_functions=["twice_number", "throws", "throws"])
        self.run_it(2)
        self.refused(3, 'key "update_file": not with model_input', input=None, model_input=self.output, update_file=OTHER)


if __name__ == "__main__":
    unittest.main()
