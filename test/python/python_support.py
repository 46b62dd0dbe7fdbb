# SPDX-License-Identifier: BSD-3-Clause
"""For tests of the Python package: the wheel, built from the libraries and programs of the build folder, and unpacked."""
import contextlib
import fcntl
import glob
import os
import shutil
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "process"))
from process_support import BUILD, SOURCE, JobTest, clean_environment  # noqa: E402

PACKAGE = os.path.join(SOURCE, "src", "python")
PROGRAMS = os.path.join(SOURCE, "test", "python", "programs")
TOOLS = os.path.join(SOURCE, "build", "python-tools")  # of tool/setup.sh --test: what builds and runs the package
PYTHON = os.environ.get("PARACEL_PYTHON") or os.path.join(TOOLS, "bin", "python")
WHEELS = os.path.join(BUILD, "python", "wheels")
# PARACEL_PYTHON_SITE: a folder with an unpacked package, to be tested as it is.
GIVEN = os.environ.get("PARACEL_PYTHON_SITE")
SITE = GIVEN or os.path.join(BUILD, "python", "site")
BUILD_LIMIT = 1800  # seconds


def why_not():
    """Why the package cannot be built here; empty: it can."""
    if not os.access(PYTHON, os.X_OK):
        return f"no {PYTHON}: tool/setup.sh --test creates it, with packages from PyPI"
    if not GIVEN and not os.access(os.path.join(BUILD, "bin", "lr"), os.X_OK):
        return f"no {BUILD}/bin/lr: the programs are not built"
    return ""


def newest(paths):
    return max((os.path.getmtime(path) for path in paths), default=0)


def build_wheel():
    """The path of the wheel, built if anything of it is newer."""
    os.makedirs(WHEELS, exist_ok=True)
    with open(os.path.join(BUILD, "python", "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in parallel
        sources = [path for pattern in ("src/python/*.*", "src/python/paracel/*.py", "src/python/binding/*/*", "prun.py",
                                        "tool/launcher/*/*.*", "tool/template/*/*")
                   for path in glob.glob(os.path.join(SOURCE, pattern))]
        sources += glob.glob(BUILD + "/lib/*.so") + glob.glob(BUILD + "/bin/*")
        wheels = glob.glob(WHEELS + "/*.whl")
        if len(wheels) != 1 or newest(wheels) < newest(sources) or not os.path.isdir(SITE):
            for old in wheels:
                os.remove(old)
            done = subprocess.run(
                [PYTHON, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
                 f"--config-settings=cmake.define.PARACEL_BUILD={BUILD}",
                 f"--config-settings=build-dir={BUILD}/python/build", "-w", WHEELS, PACKAGE],
                capture_output=True, text=True, check=False, timeout=BUILD_LIMIT, stdin=subprocess.DEVNULL,
                env=clean_environment(PATH=os.path.dirname(PYTHON) + os.pathsep + os.environ["PATH"], CMAKE_GENERATOR="Ninja"))
            if done.returncode != 0:
                raise AssertionError(f"the wheel was not built:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
            wheels = glob.glob(WHEELS + "/*.whl")
            shutil.rmtree(SITE, ignore_errors=True)
            unpack(wheels[0], SITE)
        return wheels[0]


def unpack(wheel, folder):
    """As an installer does: with the modes of the files."""
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            path = archive.extract(item, folder)
            mode = item.external_attr >> 16
            if mode:
                os.chmod(path, mode & 0o777)


def paced(program):
    """A program that runs another one with slow commits until the file of TEST_ENOUGH exists."""
    return f"""
import os, runpy, sys, time
import paracel
fast = paracel.Paralg.iter_commit
def slow(self):
    if not os.path.exists(os.environ["TEST_ENOUGH"]):
        time.sleep(0.02)
    fast(self)
paracel.Paralg.iter_commit = slow
sys.argv[0] = "{program}"
runpy.run_path(os.path.join(os.path.dirname(__file__), "{program}"), run_name="__main__")
"""


class PackageTest(JobTest):
    """Runs programs with the package, in one process and as jobs."""

    linked = ()  # the package has its own

    @classmethod
    def setUpClass(cls):
        if reason := why_not():
            raise unittest.SkipTest(reason)
        if not GIVEN:
            build_wheel()
        super().setUpClass()

    @staticmethod
    def environment(**more):
        return clean_environment(PYTHONPATH=SITE, **more)

    def program(self, name, text):
        """Writes a program; returns its path."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def python(self, *words, limit=120, **more):
        """Runs to the end in one process: (status, stdout, stderr)."""
        done = subprocess.run([PYTHON, *words], cwd=self.folder, capture_output=True, text=True, check=False, timeout=limit,
                              stdin=subprocess.DEVNULL, env=self.environment(**more))
        return done.returncode, done.stdout, done.stderr

    @contextlib.contextmanager
    def running(self, *words, **more):
        process = subprocess.Popen([PYTHON, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL, env=self.environment(**more))
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, *arguments, **more):
        """A job of the package's own prun."""
        more.setdefault("environment", self.environment())
        return super().start(*arguments, launcher=[PYTHON, "-S", os.path.join(SITE, "paracel", "_bin", "prun.py")], **more)
