# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the Python package share. PARACEL_PYTHON names the folder in which it is installed."""
import importlib.util
import os
import subprocess
import sys

SOURCE = os.environ.get("PARACEL_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def need(*modules):
    """Ends the test as skipped, saying why, where the package or one of the modules is not installed."""
    folder = os.environ.get("PARACEL_PYTHON")
    if folder:
        sys.path.insert(0, folder)
    for module in ("paracel", *modules):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: the Python module {module} is not installed"
                  + (" (PARACEL_PYTHON names the folder of the package)" if module == "paracel" else ""))
            sys.exit(77)


def program(name):
    """The path of a program of the installed package."""
    import paracel
    return os.path.join(os.path.dirname(paracel.__file__), "_bin", name)


def run_program(name, config_file):
    """Runs a program alone, as its command line does. Raises AssertionError with what it said when it fails."""
    done = subprocess.run([program(name), "--cfg_file", config_file], capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: status {done.returncode}: {done.stderr}"
    return done.stdout
