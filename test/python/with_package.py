#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a test with the Python package, which it builds first: with_package.py TEST [ARGUMENT...]

The test gets an interpreter that can import the package, whose folder is in PARACEL_PYTHON. Exits with 77, ctest's status for "not
run", where the package cannot be built.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PYTHON, SITE, build_wheel, why_not  # noqa: E402
from process_support import SKIPPED  # noqa: E402


def main(test):
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    build_wheel()
    os.execve(PYTHON, [PYTHON, "-B", *test], dict(os.environ, PYTHONPATH=SITE, PARACEL_PYTHON=SITE))


if __name__ == "__main__":
    main(sys.argv[1:])
