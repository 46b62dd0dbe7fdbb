# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of the framework, with its words. `status` is the exit status with which a program ends because of one."""


class Error(Exception):
    """Base of everything that the framework raises. `status`: the exit status of a program that it ends."""

    status = 1


class UsageError(Error):
    """A command line that cannot be parsed."""

    status = 2


class ConfigError(Error, ValueError):
    """A config file, key or setting that is wrong."""

    status = 3


class DataError(Error, ValueError):
    """Input data that is wrong; the text begins with file:line:column."""

    status = 4


class PluginError(Error):
    """A plug-in that cannot be loaded, or a function of it that failed. The value that it was to change is unchanged."""

    status = 5


class ProtocolError(Error):
    """Bytes that violate the protocol or a value's encoding."""


class MissingKeyError(Error, KeyError):
    """A key that does not exist."""

    __str__ = Exception.__str__


class ValueTypeError(Error, TypeError):
    """A value of another type than requested, or one that would lose precision."""


class NetworkError(Error, ConnectionError):
    """A request without a reply. `may_have_been_applied`: it left this process, and a server may have executed it."""

    may_have_been_applied = False


class JobError(Error):
    """The job has ended; the text is the first cause."""
