#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Parts of the launcher that need no job."""
import argparse
import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from unittest import mock

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tool"))

from launcher.commands import sweep_plot, tell  # noqa: E402
from launcher.common import durable, numbers  # noqa: E402
from launcher.common.exit_status import FAILURE, SERVER_LOST, SCHEDULER_LOST, USAGE, Failure, words_of  # noqa: E402
from launcher.common.printable import in_a_line, printable  # noqa: E402
from launcher.common.terminal import Terminal  # noqa: E402
from launcher.engines import hosts, key_holders, ssh  # noqa: E402
from launcher.folders import socket_folder  # noqa: E402
from launcher.folders.folder_lock import OF_RUN  # noqa: E402
from launcher.folders.run_directory import read_note, status_text  # noqa: E402
from launcher.folders.run_folder import release_folder, remove_kept, take_folder  # noqa: E402
from launcher.folders.runs import sweep  # noqa: E402
from launcher.job.ending import next_step, status_of  # noqa: E402
from launcher.job.job import LATE, Job  # noqa: E402
from launcher.job.options import parse_command_line, take_config  # noqa: E402
from launcher.job.plan import Child  # noqa: E402
from launcher.programs.elf import needed_libraries  # noqa: E402
from launcher.programs.program import marks_in  # noqa: E402


class Deadlines(unittest.TestCase):
    def test_all_but_the_timeout_are_extended_after_a_suspension(self):
        job = Job.__new__(Job)
        before = {"timeout": 10.0, "ready": 11.0, "explained": 12.0, "early": 13.0, "stop": 14.0}
        job.deadlines = dict(before)
        job.extend_deadlines(LATE / 2)
        self.assertEqual(job.deadlines, before)
        job.extend_deadlines(5.0)
        self.assertEqual(job.deadlines, {name: at + (0 if name == "timeout" else 5) for name, at in before.items()})


class Starts(unittest.TestCase):
    def test_a_host_gets_few_connections_at_once_that_have_not_logged_in(self):
        startups, joined = ssh.Startups(), set()
        startups.waiting = [Child("worker", rank, [], "", host=("a", "b", None)[rank % 3]) for rank in range(60)]
        begun = startups.take(joined, 10.0)
        self.assertEqual({host: sum(c.host == host for c in begun) for host in ("a", "b", None)},
                         {"a": ssh.AT_ONCE, "b": ssh.AT_ONCE, None: 20})
        self.assertEqual(startups.take(joined, 10.5), [])
        joined.update([("worker", 0), ("worker", 3)])
        next(c for c in begun if c.index == 1).ended = True
        self.assertEqual([c.index for c in startups.take(joined, 11.0)], [24, 25, 27])
        self.assertEqual(startups.at, 10.0 + ssh.LOGIN_LIMIT)
        self.assertEqual(len(startups.take(joined, startups.at)), 2 * ssh.AT_ONCE - 3)  # those of 11.0 still count


class Numbers(unittest.TestCase):
    ODD = ("", "nan", "inf", "-inf", "-1", "+1", "0x10", "1_000", " 1", "1 ", "\u0661", "\u00b2", "1e", "1e400", "9" * 5000,
           "1,5")

    def test_only_plain_decimal_numbers_are_taken(self):
        takes = {numbers.whole_number: ("0", "17"), numbers.positive(1 << 16): ("1", "65536"),
                 numbers.seconds: ("0.5", "1e3", "7", ".5", "2."), numbers.seconds_between(0.1, 1e6): ("0.1", "1000000"),
                 numbers.percentage(50): ("0.1", "50"), numbers.byte_count: ("1", "64K", "128T")}
        for parse, good in takes.items():
            for text in good:
                parse(text)
            for text in self.ODD:
                with self.subTest(parse=parse.__qualname__, text=text[:20]), self.assertRaises(argparse.ArgumentTypeError):
                    parse(text)
        for parse, text in ((numbers.positive(9), "10"), (numbers.positive(9), "0"), (numbers.byte_count, "129T"),
                            (numbers.byte_count, "4611686018427387904"), (numbers.byte_count, "0"), (numbers.byte_count, "1k"),
                            (numbers.whole_number, "9" * 19),
                            (numbers.seconds, "0"), (numbers.seconds, "1e9"), (numbers.percentage(50), "51")):
            with self.subTest(text), self.assertRaises(argparse.ArgumentTypeError):
                parse(text)

    def test_every_option_with_a_number_uses_them(self):
        given = {"--on-worker-death": "wait:{}", "--function-timeout": "libx.so:f={}"}
        words = io.StringIO()
        with contextlib.redirect_stdout(words), self.assertRaises(SystemExit):
            parse_command_line(["--help"])
        units = r"N|S|K|R|P|MB|BYTES|(?:\[FUNCTION=\])?SECONDS|abort\|eject\|wait:T"
        names = re.findall(rf"^  (?:-\w \S+, )?(--[\w-]+) (?:{units})(?:\s|$)", words.getvalue(), re.M)
        self.assertGreater(len(names), 20)
        for name in names:
            for text in ("nan", "1_0", "\u0661", "-1", "0x1"):
                with self.subTest(name=name, text=text):
                    err = io.StringIO()
                    with contextlib.redirect_stderr(err), self.assertRaises(SystemExit) as end:
                        parse_command_line([f"{name}={given.get(name, '{}').format(text)}", "program"])
                    self.assertEqual(end.exception.code, USAGE)
                    self.assertIn(name, err.getvalue())


class SweepPlot(unittest.TestCase):
    def test_every_value_is_inside_and_has_some_ticks_around_it(self):
        for seed in range(2000):
            rng = random.Random(seed)
            size = 10 ** rng.uniform(*rng.choice(((-6, 6), (-300, 300))))
            least = rng.choice((-1, 1e-9))
            values = [rng.uniform(least, 1) * size for _ in range(rng.randint(1, 4))] * rng.randint(1, 2)
            axis = sweep_plot.Axis(values, rng.random() < 0.5)
            with self.subTest(seed):
                self.assertTrue(1 <= len(axis.ticks()) <= 12)
                for place in (*map(axis, values), *(place for place, _ in axis.ticks())):
                    self.assertTrue(-1e-6 <= place <= 1 + 1e-6)

    def test_words_stand_side_by_side_and_any_text_is_xml(self):
        axis = sweep_plot.Axis(["a", True, 3, "a"], False)
        self.assertEqual([(round(place, 3), text) for place, text in axis.ticks()],
                         [(0.167, "a"), (0.5, "true"), (0.833, "3")])
        rows = [{"settings": {"<k&>": "\"'<"}, "objective": 1.0}, {"settings": {"<k&>": 2}, "objective": None}]
        for some in (rows, rows[1:]):
            root = xml.etree.ElementTree.fromstring(sweep_plot.plot(["<k&>"], some, "a<b"))
            self.assertIn(f"{len(some)} points, 1 failed", "".join(root.itertext()))


class CommandLine(unittest.TestCase):
    @staticmethod
    def error_of(*arguments):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
            parse_command_line(list(arguments))
        return err.getvalue().splitlines()

    def test_an_error_is_the_first_line_and_an_unknown_option_names_the_nearest(self):
        for arguments, line in ((("--replica", "2", "prog"), "unknown option --replica: did you mean --replicas?"),
                                (("--max-memry=4G", "prog"), "unknown option --max-memry: did you mean --max-memory?"),
                                (("-w", "2", "--zzz", "prog"), "unknown option --zzz"),
                                (("-x", "prog"), "unknown option -x"),
                                (("-w", "two", "prog"), "argument -w/--wnum: 'two' is not a whole number above 0")):
            with self.subTest(arguments):
                self.assertEqual(self.error_of(*arguments), [f"prun.py: error: {line}", "prun.py: see prun.py --help"])
        self.assertEqual(parse_command_line(["-w4", "--elastic", "prog", "--replica", "2"]).arguments, ["--replica", "2"])

    def test_a_number_below_zero_is_no_option(self):
        options = tell.parse_command(["--run", "r", "rate", "-0.5"])
        self.assertEqual((options.command, options.body), ("rate", "-0.5"))

    def test_a_config_may_come_after_the_program(self):
        for words in (["--cfg_file", "a.json"], ["--cfg_file=a.json"], ["-c", "b", "--cfg_file", "a.json", "-x"]):
            options = parse_command_line(["prog", *words])
            take_config(options)
            self.assertEqual(options.cfg_file, "a.json")
            self.assertEqual(options.arguments, ["-c", "b", "-x"] if "-c" in words else [])
        options = parse_command_line(["prog", "--cfg_file"])
        take_config(options)
        self.assertEqual((options.cfg_file, options.arguments), ("", ["--cfg_file"]), "the program says what is missing")
        with self.assertRaises(Failure) as failure:
            take_config(parse_command_line(["-c", "a.json", "prog", "--cfg_file", "b.json"]))
        self.assertIn("two configs: a.json and b.json", str(failure.exception))


class Printable(unittest.TestCase):
    def test_nothing_moves_the_cursor_or_looks_like_another_line(self):
        self.assertEqual(printable("gr\u00fc\u00dfe\u00a0\u3000$ \t\u4e2d"), "gr\u00fc\u00dfe\u00a0\u3000$ \t\u4e2d")
        self.assertEqual(printable("\x1b[2J\r\x07\x7f\x9b\u202e\u2028\udc80"),
                         "\\x1b[2J\\r\\x07\\x7f\\x9b\\u202e\\u2028\\udc80")
        self.assertEqual(printable("a\nprun: done"), "a\n    prun: done")
        self.assertEqual(in_a_line("a\n  b\x1b"), "a b\\x1b")

    def test_the_report_of_a_job_and_its_progress_are_printable(self):
        report = {"job": "1", "phase": "running", "seconds": 1.0, "epoch": 1, "settled": True, "replicas": 2, "spare": 1,
                  "progress": {"round": "\x1b[1m", "\x1b": 2.0}, "losses": [{"seconds": 1.0, "cause": "x\x1b\ny"}],
                  "servers": [{"slot": 0, "state": "up", "pid": 1, "host": "h\x1b"}],
                  "workers": [{"rank": 0, "state": "up", "pid": 1, "host": "h\n", "clock": 0}]}
        text = status_text(report)
        self.assertTrue(all(line.isprintable() for line in text.splitlines()), text)
        self.assertIn("servers that may still be lost: 1", text)
        self.assertIn("no server may be lost before all processes have joined",
                      status_text(dict(report, phase="joining", spare=0)))
        self.assertNotIn("because of the load", status_text(dict(report, placed=0, moving=0)))
        self.assertIn("\npartitions that were given to other servers because of the load: 12; moving now: 3\n",
                      status_text(dict(report, placed=12, moving=3)))

    def test_a_progress_of_any_values_is_shown(self):
        for event in ({"round": 1e308, "rounds": 1.7e308}, {"round": "\x1b[1m\n" * 100, "rounds": [1]},
                      {"round": 2, "rounds": 1e300},
                      {"round": 3, "metric": "a\x1bb", "a\x1bb": 1.0}, {"loading": 1e308, "of": 1e308}, {"loading": "x"},
                      {"round": True, "rounds": None, "loss": 1e308}, {"round": 1e-300 + 1, "rounds": 1e308}):
            terminal = Terminal.__new__(Terminal)
            terminal.progress, terminal.first = event, (1 - 1e-16, 0.0)
            with self.subTest(event):
                text = terminal.progress_text(1.0)
                self.assertTrue(text.isprintable(), repr(text))


class Programs(unittest.TestCase):
    @staticmethod
    def elf(needed, wide=True, order="<"):
        """A program with one segment and a dynamic section."""
        names = b"\0" + b"".join(name + b"\0" for name in needed)
        base, header = 0x400000, 64 if wide else 52
        segment = 56 if wide else 32
        strings_at = header + 2 * segment
        entry = struct.Struct(order + ("2Q" if wide else "2I"))
        dynamic_at = strings_at + len(names)
        places = [names.index(b"\0" + name + b"\0") + 1 for name in needed]
        dynamic = b"".join(entry.pack(1, place) for place in places) + entry.pack(5, base + strings_at) + entry.pack(0, 0)
        size = dynamic_at + len(dynamic)
        start = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
        if wide:
            start += struct.pack(order + "2HI3QI6H", 3, 62, 1, 0, header, 0, 0, header, segment, 2, 0, 0, 0)
            segments = struct.pack(order + "2I6Q", 1, 5, 0, base, base, size, size, 4096)
            segments += struct.pack(order + "2I6Q", 2, 6, dynamic_at, base + dynamic_at, 0, len(dynamic), len(dynamic), 8)
        else:
            start += struct.pack(order + "2H5I6H", 3, 3, 1, 0, header, 0, 0, header, segment, 2, 0, 0, 0)
            segments = struct.pack(order + "8I", 1, 0, base, base, size, size, 5, 4096)
            segments += struct.pack(order + "8I", 2, dynamic_at, base + dynamic_at, 0, len(dynamic), len(dynamic), 6, 8)
        return start + segments + names + dynamic

    def test_the_libraries_of_a_program_are_read_from_its_dynamic_section(self):
        names = [b"libparacel_ps.so.1", b"libc.so.6"]
        for wide in (True, False):
            for order in "<>":
                content = self.elf(names, wide, order)
                self.assertEqual(needed_libraries(content), ["libparacel_ps.so.1", "libc.so.6"])
                for end in range(len(content)):
                    needed_libraries(content[:end])  # a damaged file is no error
        self.assertEqual(needed_libraries(b"#!/bin/sh\n# libparacel_ps.so\n"), [])
        with open(sys.executable, "rb") as file:
            self.assertTrue(any(name.startswith("libc.so") for name in needed_libraries(file.read())))

    def test_only_a_program_linked_with_the_library_is_written_for_ps_lite(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            for content, marks in ((self.elf([b"libparacel_ps.so"]), (False, True, True)),
                                   (self.elf([b"libparacel.so"]) + b"libparacel_ps.so paracel-schema-v1", (True, True, False)),
                                   (b"#!/bin/sh\nexport LD_PRELOAD=libparacel_ps.so\n", (False, False, False)),
                                   (self.elf([b"libmylibparacel_ps.so"]), (False, False, False)), (b"", (False, False, False))):
                with open(path, "wb") as file:
                    file.write(content)
                self.assertEqual(marks_in(path), marks)


class Statuses(unittest.TestCase):
    @staticmethod
    def child(role, status):
        child = Child(role, 0, [], "")
        child.ended = os.waitid(os.P_PID, os.spawnl(os.P_NOWAIT, "/bin/sh", "sh", "-c", f"exit {status}"), os.WEXITED)
        return child

    def test_a_status_that_a_plug_in_sets_is_not_one_of_ours(self):
        self.assertEqual(status_of(self.child("server", 3), joined=False)[0], 3)
        self.assertEqual(status_of(self.child("server", 3), joined=True)[0], SERVER_LOST)
        self.assertEqual(status_of(self.child("server", 77))[0], SERVER_LOST)
        self.assertEqual(status_of(self.child("server", 13), joined=True)[0], SCHEDULER_LOST)
        for found in (7, 12, 13):
            self.assertEqual(status_of(self.child("worker", found))[0], found)
        for own in (10, 11, 77, 130):
            self.assertEqual(status_of(self.child("worker", own))[0], FAILURE, "it means something else for a job")

    def test_a_crash_says_what_to_do_next(self):
        command = ["/bin/my prog", "--cfg_file", "a.json"]
        self.assertIn("gdb --args '/bin/my prog' --cfg_file a.json", next_step("worker 1 (pid 7) was killed by SIGSEGV", command))
        self.assertIn("dmesg", next_step("worker 1 (pid 7) was killed by SIGKILL", command))
        self.assertIsNone(next_step("worker 1 (pid 7) exited with status 3", command))


class Errors(unittest.TestCase):
    def test_an_error_of_the_system_names_the_file_and_not_a_number(self):
        with self.assertRaises(OSError) as error:
            os.stat("/nowhere/at all")
        self.assertEqual(words_of(error.exception), "/nowhere/at all: No such file or directory")
        self.assertEqual(words_of(OSError(24, "Too many open files")), "Too many open files")
        self.assertEqual(words_of(Failure(USAGE, "as it is")), "as it is")


class DurableFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.calls = folder.name, []

    def write(self, *arguments, **more):
        """write_durably; the calls of the system that it makes, with names of files, are in `self.calls`."""
        name = lambda fd: os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: E731
        real = {"fsync": os.fsync, "rename": os.rename, "link": os.link}
        note = {"fsync": lambda fd: ("fsync", name(fd))}
        with contextlib.ExitStack() as stack:
            for call, function in real.items():
                def wrapped(*a, call=call, function=function, **k):
                    self.calls.append(note.get(call, lambda *_: (call, os.path.basename(a[1])))(*a))
                    return function(*a, **k)
                stack.enter_context(mock.patch.object(os, call, wrapped))
            durable.write_durably(*arguments, **more)

    def test_the_bytes_are_on_disk_before_the_name_is_and_then_the_name(self):
        path = os.path.join(self.folder, "note")
        for text in ("one", "another"):
            self.calls.clear()
            self.write(path, [text[:2], text[2:].encode()])
            self.assertEqual(self.calls, [("fsync", f"note.{os.getpid()}.tmp"), ("rename", "note"),
                                          ("fsync", os.path.basename(self.folder))])
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
        self.assertEqual(os.listdir(self.folder), ["note"])

    def test_what_a_killed_process_has_left_is_in_nobodys_way(self):
        path = os.path.join(self.folder, "note")
        with open(f"{path}.{os.getpid()}.tmp", "w", encoding="utf-8") as file:
            file.write("half of i")
        self.write(path, ["all"])
        self.assertEqual(os.listdir(self.folder), ["note"])

    def test_in_a_folder_that_is_open_with_rights_of_its_own(self):
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, fd)
        self.write("note", ["x"], 0o600, fd, "note.tmp")
        self.assertEqual(self.calls[-1], ("fsync", os.path.basename(self.folder)))
        self.assertEqual(os.stat(os.path.join(self.folder, "note")).st_mode & 0o777, 0o600)

    def test_one_that_must_be_new_does_not_replace_another_one(self):
        path = os.path.join(self.folder, "key")
        self.write(path, ["first"], 0o600, replaces=False)
        self.assertEqual([call for call, _ in self.calls], ["fsync", "link", "fsync"])
        with self.assertRaises(FileExistsError):
            self.write(path, ["second"], 0o600, replaces=False)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "first")
        self.assertEqual(os.listdir(self.folder), ["key"])

    def test_after_an_error_the_old_one_is_there_and_nothing_else(self):
        path = os.path.join(self.folder, "note")
        self.write(path, ["old"])

        def pieces():
            yield "new"
            raise OSError(28, "No space left on device")
        with self.assertRaises(OSError):
            self.write(path, pieces())
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        self.assertEqual(os.listdir(self.folder), ["note"])


class Folders(unittest.TestCase):
    OURS = ("scheduler.log", "server_12.log", "worker_0.log", "mpirun_workers.log", "mpirun_servers.log", "mpirun_server_3.log",
            "worker-0.kept0", "worker-11.kept1", "worker-2.clients", "job.key", "run.json.tmp")
    FOREIGN = ("results.log", "worker_x.log", "my_worker_0.log", "worker_0.log.old", "data.clients", "a.kept0", "server.log",
               "worker-0.kept2", "run.json.bak", "core")

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder], check=True)

    def write(self, name, text=""):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def take(self):
        folder, lock = take_folder(self.folder, True, "--run-dir")
        self.addCleanup(folder.close)
        return folder, lock

    def refusal(self):
        with self.assertRaises(Failure) as failure:
            self.take()
        return str(failure.exception)

    def test_what_no_run_has_written_stays(self):
        for name in self.FOREIGN + self.OURS:
            self.write(name)
        self.write("run.json", json.dumps({"job": "1", "scheduler": "ipc:///x"}))
        folder, lock = self.take()
        self.assertEqual(sorted(os.listdir(self.folder)), sorted((*self.FOREIGN, OF_RUN)))
        self.write("worker-3.clients")
        remove_kept(folder)
        lock.release()
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(self.FOREIGN))

    def test_files_of_a_runs_names_in_a_folder_without_a_run_are_not_removed(self):
        self.write("worker_0.log", "my notes")
        self.assertIn("it has a file worker_0.log that no run of prun.py has left there", self.refusal())
        self.write("run.json", "{\"my\": \"file\"}")
        self.assertIn("has a file run.json", self.refusal())
        self.assertEqual(sorted(os.listdir(self.folder)), ["run.json", "worker_0.log"])
        os.unlink(os.path.join(self.folder, "run.json"))
        self.write(OF_RUN, "pid 1 on somewhere\n")  # a launcher was killed before it could write its note
        self.take()[1].release()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_run_that_could_not_write_its_note_leaves_evidence(self):
        folder, lock = self.take()
        self.write("worker_0.log", "of this run")
        release_folder(folder, lock)
        self.assertEqual(sorted(os.listdir(self.folder)), [OF_RUN, "worker_0.log"])
        folder, lock = self.take()
        self.assertEqual(os.listdir(self.folder), [OF_RUN])
        self.write("worker_0.log", "of the next")
        self.write("run.json", json.dumps({"job": "1"}))
        release_folder(folder, lock)
        self.assertEqual(sorted(os.listdir(self.folder)), ["run.json", "worker_0.log"])

    def test_a_file_that_is_not_a_lock_stays(self):
        self.write(OF_RUN, "milk, bread\n")
        self.assertIn("is not the lock of a job", self.refusal())
        with open(os.path.join(self.folder, OF_RUN), encoding="utf-8") as file:
            self.assertEqual(file.read(), "milk, bread\n")

    def test_the_sweep_of_old_runs_leaves_folders_with_other_files(self):
        for number, name in enumerate(("worker_0.log", "notes.log")):
            run = os.path.join(self.folder, f"20260101-00000{number}-1")
            os.mkdir(run)
            self.write(f"{run}/run.json", json.dumps({"job": "1", "status": 0}))
            self.write(f"{run}/{name}")
        self.assertEqual(sweep(self.folder, 0), 1)
        self.assertEqual(os.listdir(self.folder), ["20260101-000001-1"])

    def test_only_marked_folders_in_tmp_are_those_of_sockets(self):
        mine = socket_folder.SocketFolder(self.folder)
        for name in ("prc-00000000", "prc-11111111"):
            os.mkdir(os.path.join(self.folder, name))
            self.write(f"{name}/{socket_folder.MARK if name.endswith('1') else 'thesis.tex'}")
        for name in os.listdir(self.folder):
            os.utime(os.path.join(self.folder, name), (1, 1))
        socket_folder.sweep(self.folder)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(["prc-00000000", os.path.basename(mine.path)]))
        mine.remove()
        self.assertEqual(os.listdir(self.folder), ["prc-00000000"])

    def test_a_run_of_a_ps_lite_program_says_what_it_is(self):
        self.write("run.json", json.dumps({"job": "ps", "program": "kv", "pid": 1}))
        with self.assertRaises(Failure) as failure:
            read_note(self.folder)
        self.assertIn("a run of kv, which is written for ps-lite", str(failure.exception))


class Keys(unittest.TestCase):
    """The key of an encrypted job on other hosts; the agent is a shell on this one, after a greeting of a login shell."""
    key = "0123456789abcdef" * 4

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.own = os.path.join(self.folder, "own")  # the launcher's, with what ssh says
        os.mkdir(self.own)
        self.there = os.path.join(self.folder, "there")
        self.set_agent('echo "Welcome to $1"', "shift",
                       f"""exec sh -c "$(printf '%s\\n' "$*" | sed s:{self.own}:{self.there}:g)" """)

    def set_agent(self, *lines):
        path = os.path.join(self.folder, "agent")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(("#!/bin/sh",) + lines) + "\n")
        os.chmod(path, 0o755)
        before = os.environ.get("OMPI_MCA_plm_rsh_agent")
        os.environ["OMPI_MCA_plm_rsh_agent"] = f"nowhere-to-be-found : {path} -q"
        self.assertEqual(key_holders.agent(), [path, "-q"])
        os.environ["OMPI_MCA_plm_rsh_agent"] = path
        self.addCleanup(lambda: os.environ.pop("OMPI_MCA_plm_rsh_agent", None) if before is None
                        else os.environ.update(OMPI_MCA_plm_rsh_agent=before))

    def test_a_host_has_the_key_as_long_as_the_launcher_holds_it(self):
        holders = key_holders.KeyHolders(self.own, "job.key", self.key, ["a"])
        path = os.path.join(self.there, "job.key")
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), self.key)
        self.assertEqual((os.stat(path).st_mode & 0o7777, os.stat(self.there).st_mode & 0o7777), (0o600, 0o700))
        for pid in holders.pids():
            for name in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    self.assertNotIn(self.key[:16].encode(), file.read())
        holders.end()
        self.assertFalse(os.path.exists(self.there))

    def test_a_signal_there_removes_the_key(self):
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            holders = key_holders.KeyHolders(self.own, "job.key", self.key, ["a"])
            self.assertTrue(os.path.exists(os.path.join(self.there, "job.key")))
            (os.kill if number == signal.SIGINT else os.killpg)(holders.pids()[0], number)
            for _, holder in holders.holders:
                holder.wait(10)
            self.assertFalse(os.path.exists(self.there), number)
            holders.end()

    def test_the_sweep_of_a_launcher_there_removes_what_a_killed_shell_left(self):
        self.there = os.path.join(self.folder, "prc-01234567")
        self.set_agent("shift", f"""exec sh -c "$(printf '%s\\n' "$*" | sed s:{self.own}:{self.there}:g)" """)
        holders = key_holders.KeyHolders(self.own, "job.key", self.key, ["a"])
        os.utime(self.there, (1, 1))
        socket_folder.sweep(self.folder)
        self.assertTrue(os.path.exists(self.there))
        os.killpg(holders.pids()[0], signal.SIGKILL)
        holders.end()
        end = time.monotonic() + 10  # all of the group must have died
        while os.path.exists(self.there) and time.monotonic() < end:
            socket_folder.sweep(self.folder)
        self.assertFalse(os.path.exists(self.there))

    def test_a_key_that_was_not_written_whole_is_no_key(self):
        bin = os.path.join(self.folder, "bin")
        os.mkdir(bin)
        with open(os.path.join(bin, "head"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexec /usr/bin/head -c 20\n")  # a file system that is full then
        os.chmod(os.path.join(bin, "head"), 0o755)
        with mock.patch.dict(os.environ, {"PATH": bin + ":" + os.environ["PATH"]}), self.assertRaises(Failure) as failure:
            key_holders.KeyHolders(self.own, "job.key", self.key, ["far"])
        self.assertIn("there/job.key cannot be written", str(failure.exception))
        self.assertFalse(os.path.exists(self.there))

    def test_any_login_shell_passes_a_script_on(self):
        script = "printf '%s|' 'a!b' '!!' '$HOME \\ \\\\ \\n' \"x\ny\" \"it's\" \u00e9 & wait $!; exit 7"
        shells = [path for path in map(shutil.which, ("sh", "bash", "csh", "tcsh", "fish", "zsh", "ksh", "mksh")) if path]
        for shell in shells:
            with self.subTest(shell=shell):
                done = subprocess.run([shell, "-c", key_holders.for_any_shell(script)], capture_output=True, check=False)
                self.assertEqual((done.returncode, done.stdout.decode()),
                                 (7, "a!b|!!|$HOME \\ \\\\ \\n|x\ny|it's|\u00e9|"), done.stderr)

    def test_a_host_that_shares_the_folder_keeps_it(self):
        os.mkdir(self.there, 0o700)
        path = os.path.join(self.there, "job.key")
        with open(path, "w", encoding="ascii") as file:
            file.write(self.key)
        for names in (["a"], ["a", "b", "c"]):
            key_holders.KeyHolders(self.own, "job.key", self.key, names).end()
            self.assertTrue(os.path.exists(path))

    def test_a_host_that_refuses_is_named(self):
        os.mkdir(self.there, 0o700)  # without a key: it is somebody's
        for lines, why in ((None, "there/job.key cannot be written"), (("echo no entry >&2", "exit 255"), "no entry"),
                           (("exit 0",), "it has ended without a word"), (("cat >/dev/null; exit 0",), "no answer")):
            with self.subTest(why=why):
                if lines is not None:
                    self.set_agent(*lines)
                key_holders.LIMIT, before = (0.5 if why == "no answer" else 20.0), key_holders.LIMIT
                self.addCleanup(setattr, key_holders, "LIMIT", before)
                with self.assertRaises(Failure) as failure:
                    key_holders.KeyHolders(self.own, "job.key", self.key, ["far"])
                self.assertRegex(str(failure.exception), rf"the job's key cannot be brought to far by \S+: .*{why}; --insecure: ")
        self.assertEqual(os.listdir(self.there), [])

    def test_rsh_is_never_chosen_and_warned_of(self):
        rsh = os.path.join(self.folder, "rsh")
        os.symlink("/bin/sh", rsh)
        with mock.patch.dict(os.environ, {"PATH": self.folder, "OMPI_MCA_plm_rsh_agent": "", "PARACEL_SSH": ""}):
            for named, words in (("", "ssh is not installed"), ("ssh -v", "PARACEL_SSH=ssh -v: no such command"),
                                 ("ssh 'a", "PARACEL_SSH=ssh 'a: No closing quotation")):
                os.environ["PARACEL_SSH"] = named
                with self.subTest(named=named), self.assertRaises(Failure) as failure:
                    key_holders.agent()
                self.assertIn(words, str(failure.exception))
            os.environ["PARACEL_SSH"] = "ssh : rsh"
            self.assertRegex(key_holders.agent_note(), "^warning: rsh brings the job's key to the other hosts, and enc")
            os.rename(rsh, os.path.join(self.folder, "ssh"))
            self.assertIsNone(key_holders.agent_note())

    def test_the_user_of_a_hostfile_logs_in(self):
        path = os.path.join(self.folder, "hosts")
        with open(path, "w", encoding="utf-8") as file:
            file.write("# user@comment\n\nann@near slots=2\nfar slots=1 # bob@far\n")
        options = argparse.Namespace(hostfile=path, hostfile_server="")
        self.assertEqual(hosts.logins(options, ["far", "near"]), ["far", "ann@near"])
        for both in ((path, path + "2"), (path + "2", path)):
            options.hostfile, options.hostfile_server = both
            with open(path + "2", "w", encoding="utf-8") as file:
                file.write("near\nbob@far\n")
            self.assertEqual(hosts.logins(options, ["far", "near"]), ["bob@far", "ann@near"])
            with open(path + "2", "w", encoding="utf-8") as file:
                file.write("\nbob@near\n")
            with self.assertRaises(Failure) as failure:
                hosts.logins(options, ["near"])
            self.assertRegex(str(failure.exception), r"hosts2?:[23]: found (ann|bob)@near, and (ann|bob)@near before: want one")

    def test_a_host_that_ssh_would_take_for_an_option_is_refused(self):
        path = os.path.join(self.folder, "hosts")
        for name in ("-oProxyCommand=x", "-x@near", "ann@-x", "-", "ann@"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"near\n{name} slots=2\n")
            with self.subTest(name=name), self.assertRaises(Failure) as failure:
                hosts.slots_in(path)
            self.assertRegex(str(failure.exception), rf"hosts:2: found {name.split('=')[0]}, want HOST or USER@HOST")
            self.assertEqual(failure.exception.status, USAGE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
