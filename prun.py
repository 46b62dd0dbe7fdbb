#!/usr/bin/env -S python3 -S
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a Paracel job: starts one scheduler, the servers and the workers, watches them, and stops them all.

    prun.py -w 4 -p 2 -c cfg.json -m local build/bin/lr
    prun.py -w 4 -p 2 -c cfg.json -m mpi --hostfile hosts build/bin/lr
    prun.py -w 4 -p 2 -c cfg.json -m external --rendezvous node1:7077#train build/bin/lr
    prun.py join server|worker
    prun.py status --run RUN
    prun.py tell --run RUN COMMAND [BODY]
    prun.py --servers +1|-1 --run RUN
    prun.py runs [--keep N]
    prun.py top --run RUN
    prun.py report --run RUN
    prun.py compare --run RUN --run RUN
    prun.py export --run RUN --tensorboard DIR | --mlflow
    prun.py trace --run RUN
    prun.py checkpoint list|verify DIR
    prun.py sweep CONFIG --grid KEY=A,B,C ... build/bin/lr
    prun.py new FOLDER [--python]
    prun.py doctor

The implementation is in tool/launcher/ (tool/README.md has its rooms). One event loop (job/job.py) waits for all inputs: signals
and exits of children (a wake-up descriptor), the scheduler's events, the output of worker 0. The first cause of a failure
determines the exit status; the table is in doc/operations.md and in --help.

Worker 0's output goes to standard output, the launcher's own messages to standard error.
"""
# Before all other imports, and with built-in modules: `signal` and `os` take milliseconds to load.
import _signal
import posix


def interrupted(*_):
    """The SIGINT handler until main() installs its own: nothing has been started or created yet."""
    posix.write(2, b"prun.py: interrupted\n")
    posix._exit(130)


_signal.signal(_signal.SIGINT, interrupted)

import os  # noqa: E402
import sys  # noqa: E402

for number in (0, 1, 2):  # the next file opened would get the number of a closed one
    try:
        os.fstat(number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)

HERE = os.path.dirname(os.path.realpath(__file__))
# launcher/ is in tool/ of the source tree and in lib/paracel/ of the installed one
for folder in (os.path.join(HERE, "tool"), os.path.join(HERE, "..", "lib", "paracel")):
    if os.path.isdir(os.path.join(folder, "launcher")):
        sys.path.insert(0, folder)
        break
else:
    sys.exit(f"prun.py: error: its folder launcher/ is neither in {HERE}/tool nor in {HERE}/../lib/paracel")

from launcher.main import main  # noqa: E402

if __name__ == "__main__":
    status = main(sys.argv[1:])
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(status)  # taking the interpreter apart takes milliseconds
