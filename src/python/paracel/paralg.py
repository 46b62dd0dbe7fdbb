# SPDX-License-Identifier: BSD-3-Clause
"""The base class of algorithms."""
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

from paracel import _core
from paracel._settings import Setting
from paracel._sources import are_files
from paracel.errors import ConfigError
from paracel.loading import (Columns, Samples, SparseRows, entries_of, load_columns, parquet_samples, samples_of, sparse_rows_of)

Opened = TypeVar("Opened", bound="Paralg")  # Self, from Python 3.11 on


# read, write, update and the like are in src/python/binding/core/parameters.cpp.
class Paralg(_core.Paralg):
    """An algorithm: a subclass with `solve`. Each worker of the job runs it on its own part of the data; the parameters that they
    share are in the servers, under string keys.

    Parameters
    ----------
    output : str
        Folder of results, created if missing; the job owns it until the process ends.
    rounds : int
        After so many commits reads go to the servers, not to the cache; 0: never.
    consistency : {"asp", "ssp", "bsp"}
        What reads may miss. With c iterations committed a worker may read while it is at most `staleness` ahead of the slowest
        one; it then sees all updates of every worker's first c - staleness iterations. "asp": no limit. "bsp": 0, and updates
        take effect when all have committed, in rank order, so that runs are bit-identical.
    staleness : int
        Of "ssp": iterations.

    Notes
    -----
    Arguments that are left out are those of the config (keys output, rounds, consistency, ssp_switch, limit_s), or "", 0 and
    "asp". Use it on the thread that made it. Calls that wait release the interpreter for other threads; Ctrl-C ends them.

    Examples
    --------
    >>> import numpy as np
    >>> import paracel
    >>> with paracel.Paralg() as job:
    ...     job.write("theta", np.zeros(3))
    ...     step = job.update("theta", np.ones(3))  # added in the server, while this worker goes on
    ...     job.sync()
    ...     print(job.read("theta"), step.ready())
    [1. 1. 1.] True

    Many keys at once; a prepared set is sent to the servers once:

    >>> job = paracel.Paralg()
    >>> users = job.prepare([f"user_{i}" for i in range(4)])
    >>> job.write(users, np.arange(4.0))
    >>> job.bupdate_get(users, np.ones(4))
    array([1., 2., 3., 4.])
    >>> job.sum("user_")
    10.0
    >>> job.comm.allgather({"rank": job.worker_id})
    [{'rank': 0}]
    """

    config: dict[str, Any] = {}
    """The config of the program, from `--cfg_file` (see `paracel.run`)."""

    settings: ClassVar[dict[str, Setting] | None] = None
    """The keys of the config, by name, as `paracel.setting` declares them: then `paracel.run` checks the config as programs in
    C++ do theirs, and `config` has all of them, with their defaults. None: any keys. The keys consistency, ssp_switch and limit_s
    are accepted, too."""

    def __init__(self, output: str | None = None, rounds: int | None = None, consistency: str | None = None,
                 staleness: int | None = None) -> None:
        super().__init__()
        if consistency is None:
            consistency, limit = consistency_of(self.config)
            staleness = limit if staleness is None else staleness
        self._open((self.config.get("output") or "") if output is None else output,
                   (self.config.get("rounds") or 0) if rounds is None else rounds, consistency, staleness or 0)

    def solve(self) -> None:
        """The algorithm."""

    def checkpoint_state(self) -> dict[str, Any] | None:
        """What this worker needs, in addition to the parameters and its data, to resume after the iteration just committed: a
        dict of values by name (numbers, arrays, str, lists, dicts). Called inside iter_commit. None: nothing."""

    def restore_state(self, state: dict[str, Any], all_states: list[dict[str, Any]] | None) -> None:
        """Called inside first_iteration with what checkpoint_state has returned.

        Parameters
        ----------
        state : dict
            Of this worker.
        all_states : None or list of dict
            If the number of workers has changed, those of all workers by rank; `state` is then that of rank 0.
        """

    def loop(self, state: dict[str, Any] | None = None, same_on_every_worker: bool = False) -> _core.Loop:
        """A loop that can resume from a checkpoint: `while loop.next(rounds): ...`.

        Parameters
        ----------
        state : dict, optional
            Its values are the variables that carry over from one iteration to the next.
        same_on_every_worker : bool
            The state is, so that the loop may resume with another number of workers.

        Returns
        -------
        Loop
        """
        return self._loop({} if state is None else state, same_on_every_worker)

    def load_samples(self, files: str | Iterable[str], **options: Any) -> Samples:
        """This worker's part of samples in CSV, libsvm, .npy, Parquet or Arrow: a `loading.Samples`. A collective; an error is
        the same on every worker.

        Parameters
        ----------
        files : str or list of str
            Files, folders, glob patterns, or "-". Names that end in .parquet, .arrow or .feather: each worker reads its share of
            the row groups, with a package that Paracel does not need otherwise, pyarrow.
        **options
            label : {"binary", "real", "classes", "relevance", "none"}; classes, target, features, weight, group, categorical:
            fields, by name or number (as text); header : {"automatic", "yes", "no"}; separator, columns, without_label, missing,
            missing_as, float32. doc/loading.md explains them. Of Parquet: label, classes, target, features, weight, group and
            categorical by name, without_label, float32, and missing=True: missing features are NaN.

        Returns
        -------
        loading.Samples
        """
        if are_files(files):
            return parquet_samples(self.comm, files, **options)
        return samples_of(self._load_samples(files, **options))

    def load_sparse(self, files: str | Iterable[str], **options: Any) -> SparseRows:
        """This worker's rows of a sparse matrix, from lines `row,column,value`, MatrixMarket, libsvm, or columns of Parquet or
        Arrow (as load_samples: the first three, or the option `columns`): a `loading.SparseRows`. Rows are
        numbered in ascending order of their ids, over all workers. A collective.

        Parameters
        ----------
        files : str or list of str
        **options
            format : {"automatic", "fields", "matrix_market", "libsvm"}; ids : {"automatic", "number", "name"};
            duplicates : {"sum", "keep", "last", "refuse", "min", "max"}; values : {"take", "need", "ignore"};
            header : {"automatic", "yes", "no"}; transpose, non_negative, comments : bool; columns, rows_also : list of str.

        Returns
        -------
        loading.SparseRows
        """
        return sparse_rows_of(self._load_sparse(self._text_files(files, options, True), **options))

    def load_graph(self, files: str | Iterable[str], **options: Any) -> _core.Graph:
        """This worker's part of a graph, from edge lists, or columns of Parquet or Arrow: the source, the target and the weight.
        A collective.

        Parameters
        ----------
        files : str or list of str
        **options
            weighted, undirected, self_loops, incoming : bool; and the options of load_sparse.

        Returns
        -------
        Graph
        """
        return self._load_graph(self._text_files(files, options, options.get("weighted")), **options)

    def _text_files(self, files: str | Iterable[str], options: dict[str, Any], valued: bool | None) -> str | Iterable[str]:
        """The files that the core reads; the rows of those of Parquet become the option `own`."""
        if are_files(files):
            values = options.get("values", "take" if valued else "ignore")
            options["own"] = entries_of(self.comm, files, options.pop("columns", None), values)
            return []
        return files

    def load_parquet(self, files: str | Iterable[str], columns: Iterable[str] | None = None) -> Columns:
        """This worker's rows of files of Parquet or Arrow: a `loading.Columns`. Each worker reads its share of the row groups,
        whole ones, so that rows are spread evenly if there are several groups a worker; the rows of all workers, one after the
        other, are those of the files. A collective. Needs pyarrow.

        Parameters
        ----------
        files : str or list of str
            Names or glob patterns.
        columns : list of str, optional
            Default: all.

        Returns
        -------
        loading.Columns
        """
        return load_columns(self.comm, files, columns)

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def consistency_of(config: dict[str, Any]) -> tuple[str, int]:
    """(model, staleness) of the keys consistency, ssp_switch and limit_s, as for the programs of the toolbox."""
    named = config.get("consistency", "auto")
    switch = config.get("ssp_switch")
    limit = config.get("limit_s", 0)
    if named == "auto":
        return ("ssp" if switch else "asp"), limit
    if named == "ssp":
        if switch is False:
            raise ConfigError('"consistency": "ssp" contradicts "ssp_switch": false')
        return "ssp", limit
    if switch or limit:
        raise ConfigError(f'"consistency": "{named}" contradicts ssp_switch and limit_s, which are for ssp')
    return named, 0
