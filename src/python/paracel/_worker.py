# SPDX-License-Identifier: BSD-3-Clause
"""A worker of a job whose objective or metric is in Python: the program gbdt inside of an interpreter.

prun starts it with the config; functions.json beside that file names the functions and the folders of their modules.
"""
import json
import os
import sys


def main():
    config = sys.argv[sys.argv.index("--cfg_file") + 1]
    with open(os.path.join(os.path.dirname(config), "functions.json"), encoding="utf-8") as file:
        given = json.load(file)
    sys.path[:] = given["path"]  # not the folder of this file, whose modules are the package's
    from paracel import _programs
    from paracel._functions import Metric, Objective, function_of

    made = {}
    for parameter, kind in (("objective", Objective), ("eval_metric", Metric)):
        if given[parameter] is not None:
            made[parameter] = kind(function_of(parameter, given[parameter]), given["classes"])

    def pass_on(to_stderr, line):
        print(line, file=sys.stderr if to_stderr else sys.stdout, flush=True)

    return _programs.run("gbdt", sys.argv[1:], pass_on, objective=made.get("objective"), metric=made.get("eval_metric"))


if __name__ == "__main__":
    sys.exit(main())
