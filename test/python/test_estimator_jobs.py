#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fits by jobs of several workers, one of whose servers is killed. Memory of fits."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from estimator_support import in_package, program  # noqa: E402
from process_support import MPI  # noqa: E402

in_package("numpy", "scipy")

import numpy as np  # noqa: E402
import paracel  # noqa: E402
import scipy.sparse  # noqa: E402
from test_estimators import Folder, classification, regression  # noqa: E402


class Jobs(Folder):
    """Fits by several processes."""

    def test_two_workers(self):
        X, y = regression()
        alone = paracel.Ridge().fit(X, y)
        job = paracel.Ridge(n_workers=2).fit(X, y)
        np.testing.assert_allclose(job.coef_, alone.coef_, rtol=1e-9)
        sparse = paracel.Ridge(n_workers=2).fit(scipy.sparse.csr_matrix(X), y, np.ones(len(y)))
        np.testing.assert_allclose(sparse.coef_, alone.coef_, rtol=1e-9)
        trees = [paracel.GradientBoostingClassifier(n_estimators=5, n_workers=n).fit(*classification()) for n in (None, 2)]
        self.same_arrays(trees[0].model_, trees[1].model_)
        labels = [paracel.KMeans(n_clusters=3, n_workers=n).fit(X).labels_.tolist() for n in (None, 2)]
        self.assertEqual(labels[0], labels[1])

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_mpi(self):
        """The same by mpirun, also with options of prun; data in a folder that hosts could share."""
        X, y = regression()
        rows, labels = classification(classes=3)
        shared = ["-m", "mpi", "--m_server", "local", "--output-dir", self.folder]
        for estimator, data in ((paracel.Ridge(), (X, y)), (paracel.KMeans(n_clusters=3), (X,)),
                                (paracel.GradientBoostingClassifier(n_estimators=5), (rows, labels)),
                                (paracel.RandomForestRegressor(n_estimators=5), (scipy.sparse.csr_matrix(X), y))):
            with self.subTest(type(estimator).__name__):
                estimator.set_params(n_workers=2)
                local = estimator.fit(*data).model_
                self.same_arrays(estimator.set_params(launcher="mpi").fit(*data).model_, local)
                if isinstance(estimator, paracel.KMeans):
                    self.same_arrays(estimator.set_params(launcher=shared).fit(*data).model_, local)
                    self.assertEqual(os.listdir(self.folder), [])
        with self.assertRaisesRegex(ValueError, "^Ridge: parameter alpha: found number -1"):
            paracel.Ridge(alpha=-1, n_workers=2, launcher="mpi").fit(X, y)
        with self.assertRaisesRegex(paracel.Error, "^LinearSVR: after 1 rounds "):
            paracel.LinearSVR(max_iter=1, tol=1e-12, n_workers=2, launcher="mpi").fit(X, y)
        with self.assertRaisesRegex(paracel.ConfigError, "^parameter launcher: found 'mesos', want 'local', 'mpi', or a list"):
            paracel.Ridge(n_workers=2, launcher="mesos").fit(X, y)

    def test_errors_and_warnings_of_a_job(self):
        X, y = regression()
        with self.assertRaisesRegex(ValueError, "^Ridge: parameter alpha: found number -1"):
            paracel.Ridge(alpha=-1, n_workers=2).fit(X, y)
        with self.assertRaisesRegex(paracel.Error, "^LinearSVR: after 1 rounds "):
            paracel.LinearSVR(max_iter=1, tol=1e-12, n_workers=2).fit(X, y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            paracel.KMeans(n_clusters=8, max_iter=1, n_workers=2).fit(X)
        self.assertTrue(any("not converged" in str(w.message) for w in caught), caught)

    def test_a_killed_server(self):
        r = np.random.RandomState(6)
        users, items = r.randint(0, 2000, 400_000), r.randint(0, 1000, 400_000)
        ratings = r.randint(1, 6, 400_000) * 1.0
        how = dict(n_factors=16, max_iter=150, n_workers=2, n_servers=2, replicas=2)
        undisturbed = paracel.MatrixFactorization(**how).fit(users, items, ratings)
        killer, killed = killing_a_server()
        disturbed = paracel.MatrixFactorization(**how).fit(users, items, ratings)
        killer.join()
        self.assertEqual(len(killed), 1)
        self.same_arrays(disturbed.model_, undisturbed.model_)
        # Without replicas that is the end of the job, and its cause.
        killer, killed = killing_a_server()
        with self.assertRaisesRegex(paracel.JobError, r"^MatrixFactorization: server s\d \(pid \d+\) was killed by SIGKILL$"):
            paracel.MatrixFactorization(**{**how, "replicas": 1}).fit(users, items, ratings)
        killer.join()
        self.assertEqual(len(killed), 1)


# Prints by how many KiB the peak of a process that has imported everything and has the data is above that during a fit.
FIT = """
import sys
import numpy as np
import paracel
def kib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))
X, y = np.load("X.npy"), np.load("y.npy")
model = getattr(paracel, sys.argv[1])()
type(model)().fit(X[:100], y[:100])
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = kib("VmRSS")
model.fit(X, y)
print(kib("VmHWM") - before)
"""


class Memory(Folder):
    def test_a_fit_needs_what_the_program_needs(self):
        r = np.random.RandomState(9)
        X = r.randn(200_000, 40)
        y = (X[:, 0] > 0).astype(float)
        for name, array in (("X", X), ("y", y), ("data", np.column_stack([X, y]))):
            np.save(self.path(name + ".npy"), array)
        config = {"training_input": "data.npy", "output": "out", "format": "npy"}
        for estimator, name, keys in (("Ridge", "ridge", {"penalty": 1}),
                                      ("GaussianNB", "naive_bayes", {"distribution": "gaussian"})):
            with self.subTest(estimator):
                fit = subprocess.run([sys.executable, "-c", FIT, estimator], cwd=self.folder, capture_output=True, text=True,
                                     check=True)
                self.config("config.json", {**config, **keys})
                alone = subprocess.Popen([program(name), "--cfg_file", "config.json"], cwd=self.folder, stdout=subprocess.DEVNULL)
                _, status, used = os.wait4(alone.pid, 0)
                alone.returncode = status
                self.assertEqual(status, 0)
                self.assertLess(int(fit.stdout), 1.2 * used.ru_maxrss)


def killing_a_server():
    """(a thread, a list): it kills the first server that has been at work for a second, and puts its process there."""
    killed = []

    def kill_one():
        for _ in range(200):
            servers = children_running("start_server")
            if len(servers) >= 2:
                time.sleep(1)
                os.kill(servers[0], signal.SIGKILL)
                killed.append(servers[0])
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_one)
    killer.start()
    return killer, killed


def children_running(name):
    """Processes below this one that run a program of that name."""
    below, parents = [], {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            if os.path.basename(os.readlink(f"/proc/{entry}/exe")) == name:
                below.append(int(entry))
        except (OSError, ValueError):
            continue

    def is_below(pid):
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    return [pid for pid in sorted(below) if is_below(pid)]


if __name__ == "__main__":
    unittest.main()
