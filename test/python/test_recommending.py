#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Recommendations, interviews, neighbours, dense similarities, graph functions: against NumPy, and the command line's bits."""
import glob
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, run_program  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
from paracel._model import Model  # noqa: E402
from scipy.sparse import csr_matrix  # noqa: E402
from test_estimators import Folder  # noqa: E402


def ratings(seed=1, users=40, items=25, count=500):
    r = np.random.RandomState(seed)
    pairs = np.unique(r.randint(0, [users, items], (count, 2)), axis=0)
    truth = (r.randn(users, 3) @ r.randn(3, items))[pairs[:, 0], pairs[:, 1]]
    return pairs[:, 0], pairs[:, 1], np.clip(np.round(3 + truth), 1, 5)


def lines_of(folder, name):
    """The lines of a result's files, of all workers."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, name))):
        with open(path, encoding="utf-8") as lines:
            found += [line.rstrip("\n") for line in lines]
    return found


class Command(Folder):
    def run_on(self, program, config, **files):
        """The program on text files. Returns the folder of its results."""
        config = dict(config, output=self.path("out_" + program))
        for key, lines in files.items():
            with open(self.path(key), "w", encoding="utf-8") as out:
                out.writelines(line + "\n" for line in lines)
            config[key] = self.path(key)
        run_program(program, self.config("config.json", config))
        return config["output"]


class Recommendations(Command):
    def setUp(self):
        super().setUp()
        users, self.items, self.values = ratings()
        self.users = np.array([f"u{u:02}" for u in users])

    def lists(self, found):
        out = {}
        for user, item, score in zip(found.of.tolist(), found.items.tolist(), found.scores.tolist()):
            out.setdefault(user, []).append((item, score))
        return out

    def test_lists_are_the_programs(self):
        for estimator, config in ((paracel.ALS(n_factors=4), {"k": 4}),
                                  (paracel.ALS(n_factors=3, implicit=True), {"k": 3, "implicit": True}),
                                  (paracel.MatrixFactorization(n_factors=4, max_iter=5), {"k": 4, "rounds": 5})):
            with self.subTest(repr(estimator)):
                # Where factors begin depends on the ids, and texts are numbered here.
                users = self.users if estimator._program == "als" else np.unique(self.users, return_inverse=True)[1]
                model = estimator.fit(users, self.items, self.values)
                pairs = [f"{u},{i},{v}" for u, i, v in zip(users, self.items, self.values)]
                out = self.run_on(model._program, {**config, "recommend": 5}, **{model._input: pairs})
                expected = {}
                for line in lines_of(out, "recommend_[0-9]*"):
                    user, _, best = line.partition("\t")
                    pairs = [p.split(":") for p in best.split("|") if p]
                    expected[model.user_ids_.dtype.type(user).item()] = [(int(i), float(s)) for i, s in pairs]
                found = self.lists(model.recommend(model.user_ids_, 5, seen=(users, self.items)))
                self.assertEqual(found.keys(), expected.keys())
                for user, best in expected.items():
                    np.testing.assert_allclose([s for _, s in found[user]], [s for _, s in best], rtol=1e-9, atol=1e-12)
                    self.assertEqual([i for i, _ in found[user]], [i for i, _ in best])

    def test_by_definition_in_blocks(self):
        model = paracel.ALS(n_factors=4).fit(self.users, self.items, self.values)
        asked = np.array(["u03", "nobody", "u00", "u03"])
        seen = (self.users, self.items)
        expected = []
        for user in asked.tolist():
            left_out = set(self.items[self.users == user].tolist())
            scores = {i: model.mean_ + model.item_bias_[k] for k, i in enumerate(model.item_ids_.tolist())}
            if user != "nobody":
                u = model.user_ids_.tolist().index(user)
                for k, i in enumerate(model.item_ids_.tolist()):
                    scores[i] += model.user_bias_[u] + model.user_factors_[u] @ model.item_factors_[k]
            expected += sorted((i for i in scores if i not in left_out), key=lambda i: (-scores[i], i))[:7]  # noqa: B023
        whole = model.recommend(asked, 7, seen=seen)
        self.assertEqual(whole.items.tolist(), expected)
        self.assertEqual(whole.of.tolist(), np.repeat(asked, 7).tolist())
        paracel.ratings._SCORES_AT_ONCE, before = 30, paracel.ratings._SCORES_AT_ONCE  # a user or two at a time
        try:
            blocks = model.recommend(asked, 7, seen=seen)
        finally:
            paracel.ratings._SCORES_AT_ONCE = before
        self.assertEqual([c.tolist() for c in blocks[:2]], [c.tolist() for c in whole[:2]])
        np.testing.assert_allclose(blocks.scores, whole.scores, rtol=1e-12)
        everything = model.recommend(asked[:1], 1000, seen=seen)
        self.assertEqual(len(everything.items), len(model.item_ids_) - len(set(self.items[self.users == "u03"].tolist())))
        self.assertEqual(len(model.recommend([], 3).items), 0)
        self.assertEqual(len(model.recommend(asked, 0).items), 0)

    def test_ties_and_loaded_models(self):
        model = paracel.MatrixFactorization(n_factors=0).fit([1, 1, 2, 2], [7, 8, 7, 8], [3.0, 3.0, 4.0, 4.0])
        model.item_bias_[:] = 0.5
        self.assertEqual(model.recommend([1], 1).items.tolist(), [7])
        model = paracel.ALS(n_factors=2).fit(self.users, self.items, self.values)
        model.save(self.path("model"))
        loaded = paracel.load_model(self.path("model"))
        self.assertEqual([c.tolist() for c in loaded.recommend(["u01"], 4)], [c.tolist() for c in model.recommend(["u01"], 4)])

    def test_similar_items(self):
        model = paracel.ALS(n_factors=4).fit(self.users, self.items, self.values)
        unit = model.item_factors_ / np.linalg.norm(model.item_factors_, axis=1, keepdims=True)
        cosines = unit @ unit.T
        found = model.similar_items(model.item_ids_[:3], 4)
        for k in range(3):
            best = np.argsort(-np.where(np.arange(len(cosines)) == k, -2, cosines[k]))[:4]
            self.assertEqual(found.items[4 * k:4 * k + 4].tolist(), model.item_ids_[best].tolist())
            np.testing.assert_allclose(found.scores[4 * k:4 * k + 4], cosines[k][best], rtol=1e-12)
        with self.assertRaisesRegex(KeyError, "found item 99"):
            model.similar_items([99])

    def test_other_keys(self):
        pairs = [f"{u},{i},{v}" for u, i, v in zip(self.users, self.items, self.values)]
        for estimator, config in (
                (paracel.MatrixFactorization(n_factors=3, max_iter=3, factor_type="float64", clocks_per_round=4, init_scale=0.2,
                                             min_rating=2, max_rating=4.5, tol=1e-9, staleness=1),
                 {"k": 3, "rounds": 3, "factors": "float64", "clocks_per_round": 4, "start": 0.2, "min_rating": 2, "limit_s": 1,
                  "max_rating": 4.5, "tolerance": 1e-9, "ssp_switch": True}),
                (paracel.MatrixFactorization(n_factors=3, solver="bfgs", l2=0.2, weighted=False, max_iter=30),
                 {"k": 3, "method": "bfgs", "lambda": 0.2, "weighted": False, "rounds": 30}),
                (paracel.ALS(n_factors=3, implicit=True, cg_steps=2, init_scale=0.3),
                 {"k": 3, "implicit": True, "cg_steps": 2, "start": 0.3})):
            with self.subTest(repr(estimator)):
                numbers = np.unique(self.users, return_inverse=True)[1]
                model = estimator.fit(numbers, self.items, self.values)
                pairs = [f"{u},{i},{v}" for u, i, v in zip(numbers, self.items, self.values)]
                out = self.run_on(model._program, {**config, "format": "npy"}, **{model._input: pairs})
                self.same_arrays(model.model_, Model.read(out))


class Interviews(Command):
    def test_trees_and_interviews(self):
        r = np.random.RandomState(3)
        users, items = r.randn(60, 3), r.randn(12, 3)
        names = np.array([f"film {chr(ord('l') - k)}" for k in range(12)])  # not ascending
        files = {"user_fac_input": [f"{u}\t" + "|".join(map(repr, row)) for u, row in enumerate(users.tolist())],
                 "item_fac_input": [f"{k}\t" + "|".join(map(repr, row)) for k, row in enumerate(items[::-1].tolist())]}
        out = self.run_on("dtr", {"level": 3, "tree_end_index": 1, "format": "npy"}, **files)
        expected = Model.read(out).arrays
        for job in ({}, {"n_workers": 2}):
            found = paracel.dtr(users, items, level=3, trees=2, item_ids=names, **job)
            self.assertEqual(found.factors.tobytes(), expected["average_user_factors"].tobytes())
            by_number = np.sort(names)[np.minimum(expected["trees"], 11).astype(np.int64)]
            self.assertEqual(found.items.tolist(), np.where(expected["trees"] < 12, by_number, None).tolist())

        def error(k):  # of the root's question
            likes = users @ items[names.tolist().index(k)] >= 0
            if min(likes.sum(), (~likes).sum()) * 3 <= max(likes.sum(), (~likes).sum()):
                return np.inf
            return sum(((users[side] - users[side].mean(axis=0)) ** 2).sum() for side in (likes, ~likes))

        best = sorted(names.tolist(), key=error)
        self.assertEqual(found.items[:, 0].tolist(), best[:2])
        likes = users @ items[names.tolist().index(best[0])] >= 0
        np.testing.assert_allclose(found.factors[0, 0], users.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(found.factors[0, 1], users[likes].mean(axis=0), rtol=1e-9)

        second = found.items[1]
        answered = found.interview(["zoe", "ann", "ann", "ann"], [second[0], second[0], second[2], "another film"], [1, -1, 2, 1],
                                   tree=1)
        self.assertEqual(answered.users.tolist(), ["ann", "zoe"])
        self.assertEqual((answered.node.tolist(), answered.question.tolist()), ([5, 1], [None, second[1]]))
        self.assertEqual(answered.factors.tolist(), found.factors[1, [5, 1]].tolist())

    def test_wrong_input(self):
        with self.assertRaisesRegex(ValueError, "item_ids: found 'a' twice"):
            paracel.dtr(np.eye(3), np.eye(2, 3), level=1, item_ids=["a", "a"])
        with self.assertRaisesRegex(paracel.ConfigError, "^dtr: parameter level: found"):
            paracel.dtr(np.eye(3), np.eye(2, 3), level=30)


class Neighbours(Command):
    def test_number_of_neighbours(self):
        for seed in range(3):
            users, items, values = ratings(seed)
            matrix = csr_matrix((values, (users, items)))
            lists = paracel.similarities(matrix, topk=8)
            dense, rated = matrix.toarray(), matrix.toarray() != 0
            expected, errors = [], 0.0
            for u in range(len(dense)):
                others = lists.indices[lists.indptr[u]:lists.indptr[u + 1]]
                weights = lists.data[lists.indptr[u]:lists.indptr[u + 1]]
                squares = []
                for k in range(2, len(others) + 1):
                    s, v = weights[:k, None] * rated[others[:k]], dense[others[:k]]
                    total = s.sum(axis=0)
                    means = (s * v).sum(axis=0) / np.where(total > 0, total, 1)
                    predicted = np.where(total > 0, means, dense[u][rated[u]].mean())
                    squares.append(((predicted - dense[u])[rated[u]] ** 2).sum())
                expected.append(2 + int(np.argmin(squares)))
                errors += min(squares)
            found = paracel.adjust_ktop_sparse(matrix, lists, least_k=2)
            self.assertEqual(found.k.tolist(), expected)
            self.assertAlmostEqual(found.summary["rmse"], np.sqrt(errors / len(values)), 9)
            self.assertEqual(found.summary["sum_k"], sum(expected))
        text = [f"{u}\t" + "|".join(f"{lists.indices[j]}:{lists.data[j]!r}" for j in range(lists.indptr[u], lists.indptr[u + 1]))
                for u in range(len(dense))]
        out = self.run_on("adjust_ktop_sparse", {"lower bound": 2}, sim_input=text,
                          rating_input=[f"{u},{i},{v}" for u, i, v in zip(users, items, values)])
        self.assertEqual(lines_of(out, "ktop_result_*"), [f"{u}\t{k}" for u, k in enumerate(found.k)])

    def test_penalties(self):
        users, items, values = ratings()
        H = np.random.RandomState(5).randn(25, 3)
        ids = np.array([f"i{k:02}" for k in range(25)])
        train, held = np.arange(len(users)) % 5 != 0, np.arange(len(users)) % 5 == 0
        penalties = [0.01, 1.0, 100.0]
        found = paracel.als_validate((users[train], ids[items[train]], values[train]),
                                     (users[held], ids[items[held]], values[held]), ids, H, penalties)
        rows = {u: items[train & (users == u)] for u in np.unique(users[train])}
        for k, penalty in enumerate(penalties):
            W = {u: np.linalg.solve(H[i].T @ H[i] + penalty * np.eye(3), H[i].T @ values[train & (users == u)])
                 for u, i in rows.items()}
            error = [values[j] - H[items[j]] @ W[users[j]] for j in np.flatnonzero(held) if users[j] in W]
            self.assertAlmostEqual(found.validate_rmse[k], np.sqrt(np.mean(np.square(error))), 9)
        self.assertEqual(found.best, penalties[int(np.argmin(found.validate_rmse))])
        files = {name: [f"{u},{i},{v}" for u, i, v in zip(users[some], items[some], values[some])]
                 for name, some in (("rating_input", train), ("validate_input", held))}
        files["factor_input"] = [f"{k}\t" + "|".join(map(repr, row)) for k, row in enumerate(H.tolist())]
        out = self.run_on("als_validate", {"lambdas": penalties}, **files)
        from paracel._model import metrics_of
        self.assertEqual([line["validate_rmse"] for line in metrics_of(out)], found.validate_rmse.tolist())
        swapped = paracel.als_validate((items[train], users[train], values[train]), (items[held], users[held], values[held]),
                                       np.arange(25), H, penalties, solve="items")
        self.assertEqual(swapped.validate_rmse.tolist(), found.validate_rmse.tolist())
        with self.assertRaisesRegex(ValueError, "ids: found none for"):
            paracel.als_validate((users, items, values), (users, items, values), np.arange(20), H[:20], penalties)


class Similarities(Command):
    def test_dense(self):
        for seed in range(3):
            r = np.random.RandomState(seed)
            A, B = r.randn(30, 7), r.randn(20, 7)
            A[3] = 0
            unit = [np.divide(M, n, out=np.zeros_like(M), where=n > 0) for M in (A, B)
                    for n in [np.linalg.norm(M, axis=1, keepdims=True)]]
            for found, cosines in ((paracel.sim_dense(A, topk=4, least=0.1), unit[0] @ unit[0].T - 5 * np.eye(30)),
                                   (paracel.sim_dense(A, topk=4, least=0.1, n_workers=2), unit[0] @ unit[0].T - 5 * np.eye(30)),
                                   (paracel.ab_sim_dense(A, B, topk=4, least=0.1), unit[0] @ unit[1].T)):
                self.assertEqual(found.shape, cosines.shape)
                for i in range(30):
                    best = [j for j in np.argsort(-cosines[i], kind="stable")[:4] if cosines[i, j] >= 0.1]
                    begin, end = found.indptr[i:i + 2]
                    self.assertEqual(found.indices[begin:end].tolist(), best)
                    np.testing.assert_allclose(found.data[begin:end], cosines[i, best], rtol=1e-12)
        text = {"input_a": A, "input_b": B}
        for program, names, found in (("sim_dense", {"input": A}, paracel.sim_dense(A, topk=4)),
                                      ("ab_sim_dense", text, paracel.ab_sim_dense(A, B, topk=4))):
            out = self.run_on(program, {"topk": 4, "ids": "row"},
                              **{n: [",".join(map(repr, row)) for row in M.tolist()] for n, M in names.items()})
            expected = dict(line.split("\t") for line in lines_of(out, "result_*"))
            for i in range(30):
                pairs = [(int(p.split(":")[0]), float(p.split(":")[1])) for p in expected.get(str(i), "").split("|") if p]
                begin, end = found.indptr[i:i + 2]
                self.assertEqual(list(zip(found.indices[begin:end].tolist(), found.data[begin:end].tolist())), pairs)
        with self.assertRaisesRegex(paracel.DataError, "^sim_dense: input:2"):
            paracel.sim_dense([[1.0], [np.nan]])


class Graphs(Command):
    def test_greatest_vertex(self):
        r = np.random.RandomState(6)
        edges = np.unique(r.randint(0, 40, (50, 2)), axis=0)
        best = np.arange(40)
        for _ in range(40):
            np.maximum.at(best, edges[:, 1], best[edges[:, 0]])
        found = paracel.mvv(edges, vertices=np.arange(40))
        self.assertEqual(found.values.tolist(), best.tolist())
        out = self.run_on("mvv", {}, input=[f"{a}\t{b}" for a, b in edges], vertices=map(str, range(40)))
        self.assertEqual(lines_of(out, "vertex_val_*"), [f"{i}\t{v}" for i, v in enumerate(found.values)])
        named = paracel.mvv(np.array([f"v{i:02}" for i in range(40)])[edges], n_workers=2)
        self.assertEqual(named.values.tolist(), [f"v{best[int(i[1:])]:02}" for i in named.ids])

    def test_steady_state(self):
        for seed in range(3):
            r = np.random.RandomState(seed)
            W = np.where(r.rand(30, 12) < 0.4, r.rand(30, 12), 0.0)
            W[np.arange(30), np.arange(30) % 12] = 0.5
            p = r.dirichlet(np.ones(30))
            planted = W * r.uniform(0.2, 2, 12)
            q = p @ (planted / planted.sum(axis=1, keepdims=True))
            i, j = np.nonzero(W)
            edges = np.stack([np.char.add("site ", i.astype(str)), np.char.add("page ", j.astype(str))], axis=1)
            left = {f"site {k}": v for k, v in enumerate(p)}
            right = {f"page {k}": v for k, v in enumerate(q)}
            found = paracel.steady_state_inversion(edges, left, right, W[i, j], topk=1000)
            self.assertEqual(found.ids.tolist(), sorted(right))
            scores = dict(zip(found.ids.tolist(), found.scores.tolist()))
            P = W * [scores[f"page {k}"] for k in range(12)]
            P /= P.sum(axis=1, keepdims=True)
            received = p @ P
            np.testing.assert_allclose(found.received, [received[int(n[5:])] for n in found.ids.tolist()], rtol=1e-9)
            self.assertLess(np.abs(received - q).sum(), 1e-3)
            for one, other, probability in found.transitions:
                self.assertAlmostEqual(probability, P[int(one[5:]), int(other[5:])], 9)
            self.assertEqual(len(found.transitions), len(edges))
            self.assertTrue(found.summary["converged"])
        # The command line on names in the same order.
        place = {n: k for k, n in enumerate(sorted(left))}, {n: k for k, n in enumerate(sorted(right))}
        out = self.run_on("steady_state_inversion", {"format": "npy"},
                          bigraph_input=[f"{place[0][a]:02}L,{place[1][b]:02}R,{w!r}"
                                         for (a, b), w in zip(edges, W[i, j].tolist())],
                          distribution_input=[f"{place['LR'.index(s)][n]:02}{s},{v!r}" for s, of in (("L", left), ("R", right))
                                              for n, v in of.items()])
        model = Model.read(out)
        self.assertEqual(found.scores.tolist(), model.arrays["score"][np.argsort(model.ids["score"].astype(str))].tolist())

    def test_infeasible(self):
        with self.assertRaisesRegex(paracel.DataError, "infeasible: x must receive at least 0.69.*a, have 0.5"):
            paracel.steady_state_inversion([("a", "x"), ("b", "y")], {"a": 0.5, "b": 0.5}, {"x": 0.7, "y": 0.3},
                                           feasibility="before")
        with self.assertRaisesRegex(paracel.DataError, "c"):
            paracel.steady_state_inversion([("a", "x"), ("c", "x")], {"a": 1.0}, {"x": 1.0})


if __name__ == "__main__":
    unittest.main()
