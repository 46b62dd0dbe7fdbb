#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The README's first command on a fresh machine: a minimal Debian 12 in a folder, with packages from the mirrors of this machine.
With PARACEL_FRESH_PAGES=1 the second one and every command of README and documents are run there, too. Another one has only
Python and the package's wheel. Needs root, mmdebstrap and a mirror; skipped otherwise."""
import glob
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
from python_support import TOOLS, build_wheel, why_not  # noqa: E402
from test_readme import DONE as README_BUILD  # noqa: E402

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77
# From this machine's apt configuration: how to reach a mirror.
REACHING = re.compile(r"^Acquire::(https?|Retries|ForceIPv[46]|Check-Valid-Until|Proxy)\b.*")
PROXIES = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
           or name.startswith("PIP_") and name != "PIP_FIND_LINKS"]


def processor_time():
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def output_of(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout


def missing():
    """The reason why this test cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("mmdebstrap", "unshare", "chroot", "apt-config", "git"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return "this machine gives no mount namespace"
    return ""


def debian_12():
    with open("/etc/os-release", encoding="utf-8") as file:
        return "VERSION_CODENAME=bookworm" in file.read().split()


def sources(folder, suite):
    """Files with this machine's own mirrors of Debian, for this suite; none on other systems, where mmdebstrap uses a default."""
    if not debian_12():
        return []
    suites = ("bookworm", "bookworm-updates", "bookworm-security")
    lines, stanzas = [], []
    for path in ["/etc/apt/sources.list"] + sorted(glob.glob("/etc/apt/sources.list.d/*")):
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".sources"):
            stanzas += [s for s in re.split(r"\n\s*\n", text)
                        if re.search(r"(?m)^Suites:.*\bbookworm(-updates|-security)?(\s|$)", s)]
        else:
            lines += [line for line in text.splitlines() if line.startswith("deb ") and set(line.split()) & set(suites)]
    found = []
    for name, parts, between in (("here.list", lines, "\n"), ("here.sources", stanzas, "\n\n")):
        if parts:
            found.append(os.path.join(folder, name))
            with open(found[-1], "w", encoding="utf-8") as file:
                file.write(between.join(parts).replace("bookworm", suite) + "\n")
    return found


def copy_in(path, root):
    """The same file or folder below `root`."""
    target = root + path
    if os.path.isdir(path):
        shutil.copytree(path, target, dirs_exist_ok=True)
    elif os.path.isfile(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(path, target)


def copy_tree(to):
    """The files of a clone of this tree, including uncommitted changes."""
    listed = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if listed.returncode != 0:  # not a clone
        shutil.copytree(SOURCE, to, symlinks=True, ignore=lambda folder, _: [n for n in os.listdir(folder)
                        if folder == SOURCE and (n == ".git" or n.startswith("build"))])
        return
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        path = os.path.join(SOURCE, name)
        if os.path.lexists(path):
            os.makedirs(os.path.dirname(os.path.join(to, name)), exist_ok=True)
            shutil.copy2(path, os.path.join(to, name), follow_symlinks=False)


def make_root(folder, suite, *packages):
    """A minimal Debian in folder/root, from this machine's mirrors; returns its path. Raises SkipTest."""
    root = os.path.join(folder, "root")
    reaching = os.path.join(folder, "reaching.conf")
    lines = [line for line in output_of("apt-config", "dump").splitlines() if REACHING.match(line)]
    with open(reaching, "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
    begin = time.monotonic()
    # Its mounts disappear with it, even when this test is killed.
    made = subprocess.run(["unshare", "--mount", "--fork", "--kill-child", "mmdebstrap", "--variant=minbase", "--mode=root",
                           f"--aptopt={reaching}", *(f"--include={name}" for name in packages), suite, root]
                          + sources(folder, suite),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode != 0:  # no mirror or no space: not our failure
        raise unittest.SkipTest(f"mmdebstrap made no Debian {suite}: " + made.stdout.strip().splitlines()[-1])
    print(f"a minimal Debian {suite}: {time.monotonic() - begin:.0f} s", flush=True)
    return root


def reach_mirrors_inside(root):
    """Lets the root's own apt-get reach the mirrors of this machine."""
    certificates = re.findall(r'::(?:CaInfo|SslCert|SslKey) "(/[^"]+)"', output_of("apt-config", "dump"))
    for path in ["/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/apt/keyrings", "/etc/ssl/certs", "/etc/hosts",
                 "/etc/pip.conf", "/usr/local/share/ca-certificates", "/etc/resolv.conf"] + certificates:
        copy_in(path, root)


def run_inside(root, folder, line):
    """The output of a shell command in a folder of the root. Its mounts and processes are cleaned up. Raises AssertionError."""
    script = 'mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && shift && exec chroot "$@"'
    environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
    environment += [f"{name}={os.environ[name]}" for name in PROXIES]
    begin, used = time.monotonic(), processor_time()
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", script, "sh", root,
                           root, "env", "-i"] + environment + ["bash", "-euc", f"cd {folder}; {line}"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    if done.returncode != 0:
        raise AssertionError(f"{line}: status {done.returncode}\n{done.stdout[-6000:]}")
    print(f"{line}: {time.monotonic() - begin:.0f} s, {processor_time() - used:.0f} s of them on a processor", flush=True)
    return done.stdout


def root_with_wheel(folder, suite, wheel, others):
    """A minimal Debian with Python and nothing else; in its /trial/environment are the package's wheel and, of those
    in the folder `others` what it needs. Returns the root's path."""
    root = make_root(folder, suite, "python3", "python3-venv", "libstdc++6")
    place = os.path.join(root, "trial")
    os.mkdir(place)
    for path in [wheel, *glob.glob(os.path.join(others, "*.whl"))]:
        shutil.copy(path, place)
    run_inside(root, "/trial", "python3 -m venv environment && environment/bin/pip install -q --no-index --find-links . "
                              f"{os.path.basename(wheel)}")
    return root


FIT = """
import numpy as np
import paracel
X = np.random.RandomState(0).randn(20, 2)
for n_workers in (None, 2):
    model = paracel.Ridge(alpha=1e-9, n_workers=n_workers).fit(X, X @ [1, 2] + 1)
    print(model.predict([[1.0, 1.0]]).round(6))
"""


class FreshPython(unittest.TestCase):
    """The package's wheel where nothing of ours was ever built: this release of Debian, without any library of its."""

    def test_a_fit(self):
        if reason := why_not():
            raise unittest.SkipTest(reason)
        if not glob.glob(os.path.join(TOOLS, "wheels", "numpy-*.whl")):
            raise unittest.SkipTest(f"no wheels in {TOOLS}/wheels: tool/setup.sh --test gets them from PyPI")
        folder = tempfile.mkdtemp(prefix="paracel_fresh_")
        self.addCleanup(subprocess.run, ["rm", "-rf", "--one-file-system", folder], check=False)
        root = root_with_wheel(folder, "bookworm", build_wheel(), os.path.join(TOOLS, "wheels"))
        with open(os.path.join(root, "trial", "fit.py"), "w", encoding="utf-8") as file:
            file.write(FIT)
        self.assertEqual(run_inside(root, "/trial", "environment/bin/python fit.py"), "[4.]\n[4.]\n")


class FreshMachine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="paracel_fresh_")
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", "--one-file-system", cls.folder], check=False)
        cls.root = make_root(cls.folder, "bookworm")
        reach_mirrors_inside(cls.root)
        copy_tree(os.path.join(cls.root, "paracel"))

    def inside(self, line):
        """Of the folder of the clone."""
        return run_inside(self.root, "/paracel", line)

    def check_model(self):
        output = os.path.join(self.root, "paracel", "build", "demo", "output")
        with open(os.path.join(output, "lr_theta_0"), encoding="utf-8") as file:
            self.assertEqual(len([float(v) for v in file.read().strip().split("|")]), 31)
        self.assertTrue(os.path.isfile(os.path.join(output, "model.json")))

    def test_the_first_command_of_the_readme_ends_with_a_trained_model(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            first, second = re.search(r"```sh\n(.*?)(?:\s+#.*)?\n(.*?)(?:\s+#.*)?\n", file.read()).groups()
        self.inside(first)
        self.check_model()
        if os.environ.get("PARACEL_FRESH_PAGES") == "1":
            self.inside(second)

        # An incomplete build can be installed.
        self.inside("cmake --install build --prefix /opt/paracel && test -x /opt/paracel/bin/lr && /opt/paracel/bin/lr --help")

        # Only half of the test packages. The compiler cache makes this build fast.
        self.inside("rm -rf build && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends libgtest-dev")
        self.inside(first)
        self.check_model()
        said = self.inside("cmake -S . -B with_tests -G Ninja")
        self.assertIn("no tests: the package libgmock-dev is not installed", said)

        if os.environ.get("PARACEL_FRESH_PAGES") == "1":
            self.inside(README_BUILD)
            self.inside("/usr/bin/python3 -B test/process/test_readme.py")


if __name__ == "__main__":
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    if result.skipped and len(result.skipped) >= result.testsRun and not result.failures and not result.errors:
        print(f"skipped: {result.skipped[0][1]}")
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
