# SPDX-License-Identifier: BSD-3-Clause
"""Objectives and metrics in Python, as boosted trees call them (alg/gbdt/host_functions.hpp).

In this process the program calls them through the binding. In a job each worker is a process of _worker.py, which imports them by
their names, "module:function".
"""
import importlib
import math
import os
import sys

import numpy as np

GREATEST = 1e30  # of derivatives: the trees' values are single-precision numbers


def name_of(function):
    """Its name for the model: "module:function"."""
    if isinstance(function, str):
        return function
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"


def function_of(parameter, function):
    """A function, perhaps given by its name. Raises ValueError."""
    if callable(function):
        return function
    module, colon, name = str(function).partition(":")
    try:
        if not isinstance(function, str) or not colon:
            raise TypeError("it is neither a function nor the name of one")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise TypeError("it cannot be called")
    except (ImportError, AttributeError, TypeError) as e:
        raise ValueError(f"parameter {parameter}: found {function!r}, want a function, or 'module:function': {e}") from None
    return found


def name_for_workers(parameter, function):
    """The name by which other processes import a function. Raises ValueError where they cannot."""
    name = name_of(function)
    module = name.partition(":")[0]
    found = None
    if module != "__main__":
        try:
            found = function_of(parameter, name)
        except ValueError:
            if isinstance(function, str):
                raise
    if found is None or found is not function and not isinstance(function, str):
        raise ValueError(f"parameter {parameter}: found {name}, which the workers of a job cannot import; want a function of a "
                         "module, such as losses.py, or n_workers=None")
    return name


def folders_of_modules():
    """The folders in which this process looks for modules, for another one."""
    return [os.path.abspath(folder) for folder in sys.path]


class Objective:
    """`function(y, raw, *more) -> (gradient, hessian)` as the program calls it."""

    def __init__(self, function, classes=False, more=()):
        self.function, self.classes, self.more = function, classes, more

    def __call__(self, label, raw, outputs):
        raw = _rows(raw, outputs)
        found = self.function(_labels(label, self.classes), raw, *self.more)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ValueError(f"objective {name_of(self.function)}: returned {_described(found)}, want (gradient, hessian)")
        gradient, hessian = (self._checked(what, a, raw) for what, a in zip(("gradient", "hessian"), found))
        if (hessian < 0).any():
            raise ValueError(f"objective {name_of(self.function)}: found hessian {hessian.min():.6g} in row "
                             f"{np.argmin(hessian) // outputs}, want 0 or more")
        return gradient, hessian

    def _checked(self, what, array, raw):
        try:
            array = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"objective {name_of(self.function)}: returned {_described(array)} as {what}, want "
                             "numbers") from None
        if array.shape != raw.shape:
            raise ValueError(f"objective {name_of(self.function)}: found {what} of shape {array.shape}, want {raw.shape}, that "
                             "of the raw predictions")
        wrong = ~(np.abs(array) <= GREATEST)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(f"objective {name_of(self.function)}: found {what} {array[at]} in row {at[0]}, want numbers up to "
                             f"{GREATEST:g}")
        return np.ascontiguousarray(array).ravel()


class Metric:
    """`function(y, prediction, *more) -> float` as the program calls it."""

    def __init__(self, function, classes=False, more=()):
        self.function, self.classes, self.more = function, classes, more

    def __call__(self, label, prediction, outputs):
        found = self.function(_labels(label, self.classes), _rows(prediction, outputs), *self.more)
        try:
            value = float(found)
        except (TypeError, ValueError):
            raise ValueError(f"eval_metric {name_of(self.function)}: returned {_described(found)}, want a number") from None
        if not math.isfinite(value):
            raise ValueError(f"eval_metric {name_of(self.function)}: returned {value}, want a finite number")
        return value


def _rows(flat, outputs):
    return flat if outputs == 1 else flat.reshape(-1, outputs)


def _labels(label, classes):
    return label.astype(np.int64) if classes else label


def _described(found):
    return f"an array of shape {found.shape}" if isinstance(found, np.ndarray) else f"{type(found).__name__} {found!r:.60}"
