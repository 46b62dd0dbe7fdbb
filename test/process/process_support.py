# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the tests with real processes: starting prun.py, finding the processes of a job, killing them."""
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(SOURCE, "build")
PRUN = os.path.join(SOURCE, "prun.py")
BIN = os.path.join(BUILD, "bin")
LR = os.path.join(BIN, "lr")
# Seconds in which a job must end after the event that ends it.
END_LIMIT = 5.0
HEARTBEAT_LIMIT = 3.0  # seconds; for prun.py, unless given
MPI = shutil.which("mpirun") is not None
SOCKET_FOLDER = re.compile(r"/tmp/prc-[0-9a-f]{8}")
# Config keys that make rounds slow until the file named by TEST_ENOUGH exists; no effect without TEST_ENOUGH.
PACED = {"update_file": os.path.join(BUILD, "lib", "test_plugins", "libpaced_updates.so"), "update_func": "paced_add"}
SKIPPED = 77  # ctest's status for "not run"
ENCRYPTED = os.environ.get("PARACEL_ENCRYPT_JOBS", "0") != "0"  # all jobs of a test, over tcp
OVER_UNIX = os.environ.get("PARACEL_UNIX_JOBS", "0") != "0"  # all jobs of a test that can, without ZeroMQ
NOT_OVER_UNIX = {"--transport", "--connections", "--encrypt", "--host", "--hostfile", "--bind-interface"}

if "PARACEL_SEED" in os.environ:
    random.seed(int(os.environ["PARACEL_SEED"]))
else:
    seed = random.randrange(10**6)
    random.seed(seed)
    print(f"PARACEL_SEED={seed}", file=sys.stderr)


# prun.py looks for the framework's programs in build/ of its source tree.
OTHER_FOLDER = {} if os.path.abspath(BUILD) == os.path.join(SOURCE, "build") else {"PARACEL_FRAMEWORK": BIN}
os.environ.update(OTHER_FOLDER)


def clean_environment(**more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PARACEL_")}
    environment.update(OTHER_FOLDER, **more)
    return environment


LOAD_BEFORE = os.getloadavg()[0]


def patient(limit):
    """A limit in seconds, scaled up by the load of the machine."""
    return limit * max(1.0, max(LOAD_BEFORE, os.getloadavg()[0]) / len(os.sched_getaffinity(0)))


def wait_until(condition, limit, step=0.01):
    """The first true value of `condition()`, or its last one after the limit (which is scaled by the load)."""
    end = time.monotonic() + patient(limit)
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class Process:
    def __init__(self, pid, command):
        self.pid, self.command = pid, command

    def __repr__(self):
        return f"{self.pid} {' '.join(self.command)}"

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)


def processes_of(job):
    """The live processes with the job's id in their command line or environment."""
    found = []
    mark = job.encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        folder = f"/proc/{name}/"
        command = read_bytes(folder + "cmdline")
        if mark not in command and mark not in read_bytes(folder + "environ"):
            continue
        state = read_bytes(folder + "stat").rpartition(b")")[2].split()[:1]
        if state and state[0] not in (b"Z", b"X"):
            found.append(Process(int(name), command.decode("utf-8", "replace").split("\0")[:-1]))
    return found


def role_of(process):
    """worker, server, scheduler, mpirun_workers, mpirun_servers, or other."""
    command = process.command
    name = os.path.basename(command[0]) if command else ""
    if name in ("mpirun", "orterun"):
        return "mpirun_servers" if any(word.endswith("start_server") for word in command) else "mpirun_workers"
    if name.startswith("test_"):
        return "worker"
    return {"start_server": "server", "start_scheduler": "scheduler", "lr": "worker"}.get(name, "other")


def rank_of(process):
    """A worker's rank; None of another process."""
    variables = read_bytes(f"/proc/{process.pid}/environ").split(b"\0")
    return next((int(v[13:]) for v in variables if v.startswith(b"PARACEL_RANK=")), None)


def slot_of(server):
    """None of one that is told its slot."""
    slot = server.command[server.command.index("--slot") + 1]
    return int(slot) if slot.isdigit() else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Run:
    """A running prun.py, with its output in files of its own."""

    def __init__(self, arguments, folder, prefix=(), environment=None, launcher=(sys.executable, PRUN)):
        self.folder = folder
        out_file, self.out_path = tempfile.mkstemp(prefix="stdout_", dir=folder)
        err_file, self.err_path = tempfile.mkstemp(prefix="stderr_", dir=folder)
        with open(out_file, "wb") as out, open(err_file, "wb") as err:
            self.process = subprocess.Popen([*prefix, *launcher, *arguments], cwd=folder, stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL, env=environment or clean_environment())
        self.pid = self.process.pid

    def out(self):
        return read_bytes(self.out_path).decode("utf-8", "replace")

    def err(self):
        return read_bytes(self.err_path).decode("utf-8", "replace")

    def job(self):
        """The id of the job, as soon as prun.py has printed it."""
        def said():
            words = self.err().split("prun: job ", 1)
            return words[1][:16] if len(words) == 2 and len(words[1]) > 16 else None
        return wait_until(said, 20)

    def socket_folder(self):
        """The socket folder of a running prun.py, which holds it open for its lock."""
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                path = os.readlink(f"/proc/{self.pid}/fd/{name}")
            except OSError:
                continue
            if SOCKET_FOLDER.fullmatch(path):
                return path
        return None

    def find(self, role, limit=20):
        """A random process of the job with that role; waits for the first one."""
        job = self.job()
        found = wait_until(lambda: [p for p in processes_of(job) if role_of(p) == role], limit)
        return random.choice(found) if found else None

    def worker(self, rank):
        """Its process; None if there is none."""
        return next((p for p in processes_of(self.job()) if rank_of(p) == rank), None)

    def workers(self):
        """The processes of all workers by rank."""
        return {rank: p for p in processes_of(self.job()) if (rank := rank_of(p)) is not None}

    def server(self, slot):
        """Its process; None if there is none."""
        return next((p for p in processes_of(self.job()) if role_of(p) == "server" and slot_of(p) == slot), None)

    def logs(self):
        """The folder of its logs, as it has printed it."""
        return self.err().split("prun: logs in ", 1)[1].split("\n", 1)[0]

    def wait(self, limit=60):
        try:
            return self.process.wait(patient(limit))
        except subprocess.TimeoutExpired:
            return None

    def destroy(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        words = self.err().split("prun: job ", 1)
        if len(words) == 2:
            for process in processes_of(words[1][:16]):
                try:
                    process.kill()
                except ProcessLookupError:
                    pass


class JobTest(unittest.TestCase):
    """A test with its own folder that contains training data and configs."""

    # For programs written by a test: prun.py looks for these next to the program.
    linked = ("start_server", "start_scheduler", "send_request")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel-test-")
        subprocess.run([sys.executable, os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o",
                        os.path.join(cls.folder, "training.dat"), "-n", "300", "-k", "10"], check=True,
                       stdout=subprocess.DEVNULL)
        for name in cls.linked:
            os.symlink(os.path.join(BIN, name), os.path.join(cls.folder, name))
        for name, changes in (("cfg.json", {}), ("long.json", {"rounds": 100000000, "output": "long_out/"})):
            cls.write_config(name, **changes)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def write_config(cls, config_name, **changes):
        import json
        config = {"training_input": "training.dat", "output": "out/", "method": "dgd", "rounds": 30, "alpha": 0.1,
                  "beta": 0.01}
        config.update(changes)
        config = {k: v for k, v in config.items() if v is not None}
        with open(os.path.join(cls.folder, config_name), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=1)
        return config_name

    def write_program(self, name, *lines):
        """A shell script."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(("#!/bin/sh",) + lines) + "\n")
        os.chmod(path, 0o755)
        return path

    def not_there(self, name):
        """A new path in the test's folder."""
        return os.path.join(tempfile.mkdtemp(dir=self.folder), name)

    @staticmethod
    def touch(path):
        with open(path, "w", encoding="ascii"):
            pass

    def start(self, *arguments, **more):
        # On a loaded machine no process must count as lost because it got no processor time for a while.
        runs_job = any(str(word).startswith(BIN) for word in arguments) and "--dry-run" not in arguments \
            and arguments[0] != "sweep"
        if runs_job and "--heartbeat-limit" not in arguments and patient(HEARTBEAT_LIMIT) > HEARTBEAT_LIMIT:
            arguments = ("--heartbeat-limit", f"{patient(HEARTBEAT_LIMIT):.1f}", *arguments)
        if runs_job and ENCRYPTED and "--insecure" not in arguments:
            arguments = ("--encrypt", *arguments)
        if runs_job and OVER_UNIX and not NOT_OVER_UNIX.intersection(arguments):
            arguments = ("--transport", "unix", *arguments)
        run = Run(arguments, self.folder, **more)
        self.addCleanup(run.destroy)
        return run

    def start_long(self, *options):
        return self.start("-w", "3", "-p", "2", "-c", "long.json", *options, LR)

    def prun(self, *arguments, **more):
        """Runs to the end; returns (status, stdout, stderr)."""
        run = self.start(*arguments, **more)
        status = run.wait()
        return status, run.out(), run.err()

    def assert_refused(self, text, *arguments, status=2):
        """prun.py ends with that status, the text on stderr and nothing on stdout. Returns stderr."""
        found, out, err = self.prun(*arguments)
        self.assertEqual((found, out), (status, ""), err)
        self.assertIn(text, err)
        return err

    def says(self, run, text, limit=20):
        """Waits until prun.py has written that text to stderr."""
        self.assertTrue(wait_until(lambda: text in run.err() or run.process.poll() is not None, limit), run.err())
        self.assertIn(text, run.err())

    def start_paced(self, config, *arguments, **changes):
        """An lr job whose rounds take at least 20 ms each until `run.enough` exists, so that it does not end before the fault,
        however fast the machine is. Its model is bit-identical to that of any run with the same config."""
        self.write_config(config, **PACED, **changes)
        enough = self.not_there("enough")
        run = self.start("-c", config, *arguments, LR, environment=clean_environment(TEST_ENOUGH=enough))
        run.enough = enough
        return run

    def status_of(self, run):
        """What prun.py status reports for a running job."""
        done = subprocess.run([sys.executable, PRUN, "status", "--run", run.logs()], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assert_nothing_left(self, job, limit):
        left = wait_until(lambda: not processes_of(job), limit)
        self.assertTrue(left, f"still running: {processes_of(job)}")


def main():
    """Like unittest.main, but reports to ctest if all tests of the file were skipped."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun and len(result.skipped) == result.testsRun else 0)
