# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch modules whose rows are in the servers. Needs PyTorch; `import paracel` does not import it::

    from paracel.torch import Embedding, adagrad

    rows = Embedding(10_000_000, 16, paralg=self, name="rows", optimizer=adagrad(lr=0.05))
    loss_of(model(rows(indices)), labels).backward()    # sends the rows' gradients; the servers step them
    self.iter_commit()
"""
import zlib

import numpy as np

from paracel._core import Table

try:
    import torch
except ImportError:
    raise ImportError("paracel.torch needs PyTorch, which is not installed: pip install torch") from None

__all__ = ["Embedding", "adagrad", "adam", "average_gradients", "broadcast_parameters", "ftrl", "sgd"]

DEFAULT_PLUGIN = "libparacel_default.so"


def sgd(lr=0.01, weight_decay=0.0, momentum=0.0, nesterov=False):
    """As torch.optim.SGD. weight_decay and momentum exclude each other, and act only on rows that have a gradient."""
    if not momentum:
        if nesterov:
            raise ValueError("nesterov needs a momentum")
        return DEFAULT_PLUGIN, "paracel_sgd", {"lr": lr, "weight_decay": weight_decay}
    if weight_decay:
        raise ValueError("sgd has weight_decay or momentum, not both")
    return DEFAULT_PLUGIN, "paracel_momentum", {"lr": lr, "momentum": momentum, "nesterov": float(nesterov)}


def adagrad(lr=0.01, eps=1e-10):
    """As torch.optim.Adagrad."""
    return DEFAULT_PLUGIN, "paracel_adagrad", {"lr": lr, "eps": eps}


def adam(lr=0.001, betas=(0.9, 0.999), eps=1e-8):
    """As torch.optim.SparseAdam, but each row counts its own steps."""
    return DEFAULT_PLUGIN, "paracel_adam", {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps}


def ftrl(alpha=0.1, beta=1.0, l1=0.0, l2=0.0):
    """FTRL-proximal, for sparse rows; default/README.md has the formulas of all."""
    return DEFAULT_PLUGIN, "paracel_ftrl", {"alpha": alpha, "beta": beta, "l1": l1, "l2": l2}


class Embedding(torch.nn.Module):
    """torch.nn.Embedding over a `Table`: all workers share its rows, and an optimizer in the servers steps them.

    A forward pulls the distinct rows of its indices. A backward sends their gradients, summed over the duplicates and the uses
    in its graph: one step of each of these rows for every backward pass, as of backward() and step() in PyTorch. There are no
    parameters for an optimizer of torch. What a forward may miss of other workers' steps, and when `iter_commit` waits, is the
    rule of the Paralg's consistency.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    padding_idx : int, optional
        A row of zeros that is never stepped. It is not in the servers.
    paralg : Paralg
        Whose thread uses the module.
    name : str
        Of the table. Every worker passes the same arguments.
    optimizer : tuple
        `sgd()`, `adagrad()`, `adam()`, `ftrl()`, a `paracel.function`, or a `paracel.update` in place.
    init : number or tuple, optional
        Initial rows, as of `Table`: a number, ("normal", mean, sd, seed) or ("uniform", low, high, seed). A row's numbers depend
        on its index and the seed only. Default: standard normal, as torch's, with a seed from the name.
    dtype : torch.dtype
        torch.float32 or torch.float64.

    Notes
    -----
    A step costs two messages to each shard with rows of the batch: 8 bytes an index, and 4 a number each way. Rows are made at
    their first use. They are part of the job's checkpoints and replicas, with their optimizer's state.
    """

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, *, paralg, name, optimizer, init=None,
                 dtype=torch.float32):
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype is {dtype}, want torch.float32 or torch.float64")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise IndexError(f"padding_idx is {padding_idx}, want a row of {num_embeddings}")
        if init is None:
            init = ("normal", 0.0, 1.0, zlib.crc32(name.encode()))
        self.num_embeddings, self.embedding_dim, self.name = num_embeddings, embedding_dim, name
        self.padding_idx = padding_idx % num_embeddings if padding_idx is not None else None
        self.paralg, self.dtype = paralg, dtype
        self.table = Table(paralg, name, embedding_dim, "float32" if dtype == torch.float32 else "float64", init=init,
                           optimizer=optimizer)
        self._prefetched = []  # (indices, distinct ids, places, future of their rows), in the order of the calls
        self._gradients = []   # (distinct ids, gradients of their rows) of the backward pass that is running

    def forward(self, indices):
        """indices : tensor of integers, of any shape. Returns a tensor of its shape and embedding_dim, on its device."""
        ids, places, rows = self._rows(self._flat(indices))
        padding = None
        if self.padding_idx is not None:
            padding = len(ids)
            rows = np.concatenate([rows, np.zeros((1, self.embedding_dim), rows.dtype)])
        rows = torch.from_numpy(rows).to(indices.device)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            rows.register_hook(lambda gradient: self._keep(ids, gradient))
        places = torch.from_numpy(places).to(indices.device).view(indices.shape)
        return torch.nn.functional.embedding(places, rows, padding_idx=padding)

    def prefetch(self, indices):
        """Requests the rows of a later batch and returns at once, or as soon as the clock allows a read. The forward with these
        indices takes them: without the steps sent in between, its own ones too. A forward with others drops what is
        prefetched."""
        flat = self._flat(indices).copy()
        ids, places = self._distinct(flat)
        self._prefetched.append((flat, ids, places, self.table.pull_async(ids)))

    def weight(self):
        """All rows, as a tensor of (num_embeddings, embedding_dim). Makes the rows that do not exist yet."""
        ids = np.arange(self.num_embeddings, dtype=np.uint64)
        if self.padding_idx is None:
            return torch.from_numpy(self.table.pull(ids))
        weight = torch.zeros(self.num_embeddings, self.embedding_dim, dtype=self.dtype)
        others = ids[ids != self.padding_idx]
        weight[torch.from_numpy(others.astype(np.int64))] = torch.from_numpy(self.table.pull(others))
        return weight

    def load(self, weight):
        """Sets all rows, and resets their optimizer's state. A collective: every worker passes the same tensor of
        (num_embeddings, embedding_dim) and sends its part of it. Not after a resume, which has the rows."""
        if tuple(weight.shape) != (self.num_embeddings, self.embedding_dim):
            raise ValueError(f"the weight has the shape {tuple(weight.shape)}, want "
                             f"{(self.num_embeddings, self.embedding_dim)}")
        weight = weight.detach().to("cpu", self.dtype).contiguous().numpy()
        if self.padding_idx is not None and weight[self.padding_idx].any():
            raise ValueError(f"row {self.padding_idx}, which is padding, is not zero in the weight")
        ids = np.arange(self.paralg.worker_id, self.num_embeddings, self.paralg.worker_size, dtype=np.uint64)
        if self.padding_idx is not None:
            ids = ids[ids != self.padding_idx]
        self._prefetched.clear()
        self.table.push(ids, weight[ids])
        self.paralg.sync()

    def extra_repr(self):
        padding = f", padding_idx={self.padding_idx}" if self.padding_idx is not None else ""
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}, name={self.name!r}"

    def _flat(self, indices):
        if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
            raise TypeError(f"indices of {indices.dtype}, want integers")
        flat = indices.detach().cpu().numpy().reshape(-1)
        if flat.size and not (0 <= flat.min() and flat.max() < self.num_embeddings):
            raise IndexError(f"found index {flat.min() if flat.min() < 0 else flat.max()}, want 0 to {self.num_embeddings - 1}")
        return flat

    def _distinct(self, flat):
        """(the distinct indices without the padding, for each index its place there or, of the padding, their number)."""
        ids, places = np.unique(flat, return_inverse=True)
        at = np.searchsorted(ids, self.padding_idx) if self.padding_idx is not None else len(ids)
        if at < len(ids) and ids[at] == self.padding_idx:
            ids = np.delete(ids, at)
            places = np.where(places == at, len(ids), places - (places > at))
        return ids.astype(np.uint64), places.astype(np.int64)

    def _rows(self, flat):
        """(distinct ids, places, rows)."""
        for i, (known, ids, places, rows) in enumerate(self._prefetched):
            if np.array_equal(known, flat):
                del self._prefetched[:i + 1]
                return ids, places, rows.get()
        self._prefetched.clear()
        ids, places = self._distinct(flat)
        return ids, places, self.table.pull(ids)

    def _keep(self, ids, gradient):
        """At the end of the backward pass, when the gradients of all uses in it are known, they are sent together."""
        self._gradients.append((ids, gradient.detach()[:len(ids)].cpu().numpy()))
        torch.autograd.Variable._execution_engine.queue_callback(self._send)

    def _send(self):
        parts, self._gradients = self._gradients, []
        if len(parts) == 1:
            self.table.update(*parts[0])
        elif parts:  # the table sums duplicates
            self.table.update(np.concatenate([ids for ids, _ in parts]), np.concatenate([rows for _, rows in parts]))


def average_gradients(module, comm):
    """Replaces the gradients of the module's parameters by their means over all workers, between backward() and step(). A
    collective, folded in rank order: the same bits on every worker, which therefore keep the same parameters."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        return
    mine = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).detach().reshape(-1) for p in parameters])
    mean = torch.from_numpy(comm.allreduce(mine.cpu().numpy(), in_place=True)) / comm.size
    for p, part in zip(parameters, mean.split([p.numel() for p in parameters])):
        p.grad = part.view_as(p).to(p.device, p.dtype)


def broadcast_parameters(module, comm):
    """Gives every worker the module's parameters and buffers of rank 0. A collective."""
    for to in (*module.parameters(), *module.buffers()):
        shared = np.asarray(comm.bcast(to.detach().cpu().numpy().reshape(-1)))
        with torch.no_grad():
            to.copy_(torch.tensor(shared).view_as(to))
