# SPDX-License-Identifier: BSD-3-Clause
"""prun.py --sbatch: submits a job to Slurm whose script is the same command without that option."""
import os
import re
import shlex
import sys

from ..common.exit_status import FAILURE, OK, USAGE, Failure
from ..common.printable import printable

SCRIPT = """#!/bin/sh
# exec: so that it is prun.py that gets the signal before the time limit; ignored until it can take it, which would end it
trap '' USR1
exec {command}
"""


def without_sbatch(arguments):
    """The arguments of prun.py without --sbatch and its value, which come before the program."""
    kept, words = [], iter(arguments)
    for word in words:
        if word == "--sbatch":
            next(words)
            return kept + list(words)
        if word.startswith("--sbatch="):
            return kept + list(words)
        kept.append(word)
    return kept


def submit(options, arguments):
    """Returns the exit status. Raises Failure."""
    import subprocess
    try:
        asked = shlex.split(options.sbatch)
    except ValueError as error:
        raise Failure(USAGE, f"--sbatch {options.sbatch!r}: {error}") from None
    prun = os.path.realpath(sys.argv[0])
    script = SCRIPT.format(command=shlex.join([sys.executable, "-S", prun, *without_sbatch(arguments)]))
    # What the user asks for comes last, and replaces these.
    command = ["sbatch", "--parsable", f"--job-name={os.path.basename(options.program)}", f"--ntasks={options.wnum}",
               f"--signal=B:USR1@{options.before_limit:.0f}", "--open-mode=append", "--requeue" if options.requeue else
               "--no-requeue", f"--chdir={os.getcwd()}", *asked]
    try:
        done = subprocess.run(command, input=script, capture_output=True, check=False, text=True, errors="replace")
    except FileNotFoundError:
        raise Failure(USAGE, "--sbatch: sbatch is not installed (Debian: slurm-client)") from None
    if done.returncode != 0:
        why = "; ".join(line for line in done.stderr.strip().splitlines()) or f"status {done.returncode}"
        raise Failure(FAILURE, f"--sbatch: {shlex.join(command)}: {why}")
    job = re.match(r"\d+", done.stdout.strip())
    number = job[0] if job else done.stdout.strip()
    sys.stderr.write(printable(done.stderr, indent=""))  # warnings
    sys.stdout.write(number + "\n")
    sys.stderr.write(f"prun.py: submitted as job {number}: `squeue -j {number}` shows it, `scancel {number}` ends it; its output "
                     f"goes to slurm-{number}.out unless sbatch was told otherwise (--output)\n")
    return OK
