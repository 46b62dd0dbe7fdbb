# SPDX-License-Identifier: BSD-3-Clause
"""A factorization machine with the initial values, order, batches and steps of fm with one worker; interactions are summed pair
by pair. als solves for one feature after the other, in the order of a greedy colouring."""
import numpy
from scipy import special

from counter_random import CounterRandom


class Machine:
    def __init__(self, x, y, loss, k, beta_w, beta_v, start, seed):
        self.x, self.log, self.beta_w, self.beta_v, self.seed = x, loss == "log", beta_w, beta_v, seed
        self.y = numpy.where(y > 0, 1, -1) if self.log else y
        draws = [CounterRandom(seed, 1, j + 1) for j in range(x.shape[1])]
        self.w, self.v = numpy.zeros(x.shape[1]), numpy.array([[start * d.normal() for _ in range(k)] for d in draws])
        self.bias = special.logit((self.y > 0).mean()) if self.log else y.mean()

    def margins(self, x):
        a, b = numpy.triu_indices(x.shape[1], 1)
        return self.bias + x @ self.w + (x[:, a] * x[:, b]) @ (self.v[a] * self.v[b]).sum(axis=1)

    def slopes(self, rows):
        margin = self.margins(self.x[rows])
        return -self.y[rows] * special.expit(-self.y[rows] * margin) if self.log else margin - self.y[rows]

    def curvatures(self, rows):
        """The bound of Jaakkola and Jordan for the loss log."""
        margin = self.margins(self.x[rows])
        return (special.expit(margin) - 0.5) / margin if self.log else numpy.ones(len(margin))

    def descend(self, method, rounds, alpha, batch):
        """Steps along the gradient of each batch."""
        states = {name: numpy.zeros_like(getattr(self, name)) for name in ("bias", "w", "v")}

        def step(name, gradient, curvature):
            if method == "adagrad":
                states[name] += gradient ** 2
                gradient = gradient / (numpy.sqrt(states[name]) + 1e-8)
            else:
                gradient = gradient * numpy.where(curvature > 0, special.exprel(-alpha * curvature), 1)
            setattr(self, name, getattr(self, name) - alpha * gradient)
        n = len(self.y)
        batches = -(-n // batch)
        for round_ in range(rounds):
            order, random = list(range(n)), CounterRandom(self.seed, 2, round_)
            for i in range(n, 1, -1):
                j = random.below(i)
                order[i - 1], order[j] = order[j], order[i - 1]
            for b in range(batches):
                rows = order[n * b // batches:n * (b + 1) // batches]
                x, slope, most = self.x[rows], self.slopes(rows), 0.25 if self.log else 1
                count = (x != 0).sum(axis=0)
                rest = (x @ self.v)[:, None, :] - x[:, :, None] * self.v  # of each row and feature: what multiplies v x
                curvature = most * (x ** 2 * (1 + (rest ** 2).sum(axis=2))).sum(axis=0)
                of_w = x.T @ slope + count * self.beta_w * self.w
                of_v = numpy.einsum("i,ij,ijf->jf", slope, x, rest) + count[:, None] * self.beta_v * self.v
                step("bias", slope.sum(), most * len(rows))
                step("w", of_w, curvature)
                step("v", of_v, curvature[:, None])

    def alternate(self, rounds):
        """A feature's colour is the least that no earlier feature has which shares a sample with it. Returns their number."""
        near = (self.x != 0).T.astype(int) @ (self.x != 0) > 0
        colour = []
        for j in range(len(self.w)):
            taken = {colour[i] for i in range(j) if near[i, j]}
            colour.append(min(set(range(j + 1)) - taken))
        everything = slice(None)
        for _ in range(rounds):
            self.bias -= self.slopes(everything).sum() / self.curvatures(everything).sum()
            for j in numpy.argsort(colour, kind="stable"):
                rows = numpy.flatnonzero(self.x[:, j])
                x, curvature = self.x[rows, j, None], self.curvatures(rows)
                h = numpy.column_stack([x, x * (self.x[rows] @ self.v - x * self.v[j])])
                penalty = len(rows) * numpy.diag([self.beta_w] + [self.beta_v] * self.v.shape[1])
                now = h @ numpy.r_[self.w[j], self.v[j]]
                found = numpy.linalg.solve(h.T * curvature @ h + penalty, h.T @ (curvature * now - self.slopes(rows)))
                self.w[j], self.v[j] = found[0], found[1:]
        return len(set(colour))

    def figures(self):
        """Those of training rows, which are the test rows too."""
        margin, count = self.margins(self.x), (self.x != 0).sum(axis=0)
        losses = numpy.logaddexp(0, -self.y * margin) if self.log else (margin - self.y) ** 2 / 2
        penalty = count @ (self.beta_w * self.w ** 2 + self.beta_v * (self.v ** 2).sum(axis=1)) / 2
        found = {"objective": losses.sum() + penalty, "loss": losses.sum()}
        if self.log:
            return {**found, "accuracy": ((margin > 0) == (self.y > 0)).mean(), "log_loss": losses.mean()}
        rmse = numpy.sqrt(2 * losses.mean())
        return {**found, "train_rmse": rmse, "test_rmse": rmse}
