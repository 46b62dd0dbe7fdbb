# SPDX-License-Identifier: BSD-3-Clause
"""Paracel: a parameter server for distributed iterative algorithms.

A subclass of `Paralg` reads almost like the serial algorithm; `run` is a program's main::

    import numpy as np
    import paracel

    class Mean(paracel.Paralg):
        def solve(self):
            self.update("sum", np.array([1.0, self.worker_id]))
            self.sync()
            print(self.read("sum"))

    paracel.run(Mean)

`python mean.py` runs it in one process, `prun -w 4 -p 2 mean.py` with four workers and two servers.
"""
import importlib
import os
import sys
from typing import TYPE_CHECKING

from paracel import _core
from paracel._core import Array, Comm, ComQueue, Future, Graph, KeySet, Loop, Table, any_source, any_tag
from paracel._settings import setting
from paracel.errors import (ConfigError, DataError, Error, JobError, MissingKeyError, NetworkError, PluginError, ProtocolError,
                            UsageError, ValueTypeError)
from paracel.paralg import Paralg
from paracel.running import plugin_folders, run

if TYPE_CHECKING:
    from paracel._toolbox import *  # noqa: F403  (toolbox_stub.py writes it when the package is built)

__version__ = "0.1.0"
__all__ = ["Array", "Comm", "ComQueue", "ConfigError", "DataError", "Error", "Future", "Graph", "JobError", "KeySet", "Loop",
           "MissingKeyError", "NetworkError", "Paralg", "PluginError", "ProtocolError", "Table", "UsageError", "ValueTypeError",
           "any_source", "any_tag", "function", "leave", "run", "setting"]

_core._host(os.path.basename(sys.argv[0]) or "python", plugin_folders("", {}))


def function(file: str, name: str, **hyper_parameters: float) -> tuple[str, str, dict[str, float]]:
    """A function of a plug-in, for the arguments `function` and `optimizer`.

    Parameters
    ----------
    file : str
        The plug-in's file; without a folder it is looked up where the job may load plug-ins.
    name : str
    **hyper_parameters : float
        Numbers that the function takes, such as a step size.

    Returns
    -------
    tuple
        What those arguments take.

    Examples
    --------
    >>> import paracel
    >>> paracel.function("libparacel_default.so", "paracel_adagrad", lr=0.1)
    ('libparacel_default.so', 'paracel_adagrad', {'lr': 0.1})
    """
    return file, name, hyper_parameters


def leave() -> None:
    """Leaves the job: closes every Paralg, and stops the server of a job in this process. The next call joins again. Without it
    that happens when the process ends. Raises the error of an update that nobody has waited for."""
    _core._leave()


# Imported when it is used first: estimators import scikit-learn, if there is one.
_TOOLBOX = {
    "_estimator": ["load_model"],
    "_frames": ["Frame"],
    "_run": ["ProgramWarning"],
    "_update": ["update"],
    "cluster": ["KMeans", "SpectralClustering"],
    "factors": ["FactorizationMachineClassifier", "FactorizationMachineRegressor", "TruncatedSVD"],
    "graph": ["bfs", "k_core", "label_propagation", "mvv", "pagerank", "scc", "sssp", "steady_state_inversion",
              "triangle_count", "wcc"],
    "linear": ["ElasticNet", "Lasso", "LinearSVC", "LinearSVR", "LogisticRegression", "Ridge", "SoftmaxRegression"],
    "naive_bayes": ["BernoulliNB", "GaussianNB", "MultinomialNB"],
    "ratings": ["ALS", "MatrixFactorization"],
    "recommending": ["adjust_ktop_sparse", "als_validate", "dtr"],
    "similarity": ["ab_sim_dense", "sim_dense", "similarities"],
    "text": ["LatentDirichletAllocation", "Word2Vec", "wc"],
    "vectors": ["WordVectors"],
    "trees": ["GradientBoostingClassifier", "GradientBoostingRanker", "GradientBoostingRegressor",
              "RandomForestClassifier", "RandomForestRegressor"],
}
_module_of = {name: module for module, names in _TOOLBOX.items() for name in names}
__all__ += list(_module_of)


if not TYPE_CHECKING:
    def __getattr__(name):
        if name not in _module_of:
            raise AttributeError(f"module 'paracel' has no attribute {name!r}")
        return getattr(importlib.import_module(f"paracel.{_module_of[name]}"), name)


def __dir__():
    return sorted({*globals(), *_module_of})
