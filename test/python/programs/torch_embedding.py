# SPDX-License-Identifier: BSD-3-Clause
"""paracel.torch with assertions; for any number of workers and servers. Worker 0 prints what it has checked."""
import copy
from unittest import mock

import numpy as np
import paracel
import torch
from paracel.torch import Embedding, adagrad, adam, average_gradients, broadcast_parameters, ftrl, sgd

ROWS, DIM, PADDING = 50, 4, 3


class Checks(paracel.Paralg):
    def solve(self):
        for check in (self.initial_rows, self.like_torch_with_one_worker, self.without_gradients, self.prefetched, self.loaded,
                      self.under_bsp, self.all_optimizers, self.dense, self.refused):
            check()
            self.sync()
            if self.worker_id == 0:
                print(check.__name__, flush=True)

    def embedding(self, name, optimizer=sgd(1.0), padding=None, **more):
        return Embedding(ROWS, DIM, padding, paralg=self, name=name, optimizer=optimizer, **more)

    def initial_rows(self):
        many = Embedding(4000, 8, paralg=self, name="standard normal", optimizer=sgd())
        weight = many.weight()
        assert weight.shape == (4000, 8) and weight.dtype == torch.float32
        # 32000 draws: four standard errors of the mean and of the deviation
        assert abs(weight.mean()) < 4 / 32000**0.5 and abs(weight.std() - 1) < 4 / 64000**0.5, (weight.mean(), weight.std())
        assert not torch.equal(self.embedding("another").weight()[:8], weight[:8, :DIM]), "the seed is from the name"
        assert torch.equal(self.embedding("constant", init=2.5).weight(), torch.full((ROWS, DIM), 2.5))
        drawn = self.embedding("drawn", init=("uniform", -1.0, 1.0, 5), padding=-1)
        weight = drawn.weight()
        assert weight[-1].abs().max() == 0 and len(drawn.table) == ROWS - 1
        assert torch.equal(weight[[7, 49, 7]], drawn(torch.tensor([7, 49, 7])))
        if self.worker_id == 0:
            print("sum", weight.double().sum().item())  # the same in every kind of job

    def like_torch_with_one_worker(self):
        """The others wait. Duplicates, padding, two uses in a graph, batches of one row and of none."""
        for kind, ours, torchs in (("sgd", sgd(0.1), torch.optim.SGD), ("adagrad", adagrad(0.1), torch.optim.Adagrad)):
            generator = torch.Generator().manual_seed(7)
            weight = torch.randn(ROWS, DIM, generator=generator)
            weight[PADDING] = 0
            shared = self.embedding(kind, ours, PADDING)
            shared.load(weight)
            if self.worker_id != 0:
                continue
            own = torch.nn.Embedding(ROWS, DIM, PADDING)
            own.weight.data.copy_(weight)
            torch.manual_seed(3)
            top = torch.nn.Linear(DIM, 1)
            tops = {own: top, shared: copy.deepcopy(top)}
            steps = [torchs([*own.parameters(), *top.parameters()], lr=0.1), torchs(tops[shared].parameters(), lr=0.1)]
            for size in (16, 1, 16, 0, *[16] * 30):
                first = torch.randint(0, ROWS // 2, (size, 3), generator=generator)
                first[:, :1] = PADDING
                second = torch.randint(0, ROWS, (size, 2), generator=generator, dtype=torch.int32)
                wanted = torch.randn(size, 1, generator=generator)
                losses = []
                for rows in (own, shared):
                    found = tops[rows](rows(first).sum(1) + rows(second).mean(1) + rows(first[:, 1]))
                    losses.append(((found - wanted)**2).sum() / max(size, 1))
                for step in steps:
                    step.zero_grad()
                for loss in losses:
                    loss.backward()
                for step in steps:
                    step.step()
                torch.testing.assert_close(losses[1], losses[0], rtol=1e-6, atol=0)
            torch.testing.assert_close(shared.weight(), own.weight.data, rtol=1e-6, atol=1e-6)

    def without_gradients(self):
        rows = self.embedding("no gradients")
        before = rows.weight()
        with torch.no_grad():
            assert not rows(torch.tensor([1])).requires_grad
        rows(torch.tensor([1]))  # without a backward
        some = torch.ones(1, requires_grad=True)
        torch.autograd.grad((rows(torch.tensor([1])) * some).sum(), some)  # a gradient of something else
        self.sync()
        assert torch.equal(rows.weight(), before)
        assert list(rows.parameters()) == [] and rows.state_dict() == {}

    def prefetched(self):
        rows = self.embedding(f"prefetched {self.worker_id}", init=0.0)
        table = rows.table = mock.Mock(wraps=rows.table)  # counts its calls
        first, second, third = torch.tensor([[1, 2], [2, 1]]), torch.tensor([9]), torch.tensor([1])
        rows.prefetch(first)
        rows.prefetch(second)
        rows.prefetch(third)
        rows(first).mean(0).sum().backward()
        assert rows(second).abs().max() == 0
        assert rows(third).abs().max() == 0, "without the step after its request"
        assert (table.pull.call_count, table.pull_async.call_count) == (0, 3)
        assert torch.equal(rows(third), torch.full((1, DIM), -1.0)) and table.pull.call_count == 1
        rows.prefetch(first)
        rows(second)  # drops it
        rows(first)
        assert table.pull.call_count == 3
        shared = self.embedding("prefetched and loaded", init=0.0)
        shared.prefetch(first)
        shared.load(torch.full((ROWS, DIM), 7.0))
        assert shared(first).min() == 7

    def loaded(self):
        weight = torch.arange(ROWS * DIM, dtype=torch.float64).reshape(ROWS, DIM)
        weight[PADDING] = 0
        for dtype in (torch.float32, torch.float64):
            rows = self.embedding(f"loaded {dtype}", padding=PADDING, dtype=dtype)
            rows.load(weight)
            assert torch.equal(rows.weight(), weight.to(dtype)) and rows.weight().dtype == dtype
            assert torch.equal(rows(torch.tensor([[PADDING, 8]]))[0], weight[[PADDING, 8]].to(dtype))

    def under_bsp(self):
        """Every worker's steps are there when all have committed."""
        rows = self.embedding("bsp", init=0.0)
        self.set_consistency("bsp")
        for c in range(3):
            rows(torch.tensor([1])).sum().backward()
            assert torch.equal(rows(torch.tensor([1])), torch.full((1, DIM), -1.0 * c * self.worker_size))
            self.iter_commit()
        self.set_consistency("asp")

    def all_optimizers(self):
        """Each one lowers a loss; momentum, adam and ftrl have no twin in torch that leaves rows without gradients alone."""
        for name, optimizer in {"decay": sgd(0.1, weight_decay=0.01), "momentum": sgd(0.02, momentum=0.9, nesterov=True),
                                "adam": adam(0.1, betas=(0.8, 0.99)), "ftrl": ftrl(alpha=0.5, l1=0.001)}.items():
            rows = self.embedding(f"{name} {self.worker_id}", optimizer)
            used, losses = torch.tensor([4, 5, 5]), []
            for _ in range(100):
                loss = ((rows(used) - 1)**2).sum()
                loss.backward()
                losses.append(loss.item())
            assert losses[-1] < losses[0] / 100, (name, losses[0], losses[-1])

    def dense(self):
        torch.manual_seed(self.worker_id)
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
        model[2].bias.requires_grad_(False)
        broadcast_parameters(model, self.comm)
        all_of = self.comm.allgather(model[0].weight.detach().numpy().reshape(-1))
        assert all(np.array_equal(a, all_of[0]) for a in all_of) and model[1].num_batches_tracked.dtype == torch.int64
        if self.worker_id == 0:
            model[0].weight.grad = torch.full((2, 3), 6.0)  # the others have none
        average_gradients(model, self.comm)
        assert torch.equal(model[0].weight.grad, torch.full((2, 3), 6.0) / self.worker_size)
        assert torch.equal(model[2].weight.grad, torch.zeros(1, 2)) and model[2].bias.grad is None

    def refused(self):
        rows = self.embedding("refused", padding=PADDING)
        for error, words, call in (
                (IndexError, "found index 50, want 0 to 49", lambda: rows(torch.tensor([1, 50]))),
                (IndexError, "found index -1, want 0 to 49", lambda: rows(torch.tensor([-1]))),
                (TypeError, "indices of torch.float32, want integers", lambda: rows(torch.tensor([1.0]))),
                (TypeError, "dtype is torch.float16", lambda: self.embedding("half", dtype=torch.float16)),
                (IndexError, "padding_idx is 50, want a row of 50", lambda: self.embedding("padding", padding=50)),
                (ValueError, "the weight has the shape (2, 2), want (50, 4)", lambda: rows.load(torch.zeros(2, 2))),
                (ValueError, "row 3, which is padding, is not zero", lambda: rows.load(torch.ones(ROWS, DIM))),
                (ValueError, "weight_decay or momentum", lambda: sgd(momentum=0.9, weight_decay=0.1)),
                (paracel.Error, "rate", lambda: self.embedding("rate", ("libparacel_default.so", "paracel_sgd", {"rate": 1.0})))):
            try:
                call()
            except error as e:
                assert words in str(e), e
            else:
                raise AssertionError(words)


paracel.run(Checks)
