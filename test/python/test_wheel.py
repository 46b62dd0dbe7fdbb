#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The wheel needs nothing but NumPy and nanobind-backend: its files, and jobs in an empty environment."""
import email
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import BUILD, PYTHON, TOOLS, build_wheel, unpack, why_not  # noqa: E402
from process_support import clean_environment, main, patient, processes_of  # noqa: E402

# What every system with a C++ compiler's runtime has.
BASE = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2",
        "librt.so.1", "libresolv.so.2"}
METRICS = os.path.exists(os.path.join(BUILD, "lib", "libparacel_metrics.so"))
WHEELHOUSE = os.path.join(TOOLS, "wheels")

PROGRAM = """
import sys
if "zmq" in sys.argv[0]:
    import zmq
    context = zmq.Context()
    ends = [context.socket(zmq.PAIR) for _ in range(2)]
    ends[0].bind("inproc://x"), ends[1].connect("inproc://x")
import paracel

class Job(paracel.Paralg):
    def solve(self):
        self.update("sum", 1.0)
        self.update("shared", [1.0, 2.0], function=("liblr_update.so", "lr_theta_update"))
        self.sync()
        assert self.read("sum") == self.worker_size
        assert self.comm.allreduce(1) == self.worker_size
        if "zmq" in sys.argv[0]:
            ends[0].send(b"still mine")
            assert ends[1].recv() == b"still mine"
        if self.worker_id == 0:
            with open("/proc/self/maps") as maps:
                loaded = {line.split()[5] for line in maps if ".so" in line}
            print("\\n".join(sorted(loaded)))

paracel.run(Job)
"""

WAITS = """
import os, time
import paracel

class Job(paracel.Paralg):
    def solve(self):
        self.update("sum", 1.0)
        while not os.path.exists("enough"):
            time.sleep(0.02)

paracel.run(Job)
"""


def run(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
                          **dict({"env": clean_environment()}, **options))
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if reason := why_not():
            raise unittest.SkipTest(reason)
        cls.wheel = build_wheel()
        cls.folder = tempfile.mkdtemp(prefix="paracel-wheel-")
        cls.site = os.path.join(cls.folder, "site")
        unpack(cls.wheel, cls.site)
        cls.package = os.path.join(cls.site, "paracel")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def elf_files(self):
        for path in glob.glob(self.package + "/**/*", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path

    def test_every_library_is_inside_or_in_every_system(self):
        seen = set()
        for path in self.elf_files():
            dynamic = run("readelf", "-d", path)
            run_path = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
            folders = [os.path.normpath(folder.replace("$ORIGIN", os.path.dirname(path)))
                       for folder in ":".join(run_path).split(":")]
            self.assertTrue(all(folder.startswith(self.package) for folder in folders), f"{path}: run path {run_path}")
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                seen.add(name)
                inside = any(os.path.exists(os.path.join(folder, name)) for folder in folders)
                mpi = os.path.basename(path) == "libparacel_mpi.so" and name.startswith("libmpi.so")
                self.assertTrue(inside or name in BASE or mpi, f"{path} needs {name}")
        self.assertTrue(any(name.startswith("libzmq-") for name in seen), seen)  # so that no other libzmq is ours
        if shutil.which("dpkg-query"):
            licences = {"libzmq5"}
            if METRICS:
                licences |= {"libprometheus-cpp-core1.0", "libprometheus-cpp-pull1.0", "libcivetweb1"}
            self.assertLessEqual(licences, set(os.listdir(os.path.join(self.package, "_lib", "licences"))))

    def test_it_is_for_every_python_and_requires_two_packages(self):
        self.assertRegex(os.path.basename(self.wheel), r"^paracel-[0-9.]+-cp310-abi3-.*linux.*\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            required = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist")
        always = sorted(re.match(r"[\w-]+", r).group() for r in required if "extra ==" not in r)
        self.assertEqual(always, ["nanobind-backend", "numpy"])

    def test_each_program_is_a_command(self):
        with zipfile.ZipFile(self.wheel) as archive:
            scripts = next(name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
            commands = set(re.findall(r"^paracel-(\w+) *=", archive.read(scripts).decode(), re.MULTILINE))
        programs = {os.path.basename(path) for path in self.elf_files() if os.path.dirname(path).endswith("_bin")}
        own = {"start_server", "start_scheduler", "start_sandbox", "send_request", "paracel_checkpoint"}
        self.assertEqual(commands, programs - own)

    def test_jobs_in_an_empty_environment(self):
        if not glob.glob(WHEELHOUSE + "/numpy-*.whl"):
            self.skipTest(f"no wheels in {WHEELHOUSE}")
        environment = os.path.join(self.folder, "environment")
        run(PYTHON, "-m", "venv", environment)
        bin_folder = os.path.join(environment, "bin")
        install = [os.path.join(bin_folder, "pip"), "install", "-q", "--no-index", "--find-links", WHEELHOUSE,
                   "--disable-pip-version-check"]
        run(*install, self.wheel)
        place = tempfile.mkdtemp(dir=self.folder)

        def written(name, text):
            with open(os.path.join(place, name), "w", encoding="utf-8") as file:
                file.write(text)
            return name

        prun = os.path.join(bin_folder, "prun")
        for name in ("alone.py", "with_zmq.py"):
            with self.subTest(name):
                if "zmq" in name:
                    run(*install, "pyzmq")
                written(name, PROGRAM)
                for command in ([prun, "-w", "2", "-p", "1", name], [os.path.join(bin_folder, "python"), name]):
                    loaded = run(*command, cwd=place).split()
                    self.assertTrue(any("/paracel/_lib/libzmq-" in path for path in loaded), loaded)
                    outside = [path for path in loaded if path.startswith(BUILD + "/") or
                               re.search(r"/lib/x86_64-linux-gnu/lib(zmq|sodium|xxhash|zstd|paracel)", path)]
                    self.assertEqual(outside, [])
        with self.subTest("a program of the toolbox"):
            written("train.csv", "".join(f"{i % 7},{i % 5},{int(i % 7 > 3)}\n" for i in range(100)))
            written("lr.json", json.dumps({"training_input": "train.csv", "output": "model", "method": "dgd", "rounds": 5,
                                           "alpha": 0.1, "beta": 0.01, "update_file": "liblr_update.so",
                                           "update_func": "lr_theta_update"}))
            self.assertIn("training_input", run(os.path.join(bin_folder, "paracel-lr"), "--help", cwd=place))
            run(prun, "-w", "2", "-p", "1", "-c", "lr.json", "lr", cwd=place)
            in_job = sorted(os.listdir(os.path.join(place, "model")))
            run(os.path.join(bin_folder, "paracel-lr"), "--cfg_file", "lr.json", cwd=place)
            self.assertTrue(in_job and sorted(os.listdir(os.path.join(place, "model"))), in_job)
        with self.subTest("metrics of a running job"):
            written("waits.py", WAITS)
            command = [prun, "-w", "2", "-p", "1", "--metrics-port", "0", "waits.py"]
            if METRICS:
                self.metrics(command, place)
            else:
                with self.assertRaisesRegex(AssertionError, "prometheus-cpp"):
                    run(*command, cwd=place)

    def metrics(self, command, place):
        """The endpoint answers while the job waits for a file. What the scheduler has loaded is of the wheel."""
        with subprocess.Popen(command, cwd=place, env=clean_environment(), stdin=subprocess.DEVNULL, text=True,
                              stderr=subprocess.PIPE) as job:
            self.addCleanup(job.terminate)
            said = ""
            while not (url := re.search(r"metrics at (http://\S+)", said)):
                line = job.stderr.readline()
                self.assertTrue(line, f"prun has ended: {said}")
                said += line
            name = re.search(r"prun: job (\w+):", said)[1]
            with urllib.request.urlopen(url[1], timeout=patient(30)) as answer:
                self.assertIn(f'paracel_job_start_time_seconds{{run="{name}"}}', answer.read().decode())
            (scheduler,) = [p for p in processes_of(name) if os.path.basename(p.command[0]) == "start_scheduler"]
            with open(f"/proc/{scheduler.pid}/maps", encoding="utf-8") as maps:
                loaded = {line.split()[5] for line in maps if "prometheus" in line or "paracel_metrics" in line}
            self.assertEqual(len(loaded), 3, loaded)
            self.assertEqual([path for path in loaded if "/site-packages/paracel/_lib/" not in path], [])
            with open(os.path.join(place, "enough"), "wb"):
                pass
            said += job.stderr.read()
            self.assertEqual(job.wait(), 0, said)

    def test_plugins_of_an_installation_with_umask_002(self):
        """Its files are writable by the user's own group."""
        if not glob.glob(WHEELHOUSE + "/numpy-*.whl"):
            self.skipTest(f"no wheels in {WHEELHOUSE}")
        environment = os.path.join(self.folder, "of_group")
        run("sh", "-c", 'umask 002 && "$0" -m venv "$1" && exec "$1/bin/pip" install -q --no-index --find-links "$2" '
                        '--disable-pip-version-check "$3"', PYTHON, environment, WHEELHOUSE, self.wheel)
        (plugins,) = glob.glob(environment + "/lib/*/site-packages/paracel/_plugins")
        self.assertEqual([os.stat(path).st_mode & 0o020 for path in (plugins, plugins + "/liblr_update.so")], [0o020] * 2)
        place = tempfile.mkdtemp(dir=self.folder)
        with open(os.path.join(place, "job.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        for command in (["prun", "-w", "2", "-p", "1"], ["python"]):
            command[0] = os.path.join(environment, "bin", command[0])
            run(*command, "job.py", cwd=place)


if __name__ == "__main__":
    main()
