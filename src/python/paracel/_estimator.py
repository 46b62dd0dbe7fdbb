# SPDX-License-Identifier: BSD-3-Clause
"""The base of all estimators: parameters, and a fit by a program of the toolbox."""
import contextlib
import importlib
import inspect
import re
import textwrap
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from paracel._docs import complete, complete_methods
from paracel._frames import frame_of
from paracel._inputs import SparseRows, Table
from paracel._model import Model
from paracel._run import Job, Words, memory_folder
from paracel._sklearn import (BaseEstimator, ClassifierMixin, RegressorMixin, check_classification_targets, check_data,
                              check_is_fitted, check_supervised, check_weight)


def same(value):
    return value


class Parameter(NamedTuple):
    """A parameter of a constructor.

    Attributes
    ----------
    default : object
    key : str or None
        The key of the program's config that it sets; None: it is used in another way.
    doc : str
    value : callable, optional
        From the parameter's value to the key's. None leaves the key out.
    type : str
        For type checkers, if it is not that of the default.
    """

    default: Any
    key: Optional[str]
    doc: str
    value: Callable = same
    type: str = ""


def seed_of(random_state):
    """A number for the program's generator."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    generator = np.random.mtrand._rand if random_state is None else random_state
    if isinstance(generator, np.random.Generator):
        return int(generator.integers(2**31 - 1))
    if not isinstance(generator, np.random.RandomState):
        raise ValueError("want None, a whole number of at least 0, or a generator of NumPy")
    return int(generator.randint(2**31 - 1))


def random_state(doc="Seed of the random numbers. None: another one in each fit."):
    return Parameter(0, "seed", doc, seed_of, type="int | numpy.random.RandomState | None")


def class_weight():
    return Parameter(None, None, "Factors of the rows' weights: a dict from class to number, or 'balanced'.",
                     type="dict[Any, float] | str | None")


def warm_start(doc):
    """The parameter of an estimator whose fit can go on from the last one's model."""
    return Parameter(False, None, "True: a further fit goes on from the model that is there. " + doc)


_JOB = {
    "n_workers": Parameter(None, None, "None: fit in this process. A number: a job of so many worker processes.",
                           type="int | None"),
    "n_servers": Parameter(1, None, "Parameter servers of a job."),
    "replicas": Parameter(1, None, "Copies of each parameter in a job; with 2, fit survives the loss of a server."),
    "launcher": Parameter("local", None, "How a job is started: ``local``, on this host, or ``mpi``; or a list of options of "
                                         "prun, such as ``['-m', 'mpi', '--hostfile', 'hosts', '--output-dir', 'shared']``.",
                          type="str | collections.abc.Sequence[str]"),
    "verbose": Parameter(False, None, "Print what the program prints."),
    "progress": Parameter(False, None, "Show the rounds of a fit, with tqdm if that is installed, else as lines on stderr."),
}


class ProgramEstimator(BaseEstimator):
    """A model that a program of the toolbox fits.

    Subclasses define `_program` and the table `_parameters`, from which their constructors follow.
    """

    _program: str | None = None
    _parameters: dict[str, Any] = {}
    _further_keys: dict[str, str] = {}  # of the program, which parameters set in another way: the parameter by key
    _notes = ""  # of all subclasses, after the parameters
    _allow_nan = False
    # Checks of scikit-learn that do not hold, and why: by the function's name, perhaps with its arguments.
    _expected_failures: dict[str, str] = {}

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        for base in cls.__mro__:  # also those that are no estimators
            if base.__module__.startswith("paracel."):
                complete_methods(base)
        if "_parameters" not in cls.__dict__:
            return
        cls._table = {**cls._parameters, **_JOB}
        names = list(cls._table)
        scope = {f"_default_{n}": p.default for n, p in cls._table.items()}
        # As dataclasses do: a function with a signature of its own.
        source = (f"def __init__(self, *, {', '.join(f'{n}=_default_{n}' for n in names)}):\n"
                  + "".join(f"    self.{n} = {n}\n" for n in names))
        exec(source, scope)
        cls.__init__ = scope["__init__"]
        cls.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__.__module__ = cls.__module__
        cls.__doc__ = _with_parameters(cls.__doc__, cls._table, cls._notes)

    # ---- fitting

    def _config(self):
        """The config's keys that parameters set."""
        config = {}
        for name, parameter in self._table.items():
            if parameter.key is not None:
                value = self._value_of(name, parameter)
                if value is not None:
                    config[parameter.key] = value.item() if isinstance(value, np.generic) else value
        return config

    def _value_of(self, name, parameter):
        """The key's value. Raises ValueError for what its conversion or JSON does not know."""
        given = getattr(self, name)
        if given is None and parameter.default is not None and parameter.value is same:
            raise ValueError(f"{type(self).__name__}: parameter {name}: found None, want a value such as {parameter.default!r}")
        try:
            value = parameter.value(given)
        except (TypeError, ValueError) as e:
            raise ValueError(f"{type(self).__name__}: parameter {name}: found {given!r}: {e}") from None
        if isinstance(value, (float, np.floating)) and not np.isfinite(value):
            raise ValueError(f"{type(self).__name__}: parameter {name}: found {given!r}, want a finite number")
        return value

    def _number(self, name):
        """The value of a parameter that must be a number. Raises ValueError."""
        value = getattr(self, name)
        if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool) or not np.isfinite(value):
            raise ValueError(f"{type(self).__name__}: parameter {name}: found {value!r}, want a number")
        return value

    def _words(self, inputs=()):
        parameters = {**{p.key: name for name, p in self._table.items() if p.key}, **self._further_keys}
        return Words(type(self).__name__, parameters,
                     {"training_input": "X", "input": "X", "rating_input": "ratings", "row_weights": "sample_weight",
                      "validation_input": "eval_set", **dict(inputs)})

    def _by_name(self, X, *values):
        """X and values, of which names are columns of X, a frame."""
        named = [v for v in values if isinstance(v, str)]
        if not named:
            return X, *values
        frame = frame_of(X)
        if frame is None:
            raise ValueError(f"{type(self).__name__}: found {named[0]!r} in place of values, want them, or X as a frame with "
                             "such a column")
        self._labels = sorted({*getattr(self, "_labels", ()), *named})
        return frame._without(named), *(frame._column(v) if isinstance(v, str) else v for v in values)

    def _goes_on(self):
        """Whether a fit begins with the model that is there."""
        return getattr(self, "warm_start", False) and "model_" in self.__dict__

    def _run(self, inputs, config=None, program=None, functions=None):
        """Runs the program. `functions`: see Job.run. Returns: its Model."""
        job = Job(self.n_workers, self.n_servers, self.replicas, self.launcher, self.progress)
        config = {**self._config(), **(config or {})}
        how = {"words": self._words(), "on_line": print if self.verbose else None, "functions": functions}
        program = program or self._program
        if not self._goes_on():
            return job.run(program, config, inputs, **how)
        with memory_folder(job.top) as folder:
            self._earlier().write(folder)
            return job.run(program, {**config, "initial_model": folder}, inputs, **how)

    def _earlier(self):
        """The model that a fit goes on from, as the program knows it."""
        return self.model_

    # ---- models on disk

    def save(self, folder):
        """Writes the model into a folder that the program reads with the key ``model``, and `paracel.load_model`.

        Parameters
        ----------
        folder : path
            It is created; files of the same names are replaced.
        """
        check_is_fitted(self)
        self._named().write(folder)

    def _named(self):
        """The model with the features' names, if they have some: the program finds them in the headers of files."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or self.model_.manifest.get("names") != []:
            return self.model_
        return Model({**self.model_.manifest, "names": names.tolist()}, self.model_.arrays, self.model_.ids)

    @classmethod
    def _from_model(cls, model):
        """The estimator of a model."""
        estimator = cls()
        estimator._take(model)
        names = model.manifest.get("names") or []
        if names:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return estimator

    def _take(self, model):
        """Sets the attributes of a model that was fitted or loaded."""
        self.model_ = model

    # ---- scikit-learn

    def _more_tags(self):
        failures = {check.partition("(")[0]: why for check, why in self._expected_failures.items()}
        return {"X_types": ["2darray", "sparse"], "_xfail_checks": failures, "allow_nan": self._allow_nan, **self._own_tags()}

    def _own_tags(self):
        """Of scikit-learn below 1.6."""
        return {}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._allow_nan
        tags.input_tags.positive_only = self._own_tags().get("requires_positive_X", False)
        return tags


def _with_parameters(doc, table, notes=""):
    """The docstring with a section of the parameters before its others, and with notes before its examples."""
    summary, *sections = re.split(r"\n\n(?=\w+\n---)", inspect.cleandoc(doc or ""), maxsplit=1)
    lines = [summary, "", "Parameters", "----------"]
    for name, parameter in table.items():
        lines.append(f"{name} : default {parameter.default!r}")
        lines += textwrap.wrap(parameter.doc, 110, initial_indent="    ", subsequent_indent="    ")
    others, heading, examples = "".join(sections).partition("Examples\n--------\n")
    return "\n".join(lines + ["", others]) + (notes.strip() + "\n\n" if notes else "") + heading + examples + "\n"


def samples(X, y=None, groups=None):
    """Rows with labels as an input."""
    if hasattr(X, "tocsr"):
        return SparseRows(X.tocsr(), y, groups)
    return Table(*(c for c in (X, y, groups) if c is not None))


def training(X, y, weight, groups=None):
    """The inputs of a program that trains on rows with labels, and perhaps weights."""
    inputs = {"training_input": samples(X, y, groups)}
    if weight is not None:
        inputs["row_weights"] = Table(weight)
    return inputs


def weighed_rows(X, y, weight, classes=0):
    """Rows and weights as programs get them: without rows of weight 0, which must not change a model, unless a class would then
    have no rows; weights that are all 1 are none.

    Returns
    -------
    X, y, weight or None
    """
    if weight is None:
        return X, y, None
    kept = weight != 0
    if not kept.all() and kept.any() and (classes == 0 or len(np.unique(y[kept])) == classes):
        X, y, weight = X[kept], None if y is None else y[kept], weight[kept]
    return X, y, None if (weight == 1).all() else weight


class _Scored:
    def score(self, X, y, sample_weight=None):
        """Of classes the share of the rows that are right; of numbers R², 1 less the squared error divided by that of the mean.

        Parameters
        ----------
        X : array, sparse matrix, or frame of shape (rows, features)
        y : array of shape (rows,), or name of a column of X
        sample_weight : array of shape (rows,), or name of a column, optional

        Returns
        -------
        float
        """
        return super().score(*self._by_name(X, y, sample_weight))


class ProgramClassifier(_Scored, ClassifierMixin, ProgramEstimator):
    """Classes of any kind. The program's are their numbers, in ascending order."""

    _least_classes = 2
    _least_rows = 1

    def fit(self, X, y, sample_weight=None):
        """Fits the model.

        Parameters
        ----------
        X : array, sparse matrix, or frame of shape (rows, features)
            A frame is one of pandas or polars, a table of pyarrow, names of Parquet files, or a `paracel.Frame`.
        y : array of shape (rows,), or name of a column of X
            Classes: numbers or texts.
        sample_weight : array of shape (rows,), or name of a column, optional
            Weights of 0 or more; a row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        X, y, weight = self._check_training(X, y, sample_weight)
        self._take(self._fit(X, y, weight))
        return self

    def _check_training(self, X, y, sample_weight):
        X, y, sample_weight = self._by_name(X, y, sample_weight)
        goes_on = self._goes_on()
        X, y = check_supervised(self, X, y, reset=not goes_on, allow_nan=self._allow_nan,
                                ensure_min_samples=1 if goes_on else self._least_rows)
        check_classification_targets(y)
        if goes_on:
            y = self._numbers_of(y)
        else:
            self.classes_, y = np.unique(y, return_inverse=True)
        if len(self.classes_) < self._least_classes:
            raise ValueError(f"{type(self).__name__}: found only one class, {self.classes_[0]}, want at least 2 classes")
        return weighed_rows(X, y, self._weigh_classes(y, check_weight(sample_weight, X)), len(self.classes_))

    def _check_evaluation(self, X, y):
        return check_data(self, X, reset=False, allow_nan=self._allow_nan), self._numbers_of(y)

    def _numbers_of(self, y):
        """The numbers of known classes."""
        y = np.asarray(y)
        unknown = y[:1]
        if (y.dtype.kind in "OUS") == (self.classes_.dtype.kind in "OUS"):  # texts and numbers have no order
            at = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
            unknown = y[self.classes_[at] != y]
        if len(unknown):
            raise ValueError(f"found class {unknown[0]!r}, want one of {self.classes_.tolist()}, which the model has")
        return at

    def _earlier(self):
        return Model({**self.model_.manifest, "classes": [str(k) for k in range(len(self.classes_))]}, self.model_.arrays,
                     self.model_.ids)

    def _weigh_classes(self, y, weight):
        """Row weights with those of their classes, or None."""
        of_classes = getattr(self, "class_weight", None)
        if of_classes is None:
            return weight
        if isinstance(of_classes, str):
            if of_classes != "balanced":
                raise ValueError(f"parameter class_weight: found {of_classes!r}, want None, 'balanced' or a dict")
            factor = len(y) / (len(self.classes_) * np.bincount(y))
        else:
            if not isinstance(of_classes, dict):
                raise ValueError(f"parameter class_weight: found {of_classes!r}, want None, 'balanced' or a dict from class to "
                                 "number")
            factor = np.ones(len(self.classes_))
            for label, w in of_classes.items():
                at = np.flatnonzero(self.classes_ == label)
                if len(at) == 0:
                    raise ValueError(f"parameter class_weight: found class {label!r}, want one of {self.classes_.tolist()}")
                factor[at] = w
        return factor[y] if weight is None else weight * factor[y]

    def _fit(self, X, y, weight):
        return self._run(training(X, y, weight), self._config_for(X, y, weight))

    def _config_for(self, X, y, weight):
        """Keys that depend on the data."""
        return {}

    def _take(self, model):
        super()._take(model)
        if not hasattr(self, "classes_"):
            self.classes_ = classes_of(model)
        # The model's own classes are the numbers of these.
        model.manifest["classes"] = [str(c) for c in self.classes_.tolist()]

    def predict(self, X):
        """The most probable class of each row.

        Returns
        -------
        array of shape (rows,)
        """
        scores = self.decision_function(X)
        at = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return self.classes_[at]

    def _check_rows(self, X):
        check_is_fitted(self)
        return check_data(self, X, reset=False, allow_nan=self._allow_nan)


def classes_of(model):
    """The classes of a program's model: numbers if all are, True and False if there are no others."""
    names = model.manifest["classes"]
    if set(names) <= {"False", "True"}:
        return np.array([name == "True" for name in names])
    for kind in (int, float):
        try:
            return np.array([kind(c) for c in names])
        except ValueError:
            pass
    return np.array(names)


def weight_failures(reason, zeros=True):
    """The expected failures of an estimator for which a row of weight 2 is not the same as two rows."""
    checks = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    return dict.fromkeys(checks + ["check_sample_weights_invariance(kind=zeros)"] * zeros, reason)


class Probabilities:
    """The logarithms of the probabilities that `predict_proba` of a class gives."""

    def predict_log_proba(self, X):
        """The logarithm of the probability of each class.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, features)

        Returns
        -------
        array of shape (rows, classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class ProgramRegressor(_Scored, RegressorMixin, ProgramEstimator):
    """Numbers."""

    def fit(self, X, y, sample_weight=None):
        """Fits the model.

        Parameters
        ----------
        X : array, sparse matrix, or frame of shape (rows, features)
            A frame is one of pandas or polars, a table of pyarrow, names of Parquet files, or a `paracel.Frame`.
        y : array of shape (rows,), or name of a column of X
        sample_weight : array of shape (rows,), or name of a column, optional
            Weights of 0 or more; a row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        X, y, weight = self._check_training(X, y, sample_weight)
        self._take(self._run(training(X, y, weight)))
        return self

    def _check_training(self, X, y, sample_weight):
        X, y, sample_weight = self._by_name(X, y, sample_weight)
        X, y = check_supervised(self, X, y, reset=not self._goes_on(), allow_nan=self._allow_nan, y_numeric=True)
        return weighed_rows(X, y, check_weight(sample_weight, X))

    def _check_evaluation(self, X, y):
        return check_supervised(self, X, y, reset=False, allow_nan=self._allow_nan, y_numeric=True)

    def _check_rows(self, X):
        check_is_fitted(self)
        return check_data(self, X, reset=False, allow_nan=self._allow_nan)


def early_stopping(key, what):
    return Parameter(None, key, f"With `eval_set`: end when this many {what} have not improved its loss; the best model is kept.",
                     lambda v: None if v is None else int(v), type="int | None")


class Validated:
    """Of an estimator with the parameter `early_stopping_rounds`: a fit that follows the loss of rows that are not trained on.

    Its attribute `evaluations_` is a list of a dict for each step or round: its number and losses.
    """

    _eval_set: Any = None
    _eval_parts: tuple[str, ...] = ("X", "y")

    @complete
    def fit(self, X, y, sample_weight=None, eval_set=None):
        """Fits the model.

        Parameters
        ----------
        X : array, sparse matrix, or frame of shape (rows, features)
            A frame is one of pandas or polars, a table of pyarrow, names of Parquet files, or a `paracel.Frame`.
        y : array of shape (rows,), or name of a column of X
            Numbers, or classes: numbers or texts.
        sample_weight : array of shape (rows,), or name of a column, optional
            Weights of 0 or more; a row of weight 2 counts as two rows.
        eval_set : tuple of X and y, optional
            Rows whose loss is followed.

        Returns
        -------
        self
        """
        with self._following(eval_set):
            return super().fit(X, y, sample_weight)

    @contextlib.contextmanager
    def _following(self, eval_set):
        self._eval_set = eval_set
        try:
            yield
        finally:
            del self._eval_set

    def _run(self, inputs, config=None, program=None, functions=None):
        if self._eval_set is not None:
            some, names = self._eval_set, self._eval_parts
            if not isinstance(some, (tuple, list)) or len(some) != len(names):
                size = f" of {len(some)}" if isinstance(some, (tuple, list)) else ""
                raise ValueError(f"found eval_set, a {type(some).__name__}{size}, want the tuple ({', '.join(names)})")
            inputs["validation_input"] = samples(*self._check_evaluation(*self._by_name(*some)))
        elif self.early_stopping_rounds is not None:
            raise ValueError("parameter early_stopping_rounds: fit needs eval_set=(X, y), whose loss it follows")
        return super()._run(inputs, config, program, functions)

    def _take(self, model):
        super()._take(model)
        self.evaluations_ = [{k: v for k, v in line.items() if k in ("round", "class") or k.startswith("validate_")}
                             for line in model.metrics] if self._eval_set is not None else []


_by_algorithm: dict[str, Any] = {}


def loads(algorithm):
    """Decorator: models of this algorithm are loaded as this class, or as the one that the function `choose` returns."""
    def register(choose):
        _by_algorithm[algorithm] = choose
        return choose
    return register


def load_model(folder):
    """The estimator of a model that a program or `save` has written.

    Parameters
    ----------
    folder : path
        With a model.json, or that file.

    Returns
    -------
    estimator
        Of the class that fits such models.

    Raises
    ------
    ValueError
        It is not a model, or one of a program that has no estimator, or a file of it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import paracel
    >>> folder = tempfile.mkdtemp()
    >>> paracel.Ridge(alpha=1e-9).fit([[0.0], [1.0]], [1.0, 3.0]).save(folder)
    >>> paracel.load_model(folder).predict([[2.0]]).round(3)
    array([5.])
    """
    model = Model.read(folder)
    algorithm = model.manifest.get("algorithm")
    for module in ("cluster", "factors", "linear", "naive_bayes", "ratings", "text", "trees"):
        importlib.import_module(f"paracel.{module}")
    if algorithm not in _by_algorithm:
        raise ValueError(f"{folder}: found a model of {algorithm}, want one of {', '.join(sorted(_by_algorithm))}")
    choose = _by_algorithm[algorithm]
    return (choose if isinstance(choose, type) else choose(model))._from_model(model)
