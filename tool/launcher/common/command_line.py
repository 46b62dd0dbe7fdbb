# SPDX-License-Identifier: BSD-3-Clause
"""The parser of all commands: an error is one line, the one that matters, and an unknown option names the nearest known one."""
import sys

from .exit_status import USAGE
from .numbers import decimal
from .printable import printable


def name_given(text):
    """The type of an option that names a folder or a run: an empty name would look like an absent option."""
    if not text:
        import argparse
        raise argparse.ArgumentTypeError("'' is not a folder name: is a shell variable unset?")
    return text


class ParserWanted(Exception):
    """Raised with a parser instead of parsing, while `only_parsers` is set: completion and manual pages need its options."""


only_parsers = False


def new_parser(**more):
    """An argparse.ArgumentParser; loading that module takes milliseconds."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message):
            sys.stderr.write(printable(f"{self.prog}: error: {message}\n{self.prog}: see {self.prog} --help\n", indent=""))
            raise SystemExit(USAGE)

        def parse_args(self, args=None, namespace=None):
            if only_parsers:
                raise ParserWanted(self)
            self.refuse_unknown(args)
            return super().parse_args(args, namespace)

        def refuse_unknown(self, words):
            """argparse would take the value of an unknown option for the program."""
            known = self._option_string_actions
            ends = any(a.nargs == argparse.REMAINDER for a in self._actions)
            before_end = sum(not a.option_strings and a.nargs is None for a in self._actions)  # the last is the program
            at = 0
            while at < len(words) and words[at] != "--":
                word, at = words[at], at + 1
                name = word.split("=", 1)[0]
                if not word.startswith("-") or word == "-" or decimal(word[1:]) is not None:
                    before_end -= 1
                    if ends and before_end == 0:
                        return
                elif name in known:
                    at += "=" not in word and known[name].nargs is None
                elif word[:2] not in known or word.startswith("--"):
                    self.error(f"unknown option {name}" + self.suggestion(name))

        def suggestion(self, name):
            import difflib
            near = difflib.get_close_matches(name, [o for o in self._option_string_actions if o.startswith("--")], 1, 0.7)
            return f": did you mean {near[0]}?" if near else ""

    return Parser(allow_abbrev=False, **more)
