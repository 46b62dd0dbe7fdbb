# SPDX-License-Identifier: BSD-3-Clause
"""Sections of docstrings that many functions share: what their arguments are, and what they raise."""
import inspect
import re

_JOB = "`n_workers`, `n_servers`, `replicas`, `launcher` and `progress`, as the estimators have them."
_ARGUMENTS = {
    "X": ("array, sparse matrix, or frame of shape (rows, features)", ""),
    "y": ("ignored", ""),
    "folder": ("path", "It is created; files of the same names are replaced."),
    "input_features": ("ignored", ""),
    "edges": ("array of shape (edges, 2), SciPy sparse matrix, or frame",
              "Sources and targets: any ids; weights of edges from row to column; or columns of sources, targets and weights."),
    "weights": ("array of shape (edges,), optional", "Of the edges; otherwise 1, or the entries of the matrix."),
    "vertices": ("array of ids, optional", "Vertices that may have no edges."),
    "source": ("id", "The vertex where paths begin."),
    "directed": ("bool", "False: edges lead both ways."),
    "max_iter": ("int", "Maximum number of rounds."),
    "**job": ("optional", _JOB),
}
_RAISES = """
Raises
------
ValueError
    The data or a parameter is wrong. What the program itself refuses is one, too: a paracel.DataError, which names row and
    column, or a paracel.ConfigError, which names the parameter.
paracel.Error
    The program failed in another way: it did not converge, where that is an error, or the job lost a process (JobError)."""
_SECTION = re.compile(r"\n\nParameters\n-+\n(.*?)(?=\n\n\w+\n---|\Z)", re.DOTALL)


def complete(function):
    """Adds to a docstring the parameters that it leaves out, if all of these are common ones; to that of a fit what it raises."""
    doc = inspect.cleandoc(function.__doc__ or "")
    if not doc:
        return function
    section = _SECTION.search(doc)
    entries = dict(_entries(section[1])) if section else {}
    names = [("**" if p.kind is p.VAR_KEYWORD else "") + p.name for p in inspect.signature(function).parameters.values()
             if p.name not in ("self", "cls")]
    documented = {name for entry in entries for name in re.split(r", *", entry)}
    missing = [name for name in names if name not in documented]
    if missing and all(name in _ARGUMENTS for name in missing):
        for name in missing:
            kind, text = _ARGUMENTS[name]
            entries[name] = f"{name} : {kind}" + (f"\n    {text}" if text else "")
        place = {name: i for i, name in enumerate(names)}
        ordered = sorted(entries, key=lambda entry: place.get(re.split(r", *", entry)[0], len(place)))
        text = "\n\nParameters\n----------\n" + "\n".join(entries[entry] for entry in ordered)
        if section:
            doc = doc[:section.start()] + text + doc[section.end():]
        else:
            at = re.search(r"\n\n\w+\n---", doc)
            end = at.start() if at else len(doc)
            doc = doc[:end] + text + doc[end:]
    if function.__name__ in ("fit", "partial_fit") and "\nRaises\n" not in doc:
        doc += "\n" + _RAISES
    function.__doc__ = doc
    return function


def _entries(section):
    """(names, text) of the entries of a section."""
    for entry in re.split(r"\n(?=\S)", section):
        yield entry.partition(" : ")[0].split("\n")[0], entry


def complete_methods(cls):
    for name, value in vars(cls).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            complete(value)
