#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The examples in docstrings of public names, in one process."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PackageTest  # noqa: E402
from process_support import main  # noqa: E402

# Each docstring in a job of its own. Names without examples are skipped; LEAST must have some: all estimators and functions of
# the toolbox, and parts of the core.
PROGRAM = """
import doctest, inspect, sys
import numpy as np
import paracel

LEAST = {"Array", "ComQueue", "Paralg", "Table", "function", *paracel._module_of} - {"Frame", "ProgramWarning", "update"}
parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
found = set()
for name in paracel.__all__:
    public = getattr(paracel, name)
    documented = [(name, public)]
    if inspect.isclass(public):
        documented += [(f"{name}.{call}", value) for call, value in vars(public).items() if not call.startswith("_")]
    for place, value in documented:
        test = parser.get_doctest(inspect.cleandoc(getattr(value, "__doc__", None) or ""), {}, place, None, 0)
        if test.examples:
            found.add(place)
            runner.run(test)
            paracel.leave()
assert LEAST <= found, LEAST - found
result = runner.summarize()
print(f"{result.attempted} examples in {len(found)} docstrings")
sys.exit(1 if result.failed else 0)
"""


class Doctests(PackageTest):
    def test_examples(self):
        status, out, err = self.python(self.program("examples.py", PROGRAM))
        self.assertEqual((status, err), (0, ""), out)
        self.assertRegex(out, r"^[1-9]\d* examples in \d+ docstrings\n$")


if __name__ == "__main__":
    main()
