#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""--plugin-sandbox with real servers: a user function that crashes, exits, loops, fills the memory or its stack fails its own
request, with its name and the key, and nothing else happens, with and without replicas."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, JobTest, clean_environment, main, patient, read_bytes, wait_until  # noqa: E402

SANDBOXED = os.path.join(BIN, "test_sandboxed")
PLUGINS = os.path.join(os.path.dirname(BIN), "lib", "test_plugins")
SANITIZED = b"__asan_init" in read_bytes(os.path.join(BIN, "start_sandbox")) or \
    b"__tsan_init" in read_bytes(os.path.join(BIN, "start_sandbox"))
WAYS = {"segv": "ended its sandbox: SIGSEGV", "abort": "ended its sandbox: SIGABRT", "exit": r"ended its sandbox: exit\(3\)",
        "loop": r"ran for longer than \S+ s \(--function-timeout\)", "overflow": "ended its sandbox: SIGSEGV",
        "allocation": r"std::bad_alloc: the limit of its sandbox is 128M \(--sandbox-memory\)"}
if SANITIZED:  # a sanitizer reports signals itself, exits with its own status, and ignores memory limits
    del WAYS["overflow"], WAYS["allocation"]
    WAYS["segv"] = WAYS["abort"] = "ended its sandbox: "


def sandboxes(mark):
    """The processes of sandboxes whose environment has this mark."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and mark in read_bytes(f"/proc/{name}/environ") and \
                b"start_sandbox" in read_bytes(f"/proc/{name}/cmdline"):
            found.append(int(name))
    return found


class Sandbox(JobTest):
    def job(self, *words, replicas=1, servers=3, options=(), **more):
        return self.prun("-w", "3", "-p", str(servers), "--replicas", str(replicas), "--plugin-dir", PLUGINS, "--plugin-sandbox",
                         "--sandbox-memory", "128M", "--function-timeout", f"{patient(1):.1f}", *options, SANDBOXED, *words,
                         **more)

    def every_way(self, replicas, *options):
        status, out, err = self.job(",".join(WAYS), replicas=replicas, options=options)
        self.assertEqual(status, 0, err + out)
        self.assertNotIn(" lost: ", err)
        self.assertNotIn("nothing happened", out)
        self.assertNotRegex(out, r" is \S+, not ")
        for way, how in WAYS.items():
            function = rf"libdeadly_updates.so:deadly_{way} \(f64, f64\)"
            self.assertRegex(out, rf'{way} update: .*key "deadly 1": {function}: {how}\n')
            self.assertRegex(out, rf'{way} bupdate: .*key "deadly 1": {function}: {how}\n')
            self.assertRegex(out, rf'{way} set: .*key "deadly 1": {function}: {how}')
            self.assertRegex(out, rf'{way} filter: .*key "deadly 1": libdeadly_updates.so:deadly_filter\w*: {how}\n')
        self.assertIn("counted 400 and 400\n", out)

    def test_every_death_is_one_request_and_no_server(self):
        self.every_way(1)

    def test_nor_one_with_copies(self):
        self.every_way(2, "--threads", "2")

    def test_a_staged_update_ends_the_program_with_its_cause_and_no_server(self):
        for replicas in (1, 2):
            for way in ("segv", "loop"):
                with self.subTest(way, replicas=replicas):
                    status, out, err = self.job("staged", way, replicas=replicas)
                    self.assertEqual(status, 5, err + out)
                    self.assertNotIn(" lost: ", err)
                    self.assertRegex(err, rf'a staged update of rank 0 in iteration 0: .*key "deadly 1": '
                                          rf'libdeadly_updates.so:deadly_{way} \(f64, f64\): {WAYS[way]}')

    def test_the_log_of_the_server_names_function_and_key_and_no_process_stays(self):
        folder = self.not_there("run")
        mark = "of-this-test"
        status, _, err = self.job("segv", servers=1, options=("--run-dir", folder), environment=clean_environment(MARK=mark))
        self.assertEqual(status, 0, err)
        log = read_bytes(os.path.join(folder, "server_0.log")).decode()
        self.assertRegex(log, r's0 libdeadly_updates.so:deadly_segv at key "deadly 1" ended its sandbox: \S+; its sandbox is '
                              r'replaced')
        self.assertTrue(wait_until(lambda: not sandboxes(f"MARK={mark}".encode()), 5))

    def test_a_server_that_is_killed_takes_its_sandbox_along(self):
        mark = "killed-in-this-test"
        run = self.start("-w", "2", "-p", "1", "--plugin-dir", PLUGINS, "--plugin-sandbox", SANDBOXED, "loop",
                         environment=clean_environment(MARK=mark))
        self.assertTrue(wait_until(lambda: sandboxes(f"MARK={mark}".encode()), 20))
        run.find("server").kill()
        self.assertEqual(run.wait(), 11, run.err())
        self.assertTrue(wait_until(lambda: not sandboxes(f"MARK={mark}".encode()), 5))

    def test_one_function_may_have_a_limit_of_its_own(self):
        status, out, err = self.prun("-w", "2", "-p", "1", "--plugin-dir", PLUGINS, "--plugin-sandbox", "--function-timeout",
                                     "300", "--function-timeout", "libdeadly_updates.so:deadly_loop=0.3", "--function-timeout",
                                     "libdeadly_updates.so:deadly_filter_loop=0.3", SANDBOXED, "loop")
        self.assertEqual(status, 0, err + out)
        self.assertRegex(out, r"loop bupdate: .*ran for longer than 0.3 s")

    def test_options_that_mean_nothing_are_refused(self):
        for words, text in ((["--sandbox-memory", "1G"], "--sandbox-memory requires --plugin-sandbox"),
                            (["--function-timeout", "=3"], "want SECONDS, or libx.so:f=SECONDS"),
                            (["--function-timeout", "libx.so:f=50", "--hang-limit", "40"], "want at least --function")):
            self.assert_refused(text, *words, SANDBOXED, "segv")

    def test_the_program_says_what_it_is(self):
        done = subprocess.run([os.path.join(BIN, "start_sandbox")], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, re.escape("only a server started with --plugin-sandbox runs this program"))


if __name__ == "__main__":
    main()
