# SPDX-License-Identifier: BSD-3-Clause
"""Texts of other processes, files and users on a terminal: nothing in them may move its cursor, hide what was printed before, or
look like another line of this launcher."""

INDENT = "    "


def is_harmless(c):
    """Printable, or a space of any width; not a control character, a line end of Unicode or a change of the writing direction."""
    return c.isprintable() or c == "\t" or c.isspace() and ord(c) >= 0xa0 and c not in "\u2028\u2029"


def printable(text, indent=INDENT):
    """The text with other characters written as \\x1b and so on. Lines after the first are indented."""
    if text.isprintable():
        return text
    lines = text.split("\n")
    shown = ("".join(c if is_harmless(c) else c.encode("unicode_escape").decode("ascii") for c in line) for line in lines)
    return ("\n" + indent).join(shown)


def in_a_line(text):
    """The same in one line, for tables."""
    return printable(" ".join(str(text).split()))
