# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program of the toolbox on arrays: in this process, or as a job of several workers that prun.py starts."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings

from paracel import _core, _programs
from paracel._inputs import Text, in_this_process, write_files
from paracel._model import Model
from paracel.errors import ConfigError, DataError, Error, JobError, PluginError, UsageError

_BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")
# By the exit status of a program (README.md); others are Error.
_ERRORS = {2: UsageError, 3: ConfigError, 4: DataError, 5: PluginError, 10: JobError, 11: JobError, 12: JobError, 13: JobError}


# What prun and mpirun tell a worker; a program that finds them joins that job.
_WORKERS_VARIABLES = ("PARACEL_RENDEZVOUS", "OMPI_COMM_WORLD_SIZE")


class ProgramWarning(UserWarning):
    """What a program warned of, such as rounds that did not suffice."""


class Words:
    """How a program's messages name things here: keys of its config are parameters, files are arrays."""

    def __init__(self, title, parameter_of=None, input_of=None):
        self.title, self.parameter_of, self.input_of = title, parameter_of or {}, input_of or {}

    def of_error(self, text):
        text = re.sub(r'^\S*?: key "(\w+)"', lambda m: f"parameter {self.parameter_of.get(m[1], m[1])}", text)
        text = re.sub(r"(?:memory:\d+|/\S*)/(\w+)(?=[:,. ])", lambda m: self.input_of.get(m[1], m[1]), text)
        return f"{self.title}: {text}"


class _Listener:
    """Takes the lines of a program."""

    def __init__(self, program, words, on_line):
        self.program, self.words, self.on_line = program, words, on_line
        self.errors, self.warnings, self.others = [], [], []
        self._front = re.compile(r"\s*(?:(?:prun(?:\.py)?|worker \d+|%s): )*" % re.escape(program))

    def __call__(self, to_stderr, line):
        plain = line[self._front.match(line).end():]
        if not to_stderr:
            if self.on_line is not None:
                self.on_line(line)
        elif plain.startswith("error: "):
            self.errors.append(plain[len("error: "):])
        elif plain.startswith("warning: "):
            if plain not in self.warnings:
                self.warnings.append(plain)
        else:
            self.others.append(plain)

    def finish(self, status):
        for text in self.warnings:
            warnings.warn(self.words.of_error(text[len("warning: "):]), _warning_class(text), stacklevel=_callers_level())
        if status != 0:
            text = self.errors[0] if self.errors else "\n".join([f"ended with status {status}", *self.others[-5:]])
            failure = _ERRORS.get(status, Error)(self.words.of_error(text))
            failure.status = status
            raise failure


def _callers_level():
    """For warnings: how many frames the one outside of this package is above the function that calls this one."""
    level, frame = 1, sys._getframe(1)
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == os.path.dirname(__file__):
        level, frame = level + 1, frame.f_back
    return level


def _warning_class(text):
    if "converged" in text:
        try:
            from sklearn.exceptions import ConvergenceWarning
            return ConvergenceWarning
        except ImportError:
            pass
    return ProgramWarning


def memory_folder():
    """A new folder in memory, where the system has one."""
    return tempfile.mkdtemp(prefix="paracel-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


class Job:
    """How a program runs.

    Parameters
    ----------
    n_workers : int or None
        None: in this process, alone. Otherwise a job of so many worker processes.
    n_servers, replicas, launcher
        Of a job: parameter servers, copies of every parameter, and how it is started (``local`` or ``mpi``).
    options : sequence of str
        Further options of prun.py.
    """

    def __init__(self, n_workers=None, n_servers=1, replicas=1, launcher="local", options=()):
        self.n_workers, self.n_servers, self.replicas = n_workers, n_servers, replicas
        self.launcher, self.options = launcher, options

    def run(self, program, config, inputs, *, words=None, on_line=None):
        """Runs it.

        Parameters
        ----------
        config : dict
            The keys of its config except those of ``inputs``, ``output`` and ``format``.
        inputs : dict of str to Table, SparseRows or Text
            By config key.
        on_line : callable, optional
            Called with each line that the first worker prints.

        Returns
        -------
        Model
        """
        folder = memory_folder()
        try:
            output = os.path.join(folder, "output")
            self.run_to(output, program, {"format": "npy", **config}, inputs, words=words, on_line=on_line)
            return Model.read(output)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run_to(self, output, program, config, inputs, *, words=None, on_line=None):
        """The same with the program's files left in the folder `output`. Nothing is returned."""
        listener = _Listener(program, words or Words(program), on_line)
        how = self._in_this_process if self.n_workers is None else self._as_job
        listener.finish(how(program, {**config, "output": output}, inputs, listener))

    def _in_this_process(self, program, config, inputs, listener):
        if _core._entered():
            raise Error(f"{listener.words.title}: this process is in a job of Paralg, want paracel.leave() first, or n_workers")
        if any(name in os.environ for name in _WORKERS_VARIABLES):
            raise Error(f"{listener.words.title}: this process is a worker of a job, and a program would join it; want "
                        "n_workers")
        with in_this_process(inputs) as names, in_this_process({"config": Text(json.dumps({**config, **names}))}) as own:
            return _programs.run(program, ["--cfg_file", own["config"]], listener)

    def _as_job(self, program, config, inputs, listener):
        folder = memory_folder()
        try:
            config = {**config, **write_files(inputs, folder)}
            file = os.path.join(folder, "config.json")
            with open(file, "w", encoding="utf-8") as out:
                json.dump(config, out)
            command = [sys.executable, "-S", os.path.join(_BIN, "prun.py"), "-w", str(self.n_workers),
                       "-p", str(self.n_servers), "--replicas", str(self.replicas), "-m", self.launcher,
                       "--output-dir", folder, *self.options, "-c", file, os.path.join(_BIN, program)]
            return _run_command(command, listener)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _run_command(command, listener):
    """Returns its exit status. An exception here ends the job before it leaves."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("PARACEL_", "OMPI_", "PMIX_"))}
    job = subprocess.Popen(command, env=others, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, errors="replace", start_new_session=True)
    said = []
    reader = threading.Thread(target=lambda: said.extend(job.stderr))
    reader.start()
    try:
        for line in job.stdout:
            listener(False, line.rstrip("\n"))
        status = job.wait()
    finally:
        if job.poll() is None:
            job.terminate()
        job.wait()
        reader.join()
        job.stdout.close()
        job.stderr.close()
    for line in said:
        listener(True, line.rstrip("\n"))
    return status
