#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Docstrings of public names, by numpydoc's own validation: every argument is described, with its type or shape, sections are in
their order, and what returns something says what."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package  # noqa: E402

in_package("numpydoc", "numpy", "scipy")

import inspect  # noqa: E402
import unittest  # noqa: E402

import paracel  # noqa: E402
from numpydoc.validate import validate  # noqa: E402

# Sections: unknown ones, their order, none at all. Parameters: missing, unknown ones, their order, without a type. No summary, no
# Returns.
CHECKED = {"GL06", "GL07", "GL08", "PR01", "PR02", "PR03", "PR04", "SS01", "SS04", "RT01"}


def public_names():
    """Of functions, classes and their methods that are the package's own."""
    for name in paracel.__all__:
        public = getattr(paracel, name)
        if not callable(public):
            continue
        yield name
        if inspect.isclass(public):
            for call in dir(public):
                value = getattr(public, call)
                own = (getattr(value, "__module__", "") or "").startswith("paracel")
                if own and callable(value) and not call.startswith("_"):
                    yield f"{name}.{call}"


class Docstrings(unittest.TestCase):
    def test_numpydoc(self):
        names = sorted(public_names())
        self.assertGreater(len(names), 150)
        found = [f"{name}: {code} {text}" for name in names for code, text in validate("paracel." + name)["errors"]
                 if code in CHECKED]
        self.assertEqual(found, [])

    def test_what_fit_raises(self):
        for name in paracel.__all__:
            fit = getattr(getattr(paracel, name), "fit", None)
            if fit is not None:
                self.assertIn("\nRaises\n------\nValueError\n", fit.__doc__, name)


if __name__ == "__main__":
    unittest.main()
