#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program in the style of Paracel 0.3 for each folder of its alg/, compiled with the installed tree: embedded, with local
processes and under MPI their results equal those of a serial oracle here, with different numbers of workers."""
import collections
import os
import re
import sys
import unittest

import numpy as np

from old_support import SOURCE, OldPrograms, dictionary, words

WAYS = ("embedded", 1), ("local", 3), ("mpi", 2)
LOCAL = (("local", 3),)
PROGRAMS = [name[:-4] for name in sorted(os.listdir(os.path.join(SOURCE, "test", "compat", "alg"))) if name.endswith(".cpp")]


def numbers(text):
    return [float(x) for x in text.split("|")]


def pairs(text):
    return [(name, float(value)) for name, _, value in (part.partition(":") for part in text.split("|"))]


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


class OldAlgorithms(OldPrograms):
    targets = PROGRAMS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.plugin = os.path.join(cls.project, "libupdates.so")

    def rows(self, name, rows, separator=","):
        def text(x):
            return x if isinstance(x, str) else repr(x.item() if isinstance(x, np.generic) else x)
        return self.write(name, "".join(separator.join(map(text, row)) + "\n" for row in rows))

    def factors(self, name, matrix):
        return self.rows(name, ([str(i), "|".join(repr(float(x)) for x in row)] for i, row in enumerate(matrix)), "\t")

    def close(self, got, want, tolerance=1e-9):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)

    def parts(self, output, workers, x):
        """The rows of x that each worker had, in its order, from pred_v_<rank>; its predictions are the last fields."""
        place = {tuple(row): i for i, row in enumerate(x)}
        parts = []
        for name in self.of_all(output, "pred_v_", workers):
            parts.append([place[tuple(float(f) for f in line.split(",")[:-1])] for line in lines_of(name)])
        self.assertEqual(sorted(i for part in parts for i in part), list(range(len(x))))
        return parts

    def averaged(self, parts, theta, rounds, step):
        """A pass of each worker over its part from the same theta, and the mean of the results, in each round."""
        for _ in range(rounds):
            passes = []
            for part in parts:
                local = theta.copy()
                for i in part:
                    local += step(i, local)
                passes.append(local)
            theta = np.mean(passes, axis=0)
        return theta

    # ---- linear models ----------------------------------------------------------------------------------------------

    def test_logistic_regression(self):
        rng = np.random.default_rng(1)
        n, alpha, beta = 240, 0.02, 0.001
        x = np.hstack([np.ones((n, 1)), rng.normal(size=(n, 4))])
        y = (x @ [0.5, 1.5, -2.0, 0.7, 0.0] + rng.logistic(size=n) > 0).astype(float)
        keys = {"training_input": self.rows("lr.csv", np.column_stack([x[:, 1:], y])), "update_file": self.plugin,
                "update_func": "lr_theta_update", "alpha": alpha, "beta": beta}

        def h(theta, i=slice(None)):
            return 1 / (1 + np.exp(-x[i] @ theta))

        def loss(theta):
            return -np.mean(np.log(np.where(y > 0.5, h(theta), 1 - h(theta))))

        def step(i, theta):
            return alpha * ((y[i] - h(theta, i)) * x[i] - beta * theta)
        theta = np.zeros(5)
        for _ in range(30):
            theta = theta + alpha * (x.T @ (y - h(theta)) - n * beta * theta)
        best = loss(theta)
        for method, ways, rounds in ("dgd", WAYS, 30), ("ipm", WAYS, 10), ("downpour", LOCAL, 10), ("agd", LOCAL, 10):
            for output, said, workers in self.in_every_way("logistic_regression", ways, method=method, rounds=rounds, **keys):
                got = np.array(numbers(lines_of(os.path.join(output, "lr_theta_0"))[0]))
                parts = self.parts(output, workers, x)
                self.close(float(re.search("final loss: (.*)", said)[1]), loss(got), 1e-4)
                if method == "dgd":
                    self.close(got, theta)
                elif method == "ipm":
                    self.close(got, self.averaged(parts, np.zeros(5), rounds, step))
                else:
                    self.assertLess(loss(got), 1.05 * best)
                for rank, part in enumerate(parts):
                    predicted = [float(line.split(",")[-1]) for line in lines_of(os.path.join(output, f"pred_v_{rank}"))]
                    self.close(predicted, h(got, part))

    def test_ridge(self):
        rng = np.random.default_rng(2)
        n, alpha, beta, rounds = 200, 0.01, 0.02, 8
        x = np.hstack([np.ones((n, 1)), rng.normal(size=(n, 3))])
        y = x @ [3.0, 1.5, -2.0, 0.5] + rng.normal(size=n) * 0.1
        path = self.rows("ridge.csv", np.column_stack([x[:, 1:], y]))
        test = self.rows("ridge_test.csv", np.column_stack([x[:50, 1:], y[:50]]))

        def step(i, theta):
            e = y[i] - x[i] @ theta
            return alpha * (2 * e * x[i] - 2 * beta * np.concatenate([[0], theta[1:]]))
        for output, said, workers in self.in_every_way(
                "ridge", WAYS, training_input=path, test_input=test, predict_input=path, update_file=self.plugin,
                update_func="ridge_theta_update", rounds=rounds, alpha=alpha, beta=beta):
            got = np.array(numbers(lines_of(os.path.join(output, "ridge_theta_0"))[0]))
            self.close(got, self.averaged(self.parts(output, workers, x), np.zeros(4), rounds, step))
            self.close(float(re.search("final loss: (.*)", said)[1]), np.mean((y - x @ got) ** 2))
            self.close(float(re.search("test dataset is: (.*)", said)[1]), np.mean((y - x @ got)[:50] ** 2))

    # ---- clusters, topics, words --------------------------------------------------------------------------------------

    def test_kmeans(self):
        rng = np.random.default_rng(3)
        k = 4
        x = rng.normal(size=(180, 3)) + rng.integers(-3, 4, size=(k, 3))[rng.integers(k, size=180)]
        path = self.rows("points.txt", ([f"p{i}", ",".join(map(repr, row.tolist()))] for i, row in enumerate(x)), "\t")
        centers, label, rounds = x[:k].copy(), None, 0
        while True:
            rounds += 1
            before, label = label, np.argmin(((x[:, None] - centers) ** 2).sum(2), axis=1)
            if before is not None and (before == label).all():
                break
            centers = np.array([x[label == c].mean(0) for c in range(k)])
        for output, said, _ in self.in_every_way(
                "kmeans", WAYS, input=path, type="fvec", kclusters=k, rounds=100, update_file=self.plugin,
                update_functions=["local_update_kmeans_clusters", "local_update_kmeans_groups"]):
            self.assertEqual(int(words(said)["rounds"]), rounds)
            got = dictionary(os.path.join(output, "centers_0"), numbers)
            self.close([got[str(c)] for c in range(k)], centers)
            groups = dictionary(os.path.join(output, "kmeans_0"), lambda text: sorted(text.split("|")))
            self.assertEqual(groups, {str(c): sorted(f"p{i}" for i in np.flatnonzero(label == c)) for c in range(k)})

    def test_word_count(self):
        rng = np.random.default_rng(4)
        text = [" ".join(f"w{rng.zipf(1.3) % 500}{'-x_' if rng.random() < 0.1 else ''}" for _ in range(8)) + ".,!?"[i % 4]
                for i in range(700)]
        counts = collections.Counter(re.findall("[-A-Za-z0-9_]+", "\n".join(text)))
        want = [f"{word} : {n}" for word, n in sorted(counts.items(), key=lambda wn: (-wn[1], wn[0]))[:12]]
        for _, said, _ in self.in_every_way("word_count", WAYS, input=self.write("text.txt", "\n".join(text) + "\n"), topk=12,
                                            handle_file=self.plugin, update_function="wc_updater",
                                            filter_function="wc_filter"):
            self.assertEqual([line for line in said.splitlines() if " : " in line], want)

    def test_topic_model(self):
        rng = np.random.default_rng(5)
        k, each, docs = 3, 6, []
        for _ in range(150):
            mixture = rng.dirichlet([0.3] * k)
            docs.append([f"t{t}w{rng.integers(each)}" for t in rng.choice(k, size=25, p=mixture)])
        counts = collections.Counter(word for doc in docs for word in doc)
        path = self.rows("docs.txt", docs, " ")
        for output, _, _ in self.in_every_way("topic_model", WAYS, input=path, update_lib=self.plugin, alpha=0.1, beta=0.1,
                                              k_topics=k, iters=40, top_words=each):
            topics = dictionary(os.path.join(output, "lda_topics_0"), pairs)
            totals = dictionary(os.path.join(output, "topic_counts_0"), int)
            self.assertEqual(sum(totals.values()), sum(counts.values()))
            found = set()
            for t in range(k):
                planted = topics[f"{t}topic"][0][0].split("w")[0]
                found.add(planted)
                self.assertEqual({word for word, _ in topics[f"{t}topic"]}, {f"{planted}w{i}" for i in range(each)})
                size = sum(n for word, n in counts.items() if word.startswith(planted))
                self.close(totals[f"sum_topic_{t}"], size, 0.02)
                for word, share in topics[f"{t}topic"]:
                    self.assertAlmostEqual(share, counts[word] / size, delta=0.03)
            self.assertEqual(len(found), k)

    # ---- graphs -------------------------------------------------------------------------------------------------------

    def graph(self, seed, n, m):
        rng = np.random.default_rng(seed)
        edges = sorted({(int(a), int(b)) for a, b in rng.integers(n, size=(m, 2)) if a != b})
        return edges, sorted({v for edge in edges for v in edge}), self.rows(f"edges{seed}.csv", edges)

    def test_max_vertex_value(self):
        edges, vertices, path = self.graph(6, 120, 200)
        value = {v: v for v in vertices}
        changed = True
        while changed:
            changed = False
            for a, b in edges:
                if value[a] > value[b]:
                    value[b], changed = value[a], True
        self.assertGreater(len(set(value.values())), 10)
        for output, _, workers in self.in_every_way("max_vertex_value", WAYS, input=path, update_file=self.plugin,
                                                    update_func="max_updater"):
            self.assertEqual(dictionary(self.of_all(output, "mvv_", workers)), {str(v): x for v, x in value.items()})

    def test_pagerank(self):
        edges, vertices, path = self.graph(7, 80, 260)
        degree = collections.Counter(a for a, _ in edges)
        score = {v: 1 / len(vertices) for v in vertices}
        for _ in range(8):
            into = collections.defaultdict(float)
            for a, b in edges:
                into[b] += score[a] / degree[a]
            score = {v: 0.15 + 0.85 * into[v] for v in vertices}
        for output, _, workers in self.in_every_way(
                "pagerank", WAYS, input=path, rounds=8, damping_factor=0.85, handle_file=self.plugin,
                update_function="init_updater", filter_function="pr_filter"):
            self.nearly(dictionary(self.of_all(output, "pagerank_", workers)), {str(v): x for v, x in score.items()})

    def test_steady_state_inversion(self):
        rng = np.random.default_rng(8)
        left, right, epsilon = 30, 20, 1e-3
        w = rng.uniform(0.5, 2, size=(left, right)) * (rng.random((left, right)) < 0.3)
        w[np.arange(left), np.arange(left) % right] = 1.0
        planted = rng.uniform(0.2, 3, size=right)
        p = rng.dirichlet(np.ones(left))
        share = (p[:, None] * w * planted / (w @ planted)[:, None]).sum(0)
        s, rounds = share.copy(), 0
        while True:
            z = w @ s
            short = np.flatnonzero((p[:, None] * w * s / z[:, None]).sum(0) < share * (1 - epsilon))
            if len(short) == 0:
                break
            raised = s.copy()
            for j in short:
                rest, low, high = z - w[:, j] * s[j], s[j], 1e6
                for _ in range(200):
                    x = (low + high) / 2
                    enough = (p * w[:, j] * x / (w[:, j] * x + rest)).sum() >= share[j] * (1 - epsilon / 2)
                    low, high = (low, x) if enough else (x, high)
                raised[j] = high
            s, rounds = raised, rounds + 1
        self.assertGreater(rounds, 3)
        edges = self.rows("bigraph.csv", ([f"a{i}L", f"b{j}R", w[i, j]] for i in range(left) for j in range(right) if w[i, j]))
        shares = self.rows("shares.csv", [[f"a{i}L", x] for i, x in enumerate(p)] + [[f"b{j}R", x] for j, x in enumerate(share)])
        moves = w * s / (w @ s)[:, None]
        for output, said, workers in self.in_every_way("steady_state_inversion", WAYS, bigraph_input=edges,
                                                       distribution_input=shares, rounds=1000, epsilon=epsilon, ktop=3):
            self.assertEqual({k: int(v) for k, v in words(said).items()}, {"rounds": rounds, "short": 0})
            score = dictionary(self.of_all(output, "score_", workers))
            self.close([score[f"b{j}R"] for j in range(right)], s, 1e-7)
            matrix = dictionary(self.of_all(output, "transfer_prob_matrix_", workers), pairs)
            for i in range(left):
                got = matrix[f"a{i}L"]
                self.close([x for _, x in got], np.sort(moves[i][moves[i] > 0])[::-1][:3], 1e-7)
                self.close([x for _, x in got], [moves[i][int(name[1:-1])] for name, _ in got], 1e-7)

    # ---- recommendation -----------------------------------------------------------------------------------------------

    def ratings(self, seed, users, items, share=0.3):
        """A matrix with nan where there is no rating, and the file."""
        rng = np.random.default_rng(seed)
        r = np.round(3 + rng.normal(size=(users, 2)) @ rng.normal(size=(2, items)) + rng.normal(size=(users, items)) * 0.3, 2)
        r[rng.random((users, items)) > share] = np.nan
        cells = [[int(u), int(i), r[u, i]] for u, i in np.argwhere(~np.isnan(r))]
        return r, cells, self.rows(f"ratings{seed}.csv", cells)

    def test_als(self):
        r, cells, path = self.ratings(9, 50, 30)
        rng = np.random.default_rng(10)
        k, penalty = 4, 0.1
        held_out = [[u, i, 3.5] for u in range(0, 60, 3) for i in range(0, 34, 5)]  # some are unknown
        validate = self.rows("validate.csv", held_out)
        for pattern, ways, matrix in ("fmap", WAYS, r), ("smap", LOCAL, r.T):
            h = rng.normal(size=(matrix.shape[1], k))
            known = ~np.isnan(matrix)
            want = {str(u): np.linalg.solve(h[known[u]].T @ h[known[u]] + penalty * np.eye(k), h[known[u]].T @ row[known[u]])
                    for u, row in enumerate(matrix) if known[u].any()}
            errors = [(x - want[str(u)] @ h[i]) ** 2
                      for u, i, x in (cell if pattern == "fmap" else (cell[1], cell[0], cell[2]) for cell in held_out)
                      if str(u) in want and i < len(h)]
            for output, said, workers in self.in_every_way(
                    "als", ways, rating_input=path, factor_input=self.factors(f"H_{pattern}.txt", h), pattern=pattern,
                    validate_input=validate, **{"lambda": penalty}):
                got = dictionary(self.of_all(output, "W_", workers), numbers)
                self.assertEqual(sorted(got), sorted(want))
                self.close([got[u] for u in want], list(want.values()), 1e-8)
                self.close(float(words(said)["rmse"]), np.mean(errors) ** 0.5)
        self.assertGreater(len(cells), 300)

    def mf_oracle(self, cells, parts, k, rounds, alpha, beta):
        """Each part is a worker's users; items change by the sum of the workers' changes in a round."""
        def first(x, side):
            return 0.1 * np.sin(1.0 + x * 7 + 3 * np.arange(k) + side)
        mean = np.mean([x for _, _, x in cells])
        w, b = {u: first(u, 0) for u, _, _ in cells}, collections.defaultdict(float)
        h, c = {i: first(i, 1) for _, i, _ in cells}, collections.defaultdict(float)
        for _ in range(rounds):
            all_h, all_c = {i: x.copy() for i, x in h.items()}, c.copy()
            for part in parts:
                own_h, own_c = {i: x.copy() for i, x in h.items()}, c.copy()
                for u, i, x in cells:
                    if u in part:
                        e = x - (mean + b[u] + own_c[i] + w[u] @ own_h[i])
                        b[u] += alpha * (2 * e - beta * b[u])
                        own_c[i] += alpha * (2 * e - beta * own_c[i])
                        w[u], own_h[i] = (w[u] + alpha * (2 * e * own_h[i] - beta * w[u]),
                                          own_h[i] + alpha * (2 * e * w[u] - beta * own_h[i]))
                for i in h:
                    all_h[i] += own_h[i] - h[i]
                    all_c[i] += own_c[i] - c[i]
            h, c = all_h, all_c
        return mean, w, b, h, c

    def test_matrix_factorization(self):
        _, cells, path = self.ratings(11, 40, 25)
        k, rounds, alpha, beta = 3, 12, 0.02, 0.05
        of_user = {u: i for u, i, _ in cells}
        keys = {"input": path, "predict_input": self.rows("pairs.csv", of_user.items()), "k": k, "rounds": rounds,
                "alpha": alpha, "beta": beta, "update_file": self.plugin,
                "update_functions": ["cnt_updater", "mf_fac_updater", "mf_bias_updater"], "filter_file": self.plugin,
                "filter_functions": ["mf_ubias_filter", "mf_ibias_filter", "mf_W_filter", "mf_H_filter"]}
        for ssp, ways in (False, WAYS), (True, (("local", 3), ("mpi", 2))):
            for output, _, workers in self.in_every_way("matrix_factorization", ways, ssp_switch=ssp, limit_s=3 * ssp, **keys):
                predicted = [{tuple(map(int, line.split(",")[:2])): float(line.split(",")[2])
                              for line in lines_of(name) if line} for name in self.of_all(output, "pred_v_", workers)]
                self.assertEqual(sum(map(len, predicted)), len(of_user))
                # Under SSP a worker misses at most the others' last limit_s rounds: a run without these is a bound.
                mean, w, b, h, c = self.mf_oracle(cells, [{u for u, _ in part} for part in predicted], k, rounds - 3 * ssp,
                                                  alpha, beta)
                got = {name: dictionary(os.path.join(output, name + "_0"), kind)
                       for name, kind in (("miu", float), ("ubias", float), ("ibias", float), ("W", numbers), ("H", numbers))}
                self.close([got["miu"]["rating_cnt"], got["miu"]["miu"]], [len(cells), mean])
                self.assertEqual(sorted(got["H"]), sorted(f"H_{i}" for i in h))
                model = {(u, i): mean + got["ubias"][f"usr_bias_{u}"] + got["ibias"][f"item_bias_{i}"] +
                         np.dot(got["W"][f"W_{u}"], got["H"][f"H_{i}"]) for u, i, _ in cells}
                for part in predicted:
                    self.close(list(part.values()), [model[pair] for pair in part])
                oracle = [mean + b[u] + c[i] + w[u] @ h[i] for u, i, _ in cells]
                if not ssp:
                    self.close(list(model.values()), oracle)
                else:
                    error, bound = (np.mean([(x - m) ** 2 for (_, _, x), m in zip(cells, of)]) for of in (model.values(), oracle))
                    self.assertLess(error, bound)

    def similar(self, x, y, k, least, skip_equal):
        """For each row the best k of the others, and their cosines."""
        def unit(m):
            return m / np.linalg.norm(m, axis=1, keepdims=True)
        sims = unit(x) @ unit(y).T
        return {i: sorted(((-sims[i, j], j) for j in range(len(y)) if sims[i, j] >= least and (not skip_equal or i != j)))[:k]
                for i in range(len(x))}

    def check_similar(self, got, want, prefix):
        self.assertEqual(sorted(got), sorted(f"{prefix}{i}" for i, row in want.items() if row))
        for i, row in want.items():
            if row:
                self.assertEqual([int(name[1:]) for name, _ in got[f"{prefix}{i}"]], [j for _, j in row])
                self.close([x for _, x in got[f"{prefix}{i}"]], [-x for x, _ in row])

    def test_similarity_dense(self):
        rng = np.random.default_rng(12)
        a, b = rng.normal(size=(61, 6)), rng.normal(size=(40, 6))
        files = [self.rows(f"dense_{name}.csv", ([f"{name}{i}", *row.tolist()] for i, row in enumerate(m)))
                 for name, m in (("a", a), ("b", b))]
        for keys, y in ({"input": files[0]}, a), ({"input_a": files[0], "input_b": files[1]}, b):
            for output, _, workers in self.in_every_way("similarity_dense", WAYS, simbar=0.2, topk=5, **keys):
                self.check_similar(dictionary(self.of_all(output, "result_", workers), pairs),
                                   self.similar(a, y, 5, 0.2, y is a), "a")

    def test_similarity_sparse(self):
        rng = np.random.default_rng(13)
        m = rng.integers(1, 6, size=(45, 30)) * (rng.random((45, 30)) < 0.2) * rng.uniform(0.9, 1.1, size=(45, 30))
        m[np.arange(45), np.arange(45) % 30] = 1.0  # no row is empty
        cells = [[f"u{i}", f"c{j}", m[i, j]] for i, j in np.argwhere(m)]
        want = self.similar(m, m, 5, 0.1, True)
        for form, ways in ("fsv", WAYS), ("sfv", LOCAL):
            path = self.rows(f"{form}.csv", cells if form == "fsv" else [[b, a, x] for a, b, x in cells])
            for output, _, workers in self.in_every_way("similarity_sparse", ways, input=path, format=form, topk=5, sim_bar=0.1,
                                                        sim_ubar=1.0):
                self.check_similar(dictionary(self.of_all(output, "similarities_", workers), pairs), want, "u")

    def test_adjust_ktop_sparse(self):
        r, cells, path = self.ratings(14, 40, 30, 0.4)
        near = self.similar(np.nan_to_num(r), np.nan_to_num(r), 8, 0, True)
        lists = self.rows("lists.txt", ([str(u), "|".join(f"{v}:{-s!r}" for s, v in row)] for u, row in near.items()), "\t")
        for lower in 1, 3:
            want, base, adjusted = {}, 0, 0
            for u, row in near.items():
                errors = []
                for k in range(1, len(row) + 1):
                    s, v = -np.array([x for x, _ in row[:k]]), [x for _, x in row[:k]]
                    rated = ~np.isnan(r[v])
                    total = (rated * s[:, None]).sum(0)
                    prediction = np.where(total > 0, np.nansum(r[v] * s[:, None], 0) / np.where(total > 0, total, 1),
                                          np.nanmean(r[u]))
                    errors.append(np.nansum((r[u] - prediction) ** 2))
                want[str(u)] = lower + int(np.argmin(errors[lower - 1:]))
                base, adjusted = base + errors[-1], adjusted + errors[want[str(u)] - 1]
            self.assertGreater(len(set(want.values())), 3)
            for output, said, _ in self.in_every_way("adjust_ktop_sparse", WAYS if lower == 1 else LOCAL, rating_input=path,
                                                     fmt="fmap", sim_input=lists, **{"lower bound": lower}):
                self.assertEqual(dictionary(os.path.join(output, "ktop_result_merge"), int), want)
                self.nearly({k: float(x) for k, x in words(said).items()}, {"base": base, "adjusted": adjusted})
        self.assertGreater(len(cells), 300)

    def tree(self, p, q, level, rank):
        """Items, nodes' means: the interview tree whose root asks the item of this rank."""
        def error(users, i):
            like = p[users] @ q[i] >= 0
            sides = users[like], users[~like]
            if min(map(len, sides)) * 3 <= max(map(len, sides)):
                return None
            return sum(((p[side] - p[side].mean(0)) ** 2).sum() for side in sides)
        nodes, items, means = [np.arange(len(p))], [], []
        for n in range(2 ** level - 1):
            offers = sorted((error(nodes[n], i), i) for i in range(len(q)) if i not in items and error(nodes[n], i) is not None)
            means.append(p[nodes[n]].mean(0) if len(nodes[n]) else np.zeros(p.shape[1]))
            if not offers:
                items.append(2 ** 64 - 1)
                nodes += [nodes[n][:0]] * 2
                continue
            items.append(offers[rank if n == 0 else 0][1])
            like = p[nodes[n]] @ q[items[-1]] >= 0
            nodes += [nodes[n][like], nodes[n][~like]]
        return items, means

    def test_decision_tree_rec(self):
        rng = np.random.default_rng(15)
        p, q = rng.normal(size=(60, 3)), rng.normal(size=(25, 3))
        want = {n: self.tree(p, q, 4, n) for n in (1, 2)}
        self.assertIn(2 ** 64 - 1, want[1][0] + want[2][0])
        for output, _, _ in self.in_every_way(
                "decision_tree_rec", WAYS, user_fac_input=self.factors("users.txt", p),
                item_fac_input=self.factors("items.txt", q), level=4, tree_start_index=1, tree_end_index=2,
                handle_file=self.plugin):
            got = dictionary(os.path.join(output, "tree_0"), lambda text: [int(i) for i in text.split("|")])
            self.assertEqual(got, {f"tree_{n}": items for n, (items, _) in want.items()})
            for n, (_, means) in want.items():
                self.close([numbers(line) for line in lines_of(os.path.join(output, f"average_user_factor_{n}_0"))], means)

    def test_svd(self):
        rng = np.random.default_rng(16)
        rows, columns, k = 50, 30, 3
        m = (rng.normal(size=(rows, 5)) * [30, 18, 10, 1, 0.5]) @ rng.normal(size=(5, columns))
        m[rng.random((rows, columns)) > 0.5] = 0
        path = self.rows("matrix.csv", ([f"r{i:02}", f"c{j:02}", m[i, j]] for i, j in np.argwhere(m)))
        sigma = np.linalg.svd(m, compute_uv=False)[:k]
        for output, _, workers in self.in_every_way("svd", WAYS, input=path, k=k, rounds=150, update_file=self.plugin,
                                                    update_function="svd_updater"):
            self.close([float(x) for x in lines_of(os.path.join(output, "sigma_0"))], sigma)
            u = dictionary(self.of_all(output, "U_", workers), numbers)
            v = dictionary(os.path.join(output, "V_0"), numbers)
            u, v = (np.array([part[name] for name in sorted(part)]) for part in (u, v))
            self.close(m @ v, u * sigma, 1e-6)
            self.close(m.T @ u, v * sigma, 1e-5)
            self.close(u.T @ u, np.eye(k), 1e-6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
