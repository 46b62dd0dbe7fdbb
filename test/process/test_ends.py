#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""How a worker's own exit is reported: an exception is one line and its status, an exit is not a loss."""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import BIN, MPI, SOURCE, JobTest, clean_environment, main, read_bytes, wait_until  # noqa: E402

ENDS = os.path.join(BIN, "test_ends")
SANITIZED = b"__asan_init" in read_bytes(ENDS) or b"__tsan_init" in read_bytes(ENDS)
# A silent worker would be given up after this time; everything here is reported much earlier.
PATIENT = ("--heartbeat-limit", "60")
# A wrapper of mpirun that records the signals that the servers' mpirun receives, and its exit status.
FORWARDING = """#!/bin/bash
[[ $* == *start_server* ]] || exec {mpirun} "$@"
for name in ALRM TERM; do trap "echo $name >>{seen}; kill -$name \\$real" $name; done
{mpirun} "$@" &
real=$!
wait $real
while kill -0 $real 2>/dev/null; do wait $real; done
wait $real
status=$?
echo "status $status" >>{seen}
exit $status
"""


class Ends(JobTest):
    def ended(self, how, *options, rank=2):
        """(status, output of prun.py, output of that worker)"""
        run_dir = self.not_there("run")
        status, out, err = self.prun("-w", "3", "--run-dir", run_dir, *PATIENT, *options, ENDS, how, str(rank))
        with open(os.path.join(run_dir, f"worker_{rank}.log"), encoding="utf-8") as file:
            return status, out, err, file.read()

    def embedded(self, how, **environment):
        done = subprocess.run([ENDS, how, "0"], cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=clean_environment(**environment), timeout=60, check=False)
        return done.returncode, done.stderr

    def test_an_exception_is_one_line_and_its_status(self):
        for how, status, line in (("runtime_error", 1, "out of ideas"), ("data_error", 4, "points.csv:3:1: found x"),
                                  ("int", 1, "an exception that is not a std::exception")):
            for way in (how, "bare_" + how):
                with self.subTest(way):
                    got, _, err, log = self.ended(way)
                    self.assertEqual(got, status, err)
                    self.assertRegex(err, rf"prun: worker 2 \(pid \d+\) exited with status {status}\n")
                    self.assertNotIn("lost", err)
                    self.assertEqual(log, f"rank 2: {how}\ntest_ends: error: {line}\n")
                    self.assertEqual(self.embedded(way), (status, f"test_ends: error: {line}\n"))

    def test_who_has_no_memory_says_who_it_is_and_what_helps(self):
        for way in ("bad_alloc", "bare_bad_alloc", "large", "bare_large"):
            asked = rf": {8 << 46} bytes were asked for" if way.endswith("large") and not SANITIZED else ""
            line = (rf"test_ends: error: out of memory \(std::bad_alloc{asked}\): process \d+ held up to \d+ MB; "
                    r"want fewer processes on this host")
            with self.subTest(way):
                got, _, err, log = self.ended(way)
                self.assertEqual(got, 1, err)
                self.assertRegex(log, line)
                status, alone = self.embedded(way)
                self.assertEqual(status, 1)
                self.assertRegex(alone, line)

    def test_a_crash_says_what_to_do_next_and_another_programs_status_is_not_the_jobs(self):
        got, _, err, _ = self.ended("abort")
        self.assertEqual(got, 10, err)
        self.assertRegex(err, r"worker 2 \(pid \d+\) was killed by SIGABRT\n")
        self.assertIn(f"to find the cause: `gdb --args {ENDS} abort 2` runs the whole job in one process", err)
        got, _, err, _ = self.ended("exit_11")
        self.assertEqual(got, 1, "11 would be a lost server")
        self.assertIn("exited with status 11", err)

    @unittest.skipIf(SANITIZED, "a sanitizer reports crashes itself")
    def test_a_crash_names_functions_and_lines(self):
        with open(os.path.join(SOURCE, "test", "process", "programs", "ends.cpp"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        line = {name: next(n for n, text in enumerate(lines, 1) if text.startswith(f"[[gnu::noinline]] {name}"))
                for name in ("void write_to", "int without_end")}
        crash = rf".*write_to\(int\*.*\).* at \S+/ends\.cpp:{line['void write_to']}\n"
        for way, signal_name, calls in (
                ("segv", "SIGSEGV at address 0x10", crash + r"(.*\n)*.*ends::.*solve\(\).* at \S+/ends\.cpp:\d+"),
                ("bare_segv", "SIGSEGV at address 0x10", crash), ("thread_segv", "SIGSEGV at address 0x10", crash),
                ("abort", "SIGABRT", r"(.*\n)*.*ends::.*solve\(\).* at \S+/ends\.cpp:\d+"),
                ("overflow", "SIGSEGV at address 0x[0-9a-f]+", r".*without_end\(int\).* at \S+/ends\.cpp:\d+\n")):
            with self.subTest(way):
                said = rf"test_ends: error: {signal_name} \(process \d+\), in these calls:\n" + calls
                got, _, err, log = self.ended(way)
                self.assertEqual(got, 10, err)
                self.assertRegex(log, said)
                if way != "overflow":  # whose stack is longer than what is shown
                    self.assertRegex(err.replace("    ", ""), said)
                self.assertIn(f"gdb --args {ENDS} {way} 2", err)
                status, alone = self.embedded(way)
                self.assertEqual(status, -signal.SIGABRT if way == "abort" else -signal.SIGSEGV)
                self.assertRegex(alone, said)

    @unittest.skipIf(SANITIZED, "a sanitizer reports crashes itself")
    def test_a_core_file_is_still_written(self):
        folder = self.not_there("cores")
        os.mkdir(folder)
        done = subprocess.run(["bash", "-c", 'ulimit -c unlimited; cd "$1"; "$2" segv 0', "sh", folder, ENDS], check=False,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, env=clean_environment(), timeout=60)
        self.assertIn(done.returncode, (-signal.SIGSEGV, 128 + signal.SIGSEGV))
        with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
            if not file.read().startswith(("|", "/")):
                self.assertTrue(os.listdir(folder))

    def test_a_job_ends_whose_first_request_came_before_its_server_knew_the_members(self):
        """That is the last tick of a worker that needs no server. Of jobs as short as these about one in fifty did not end."""
        data = self.not_there("rows.csv")
        with open(data, "w", encoding="ascii") as file:
            file.writelines(f"{i % 7},{i % 5},{i % 3}\n" for i in range(50))

        def job(number):
            folder = self.not_there("job")
            with open(folder, "w", encoding="ascii") as file:
                json.dump({"training_input": data, "output": folder + ".out", "penalty": 1}, file)
            return self.start("-w", "1", "-p", "1", "-c", folder, os.path.join(BIN, "ridge")).wait()

        with concurrent.futures.ThreadPoolExecutor(6) as threads:
            self.assertEqual(set(threads.map(job, range(90))), {0})

    def test_an_exception_in_a_thread_of_the_program_too(self):
        got, _, err, log = self.ended("in_a_thread")
        self.assertEqual(got, 1, err)
        self.assertTrue(log.endswith("test_ends: error: out of threads\n"), log)

    def test_exit_0_in_the_middle_is_a_failure_and_no_loss(self):
        for how in ("exit_0", "thread_exit_0", "bare_exit_0"):
            with self.subTest(how):
                got, _, err, log = self.ended(how)
                self.assertEqual(got, 1, err)
                self.assertNotIn("lost", err)
                self.assertTrue(log.endswith("test_ends: error: worker 2 called exit(0) before its algorithm had ended\n"), log)

    def test_an_exit_that_passes_every_handler_by_is_seen_by_the_launcher(self):
        for how in ("_exit_0", "before_joining"):
            with self.subTest(how):
                got, _, err, _ = self.ended(how)
                self.assertEqual(got, 1, err)
                self.assertRegex(err, r"prun: worker 2 \(pid \d+\) exited with status 0 before the job was done\n")

    def test_an_exit_with_a_status_of_its_own_is_passed_on(self):
        got, _, err, _ = self.ended("exit_3")
        self.assertEqual(got, 3, err)

    def test_exit_0_at_the_end_is_as_good_as_returning(self):
        for rank in (0, 2):
            got, out, err, _ = self.ended("done_exit_0", rank=rank)
            self.assertEqual(got, 0, err)
            self.assertTrue(out.endswith("n is 15\n"), out)
        self.assertEqual(self.embedded("done_exit_0"), (0, ""))

    def test_a_worker_ends_if_its_launcher_has_died_and_nobody_has_waited_for_it(self):
        launcher = subprocess.Popen(["/bin/true"])
        self.assertTrue(wait_until(lambda: b") Z " in read_bytes(f"/proc/{launcher.pid}/stat"), 20))
        self.assertEqual(self.embedded("done_exit_0", PARACEL_PARENT=str(launcher.pid))[0], 1)
        launcher.wait()
        self.assertEqual(self.embedded("done_exit_0", PARACEL_PARENT=str(launcher.pid))[0], 1)
        self.assertEqual(self.embedded("done_exit_0", PARACEL_PARENT=str(os.getpid())), (0, ""))

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_under_mpirun(self):
        for how, status in (("runtime_error", 1), ("data_error", 4), ("exit_0", 1), ("done_exit_0", 0)):
            with self.subTest(how):
                got, _, err, _ = self.ended(how, "-m", "mpi")
                self.assertEqual(got, status, err)

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_an_mpirun_of_servers_ends_with_them(self):
        """On a signal that it forwards: after SIGTERM it waits for a second and exits with 1."""
        folder = self.not_there("path")
        os.mkdir(folder)
        seen = os.path.join(folder, "seen")
        with open(os.path.join(folder, "mpirun"), "w", encoding="ascii") as file:
            file.write(FORWARDING.format(mpirun=shutil.which("mpirun"), seen=seen))
        os.chmod(os.path.join(folder, "mpirun"), 0o755)
        environment = clean_environment(PATH=folder + os.pathsep + os.environ["PATH"])
        status, _, err = self.prun("-w", "2", "-p", "2", "-m", "mpi", *PATIENT, ENDS, "done_exit_0", "0", environment=environment)
        self.assertEqual(status, 0, err)
        with open(seen, encoding="ascii") as file:
            # The scheduler may stop the servers first; then the signal may hit an mpirun that is already exiting, and kill it.
            self.assertRegex(file.read(), r"^((ALRM\n)?status 0|ALRM\nstatus 142)\n$")


if __name__ == "__main__":
    main()
