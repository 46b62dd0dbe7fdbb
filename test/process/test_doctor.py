#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py doctor: on this machine, and on ones that lack something, which are made with limits and namespaces."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, PRUN, clean_environment, main  # noqa: E402

NAMESPACES = subprocess.run(["unshare", "--mount", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0 \
    if shutil.which("unshare") else False


class Doctor(unittest.TestCase):
    def doctor(self, *before, framework=BIN, **environment):
        """(exit status, {name: check}) of the report as JSON."""
        done = subprocess.run([*before, sys.executable, PRUN, "doctor", "--json"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300, check=False,
                              env=clean_environment(PARACEL_FRAMEWORK=framework, **environment))
        report = json.loads(done.stdout)
        self.assertEqual(report["can_run"], done.returncode == 0)
        for check in report["checks"]:
            self.assertEqual(set(check), {"name", "state", "found", "advice"})
            self.assertEqual(check["state"] == "ok", check["advice"] == "", check)
        return done.returncode, {check["name"]: check for check in report["checks"]}

    def test_this_machine_can_run_jobs(self):
        status, checks = self.doctor()
        self.assertEqual(status, 0, checks)
        self.assertGreaterEqual(len(checks), 19)
        self.assertEqual(checks["framework"]["found"], BIN)
        self.assertRegex(checks["ports"]["found"], r"^\d+ us for a connection to 127\.0\.0\.1, \d+ free ports from \d+")
        done = subprocess.run([sys.executable, PRUN, "doctor"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=clean_environment(PARACEL_FRAMEWORK=BIN), timeout=300, check=False)
        self.assertEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[-1], "jobs can run here")
        self.assertEqual([line[8:].split("  ")[0].strip() for line in lines[:-1] if not line.startswith(" ")], list(checks))

    def test_few_descriptors_are_a_problem(self):
        for count, state, status in ((100, "problem", 1), (1000, "warning", 0)):
            with self.subTest(count):
                found, checks = self.doctor("sh", "-c", f'ulimit -n {count}; exec "$@"', "sh")
                self.assertEqual((found, checks["descriptors"]["state"]), (status, state))
                self.assertIn(f"{count} at most", checks["descriptors"]["found"])
                self.assertIn("ulimit -Hn", checks["descriptors"]["advice"])

    def test_low_limits_are_named_with_what_raises_them(self):
        _, checks = self.doctor("sh", "-c", 'ulimit -v 3000000; ulimit -c 0; exec "$@"', "sh")
        self.assertEqual(checks["limits"]["state"], "warning")
        self.assertIn("ulimit -v unlimited", checks["limits"]["advice"])
        self.assertEqual(checks["core files"]["state"], "note")

    def test_without_mpirun_only_a_note(self):
        status, checks = self.doctor(PATH="/nowhere")
        self.assertEqual((status, checks["MPI"]["state"], checks["remote shell"]["state"]), (0, "note", "note"))
        self.assertIn("apt-get install openmpi-bin", checks["MPI"]["advice"])

    @unittest.skipUnless(NAMESPACES, "no namespaces")
    def test_a_machine_without_loopback_cannot_run_jobs(self):
        status, checks = self.doctor("unshare", "--net")
        self.assertEqual((status, checks["ports"]["state"]), (1, "problem"))
        self.assertIn("ip link set lo up", checks["ports"]["advice"])

    @unittest.skipUnless(NAMESPACES, "no namespaces")
    def test_little_or_no_shared_memory_is_named(self):
        def in_mounts(line):
            return ["unshare", "--mount", "sh", "-ec", f'{line}; exec "$@"', "sh"]
        _, checks = self.doctor(*in_mounts("mount -t tmpfs -o size=8m tmpfs /dev/shm"))
        self.assertEqual(checks["shared memory"]["state"], "warning")
        self.assertIn("8 MB free of 8 MB", checks["shared memory"]["found"])
        _, checks = self.doctor(*in_mounts("mount -t tmpfs -o ro tmpfs /dev/shm"))
        self.assertIn("Read-only file system", checks["shared memory"]["found"])
        status, checks = self.doctor(*in_mounts("mount -t tmpfs -o ro tmpfs /tmp"))
        self.assertEqual((status, checks["sockets"]["state"]), (1, "problem"))

    @unittest.skipUnless(NAMESPACES, "no namespaces")
    def test_a_name_that_does_not_resolve_is_a_note(self):
        _, checks = self.doctor("unshare", "--uts", "--net", "sh", "-ec", 'hostname nobody.invalid; exec "$@"', "sh")
        self.assertEqual(checks["host name"]["state"], "note")
        self.assertIn("127.0.1.1 nobody.invalid", checks["host name"]["advice"])

    def test_a_framework_whose_libraries_are_missing_is_a_problem(self):
        folder = tempfile.mkdtemp(prefix="paracel_doctor_")
        self.addCleanup(shutil.rmtree, folder)
        for name in ("start_scheduler", "start_server", "send_request"):
            shutil.copy2(os.path.join(BIN, name), folder)
        status, checks = self.doctor(framework=folder)
        self.assertEqual((status, checks["framework"]["state"]), (1, "problem"))
        self.assertIn("libparacel.so", checks["framework"]["found"])


if __name__ == "__main__":
    main()
