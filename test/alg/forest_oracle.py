# SPDX-License-Identifier: BSD-3-Clause
"""One tree of random_forest, on all rows and all features: CART in plain Python, for small tables. Source: L. Breiman
et al., "Classification and Regression Trees", 1984."""
import math

import gbdt_oracle


class Cart(gbdt_oracle.Tree):
    """A node; its `value` is a list of shares, or the mean."""

    def __init__(self, rows, depth, forest):
        super().__init__(rows, depth)
        labels = [forest.y[i] for i in rows]
        if forest.classes:
            self.value = [labels.count(c) / len(labels) for c in forest.classes]
        else:
            self.value = math.fsum(labels) / len(labels)
        self.split_once(forest)

    def split_once(self, forest):
        if forest.max_depth and self.depth >= forest.max_depth:
            return
        found = None
        parent = forest.score(self.rows)
        for f, values in enumerate(forest.values):
            missing = [i for i in self.rows if forest.x[i][f] is None]
            for missing_left in ([True, False] if missing else [True]):
                for v in sorted({forest.x[i][f] for i in self.rows if forest.x[i][f] is not None}):
                    after = [u for u in values if u > v]
                    threshold = gbdt_oracle.single((v + after[0]) / 2) if after else math.inf
                    left = [i for i in self.rows
                            if (missing_left if forest.x[i][f] is None else forest.x[i][f] < threshold)]
                    chosen = set(left)
                    right = [i for i in self.rows if i not in chosen]
                    if min(len(left), len(right)) < max(1, forest.min_leaf):
                        continue
                    gain = forest.score(left) + forest.score(right) - parent
                    if gain > 1e-10 * abs(parent) and (found is None or gain > found[0] * (1 + 1e-9)):
                        found = (gain, f, threshold, missing_left, left, right)
        if found is None:
            return
        self.split = found[:4]
        self.left = Cart(found[4], self.depth + 1, forest)
        self.right = Cart(found[5], self.depth + 1, forest)


class Tree:
    """One tree. classes: of classification; empty for numbers."""

    def __init__(self, x, y, classes=(), min_leaf=1, max_depth=0):
        self.x, self.y, self.classes, self.min_leaf, self.max_depth = x, y, list(classes), min_leaf, max_depth
        self.values = [sorted({r[f] for r in x if r[f] is not None}) for f in range(len(x[0]))]
        self.root = Cart(list(range(len(y))), 0, self)

    def score(self, rows):
        if not self.classes:
            return math.fsum(self.y[i] for i in rows) ** 2 / len(rows)
        labels = [self.y[i] for i in rows]
        return sum(labels.count(c) ** 2 for c in self.classes) / len(rows)

    def predict(self, x):
        return self.root.leaf(x).value

    def nodes(self):
        return 2 * len(self.root.leaves()) - 1
