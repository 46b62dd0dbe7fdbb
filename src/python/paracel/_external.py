# SPDX-License-Identifier: BSD-3-Clause
"""A job whose servers and workers another scheduler of processes starts (paracel.ray, paracel.dask): prun.py with the job's
scheduler runs here (-m external), and on the cluster `run_process` runs `prun.py join`, one process for each."""
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

from paracel._run import _AROUND, _BIN, _ERRORS, Job
from paracel.errors import ConfigError, Error, JobError

# The process ends with the one that has this shell's standard input, however that ends, and its private folder with it.
_SUPERVISED = ('d=$1; shift; exec 3<&0; setsid "$@" </dev/null 3<&- & p=$!; '
               '{ cat <&3; rm -r "$d"; kill -s KILL -- -$p; } >/dev/null 2>&1 & w=$!; '
               "exec 3<&-; wait $p; s=$?; kill $w 2>/dev/null; exit $s")
_VARIABLES = re.compile(r"PARACEL_RENDEZVOUS='(\S+)' PARACEL_JOB_KEY_FILE='(.+)' prun")
_MOST_LOG_BYTES = 1 << 14
_WAIT = 30  # seconds: the job's scheduler is there, but may have to notice the death of the process before


@contextlib.contextmanager
def _private_folder():
    """A context: a folder as prun.py has it for a job's key. If all is killed at once, as by Ray, the next prun.py, or the next
    process that is started here, removes it."""
    sys.path.insert(0, os.path.join(_BIN, "tool"))
    try:
        from launcher.folders.socket_folder import SocketFolder
    finally:
        sys.path.pop(0)
    folder = SocketFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def run_process(order):
    """Runs a server or a worker of a job in the calling process's place, which may be anywhere in a cluster.

    Parameters
    ----------
    order : dict
        Of ExternalJob.order.

    Returns
    -------
    dict
        ``status``: its exit status; ``out``: what a worker has printed; ``log``: the end of its log.
    """
    with _private_folder() as private:
        key, config = os.path.join(private, "job.key"), os.path.join(private, "config.json")
        for path, text in ((key, order["key"]), (config, order["config"])):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        command = [sys.executable, "-S", os.path.join(_BIN, "prun.py"), "join", order["role"], "--index", str(order["index"]),
                   "--wait", str(_WAIT)]
        if order["role"] == "worker":
            command += [order["program"], "--cfg_file", config]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PARACEL_", "OMPI_", "PMIX_"))}
        environment.update(PARACEL_RENDEZVOUS=order["rendezvous"], PARACEL_JOB_KEY_FILE=key)
        files = [os.path.join(private, name) for name in ("out", "log")]
        with open(files[0], "wb") as out, open(files[1], "wb") as log:
            process = subprocess.Popen(["/bin/sh", "-c", _SUPERVISED, "sh", private, *command], stdin=subprocess.PIPE, stdout=out,
                                       stderr=log, cwd=order["folder"] if os.path.isdir(order["folder"]) else private,
                                       env=environment)
            try:
                status = process.wait()
            finally:
                process.stdin.close()
                process.wait()
        texts = []
        for path in files:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        return {"status": status, "out": texts[0], "log": texts[1][-_MOST_LOG_BYTES:]}


class ExternalJob:
    """A context: the job's scheduler, which ends with it.

    Parameters
    ----------
    program : str
        One of the toolbox, or the path of another one, the same on all hosts.
    config : dict or str
        The program's config, or the file with it.
    host : str
        This host's address for the others.
    options : sequence of str
        Further options of prun.
    """

    def __init__(self, program, config, workers, servers, replicas, host, options):
        Job(workers, servers, replicas)  # checks the numbers
        if isinstance(config, dict):
            self.config = json.dumps(config)
        else:
            try:
                with open(config, encoding="utf-8") as file:
                    self.config = file.read()
            except OSError as error:
                raise ConfigError(f"config: {config} cannot be read: {error.strerror}") from None
        own = os.path.join(_BIN, program)
        self.program = program if os.sep not in program and os.path.exists(own) else os.path.abspath(program)
        path = own if self.program == program else self.program
        self.places = [("server", i) for i in range(servers)] + [("worker", i) for i in range(workers)]
        self.replicas, self.lines, self.results = replicas, [], {}
        self._waits = any(str(word).rpartition("=")[2].startswith("wait:") for word in options)  # --on-worker-death
        self._private = tempfile.TemporaryDirectory(prefix="paracel-")
        file = os.path.join(self._private.name, "config.json")
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.config)
        self._command = [sys.executable, "-S", os.path.join(_BIN, "prun.py"), "-m", "external", "--host", host,
                         "-w", str(workers), "-p", str(servers), "--replicas", str(replicas), *map(str, options),
                         "-c", file, path]
        self._told = threading.Event()
        self.rendezvous = self._key = None

    def __enter__(self):
        others = {k: v for k, v in os.environ.items() if not k.startswith(("PARACEL_", "OMPI_", "PMIX_"))}
        self._prun = subprocess.Popen(self._command, env=others, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                      errors="replace", start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._told.wait()
        if self.rendezvous is None:
            self.__exit__()
            self.finish()
        return self

    def __exit__(self, *_):
        if self._prun.poll() is None:
            self._prun.terminate()
        self._prun.wait()
        self._reader.join()
        self._prun.stderr.close()
        self._private.cleanup()

    def _read(self):
        for line in self._prun.stderr:
            self.lines.append(line.rstrip("\n"))
            found = _VARIABLES.search(line) if self.rendezvous is None else None
            if found:
                with open(found[2], encoding="ascii") as file:
                    self._key = file.read()
                self.rendezvous = found[1]
                self._told.set()
        self._told.set()

    def order(self, role, index):
        """What run_process does. It holds the job's key."""
        return {"role": role, "index": index, "rendezvous": self.rendezvous, "key": self._key, "config": self.config,
                "program": self.program, "folder": os.getcwd()}

    def is_over(self):
        return self._prun.poll() is not None

    def needs(self, role):
        """Whether another process may take the place of one that has died."""
        return (self.replicas > 1 if role == "server" else self._waits) and not self.is_over()

    def was_killed(self, place, result):
        """Keeps what run_process has returned. Returns: whether a signal has killed the process, as the system does where memory
        is short: the actor or task that has run it knows nothing of that."""
        self.results[place] = result
        return not 0 <= result["status"] <= 128  # as a shell says it

    def finish(self):
        """Blocks until the job has ended. Returns: what the first worker has printed. Raises Error, by the job's status."""
        status = self._prun.wait()
        self._reader.join()
        if status == 0:
            return self.results.get(("worker", 0), {}).get("out", "")
        logs = [line for (role, index), r in sorted(self.results.items()) if r["status"] == status
                for line in r["log"].splitlines() if "error: " in line]
        causes = [line.removeprefix("prun: ").removeprefix("prun.py: ") for line in self.lines]
        causes = [line for line in causes if not _AROUND.match(line) and "warning" not in line][-3:]
        failure = _ERRORS.get(status, JobError if status > 9 else Error)(
            "\n".join([*logs[:1], *causes]) or f"the job ended with status {status}")
        failure.status = status
        raise failure
