# SPDX-License-Identifier: BSD-3-Clause
"""als, and mf with one worker and 64-bit factors: their initial values, order and steps, on lists of (user, item, rating)."""
import collections
import itertools

import numpy

from counter_random import CounterRandom


class Factors:
    """Rows of a bias and k factors, by id."""

    def __init__(self, ratings):
        self.values = numpy.array([r for _, _, r in ratings])
        self.mean = self.values.mean()
        self.users, self.items = collections.defaultdict(list), collections.defaultdict(list)
        for u, i, r in ratings:
            self.users[u].append((i, r))
            self.items[i].append((u, r))

    def drawn(self, ids, stream, k, seed):
        def row(i):
            draw = CounterRandom(seed, stream, i)
            return numpy.array([0] + [0.1 * draw.normal() for _ in range(k)])
        return {i: row(i) for i in ids}

    def errors(self, ratings, bounded):
        nothing = numpy.zeros(len(next(iter(self.h.values()))))
        pairs = [(self.w.get(u, nothing), self.h.get(i, nothing)) for u, i, _ in ratings]
        guess = numpy.array([self.mean + w[0] + h[0] + w[1:] @ h[1:] for w, h in pairs])
        guess = numpy.clip(guess, self.values.min(), self.values.max()) if bounded else guess
        return numpy.array([r for _, _, r in ratings]) - guess

    def rmse(self, ratings):
        return numpy.sqrt((self.errors(ratings, True) ** 2).mean())


def als(ratings, test, k, rounds, lambda_, lambda_bias, weighted, seed):
    f = Factors(ratings)
    f.h = f.drawn(f.items, 5, k, seed)
    penalty = numpy.array([lambda_bias] + [lambda_] * k)

    def times(entries):
        return len(entries) if weighted else 1

    def solved(rows, others):
        found = {}
        for key, entries in rows.items():
            x = numpy.array([[1, *others[other][1:]] for other, _ in entries])
            target = [r - f.mean - others[other][0] for other, r in entries]
            found[key] = numpy.linalg.solve(x.T @ x + times(entries) * numpy.diag(penalty), x.T @ target)
        return found
    for _ in range(rounds):
        f.w = solved(f.users, f.h)
        f.h = solved(f.items, f.w)
    penalties = sum(times(rows[key]) * penalty @ x[key] ** 2 for rows, x in ((f.users, f.w), (f.items, f.h)) for key in rows)
    return {"objective": (f.errors(ratings, False) ** 2).sum() + penalties, "test_rmse": f.rmse(test)}


def in_turns(order, entries, clocks=10, lanes=4):
    """(user, item, rating) of a round: of each of its pieces four users take turns."""
    ahead = [(u, i, r) for u in order for i, r in entries[u]]
    for clock in range(clocks):
        piece = ahead[len(ahead) * clock // clocks:len(ahead) * (clock + 1) // clocks]
        runs = [list(run) for _, run in itertools.groupby(piece, key=lambda step: step[0])]
        taking, next_, turn = runs[:lanes], lanes, 0
        while taking:
            turn %= len(taking)
            yield taking[turn].pop(0)
            if not taking[turn] and next_ < len(runs):
                taking[turn] = runs[next_]
                next_ += 1
            if taking[turn]:
                turn += 1
            else:
                del taking[turn]


def mf(ratings, test, k, rounds, alpha, beta, seed):
    f = Factors(ratings)
    f.w, f.h = f.drawn(f.users, 1, k, seed), f.drawn(f.items, 2, k, seed)
    entries = {u: sorted(f.users[u]) for u in sorted(f.users)}
    for u, mine in entries.items():
        draw = CounterRandom(seed, 4, u)
        for n in range(1, len(mine) + 1):
            j = draw.below(n)
            mine[j], mine[n - 1] = mine[n - 1], mine[j]
    for round_ in range(rounds):
        order, draw = list(entries), CounterRandom(seed, 3, round_)
        for n in range(len(order), 1, -1):
            j = draw.below(n)
            order[n - 1], order[j] = order[j], order[n - 1]
        for u, i, r in in_turns(order, entries):
            w, h = f.w[u], f.h[i]
            e = 2 * (r - f.mean - w[0] - h[0] - w[1:] @ h[1:])
            f.w[u] = w + alpha * (e * numpy.r_[1, h[1:]] - beta * w)
            f.h[i] = h + alpha * (e * numpy.r_[1, w[1:]] - beta * h)
    return {"loss": (f.errors(ratings, False) ** 2).sum(), "rmse": f.rmse(ratings), "test_rmse": f.rmse(test)}
