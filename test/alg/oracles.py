# SPDX-License-Identifier: BSD-3-Clause
"""Expected results of the algorithms, by definition or by NumPy and SciPy. Ids are texts, as in the files of a job."""
import collections
import itertools
import math

import numpy
from scipy import optimize, special


# ---- similarities: {id: [(id, similarity), ...]}, the most similar first, ties by the least id

def nearest(scores, k):
    return sorted(scores, key=lambda entry: (-entry[1], int(entry[0])))[:k]


def sim_dense(path, other=None, topk=7, simbar=0):
    def load(file):
        with open(file, encoding="ascii") as lines:
            rows = [line.strip().split(",") for line in lines]
        x = numpy.array([[float(v) for v in row[1:]] for row in rows])
        with numpy.errstate(invalid="ignore"):
            return [row[0] for row in rows], x / numpy.linalg.norm(x, axis=1, keepdims=True)  # a row of zeros becomes NaN
    (ids, a), (names, b) = load(path), load(other or path)
    lists = {i: nearest([(name, s) for name, s in zip(names, row) if s >= simbar and (other or name != i)], topk)
             for i, row in zip(ids, a @ b.T)}
    return {i: found for i, found in lists.items() if found}


def similarity(method, a, b):
    """Of two rows {column: value}; NaN: undefined."""
    common = sorted(a.keys() & b.keys())
    x, y = (numpy.array([row[c] for c in common]) for row in (a, b))
    if method == "jaccard":
        return len(common) / len(a.keys() | b.keys())
    if method == "cosine":
        return x @ y / (math.hypot(*a.values()) * math.hypot(*b.values()))
    if len(common) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    return x @ y / math.sqrt((x @ x) * (y @ y))


def sim_sparse(path, topk=8, sim_method="cosine", format="fsv", weight_bar=0, sim_bar=0, sim_ubar=0, intersect_bar=0, **bars):
    """(number of rows that are compared, their lists)"""
    def within(n, kind):
        least, most = bars.get(kind + "bar", 0), bars.get(kind + "ubar", 0)
        return (least <= 0 or n >= least) and (most <= 0 or n <= most)
    cells = collections.defaultdict(float)
    with open(path, encoding="ascii") as file:
        for row, column, value in (line.split(",") for line in file):
            cells[(row, column) if format == "fsv" else (column, row)] += float(value)
    cells = {key: v for key, v in cells.items() if v != 0 and abs(v) >= weight_bar}
    of_column = collections.Counter(column for _, column in cells)
    rows = collections.defaultdict(dict)
    for (row, column), v in cells.items():
        if within(of_column[column], "c"):
            rows[row][column] = v
    rows = {name: row for name, row in rows.items() if within(len(row), "r")}
    least = -math.inf if sim_bar in (0, -1) else sim_bar
    most = math.inf if sim_ubar in (0, -1) else sim_ubar
    lists = {}
    for i, a in rows.items():
        pairs = [(j, similarity(sim_method, a, b)) for j, b in rows.items()
                 if i != j and len(a.keys() & b.keys()) >= max(1, intersect_bar)]
        lists[i] = nearest([(j, s) for j, s in pairs if least <= s <= most], topk)
    return len(rows), {i: found for i, found in lists.items() if found}


# ---- clusters

def kmeans(x, centres, rounds, cosine=False):
    """(inertia, labels) after `rounds` of Lloyd's algorithm."""
    def unit(a):
        return a / numpy.linalg.norm(a, axis=1, keepdims=True) if cosine else a
    x = unit(x)
    for left in range(rounds, -1, -1):
        square = ((x[:, None] - centres) ** 2).sum(axis=2)
        label = square.argmin(axis=1)
        if left > 0:
            centres = unit(numpy.array([x[label == c].mean(axis=0) if (label == c).any() else centre
                                        for c, centre in enumerate(centres)]))
    return square.min(axis=1).sum(), label.tolist()


# ---- linear models: (objective, the intercept and the weights in the units of x)

def centred(x, y, standardize):
    sd = x.std(axis=0) if standardize else numpy.ones(x.shape[1])
    sd = numpy.where(sd > 0, sd, 1)
    return (x - x.mean(axis=0)) / sd, y - y.mean(), lambda w: numpy.r_[y.mean() - x.mean(axis=0) @ (w / sd), w / sd]


def rmse(x, y, theta):
    return math.sqrt(numpy.mean((y - theta[0] - x @ theta[1:]) ** 2))


def ridge(x, y, a, standardize):
    z, target, in_units = centred(x, y, standardize)
    w = numpy.linalg.solve(z.T @ z + a * numpy.eye(x.shape[1]), z.T @ target)
    e = target - z @ w
    return e @ e + a * (w @ w), in_units(w)


def lasso(x, y, a, standardize):
    """Cyclic coordinate descent, until no optimality condition is violated by more than 1e-10 of a."""
    z, e, in_units = centred(x, y, standardize)
    n, w = len(y), numpy.zeros(x.shape[1])
    square = (z * z).sum(axis=0) / n
    worst = math.inf
    while worst > 1e-10 * a:
        worst = 0
        for j in numpy.flatnonzero(square > 1e-28):
            slope = z[:, j] @ e / n
            worst = max(worst, abs(slope) - a if w[j] == 0 else abs(slope - math.copysign(a, w[j])))
            pull = slope + square[j] * w[j]
            change = math.copysign(max(abs(pull) - a, 0), pull) / square[j] - w[j]
            w[j] += change
            e = e - change * z[:, j]
    return e @ e / (2 * n) + a * abs(w).sum(), in_units(w)


def lr_objective(x, y, beta, bias, penalize_bias):
    """(J and its gradient as a function of theta, theta = 0); y is -1 or +1."""
    x = numpy.column_stack([numpy.ones(len(y)), x]) if bias else x
    penalty = numpy.full(x.shape[1], beta)
    if bias and not penalize_bias:
        penalty[0] = 0

    def objective(theta):
        margin = y * (x @ theta)
        slope = -y * special.expit(-margin)
        return (numpy.mean(numpy.logaddexp(0, -margin)) + penalty @ theta ** 2,
                x.T @ slope / len(y) + 2 * penalty * theta)
    return objective, numpy.zeros(x.shape[1])


def lr(x, y, beta, bias=True, penalize_bias=True):
    """The minimum of J and its theta."""
    found = optimize.minimize(*lr_objective(x, y, beta, bias, penalize_bias), jac=True, method="L-BFGS-B",
                              options={"maxiter": 10000, "ftol": 1e-15, "gtol": 1e-11})
    return found.fun, found.x


def lr_dgd(x, y, beta, alpha, rounds, bias=True, penalize_bias=True):
    """theta after steps along the exact gradient."""
    objective, theta = lr_objective(x, y, beta, bias, penalize_bias)
    for _ in range(rounds):
        theta = theta - alpha * objective(theta)[1]
    return theta


def lr_l1(x, y, c, bias=False):
    """(minimum of |w|_1 + c sum_i log(1 + exp(-y_i w.x_i)), weights that are not 0), with w = u - v, u and v >= 0 by L-BFGS-B."""
    x = numpy.column_stack([x, numpy.ones(len(y))]) if bias else x
    penalty = numpy.r_[numpy.ones(x.shape[1] - bias), [0] * bias]

    def value_and_slope(uv):
        u, v = numpy.split(uv, 2)
        margin = y * (x @ (u - v))
        slope = -c * x.T @ (y * special.expit(-margin))
        return penalty @ (u + v) + c * numpy.logaddexp(0, -margin).sum(), numpy.r_[penalty + slope, penalty - slope]
    found = optimize.minimize(value_and_slope, numpy.zeros(2 * x.shape[1]), jac=True, method="L-BFGS-B",
                              bounds=[(0, None)] * 2 * x.shape[1],
                              options={"maxiter": 100000, "maxfun": 100000, "ftol": 0, "gtol": 1e-9, "maxcor": 50})
    u, v = numpy.split(found.x, 2)
    return found.fun, numpy.count_nonzero(u - v)


# ---- others

def adjust_ktop(ratings, lists, lower):
    """({figure: value}, lines `user<tab>best number of neighbours`) of two files"""
    rated = collections.defaultdict(dict)
    with open(ratings, encoding="ascii") as file:
        for user, item, value in (line.split(",") for line in file):
            rated[user][item] = float(value)
    found, count, base, best = [], 0, 0, 0
    with open(lists, encoding="ascii") as file:
        for line in file:
            user, _, rest = line.rstrip("\n").partition("\t")
            neighbours = [entry.split(":") for entry in rest.split("|") if entry]
            mine = rated.get(user, {})
            value = numpy.array(list(mine.values()))
            mean = value.mean() if mine else 0
            above, below, errors = numpy.zeros(len(mine)), numpy.zeros(len(mine)), [((value - mean) ** 2).sum()]
            for other, s in neighbours:
                theirs = rated.get(other, {})
                above += [float(s) * theirs.get(i, 0) for i in mine]
                below += [float(s) * (i in theirs) for i in mine]
                guess = numpy.divide(above, below, where=below != 0, out=numpy.full(len(mine), float(mean)))
                errors.append(((value - guess) ** 2).sum())
            first = min(lower, len(neighbours))
            found.append((user, first + int(numpy.argmin(errors[first:]))))
            count, base, best = count + len(mine), base + errors[-1], best + errors[found[-1][1]]
    return ({"base_rmse": math.sqrt(base / count), "rmse": math.sqrt(best / count), "sum_k": sum(k for _, k in found)},
            [f"{user}\t{k}" for user, k in found])


def dtr(users, items, ids, level, number):
    """(item of each node or None, mean of its users, error) of the tree whose root asks the number-th best item. Errors that
    differ by less than 1e-10 of the node's sum of |p|^2 are equal; then the smaller id is chosen."""
    order = numpy.argsort(ids)
    likes = items[order] @ users.T >= 0
    nodes, tree, means, error = [numpy.arange(len(users))], [], [], 0

    def spread(rows):
        return ((users[rows] - users[rows].mean(axis=0)) ** 2).sum() if len(rows) else 0.0

    def choose(node, nth):
        errors = {}
        for item in range(len(order)):
            yes, no = node[likes[item, node]], node[~likes[item, node]]
            if item not in tree and len(yes) and len(no) and max(len(yes) // len(no), len(no) // len(yes)) < 3:
                errors[item] = spread(yes) + spread(no)
        while errors:
            most = min(errors.values()) + 1e-10 * (users[node] ** 2).sum()
            for item in [i for i, e in errors.items() if e <= most]:
                if nth == 0:
                    return item
                nth -= 1
                del errors[item]
        return None
    for at in range(2 ** level - 1):
        node = nodes[at]
        means.append(users[node].mean(axis=0) if len(node) else numpy.zeros(users.shape[1]))
        item = choose(node, number if at == 0 else 0)
        tree.append(item)
        if item is None or 2 * at >= 2 ** level - 2:
            error += spread(node)
        nodes += [node[:0], node[:0]] if item is None else [node[likes[item, node]], node[~likes[item, node]]]
    return [None if item is None else ids[order[item]] for item in tree], means, error


def steady_state_inversion(w, p, q, epsilon=1e-4):
    """(rounds, scores): every right vertex that gets too little takes the root of what it gets, by Newton's method from below."""
    s = q.copy()
    for rounds in itertools.count():
        sums = w @ s
        target = q * (1 - epsilon / 2)
        lacking = s * (w.T @ (p / sums)) < q * (1 - epsilon)
        if not lacking.any():
            return rounds, s
        c, x = sums[:, None] - w * s, s
        while True:
            d = w * x + c
            value = p @ (w * x / d) - target
            to = x - value / (p @ (w * c / d ** 2))
            rises = lacking & (to > x * (1 + 1e-15))
            if not rises.any():
                break
            x = numpy.where(rises, to, x)
        s = x
