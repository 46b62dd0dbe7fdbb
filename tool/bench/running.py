# SPDX-License-Identifier: BSD-3-Clause
"""The programs that benchmarks start: where they are, what they print, and a sentence for whatever keeps one from running."""
import json
import os
import re
import shlex
import subprocess
import sys


class CannotMeasure(Exception):
    """The reason why there are no figures."""


def built(build, name):
    """The path of a program of a build. Throws: CannotMeasure, with the command that builds it."""
    return built_in(os.path.join(build, "bin"), name)


def built_in(folder, name):
    """The same by the folder of the programs."""
    path = os.path.join(folder, name)
    if os.access(path, os.X_OK):
        return path
    option = "-DPARACEL_BENCH=ON " if re.match(r"bench_|plain_rows$|\w+_serial$", name) else \
             "-DPARACEL_TESTS=ON " if re.match(r"(test|ps)_", name) else ""
    build = os.path.dirname(os.path.abspath(folder))
    near = os.path.relpath(build)
    where = shlex.quote(build if near.startswith("..") else near)
    raise CannotMeasure("%s is not built: cmake -S . -B %s %s&& cmake --build %s --target %s" %
                        (name, where, option, where, name))


def output_of(words, limit=None, **options):
    """The standard output of a command. Throws: CannotMeasure, with what a command said that failed, or was too slow."""
    name = os.path.basename(words[0])
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                              timeout=limit, check=False, **options)
    except subprocess.TimeoutExpired:
        raise CannotMeasure("%s took longer than %g s" % (name, limit)) from None
    except OSError as e:
        raise CannotMeasure("cannot start %s: %s" % (words[0], e.strerror)) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise CannotMeasure("%s ended with %d: %s" % (name, done.returncode, said[-1][-200:]))
    return done.stdout


def figures_of(words, limit=None, **options):
    """The object of JSON in the last line of a command's output."""
    lines = output_of(words, limit, **options).strip().splitlines()
    try:
        figures = json.loads(lines[-1]) if lines else None
    except ValueError:
        figures = None
    if not isinstance(figures, dict):
        raise CannotMeasure("%s did not print an object of JSON" % os.path.basename(words[0]))
    return figures


def run(main):
    """Runs a benchmark's main; one that cannot measure ends with a line on standard error and status 1."""
    try:
        sys.exit(main())
    except CannotMeasure as e:
        sys.exit("%s: error: %s" % (os.path.basename(sys.argv[0]), e))
