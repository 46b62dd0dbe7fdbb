# SPDX-License-Identifier: BSD-3-Clause
"""Numbers on command lines, for all commands alike: ASCII digits, and nothing else that Python would take (nan, inf, underscores,
white space, digits of other scripts). Each function returns, or is, a `type` of argparse. The limits are those of the programs
that get the numbers, which would refuse them only after the job's start."""
import re

# Compiled where they are used: that takes longer than the rest of a command line.
DECIMAL = (r"(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,2})?")
BYTES = r"([0-9]{1,30})([KMGT]?)"
MOST_DIGITS = 30
MOST_WHOLE = (1 << 63) - 1
MOST_BYTES = 1 << 47  # what a process can address; small multiples do not overflow


def refuse(text):
    import argparse
    raise argparse.ArgumentTypeError(text)


def is_whole(text):
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def whole_number(text):
    if not is_whole(text):
        refuse(f"{text!r} is not a whole number")
    return int(text) if int(text) <= MOST_WHOLE else refuse(f"{text}: want at most {MOST_WHOLE}")


def port_number(text):
    """0: a free one."""
    value = whole_number(text)
    return value if value < 1 << 16 else refuse(f"{text}: want a port, at most 65535, or 0 for a free one")


def positive(most):
    """Whole numbers from 1."""
    def parse(text):
        if not is_whole(text) or int(text) == 0:
            refuse(f"{text!r} is not a whole number above 0")
        return int(text) if int(text) <= most else refuse(f"{text}: want at most {most}")
    return parse


def decimal(text):
    """The number, or None."""
    return float(text) if text[:1] in "0123456789." and re.fullmatch(DECIMAL, text) else None


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
    match = re.fullmatch(BYTES, text)
    if match is None or int(match[1]) == 0:
        refuse(f"{text!r} is not a number of bytes such as 1000000, 64K, 256M or 4G")
    if bytes_of(text) > MOST_BYTES:
        refuse(f"{text}: want at most {MOST_BYTES >> 40}T")
    return text


def bytes_of(text):
    """The number of what byte_count accepts."""
    match = re.fullmatch(BYTES, text)
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")
