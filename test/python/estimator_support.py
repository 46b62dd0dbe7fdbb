# SPDX-License-Identifier: BSD-3-Clause
"""For tests of the toolbox in Python, which import the package: they run in the interpreter that has it."""
import importlib.util
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import BUILD, GIVEN, PYTHON, SITE, SOURCE, TOOLS, build_wheel, why_not  # noqa: E402
from process_support import clean_environment  # noqa: E402

SKIPPED = 77
NEWEST = os.path.join(TOOLS, "newest")  # of tool/setup.sh --test: the newest scikit-learn and what it needs


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def in_package(*modules, newest=False):
    """Builds the wheel if necessary, and from then on runs the test in the package's interpreter, with the packages of NEWEST if
    `newest`. Skips it, saying why, where there is none, or it has not all of these modules."""
    if os.environ.get("PARACEL_TEST_SITE") != SITE:
        if reason := why_not():
            skip(reason)
        if not GIVEN:
            build_wheel()
        os.execve(PYTHON, [PYTHON, "-B", *sys.argv], in_site(*([NEWEST] if newest else [])))
    for module in modules:
        if importlib.util.find_spec(module) is None:
            skip(f"{sys.executable} has no module {module}")


def in_site(*further, **more):
    """The environment of such an interpreter. `further`: folders of modules, before those of the interpreter."""
    return clean_environment(PYTHONPATH=os.pathsep.join([SITE, *further]), PARACEL_TEST_SITE=SITE, PARACEL_PYTHON=PYTHON,
                             PARACEL_PYTHON_SITE=SITE, PARACEL_BUILD=BUILD, PARACEL_SOURCE=SOURCE, **more)


def program(name):
    """The path of a program of the package."""
    return os.path.join(SITE, "paracel", "_bin", name)


def run_program(name, config_file):
    """Runs a program of the package alone, as its command line does. Returns what it printed."""
    done = subprocess.run([program(name), "--cfg_file", config_file], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, f"{name}: status {done.returncode}: {done.stderr}"
    return done.stdout
