# SPDX-License-Identifier: BSD-3-Clause
"""Exact greedy boosting in plain Python, for small tables whose features have few distinct values. Every split of every node is
evaluated from scratch; only the formulas are shared with the program: gain G_l^2/(H_l+lambda) + G_r^2/(H_r+lambda) -
G^2/(H+lambda), leaf -G/(H+lambda). Source: Chen and Guestrin, XGBoost, KDD 2016, section 2.2. LambdaMART is written from the
definition of |dNDCG|: the two rows of each pair are swapped, and the DCG of the whole group is recomputed (Burges,
MSR-TR-2010-82)."""
import math
import struct


def single(v):
    """The nearest float32."""
    return struct.unpack("f", struct.pack("f", v))[0]


def dcg(labels, positions=None):
    """The DCG of labels in the order of their rows."""
    return sum((2 ** int(v) - 1) / math.log2(2 + i) for i, v in enumerate(labels[:positions]))


def ranked(rows, margin):
    return sorted(rows, key=lambda i: -margin[i])  # stable: ties in the order of the rows


def ndcg(groups, y, margin, positions=10, weight=None):
    """The mean over groups, lists of rows; `weight`: of rows."""
    total = weights = 0.0
    for rows in groups:
        best = dcg(sorted((y[i] for i in rows), reverse=True), positions)
        w = math.fsum(weight[i] for i in rows) / len(rows) if weight else 1.0
        total += w * (dcg([y[i] for i in ranked(rows, margin)], positions) / best if best else 1.0)
        weights += w
    return total / weights


def lambdas(groups, y, margin, weight, truncation=30):
    """First and second derivatives of LambdaMART."""
    g, h = [0.0] * len(y), [0.0] * len(y)
    for rows in groups:
        best = dcg(sorted((y[i] for i in rows), reverse=True), truncation)
        if not best:
            continue
        order = ranked(rows, margin)
        before = dcg([y[i] for i in order])
        total = 0.0
        for a in range(min(truncation, len(order))):
            for b in range(a + 1, len(order)):
                if y[order[a]] == y[order[b]]:
                    continue
                swapped = list(order)
                swapped[a], swapped[b] = order[b], order[a]
                change = abs(dcg([y[i] for i in swapped]) - before) / best
                if margin[order[0]] != margin[order[-1]]:
                    change /= 0.01 + abs(margin[order[a]] - margin[order[b]])
                high, low = (order[a], order[b]) if y[order[a]] > y[order[b]] else (order[b], order[a])
                rho = 1 / (1 + math.exp(margin[high] - margin[low]))
                g[high] -= change * rho
                g[low] += change * rho
                h[high] += change * rho * (1 - rho)
                h[low] += change * rho * (1 - rho)
                total += 2 * change * rho
        w = math.fsum(weight[i] for i in rows) / len(rows)
        for i in rows if total else ():
            g[i] *= w * math.log2(1 + total) / total
            h[i] *= w * math.log2(1 + total) / total
    return g, h


class Tree:
    """A node; `rows` are those of training."""

    def __init__(self, rows, depth):
        self.rows, self.depth, self.split, self.left, self.right, self.value = rows, depth, None, None, None, 0.0

    def leaf(self, x):
        node = self
        while node.left is not None:
            _, feature, threshold, missing_left = node.split
            v = x[feature]
            goes_left = missing_left if v is None else v < threshold
            node = node.left if goes_left else node.right
        return node

    def leaves(self):
        return [self] if self.left is None else self.left.leaves() + self.right.leaves()


class Boosting:
    """x: lists of float32 values or None; y: numbers, for log 0 or 1; group: for lambdamart, of each row."""

    def __init__(self, x, y, loss, group=None, weight=None, rate=0.1, growth="leaf", max_leaves=31, max_depth=0, reg=1.0,
                 gamma=0.0, min_child_weight=1e-3, min_child_rows=20, truncation=30):
        self.x, self.y, self.loss, self.weight = x, y, loss, weight or [1.0] * len(y)
        self.rate, self.growth, self.max_leaves, self.max_depth = rate, growth, max_leaves, max_depth
        self.reg, self.gamma, self.least_weight, self.least_rows = reg, gamma, min_child_weight, min_child_rows
        self.truncation = truncation
        self.groups = [[i for i, g in enumerate(group) if g == name] for name in sorted(set(group))] if group else []
        mean = single(math.fsum(w * v for w, v in zip(self.weight, y)) / math.fsum(self.weight))
        self.base = mean if loss == "squared" else single(math.log(mean / (1 - mean))) if loss == "log" else 0.0
        self.margin = [self.base] * len(y)
        self.values = [sorted({r[f] for r in x if r[f] is not None}) for f in range(len(x[0]))]
        self.trees = []

    def derivatives(self):
        if self.loss == "lambdamart":
            return lambdas(self.groups, self.y, self.margin, self.weight, self.truncation)
        g, h = [], []
        for m, y, w in zip(self.margin, self.y, self.weight):
            if self.loss == "squared":
                g.append(w * (m - y))
                h.append(w)
            else:
                p = 1 / (1 + math.exp(-m))
                g.append(w * (p - y))
                h.append(w * max(p * (1 - p), 1e-16))
        return g, h

    def score(self, rows, g, h):
        total = math.fsum(h[i] for i in rows) + self.reg
        return math.fsum(g[i] for i in rows) ** 2 / total if total > 0 else 0.0

    def best(self, rows, g, h):
        found = None
        parent = self.score(rows, g, h)
        for f, values in enumerate(self.values):
            missing = [i for i in rows if self.x[i][f] is None]
            present = sorted({self.x[i][f] for i in rows if self.x[i][f] is not None})
            for missing_left in ([True, False] if missing else [True]):
                for v in present:
                    after = [u for u in values if u > v]
                    if not after and missing_left:
                        continue  # nothing on the right
                    if after:
                        threshold = single((v + after[0]) / 2)
                        threshold = threshold if threshold > v else after[0]
                    else:
                        threshold = math.inf
                    left = [i for i in rows if (missing_left if self.x[i][f] is None else self.x[i][f] < threshold)]
                    chosen = set(left)
                    right = [i for i in rows if i not in chosen]
                    if min(len(left), len(right)) < self.least_rows:
                        continue
                    if min(math.fsum(h[i] for i in s) for s in (left, right)) < self.least_weight:
                        continue
                    gain = self.score(left, g, h) + self.score(right, g, h) - parent
                    # Of gains that are equal but for rounding the first one wins.
                    if gain > self.gamma and (found is None or gain > found[0][0] * (1 + 1e-9)):
                        found = ((gain, f, threshold, missing_left), left, right)
        return found

    def grow(self):
        g, h = self.derivatives()
        root = Tree(list(range(len(self.y))), 0)
        level = [(root, self.best(root.rows, g, h))]
        leaves = 1
        while True:
            able = [(n, b) for n, b in level if b is not None and (self.max_depth == 0 or n.depth < self.max_depth)]
            able.sort(key=lambda item: -item[1][0][0])
            if self.max_leaves:
                able = able[:self.max_leaves - leaves]
            now = able[:1] if self.growth == "leaf" else able
            if not now:
                break
            done = [n for n, _ in now]
            level = [item for item in level if item[0] not in done] if self.growth == "leaf" else []
            for node, (split, left, right) in now:
                node.split = split
                node.left, node.right = Tree(left, node.depth + 1), Tree(right, node.depth + 1)
                leaves += 1
                level += [(child, self.best(child.rows, g, h)) for child in (node.left, node.right)]
        for leaf in root.leaves():
            total = math.fsum(h[i] for i in leaf.rows) + self.reg
            leaf.value = -math.fsum(g[i] for i in leaf.rows) / total * self.rate
            for i in leaf.rows:
                self.margin[i] += leaf.value
        self.trees.append(root)
        return root

    def predict(self, x):
        return self.base + sum(t.leaf(x).value for t in self.trees)

    def value(self):
        """The mean loss of the training rows; for squared without the factor 1/2, for lambdamart NDCG@10."""
        if self.loss == "lambdamart":
            return ndcg(self.groups, self.y, self.margin, 10, self.weight)
        total = 0.0
        for m, y, w in zip(self.margin, self.y, self.weight):
            total += w * ((m - y) ** 2 if self.loss == "squared" else math.log1p(math.exp(-m)) + (1 - y) * m)
        return total / math.fsum(self.weight)


def load(path):
    x, y = [], []
    with open(path, encoding="ascii") as file:
        for line in file:
            fields = line.rstrip("\n").split(",")
            x.append([single(float(f)) if f else None for f in fields[:-1]])
            y.append(float(fields[-1]))
    return x, y
