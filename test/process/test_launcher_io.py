#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The output of prun.py: slow or absent readers, full disks, deleted folders, and a launcher that is itself stopped, interrupted
early or killed. The job continues, and nothing important is lost."""
import array
import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (HEARTBEAT_LIMIT, LR, PRUN, JobTest, clean_environment, main, patient,  # noqa: E402
                             processes_of, read_bytes, role_of, wait_until)

ENOUGH = 60  # seconds, for what takes a moment on an idle machine
PRINTED = 938_895


def fill(fd):
    """Writes blanks, which have no meaning, until the pipe is full."""
    os.set_blocking(fd, False)
    for size in (4096, 1):
        try:
            while True:
                os.write(fd, b" " * size)
        except BlockingIOError:
            pass


class Launched(JobTest):
    """A prun.py with standard output and standard error chosen by the test."""

    def launch(self, *arguments, **more):
        self.run_dir = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        options = ["--run-dir", self.run_dir, "--heartbeat-limit", f"{patient(HEARTBEAT_LIMIT):.1f}"]
        process = subprocess.Popen([sys.executable, PRUN, *options, *arguments], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, **{"env": clean_environment(), **more})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def stalled(self):
        """The write end of a full pipe."""
        out, into = os.pipe()
        fill(into)
        os.set_blocking(into, True)
        self.addCleanup(os.close, out)
        self.addCleanup(os.close, into)
        return into

    def note(self):
        try:
            return json.loads(read_bytes(os.path.join(self.run_dir, "run.json")))
        except ValueError:
            return {}

    def job(self):
        return wait_until(lambda: self.note().get("job"), ENOUGH)

    def find(self, role, count=1):
        found = wait_until(lambda: (lambda all: all if len(all) >= count else None)(
            [p for p in processes_of(self.job()) if role_of(p) == role]), ENOUGH)
        self.assertTrue(found, f"no {role}")
        return found

    def wait_for_all_up(self, count):
        def up():
            report = subprocess.run([sys.executable, PRUN, "status", "--run", self.run_dir], stdin=subprocess.DEVNULL,
                                    capture_output=True, check=False).stdout
            return len(re.findall(rb"^\S+ +up ", report, re.M)) == count
        self.assertTrue(wait_until(up, ENOUGH))

    def wait(self, process):
        try:
            return process.wait(ENOUGH)
        except subprocess.TimeoutExpired:
            return None

    def log(self, name):
        return read_bytes(os.path.join(self.run_dir, name))


class StalledReaders(Launched):
    LONG = ("-w", "2", "-p", "2", "-c", "long.json")

    def test_a_stalled_standard_error_does_not_keep_the_timeout_from_the_job(self):
        process = self.launch(*self.LONG, "--timeout", "2", LR, stdout=subprocess.DEVNULL, stderr=self.stalled())
        self.assertEqual(self.wait(process), 12)
        self.assert_nothing_left(self.job(), 1)

    def test_a_stalled_standard_error_does_not_keep_a_signal_from_the_job(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            process = self.launch(*self.LONG, "-v", LR, stdout=subprocess.DEVNULL, stderr=self.stalled(),
                                  preexec_fn=on_hang_ups)
            self.find("worker", 2)
            process.send_signal(number)
            self.assertEqual(self.wait(process), 128 + number)

    def test_a_stalled_standard_error_does_not_keep_a_dead_server_from_being_replaced(self):
        process = self.launch("-w", "2", "-p", "2", "--replicas", "2", "-v", "-c", "long.json", LR, stdout=subprocess.DEVNULL,
                              stderr=self.stalled())
        self.find("worker", 2)
        servers = self.find("server", 2)
        self.wait_for_all_up(4)
        servers[0].kill()
        old = {p.pid for p in servers}
        self.assertTrue(wait_until(lambda: {p.pid for p in self.find("server")} - old, ENOUGH), "no other server was started")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(process), 143)

    def test_both_stalled_do_not_keep_a_failure_from_being_seen(self):
        into = self.stalled()
        program = self.write_program("flood_fails", "[ $PARACEL_RANK = 0 ] && exec yes flood",
                                     "while [ $(stat -c %s $PARACEL_RUN_DIR/worker_0.log) -lt 1000000 ]; do sleep 0.1; done",
                                     "exit 4")
        process = self.launch("-w", "2", program, stdout=into, stderr=into)
        self.assertEqual(self.wait(process), 4)
        self.assertEqual(self.note()["status"], 4)

    def test_a_terminal_that_is_held_with_ctrl_s_does_not_keep_the_timeout_from_the_job(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        termios.tcflow(slave, termios.TCOOFF)
        process = self.launch(*self.LONG, "--timeout", "2", LR, stdout=slave, stderr=slave)
        self.assertEqual(self.wait(process), 12)

    def test_numbers_for_people_are_short_and_those_for_programs_have_all_digits(self):
        def on_a_terminal(*command):
            master, slave = pty.openpty()
            process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                                       env=clean_environment())
            os.close(slave)
            text = b""
            with open(master, "rb", buffering=0) as file, contextlib.suppress(OSError):  # EIO: all ends are closed
                while piece := file.read(1 << 16):
                    text += piece
            self.assertEqual(process.wait(patient(60)), 0, text)
            return text.decode()

        alone = (LR, "--cfg_file", "cfg.json")
        whole = re.search(r"^objective (\S+)$", subprocess.run(alone, cwd=self.folder, capture_output=True, text=True,
                                                               env=clean_environment(), check=True).stdout, re.M)[1]
        short = f"{float(whole):.6g}"
        self.assertGreater(len(whole), len(short))
        for command in (alone, (sys.executable, PRUN, "-c", "cfg.json", LR)):
            said = on_a_terminal(*command)
            self.assertIn(f"objective {short}\r\n", said)
            self.assertNotIn(whole, said)
            self.assertRegex(said, r"(lr|prun): done in [\d.]+ s, results in out/")

    def test_a_job_is_done_though_nobody_reads_its_standard_error(self):
        program = self.write_program("brief", "echo brief")
        process = self.launch("-v", program, stdout=subprocess.PIPE, stderr=self.stalled())
        self.assertEqual(process.communicate(timeout=ENOUGH)[0], b"brief\n")
        self.assertEqual(process.returncode, 0)

    def test_what_was_left_out_for_a_reader_that_came_late_is_counted(self):
        sys.path.insert(0, os.path.join(os.path.dirname(PRUN), "tool"))
        from launcher.common.terminal import MOST_WORDS, Terminal
        out, into = os.pipe()
        fill(into)
        os.set_blocking(into, True)
        kept = os.dup(2)
        os.dup2(into, 2)
        os.close(into)
        try:
            terminal = Terminal()
            for i in range(MOST_WORDS // 20):
                terminal.say(f"number {i:012}")
            terminal.say("the cause", matters=True)
            text = b""
            while not text.endswith(b"the cause\n"):
                text += os.read(out, 1 << 16)
            terminal.say("later")
            while not text.endswith(b"later\n"):
                text += os.read(out, 1 << 16)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(out)
        left_out = int(re.search(rb"prun: (\d+) lines left out here", text).group(1))
        self.assertEqual(left_out + text.count(b"prun: number"), MOST_WORDS // 20)


class Output(Launched):
    """The output of worker 0 is data."""

    def printer(self, size=PRINTED):
        return self.write_program("printer", f"yes 0123456789 | head -c {size}")

    def pause(self, job):
        """Until the job's processes have exited, and then longer than the launcher waits for unimportant readers."""
        self.assertTrue(wait_until(lambda: not processes_of(job), ENOUGH))
        time.sleep(3)

    def test_what_worker_0_prints_is_complete_for_a_reader_that_pauses_at_the_end(self):
        process = self.launch(self.printer(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.pause(self.job())
        text = process.stdout.read()
        self.assertEqual(len(text), PRINTED)
        self.assertEqual(text, (b"0123456789\n" * PRINTED)[:PRINTED])
        self.assertEqual(self.wait(process), 0)

    def test_a_worker_that_prints_more_than_is_read_waits_and_the_launcher_stays_small(self):
        size = 100_000_000
        process = self.launch(self.printer(size), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.job()
        self.assertTrue(wait_until(lambda: len(self.log("worker_0.log")) > 1_000_000, ENOUGH))
        seen = most = 0
        while chunk := process.stdout.read1(1 << 20):
            seen += len(chunk)
            words = read_bytes(f"/proc/{process.pid}/status").split(b"VmRSS:")
            most = max(most, int(words[1].split()[0]) if len(words) > 1 else 0)
        self.assertEqual(seen, size)
        self.assertEqual(self.wait(process), 0)
        self.assertLess(most, 64 << 10)  # KiB

    def test_output_that_is_not_read_is_waited_for_until_a_signal_or_the_timeout(self):
        for options, number, status in (((), signal.SIGTERM, 143), ((), signal.SIGINT, 130), (("--timeout", "4"), None, 12)):
            process = self.launch(*options, self.printer(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.pause(self.job())
            if number:
                self.assertIsNone(process.poll())
                self.assertEqual(self.note()["status"], 0)
                process.send_signal(number)
            self.assertEqual(self.wait(process), status)
            err = process.stderr.read().decode()
            self.assertRegex(err, r"prun: \d+ bytes that worker 0 printed have not been read; all that worker 0 printed is in /")
            self.assertEqual(len(self.log("worker_0.log")), PRINTED)
            self.assertEqual(self.note()["status"], status)

    def test_an_output_that_cannot_be_written_is_told_and_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            process = self.launch(self.printer(), stdout=full, stderr=subprocess.PIPE)
        err = process.stderr.read().decode()
        self.assertEqual(self.wait(process), 1)
        self.assertIn("standard output cannot be written: No space left on device", err)
        self.assertEqual(len(self.log("worker_0.log")), PRINTED)

    def test_a_non_blocking_output_is_complete(self):
        out, into = os.pipe()
        os.set_blocking(into, False)
        process = self.launch(self.printer(), stdout=into, stderr=subprocess.DEVNULL)
        os.close(into)
        with open(out, "rb") as pipe:
            self.assertEqual(len(pipe.read()), PRINTED)
        self.assertEqual(self.wait(process), 0)

    def test_closed_standard_descriptors_are_nobody_elses(self):
        program = self.write_program("brief", "echo brief")
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            done = subprocess.run(["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, PRUN, program],
                                  cwd=self.folder, env=clean_environment(), capture_output=True, timeout=ENOUGH)
            self.assertEqual(done.returncode, 0, (closed, done.stderr))
            self.assertEqual(done.stdout, b"" if ">&-" in closed.split("2>")[0] else b"brief\n", closed)

    def test_the_dry_run_and_the_status_say_when_they_cannot_be_written(self):
        process = self.launch("-w", "1", "-p", "1", "-c", "long.json", LR, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.find("worker")
        for arguments in (["--dry-run", "-c", "long.json", LR], ["status", "--run", self.run_dir]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([sys.executable, PRUN, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                                      stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr),
                             (1, "prun.py: error: standard output: No space left on device\n"))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(process), 143)


class StoppedLauncher(Launched):
    def test_a_launcher_that_was_stopped_reports_a_successful_job_as_one(self):
        self.write_config("stoppable.json", rounds=3000)
        process = self.launch("-w", "2", "-p", "2", "-c", "stoppable.json", LR, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        job = self.job()
        scheduler = self.find("scheduler")[0]
        self.find("worker", 2)
        process.send_signal(signal.SIGSTOP)
        events = os.open(f"/proc/{scheduler.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, events)
        # The scheduler's own events continue meanwhile; there is never space for the last of them.
        while [p for p in processes_of(job) if role_of(p) == "worker"]:
            fill(events)
            time.sleep(0.01)
        fill(events)

        def servers():
            return [p for p in children_of(process.pid) if read_bytes(f"/proc/{p}/comm") == b"start_server\n"]

        # The servers learn of the end before the launcher, which sees their exits first and the reason only afterwards.
        self.assertTrue(wait_until(lambda: not any(is_alive(p) for p in servers()), ENOUGH))
        self.assertTrue(is_alive(scheduler.pid), "the scheduler has not waited")
        scheduler.kill(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: not servers() and not waiting_in(events), ENOUGH))
        time.sleep(0.1)
        if is_alive(scheduler.pid):
            scheduler.kill(signal.SIGCONT)
        self.assertEqual(self.wait(process), 0, self.note())


class Disks(Launched):
    def test_a_log_that_cannot_be_written_is_told_once_and_the_job_continues(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        program = self.write_program("printer", f"[ $PARACEL_RANK = 1 ] || yes 0123456789 | head -c {PRINTED}")
        process = self.launch("-w", "2", program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
        out, err = process.communicate(timeout=ENOUGH)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(len(out), PRINTED)
        self.assertEqual(err.count(b"worker_0.log cannot be written: File too large; the job continues"), 1, err)

    def test_a_full_disk_under_the_logs_is_told_once_and_the_job_continues(self):
        program = self.write_program("printer", f"[ $PARACEL_RANK = 1 ] || yes 0123456789 | head -c {PRINTED}")
        parent = tempfile.mkdtemp(dir=self.folder)
        script = ('mount -t tmpfs -o size=128k none "$1" 2>/dev/null || exit 77; shift; exec "$@"')
        process = subprocess.Popen(["unshare", "-rm", "/bin/sh", "-c", script, "sh", parent, sys.executable, PRUN, "--run-dir",
                                    os.path.join(parent, "run"), "-w", "2", program], cwd=self.folder, env=clean_environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=ENOUGH)
        if process.returncode == 77 or b"unshare:" in err:
            self.skipTest("no file system can be mounted here")
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(len(out), PRINTED)
        self.assertEqual(err.count(b"cannot be written: No space left on device; the job continues"), 1, err)

    def test_a_run_folder_that_is_deleted_does_not_end_the_job(self):
        process = self.launch("-w", "2", "-p", "2", "--replicas", "2", "-c", "long.json", LR, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
        self.find("worker", 2)
        servers = self.find("server", 2)
        job = self.job()
        self.wait_for_all_up(4)
        shutil.rmtree(self.run_dir)
        servers[0].kill()
        old = {p.pid for p in servers}
        self.assertTrue(wait_until(lambda: [p for p in processes_of(job) if role_of(p) == "server" and p.pid not in old],
                                   ENOUGH), "no other server was started")
        process.send_signal(signal.SIGTERM)
        err = process.communicate(timeout=ENOUGH)[1].decode()
        self.assertEqual(process.returncode, 143, err)
        self.assertNotIn("Traceback", err)
        self.assertEqual(err.count("cannot be written: No such file or directory; the job continues"), 1, err)


class Ends(Launched):
    """Signals to the launcher only, at any time."""

    def test_ctrl_c_before_the_job_has_begun_is_one_line(self):
        # Modules that never finish loading: one of those that prun.py itself imports.
        folder = tempfile.mkdtemp(dir=self.folder)
        mark = os.path.join(folder, "here")
        with open(os.path.join(folder, "json.py"), "w", encoding="utf-8") as file:
            file.write(f"import time\nopen({mark!r}, 'w').close()\ntime.sleep(1000)\n")
        process = self.launch("/bin/true", env=clean_environment(PYTHONPATH=folder), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        self.assertTrue(wait_until(lambda: os.path.exists(mark), ENOUGH))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=ENOUGH), (b"", b"prun.py: interrupted\n"))
        self.assertEqual(process.returncode, 130)

    def asked(self, name, *lines):
        """A program that hangs when it is queried, and its process id."""
        mark = self.not_there("pid")
        path = self.write_program(name, "# paracel-schema-v1", *(line.replace("MARK", mark) for line in lines))
        return path, lambda: read_bytes(mark).decode().strip()

    def test_ctrl_c_while_a_program_is_asked_for_its_schema_is_one_line(self):
        program, pid = self.asked("hangs", 'echo $$ > MARK.new; mv MARK.new MARK; exec sleep 300')
        process = self.launch(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        asked = int(wait_until(pid, ENOUGH))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=ENOUGH), (b"", b"prun.py: interrupted\n"))
        self.assertEqual(process.returncode, 130)
        self.assertTrue(wait_until(lambda: not is_alive(asked), ENOUGH))

    @unittest.skipUnless(os.access("/usr/bin/setpriv", os.X_OK), "setpriv is not installed")
    def test_a_program_that_is_asked_for_its_schema_dies_with_prun(self):
        program, pid = self.asked("hangs", 'echo $$ > MARK.new; mv MARK.new MARK; exec sleep 300')
        process = self.launch(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        asked = int(wait_until(pid, ENOUGH))
        process.kill()
        self.assertTrue(wait_until(lambda: not is_alive(asked), ENOUGH))

    @unittest.skipUnless(os.access("/usr/bin/setpriv", os.X_OK), "setpriv is not installed")
    def test_a_checkpoint_that_is_read_for_resume_is_let_go_when_prun_dies(self):
        # The real one finishes immediately; this one shows how the launcher handles it.
        program, pid = self.asked("paracel_checkpoint", 'echo $$ > MARK.new; mv MARK.new MARK; exec sleep 300')
        process = self.launch("--resume", self.folder, self.write_program("nothing", "exit 0"), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        asked = int(wait_until(pid, ENOUGH))
        process.kill()
        self.assertTrue(wait_until(lambda: not is_alive(asked), ENOUGH))
        os.unlink(program)

    def test_the_end_of_the_terminal_has_its_word_in_the_table(self):
        process = self.launch("-w", "1", "-p", "1", "-c", "long.json", LR, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              preexec_fn=on_hang_ups)
        self.find("worker")
        process.send_signal(signal.SIGHUP)
        err = process.communicate(timeout=ENOUGH)[1].decode()
        self.assertEqual(process.returncode, 129)
        self.assertIn("prun: exit status 129 (hung up)", err)
        self.assertIn("129 hung up", subprocess.run([sys.executable, PRUN, "--help"], capture_output=True, text=True,
                                                    check=True).stdout)

    def test_nohup_is_respected(self):
        process = self.launch("-w", "1", "-p", "1", "-c", "long.json", "-v", LR, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.find("worker")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.assertNotIn(b"SIGHUP", process.communicate(timeout=ENOUGH)[1])
        self.assertEqual(process.returncode, 143)

    def test_a_job_that_cannot_be_started_has_its_end_noted(self):
        path = self.write_program("broken")
        with open(path, "wb") as file:  # a program of the framework, whose interpreter is not there
            file.write(re.sub(rb"\0/lib[^\0]*/ld-[^\0]*\0", lambda found: b"\0/x" + found[0][3:], read_bytes(LR), count=1))
        process = self.launch(path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        err = process.communicate(timeout=ENOUGH)[1].decode()
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("prun.py: error: ", err)
        self.assertEqual(self.note()["status"], 1)
        self.assertIn("cannot be run: No such file or directory", self.note()["cause"])


def waiting_in(pipe):
    """Bytes."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def children_of(parent):
    """Its children, including those that have exited and were not waited for."""
    return [int(pid) for pid in read_bytes(f"/proc/{parent}/task/{parent}/children").split()]


def on_hang_ups():
    """The process that runs the tests may ignore them."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def is_alive(pid):
    state = read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]
    return bool(state) and state[0] not in (b"Z", b"X")


if __name__ == "__main__":
    main()
