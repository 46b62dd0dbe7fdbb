#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Debian packages: lintian finds no error; on a minimal Debian 12 they are installed, run, build what `prun.py new` makes,
and are removed without a trace. The image of tool/k8s, made of them, runs the pods of prun.py -m k8s. Needs root, mmdebstrap and
a mirror; skipped otherwise."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pod_support import REASON as WITHOUT_PODS, Cluster  # noqa: E402
from process_support import BIN, BUILD, PRUN, SOURCE, clean_environment, wait_until  # noqa: E402
from test_fresh_machine import SKIPPED, debian_12, make_root, missing, reach_mirrors_inside, run_inside  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None
PACKAGES = ["libparacel", "libparacel-dev", "paracel", "paracel-doc", "python3-paracel"]


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel_packages_")
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", "--one-file-system", cls.folder], check=False)
        done = subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-G", "DEB", "-B", cls.folder],
                              cwd=cls.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout[-6000:])
        cls.files = {os.path.basename(path).split("_")[0]: path for path in glob.glob(os.path.join(cls.folder, "*.deb"))}

    def field(self, package, name):
        return subprocess.run(["dpkg-deb", "-f", self.files[package], name], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.strip()

    def test_a_names_and_dependencies(self):
        self.assertEqual(sorted(set(self.files) | {"python3-paracel"}), PACKAGES)
        version = self.field("paracel", "Version")
        for package, needs in (("paracel", ["libparacel", "python3", "libc6", "libgflags2.2"]),
                               ("libparacel", ["libzmq5", "libzstd1"]),
                               ("libparacel-dev", ["libparacel", "libeigen3-dev", "libmsgpack-cxx-dev"])):
            found = re.findall(r"([\w.+-]+)(?: \(([^)]*)\))?", self.field(package, "Depends"))
            self.assertLessEqual(set(needs), {name for name, _ in found}, package)
            for name, limit in found:
                self.assertTrue(not name.startswith("libparacel") or limit == f"= {version}", package)

    def test_a_their_maintainer_is_who_the_build_says(self):
        with open(os.path.join(BUILD, "CPackConfig.cmake"), encoding="utf-8") as file:
            wanted = re.search(r'CPACK_PACKAGE_CONTACT "(.*)"', file.read())[1]
        self.assertRegex(wanted, r"^\S.* <\S+@\S+>$")
        for package in self.files:
            self.assertEqual(self.field(package, "Maintainer"), wanted)
            command = f"dpkg-deb --fsys-tarfile '{self.files[package]}' | tar -xO --wildcards '*/changelog.gz' | zcat"
            inside = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True, check=True).stdout
            self.assertIn(f" -- {wanted}  ", inside)

    @unittest.skipIf(shutil.which("lintian") is None, "no lintian")
    def test_b_lintian_finds_no_error(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *self.files.values()], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotRegex(done.stdout, r"(?m)^E: ")

    def test_c_a_machine_gets_them_uses_them_and_loses_them(self):
        reason = missing() or ("" if debian_12() else "not Debian 12")
        if reason:
            self.skipTest(reason)
        root = make_root(self.folder, "bookworm")
        reach_mirrors_inside(root)
        os.mkdir(os.path.join(root, "debs"))
        for path in self.files.values():
            shutil.copy(path, os.path.join(root, "debs"))

        def inside(line):
            return run_inside(root, "/root", f"export DEBIAN_FRONTEND=noninteractive; {line}")

        inside("apt-get update -q")
        inside("dpkg --get-selections | sort >/before; find /usr /etc /opt /srv | sort >/files_before")
        # Without its recommendations it runs jobs.
        inside("apt-get install -qy --no-install-recommends /debs/libparacel_*.deb /debs/paracel_*.deb")
        self.assertIn("jobs can run here", inside("prun.py doctor"))
        said = inside("paracel-datagen -m classification -o t.csv -n 200 -k 5 && printf "
                      """'{"$schema": "/usr/share/paracel/schema/lr.json", "training_input": "t.csv", "method": "newton", """
                      """"beta": 0.001, "output": "out"}' >c.json && """
                      "prun -w 2 -p 2 -c c.json --set rounds=5 lr && paracel-lr --cfg_file c.json --set rounds=5")
        self.assertEqual(len(re.findall(r"(?m)^objective \S+$", said)), 2, said)
        # What it imports is compiled when it is installed, and whenever the default Python changes.
        compiled = ("d=/usr/lib/paracel/lib/paracel/launcher; find $d -name '*.py' | wc -l; "
                    "find $d -name '*.cpython-311.pyc' | wc -l; "
                    "find /usr/lib/paracel -name __pycache__ ! -path \"$d*\" | wc -l")
        for step in ("true", "/usr/share/python3/runtime.d/paracel.rtupdate rtupdate 3.11 3.11"):
            modules, done, others = map(int, inside(f"{step} && {compiled}").split())
            self.assertGreater(modules, 60)
            self.assertEqual((done, others), (modules, 0))
        inside("test -e /usr/share/man/man1/paracel-lr.1.gz && test -e /usr/share/bash-completion/completions/prun.py && "
               "test -e /usr/share/paracel/schema/lr.json")
        # What is made by `prun.py new` is built against them, with CMake and with pkg-config.
        inside("apt-get install -qy --no-install-recommends /debs/*.deb g++ cmake ninja-build pkg-config")
        self.assertIn("100% tests passed", inside("prun new line_fit && cd line_fit && cmake -S . -B build -G Ninja && "
                                                  "cmake --build build && ctest --test-dir build --output-on-failure"))
        inside("cd line_fit && c++ line_fit.cpp $(pkg-config --cflags --libs paracel) -o fit && ./fit --help")
        if "python3-paracel" in self.files:
            self.assertIn("\nOK\n", inside("prun new --python py_fit && cd py_fit && python3 test.py"))
            folder = "/usr/lib/python3/dist-packages/paracel"
            modules, done = map(int, inside(f"find {folder} -name '*.py' | wc -l; find {folder} -name '*.pyc' | wc -l").split())
            self.assertEqual(done, modules)
            inside("python3 -c 'import numpy, paracel; x = numpy.eye(4); "
                   "print(paracel.LogisticRegression().fit(x, [0, 1, 0, 1]).predict(x))'")
        inside("apt-get purge -qy $(dpkg -l | awk '$2 ~ /paracel/ {print $2}') && apt-get autoremove --purge -qy")
        self.assertEqual(inside("dpkg -l | grep paracel || true"), "")
        left = inside("find /usr /etc /opt /srv | sort | comm -13 /files_before - | grep paracel || true")
        self.assertEqual(left, "")

    def test_d_the_image_of_pods_runs_them(self):
        reason = missing() or WITHOUT_PODS or ("" if debian_12() else "not Debian 12") or ("" if yaml else "no module yaml")
        if reason:
            self.skipTest(reason)
        folder = os.path.join(self.folder, "image")
        os.mkdir(folder)
        root = make_root(folder, "bookworm")  # as FROM says, apart from what a slim image leaves out
        reach_mirrors_inside(root)
        with open(os.path.join(SOURCE, "tool", "k8s", "Containerfile"), encoding="utf-8") as file:
            steps = [line.split(None, 1) for line in file.read().replace("\\\n", " ").splitlines() if line and line[0] != "#"]
        self.assertEqual(steps[0], ["FROM", "debian:bookworm-slim"])
        workdir = "/"
        for word, rest in steps[1:]:
            if word == "COPY":
                *names, to = rest.split()
                os.makedirs(root + to, exist_ok=True)
                for name in names:
                    for path in glob.glob(os.path.join(self.folder, name)):
                        shutil.copy(path, root + to)
            elif word == "RUN":
                run_inside(root, workdir, "export DEBIAN_FRONTEND=noninteractive; " + rest)
            else:
                self.assertEqual(word, "WORKDIR")
                workdir = rest
                os.makedirs(root + workdir, exist_ok=True)
        volume = os.path.join(folder, "cluster", "volume")
        os.makedirs(volume)
        subprocess.run([sys.executable, os.path.join(SOURCE, "tool", "datagen.py"), "-m", "classification", "-o",
                        os.path.join(volume, "training.csv"), "-n", "300", "-k", "10"], check=True, stdout=subprocess.DEVNULL)
        config = os.path.join(folder, "cfg.json")
        with open(config, "w", encoding="utf-8") as file:
            file.write('{"training_input": "training.csv", "method": "dgd", "rounds": 20, "alpha": 0.1, "beta": 0.01, '
                       '"output": "out"}')
        printed = subprocess.run([PRUN, "-m", "k8s", "--image", "paracel", "-w", "2", "-p", "2", "--replicas", "2", "-c", config,
                                  "--checkpoint-dir", "saved", "--checkpoint-every", "5", "lr"], stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, check=True, env=clean_environment(PARACEL_FRAMEWORK=BIN))
        cluster = Cluster(os.path.join(folder, "cluster"), yaml.safe_load_all(printed.stdout), root=root)
        self.addCleanup(cluster.close)
        for role in ("worker", "scheduler", "server"):
            cluster.start(role)
        self.assertTrue(wait_until(cluster.turn, 120, 0.1), [pod.said()[-2000:] for pod in cluster.pods])
        self.assertIn("objective", cluster.pod("worker").said())
        self.assertTrue(os.path.getsize(os.path.join(volume, "out", "lr_theta_0")))
        self.assertTrue(glob.glob(os.path.join(volume, "saved", "*", "manifest.json")))
        self.assertEqual(cluster.failures, {})


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    if result.skipped and not result.failures and not result.errors:
        print(f"skipped: {result.skipped[0][1]}")
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
