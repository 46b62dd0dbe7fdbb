# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program of the toolbox on arrays: in this process, or as a job of several workers that prun.py starts."""
import inspect
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import warnings

import numpy as np

from paracel import _core, _programs
from paracel._functions import folders_of_modules
from paracel._inputs import Text, in_this_process, write_files
from paracel._model import Model, metrics_of
from paracel._progress import progress_of
from paracel.errors import ConfigError, DataError, Error, JobError, PluginError, UsageError

_HERE = os.path.dirname(os.path.abspath(__file__))
_BIN = os.path.join(_HERE, "_bin")
_PROGRESS_EVERY = 0.2  # seconds
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


# What prun says of a job around the cause of its end: names of it and of its logs, which disappear.
_AROUND = re.compile(r"job [0-9a-f]{16}: |logs in |its log |exit status \d|stopping the job")


class _Listener:
    """Takes the lines of a program."""

    _progress = re.compile(r"prun: round (\d+)(?:/(\d+))?(?:  (\S+) ([-\d.]\S*))?")

    def __init__(self, program, words, on_line, progress):
        self.program, self.words, self.on_line, self.progress = program, words, on_line, progress
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
        elif (found := self._progress.match(line)) is None:
            self.others.append(plain)
        elif self.progress is not None:
            self.progress.report(int(found[1]), int(found[2] or 0), float(found[4] or "nan"), found[3] or "objective")

    def finish(self, status):
        for text in self.warnings:
            warnings.warn(self.words.of_error(text[len("warning: "):]), _warning_class(text), stacklevel=_callers_level())
        if status != 0:
            causes = [line for line in self.others if not _AROUND.match(line)][-5:] or [f"ended with status {status}"]
            text = self.errors[0] if self.errors else "\n".join(causes)
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


def lines_into(summary):
    """A function that takes the lines `name value` of a program into a dict."""
    def take(line):
        name, _, value = line.partition(" ")
        try:
            summary[name] = float(value) if any(c in value for c in ".en") else int(value)
        except ValueError:
            summary[name] = value
    return take


def memory_folder(top=None):
    """A context: a new folder, below `top`, or in memory, where the system has that. It is removed at the end."""
    top = top or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    return tempfile.TemporaryDirectory(prefix="paracel-", dir=top, ignore_cleanup_errors=True)


class Job:
    """How a program runs.

    Parameters
    ----------
    n_workers : int or None
        None: in this process, alone. Otherwise a job of so many worker processes.
    n_servers, replicas : int
        Of a job: parameter servers, and copies of every parameter.
    launcher : str or sequence of str
        How a job is started: ``local`` or ``mpi``, or options of prun. Its inputs and results are in memory, or below the folder
        of the option ``--output-dir``, which hosts must share.
    progress : bool
        Whether its progress is shown.
    """

    def __init__(self, n_workers=None, n_servers=1, replicas=1, launcher="local", progress=False):
        numbers = {"n_servers": n_servers, "replicas": replicas, **({} if n_workers is None else {"n_workers": n_workers})}
        for name, number in numbers.items():
            if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < 1:
                none = "None or " if name == "n_workers" else ""
                raise ConfigError(f"parameter {name}: found {number!r}, want {none}a whole number above 0")
        if n_workers is not None and replicas > n_servers:
            raise ConfigError(f"parameter replicas: found {replicas}, want at most n_servers, which is {n_servers}")
        if isinstance(launcher, str) and launcher not in ("local", "mpi"):
            raise ConfigError(f"parameter launcher: found {launcher!r}, want 'local', 'mpi', or a list of prun's options")
        self.n_workers, self.n_servers, self.replicas, self.progress = n_workers, n_servers, replicas, progress
        self.options = ["-m", launcher] if isinstance(launcher, str) else [str(word) for word in launcher]
        at = self.options.index("--output-dir") + 1 if "--output-dir" in self.options[:-1] else 0
        self.top = os.path.abspath(self.options[at]) if at else None

    def run(self, program, config, inputs, *, words=None, on_line=None, functions=None):
        """Runs it.

        Parameters
        ----------
        config : dict
            The keys of its config except those of ``inputs``, ``output`` and ``format``.
        inputs : dict of str to Table, SparseRows or Text
            By config key.
        on_line : callable, optional
            Called with each line that the first worker prints.
        functions : dict, optional
            Of gbdt: ``objective`` and ``eval_metric``, as the binding calls them, in a job their names; ``classes``: whether
            labels are classes.

        Returns
        -------
        Model
        """
        with memory_folder(self.top) as folder:
            output = os.path.join(folder, "output")
            self.run_to(output, program, {"format": "npy", **config}, inputs, words=words, on_line=on_line, functions=functions)
            model = Model.read(output)
            model.metrics = metrics_of(output)
            return model

    def run_to(self, output, program, config, inputs, *, words=None, on_line=None, functions=None):
        """The same with the program's files left in the folder `output`. Nothing is returned."""
        words = words or Words(program)
        progress = progress_of(words.title) if self.progress else None
        listener = _Listener(program, words, on_line, progress)
        how = self._in_this_process if self.n_workers is None else self._as_job
        try:
            status = how(program, {**config, "output": output}, inputs, listener, functions)
        finally:
            if progress is not None:
                progress.close()
        listener.finish(status)

    def _in_this_process(self, program, config, inputs, listener, functions):
        if _core._entered():
            raise Error(f"{listener.words.title}: this process is in a job of Paralg, want paracel.leave() first, or n_workers")
        _core._check_caller()  # also of a job of this process's parent
        if any(name in os.environ for name in _WORKERS_VARIABLES):
            raise Error(f"{listener.words.title}: this process is a worker of a job, and a program would join it; want "
                        "n_workers")
        with in_this_process(inputs) as names, in_this_process({"config": Text(json.dumps({**config, **names}))}) as own:
            functions = functions or {}
            return _programs.run(program, ["--cfg_file", own["config"]], listener,
                                 on_progress=None if listener.progress is None else listener.progress.report,
                                 objective=functions.get("objective"), metric=functions.get("eval_metric"))

    def _as_job(self, program, config, inputs, listener, functions):
        with memory_folder(self.top) as folder:
            try:
                config = {**config, **write_files(inputs, folder)}
            except OSError as e:
                raise OSError(e.errno, f"{listener.words.title}: the input of the workers cannot be written to {folder}: "
                                       f"{e.strerror}") from None
            file = os.path.join(folder, "config.json")
            with open(file, "w", encoding="utf-8") as out:
                json.dump(config, out)
            path = os.path.join(_BIN, program)
            if functions:
                path = os.path.join(_HERE, "_worker.py")
                with open(os.path.join(folder, "functions.json"), "w", encoding="utf-8") as out:
                    json.dump({**functions, "path": folders_of_modules()}, out)
            command = [sys.executable, "-S", os.path.join(_BIN, "prun.py"), "-w", str(self.n_workers),
                       "-p", str(self.n_servers), "--replicas", str(self.replicas), "--progress-every", str(_PROGRESS_EVERY),
                       "--no-summary", *self.options, "--output-dir", folder, "-c", file, path]
            return _run_command(command, listener)


def job_of(function, keywords):
    """The Job of a function's further keywords. Raises TypeError for others, as a call does."""
    known = inspect.signature(Job).parameters
    for name in keywords:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}, want one of {', '.join(known)}")
    return Job(**keywords)


def _run_command(command, listener):
    """Returns its exit status. An exception here ends the job before it leaves."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("PARACEL_", "OMPI_", "PMIX_"))}
    job = subprocess.Popen(command, env=others, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, errors="replace", start_new_session=True)
    said = queue.SimpleQueue()

    def read(to_stderr, stream):
        for line in stream:
            said.put((to_stderr, line.rstrip("\n")))
        said.put(None)

    readers = [threading.Thread(target=read, args=some) for some in ((False, job.stdout), (True, job.stderr))]
    for reader in readers:
        reader.start()
    try:
        for _ in readers:
            while (line := said.get()) is not None:
                listener(*line)
        status = job.wait()
    finally:
        if job.poll() is None:
            job.terminate()
        job.wait()
        for reader in readers:
            reader.join()
        job.stdout.close()
        job.stderr.close()
    return status
