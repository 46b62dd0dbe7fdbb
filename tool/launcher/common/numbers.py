# SPDX-License-Identifier: BSD-3-Clause
"""Numbers on command lines, for all commands alike: ASCII digits, and nothing else that Python would take (nan, inf, underscores,
white space, digits of other scripts). Each function returns, or is, a `type` of argparse. The limits are those of the programs
that get the numbers, which would refuse them only after the job's start."""
import re

WHOLE = re.compile(r"[0-9]{1,30}")
DECIMAL = re.compile(r"(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,2})?")
BYTES = re.compile(r"([0-9]{1,30})([KMGT]?)")
MOST_WHOLE = (1 << 63) - 1
MOST_BYTES = 1 << 47  # what a process can address; small multiples do not overflow


def refuse(text):
    import argparse
    raise argparse.ArgumentTypeError(text)


def whole_number(text):
    if not WHOLE.fullmatch(text):
        refuse(f"{text!r} is not a whole number")
    return int(text) if int(text) <= MOST_WHOLE else refuse(f"{text}: want at most {MOST_WHOLE}")


def port_number(text):
    """0: a free one."""
    value = whole_number(text)
    return value if value < 1 << 16 else refuse(f"{text}: want a port, at most 65535, or 0 for a free one")


def positive(most):
    """Whole numbers from 1."""
    def parse(text):
        if not WHOLE.fullmatch(text) or int(text) == 0:
            refuse(f"{text!r} is not a whole number above 0")
        return int(text) if int(text) <= most else refuse(f"{text}: want at most {most}")
    return parse


def decimal(text):
    """The number, or None."""
    return float(text) if DECIMAL.fullmatch(text) else None


def seconds(text):
    value = decimal(text)
    if value is None or not 0 < value < 1e9:
        refuse(f"{text!r} is not a number of seconds above 0")
    return value


def seconds_between(least, most):
    def parse(text):
        value = seconds(text)
        return value if least <= value <= most else refuse(f"{text}: want {least:g} to {most:.0f} seconds")
    return parse


def percentage(most):
    def parse(text):
        value = decimal(text)
        if value is None or not 0 < value <= most:
            refuse(f"{text!r}: want a percentage above 0, at most {most}")
        return value
    return parse


def byte_count(text):
    """The text itself, which the programs understand."""
    match = BYTES.fullmatch(text)
    if match is None or int(match[1]) == 0:
        refuse(f"{text!r} is not a number of bytes such as 1000000, 64K, 256M or 4G")
    if bytes_of(text) > MOST_BYTES:
        refuse(f"{text}: want at most {MOST_BYTES >> 40}T")
    return text


def bytes_of(text):
    """The number of what byte_count accepts."""
    match = BYTES.fullmatch(text)
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")
