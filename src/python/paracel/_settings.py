# SPDX-License-Identifier: BSD-3-Clause
"""The keys of a program's config."""
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from paracel import _core

# By what a setting's type may be. The values are the schema's names.
_TYPES = {str: "string", int: "int", float: "double", bool: "bool", list[float]: "doubles", list[str]: "strings",
          "file": "file", "files": "files", "plugin": "plugin", "output_folder": "folder_out"}
_CONSISTENCY = ("consistency", "ssp_switch", "limit_s")


class Setting(NamedTuple):
    """A key; made by `setting`."""

    type: str
    default: Any
    help: str
    required: bool
    required_unless: list[str]
    one_of: list[str]
    at_least: float | None
    above: float | None
    at_most: float | None


def setting(type: Any, default: Any = None, help: str = "", *, required: bool = False, required_unless: Iterable[str] = (),
            one_of: Iterable[str] = (), at_least: float | None = None, above: float | None = None,
            at_most: float | None = None) -> Setting:
    """A key of a program's config, for `Paralg.settings`.

    Parameters
    ----------
    type : type or str
        ``str``, ``int``, ``float``, ``bool``, ``list[float]`` or ``list[str]`` (of which one may stand alone); ``"file"``: that
        exists; ``"files"``: files, folders or glob patterns that match; ``"plugin"``; ``"output_folder"``: that can be written.
    default : object
        None: the value is None where the config has none. A list has no default.
    help : str
        For ``--help`` and ``--schema``.
    required : bool
        The config must have it.
    required_unless : list of str
        The same unless it has one of these.
    one_of : list of str
        The words that it accepts.
    at_least, above, at_most : float
        Limits of a number, or of each of a list.

    Returns
    -------
    Setting

    Examples
    --------
    >>> import paracel
    >>> paracel.setting(int, 100, "maximum number of rounds", at_least=1).type
    'int'
    """
    if type not in _TYPES:
        raise TypeError(f"found type {type!r} of a setting, want str, int, float, bool, list[float], list[str], 'file', 'files', "
                        "'plugin' or 'output_folder'")
    if isinstance(required_unless, str) or isinstance(one_of, str):
        raise TypeError("found a str as required_unless or one_of of a setting, want a list of them")
    return Setting(_TYPES[type], default, help, required, list(required_unless), list(one_of), at_least, above, at_most)


class Schema:
    """The schema of a program whose settings are declared.

    Parameters
    ----------
    program : str
    algorithm : type
        Its docstring's first line says what the program is.
    settings : dict of str to Setting
    """

    def __init__(self, program: str, algorithm: Any, settings: Mapping[str, Setting]) -> None:
        doc = inspect.getdoc(algorithm) if "__doc__" in vars(algorithm) else None
        self.schema = _core._Schema(program, (doc or "").partition("\n")[0])
        self.own = set(settings)
        for name, one in settings.items():
            if not isinstance(one, Setting):
                raise TypeError(f"setting {name}: found {one!r}, want paracel.setting(...)")
            self.schema.key(name, one.type, one.help, one.default, one.required, one.required_unless, one.one_of, one.at_least,
                            one.above, one.at_most)
        if not self.own & set(_CONSISTENCY):
            self.schema.consistency_keys()

    def accept(self, file: str, overrides: list[str]) -> dict[str, Any]:
        """The checked config of a run, with defaults and what --set replaces. Raises ConfigError."""
        values, given = self.schema.accept(file, overrides)
        return {name: value for name, value in values.items() if name in self.own or name in given}
