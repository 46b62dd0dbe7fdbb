# SPDX-License-Identifier: BSD-3-Clause
"""Console scripts: `prun`, and `paracel-<program>` for each program in _bin. The process becomes that program."""
import os
import sys

BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")


def prun():
    launcher = os.path.join(BIN, "prun.py")
    os.execv(sys.executable, [sys.executable, "-S", launcher, *sys.argv[1:]])


def __getattr__(name):
    path = os.path.join(BIN, name)
    if name.startswith("_") or not os.access(path, os.X_OK):
        raise AttributeError(f"{path} is not a program of this package")
    return lambda: os.execv(path, [path, *sys.argv[1:]])
