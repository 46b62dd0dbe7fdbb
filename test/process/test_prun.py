#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""prun.py from the user's point of view: rejected command lines, started processes, output, exit status."""
import fcntl
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, LR, MPI, PRUN, JobTest, Run, clean_environment, main, patient,  # noqa: E402
                             processes_of, read_bytes, wait_until)

sys.path.insert(0, os.path.join(os.path.dirname(PRUN), "tool"))
from launcher.common.terminal import duration, loading_text  # noqa: E402
from launcher.engines.hosts import Places, hosts_in, is_loopback, remote_hosts, slots_in  # noqa: E402
from launcher.engines.mpirun import Tagged  # noqa: E402
from launcher.folders.own_folder import APPEND, OwnFolder  # noqa: E402
from launcher.folders.socket_folder import MARK, remove_folder  # noqa: E402
from launcher.job.logs import Logs  # noqa: E402
from launcher.job.options import parse_command_line  # noqa: E402
from launcher.job.plan import Child  # noqa: E402


class Usage(JobTest):
    def refused(self, status, text, *arguments):
        """Rejected with one line that contains the text, before anything is started or created."""
        def files():
            return sorted(name for name in os.listdir(self.folder) if not name.startswith(("stdout_", "stderr_")))
        before = files()
        got, out, err = self.prun(*arguments)
        self.assertEqual((got, out), (status, ""), err)
        self.assertIn(text, err)
        self.assertEqual(err.count("error:"), 1)
        self.assertEqual(files(), before)

    def test_wrong_command_lines_are_usage_errors(self):
        for text, *arguments in (
                ("the following arguments are required: program",),
                ("--wnum: '0' is not a whole number above 0", "-w", "0", LR),
                ("--snum: 'two' is not a whole number above 0", "-p", "two", LR),
                ("--timeout: '-1' is not a number of seconds above 0", "--timeout=-1", LR),
                ("unknown option --nope", "--nope", LR),
                ("-m slurm: this is no allocation of Slurm's", "-m", "slurm", LR),
                ("-m mesos: want local, mpi, ssh, slurm, external or (-m only) k8s; Mesos is not supported", "-m", "mesos", LR),
                ("--m_server x: want local, mpi, ssh, slurm, external or (-m only) k8s", "--m_server", "x", LR),
                ("--hostfile requires -m mpi or ssh", "--hostfile", "cfg.json", LR),
                ("-m ssh requires --hostfile", "-m", "ssh", LR),
                ("--hostfile nowhere: cannot be read", "-m", "mpi", "--hostfile", "nowhere", LR),
                ("--host and --bind-interface", "--host", "1.2.3.4", "--bind-interface", "lo", LR),
                ("--max-value-bytes: '1.5G' is not a number of bytes", "--max-value-bytes", "1.5G", LR),
                ("--max-message-bytes: '' is not a number of bytes", "--max-message-bytes=", LR),
                ("--wnum: 65537: want at most 65536", "-w", "65537", LR),
                ("--snum: 4097: want at most 4096", "-p", "4097", LR),
                ("--threads: 2000: want at most 1024", "--threads", "2000", LR),
                ("--heartbeat-limit: 0.01: want 0.1 to 1000000 seconds", "--heartbeat-limit", "0.01", LR),
                ("--heartbeat-limit: 0.9: want at least 1 second: processes send a heartbeat every 0.5 s", "--heartbeat-limit",
                 "0.9", LR),
                ("--heartbeat-limit: 3: want at least 4 seconds: processes send a heartbeat every 2 s", "--heartbeat-limit", "3",
                 "--heartbeat-interval", "2", LR),
                ("--heartbeat-interval: 1.2: want at most 1: with --replicas 2 or --elastic heartbeats renew the lease",
                 "--elastic", "--heartbeat-interval", "1.2", LR),
                ("--heartbeat-interval: 0.05: want 0.1 to 1000000 seconds", "--heartbeat-interval", "0.05", LR),
                ("--resend-after: 3: want less than --heartbeat-limit, 3 s", "--heartbeat-limit", "3", "--resend-after", "3", LR),
                ("--resend-after: 0.001: want at least 0.01 seconds", "--resend-after", "0.001", LR),
                ("--resend-after: 'soon' is not a number of seconds above 0", "--resend-after", "soon", LR),
                ("--drop-messages: '0': want a percentage above 0, at most 50", "--drop-messages", "0", LR),
                ("--drop-messages: '51': want a percentage above 0, at most 50", "--drop-messages", "51", LR),
                ("--drop-messages: 'nan': want a percentage above 0, at most 50", "--drop-messages", "nan", LR),
                ("unknown option --replica: did you mean --replicas?", "--replica", "2", LR),
                ("--max-value-bytes: 129T: want at most 128T", "--max-value-bytes", "129T", LR),
                ("two configs: cfg.json and other.json", "-c", "cfg.json", LR, "--cfg_file", "other.json"),
                ("--timeout: 'nan' is not a number of seconds above 0", "--servers", "+1", "--run", "r", "--timeout", "nan"),
                ("--seed: '-3' is not a whole number", "--drop-messages", "1", "--seed=-3", LR),
                ("--seed requires --drop-messages", "--seed", "3", LR),
                ("--delivery: invalid choice: 'maybe' (choose from 'resend', 'fail')", "--delivery", "maybe", LR),
                ("--delivery fail: with --replicas 2 or more lost messages have to be sent again", "-p", "2", "--replicas", "2",
                 "--delivery", "fail", LR),
                ("--delivery fail: with --elastic lost messages", "--elastic", "--delivery", "fail", LR),
                ("--delivery fail: with --rebalance lost messages", "--rebalance", "--delivery", "fail", LR),
                ("--delivery fail: with --drop-messages lost messages", "--drop-messages", "1", "--delivery", "fail", LR),
                ("--join-timeout: 1e8: want 0.1 to 1000000 seconds", "--join-timeout", "1e8", LR),
                ("--checkpoint-every: 99999999999999999999: want at most 1073741824", "--checkpoint-dir", "new",
                 "--checkpoint-every", "99999999999999999999", LR),
                ("--checkpoint-every requires --checkpoint-dir or --resume", "--checkpoint-every", "1", LR),
                ("--checkpoint-keep requires --checkpoint-dir or --resume", "--checkpoint-keep", "3", LR),
                ("--checkpoint-wait requires --checkpoint-dir or --resume", "--checkpoint-wait", "9", LR),
                ("--checkpoint-dir cfg.json: a file, want a folder", "-c", "cfg.json", "--checkpoint-dir", "cfg.json", LR),
                ("folder\\udcff is not UTF-8", "-c", "cfg.json", "--checkpoint-dir", "folder\udcff", LR),
                # what a shell makes of an unset variable
                ("--resume: '' is not a folder name", "--resume", "", LR),
                ("--checkpoint-dir: '' is not a folder name", "--checkpoint-dir=", LR),
                ("--run-dir: '' is not a folder name", "--run-dir", "", LR),
                ("--output-dir: '' is not a folder name", "--output-dir", "", LR),
                ("--run: '' is not a folder name", "status", "--run", ""),
                ("--run: '' is not a folder name", "--servers", "+1", "--run", ""),
                ("--plugin-dir nowhere: no such folder", "-c", "cfg.json", "--plugin-dir", "nowhere", LR)):
            with self.subTest(arguments=arguments):
                self.refused(2, text, *arguments)

    def test_a_program_that_cannot_be_run_is_a_usage_error(self):
        self.refused(2, "nowhere/prog: no such program", "nowhere/prog")
        self.refused(2, "cfg.json is not executable", "./cfg.json")
        self.refused(2, "is a folder, want a program", "/tmp")

    def test_a_deleted_folder_is_named(self):
        gone = tempfile.mkdtemp()
        done = subprocess.run(["sh", "-c", 'rmdir "$1"; exec "$2" "$3" "$4"', "sh", gone, sys.executable, PRUN, LR], cwd=gone,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "prun.py: error: the current folder cannot be read: No such file or "
                                                             "directory: cd to one that exists\n"))

    def test_the_config_may_come_after_the_program(self):
        status, out, err = self.prun("--run-dir", "mine", LR, "--cfg_file", "cfg.json")
        self.assertEqual(status, 0, err + out)

    def test_a_framework_that_is_not_built_is_named(self):
        with tempfile.TemporaryDirectory() as lonely:
            copy = shutil.copy(PRUN, lonely)
            alone = subprocess.run([sys.executable, copy, "/bin/true"], capture_output=True, text=True, cwd=lonely,
                                   stdin=subprocess.DEVNULL)
            self.assertEqual(alone.returncode, 1)
            self.assertIn("prun.py: error: its folder launcher/ is neither in ", alone.stderr)
            shutil.copytree(os.path.join(os.path.dirname(PRUN), "tool", "launcher"), os.path.join(lonely, "tool", "launcher"))
            done = subprocess.run([sys.executable, copy, "/bin/true"], capture_output=True, text=True, cwd=lonely,
                                  stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 2)
            self.assertIn("start_server and start_scheduler are not built: looked in /", done.stderr)

    def test_help_has_the_table_of_exit_statuses(self):
        status, out, _ = self.prun("--help")
        self.assertEqual(status, 0)
        for words in ("10 worker lost", "11 server lost", "13 scheduler lost", "--function-timeout"):
            self.assertIn(words, out)


class Config(JobTest):
    """A config is rejected before anything starts, with status 3 and one line; the program reports the same."""

    def runs(self):
        """The run folders: none for a job that was not started."""
        path = os.path.join(self.folder, "paracel_runs")
        return os.listdir(path) if os.path.exists(path) else []

    def bad(self, text, expected):
        path = os.path.join(self.folder, "bad.json")
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        runs = self.runs()
        status, out, err = self.prun("-w", "2", "-c", "bad.json", LR)
        self.assertEqual((status, out), (3, ""), err)
        self.assertTrue(err.startswith("prun.py: error: " + expected), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertEqual(self.runs(), runs)
        # Alternatively with the program itself.
        own = subprocess.run([LR, "--cfg_file", "bad.json"], cwd=self.folder, capture_output=True, errors="replace",
                             env=clean_environment(), stdin=subprocess.DEVNULL)
        self.assertEqual(own.returncode, 3, own.stderr)
        self.assertEqual(own.stderr, err.replace("prun.py: ", "lr: ", 1))

    def good(self, **changes):
        import json
        config = {"training_input": "training.dat", "output": "out/", "method": "dgd", "rounds": 30, "alpha": 0.1, "beta": 0.0}
        config.update(changes)
        return json.dumps({k: v for k, v in config.items() if v is not None}, indent=1)

    def test_what_is_no_json(self):
        self.bad('{\n "rounds": 3,\n "alpha" 0.1\n}', "bad.json:3:12: not JSON: ")
        self.bad("", "bad.json:1:1: not JSON: ")
        self.bad('{"alpha": NaN}', "bad.json:1:11: not JSON: syntax error while parsing value - invalid literal")
        self.bad("[1]", "bad.json:1:1: found a list, want an object")
        self.bad(b'{"output": "\xff"}', "bad.json:1:13: not JSON: syntax error while parsing value - invalid string: ill-formed")
        self.bad("[" * 100000, "bad.json:1:33: nested deeper than 32 levels")
        self.bad('{"rounds": 3,}', "bad.json:1:14: not JSON: ")
        self.bad('{"rounds": 1e999}', "bad.json:1:16: not JSON: number overflow")
        self.bad('{"rounds": 3} x', "bad.json:1:15: not JSON: ")

    def test_a_byte_order_mark_is_accepted_as_the_programs_accept_it(self):
        with open(os.path.join(self.folder, "mark.json"), "wb") as file:
            file.write(b"\xef\xbb\xbf" + read_bytes(os.path.join(self.folder, "cfg.json")))
        own = subprocess.run([LR, "--cfg_file", "mark.json"], cwd=self.folder, capture_output=True, text=True,
                             env=clean_environment(), stdin=subprocess.DEVNULL)
        self.assertEqual(own.returncode, 0, own.stderr)
        status, _, err = self.prun("-c", "mark.json", LR)
        self.assertEqual(status, 0, err)
        self.bad(b"\xef\xbb\xbf" + b'{"alpha": 1,\n"alpha": 2}', 'bad.json:2:1: key "alpha" is given twice')

    def test_unknown_and_missing_and_double_keys(self):
        self.bad(self.good(round=3), 'bad.json:8:2: key "round" is unknown; did you mean "rounds"? allowed keys: ')
        self.bad(self.good(zzzzzz=3), 'bad.json:8:2: key "zzzzzz" is unknown; allowed keys: ')
        self.bad(self.good(output=None), 'bad.json: key "output" is missing (folder_out): ')
        self.bad(self.good(training_input=None), 'bad.json: key "training_input" is missing (files): ')
        self.bad(self.good(training_input="", model=""), 'bad.json: key "training_input" is missing (files): ')
        self.bad(self.good(alpha=None), 'bad.json: key "alpha" is missing (number > 0): step size of dgd')
        self.bad('{"alpha": 1,\n"alpha": 2}', 'bad.json:2:1: key "alpha" is given twice, first in line 1')

    def test_wrong_types_limits_and_choices(self):
        self.bad(self.good(rounds="ten"), 'bad.json:5:2: key "rounds": found string "ten", want an integer >= 1')
        self.bad(self.good(rounds=1.5), 'bad.json:5:2: key "rounds": found number 1.5, want an integer >= 1')
        self.bad(self.good(rounds=0), 'bad.json:5:2: key "rounds": found number 0, want an integer >= 1')
        self.bad(self.good(rounds=True), 'bad.json:5:2: key "rounds": found true, want an integer >= 1')
        self.bad(self.good(alpha=0), 'bad.json:6:2: key "alpha": found number 0, want a number > 0')
        self.bad(self.good(alpha=[1]), 'bad.json:6:2: key "alpha": found a list, want a number > 0')
        self.bad(self.good(debug="maybe"), 'bad.json:8:2: key "debug": found string "maybe", want true or false')
        self.bad(self.good(method="dgb"), 'bad.json:4:2: key "method": found string "dgb", want one of dgd, ')
        self.bad(self.good(output=7), 'bad.json:3:2: key "output": found number 7, want a string')

    def test_files_and_folders(self):
        self.bad(self.good(training_input="nowhere.dat"),
                 'bad.json:2:2: key "training_input": no such file or folder: nowhere.dat')
        self.bad(self.good(training_input=["training.dat", "no*.dat"]), 'bad.json:2:2: key "training_input": no such file')
        self.bad(self.good(output="cfg.json/out"), 'bad.json:3:2: key "output": cannot write to cfg.json/out: ')
        self.bad(self.good(update_file="nowhere/lib.so"), 'bad.json:8:2: key "update_file": no such file: nowhere/lib.so')

    def test_numbers_in_quotes_are_accepted_with_a_remark(self):
        self.write_config("quoted.json", rounds="2", alpha="0.1", debug="false")
        status, _, err = self.prun("-w", "3", "-c", "quoted.json", LR)
        self.assertEqual(status, 0, err)
        remarks = re.findall(r"warning: quoted\.json:\d+:\d+: key (.*)", err)
        self.assertEqual(sorted(remarks), [f'"{key}": found string "{value}", taken as {value}; want it without quotes'
                                           for key, value in (("alpha", "0.1"), ("debug", "false"), ("rounds", "2"))])
        done = subprocess.run([LR, "--cfg_file", "quoted.json"], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr.count("lr: warning: quoted.json:"), 3, done.stderr)

    def test_a_config_that_is_not_there(self):
        status, _, err = self.prun("-c", "nowhere.json", LR)
        self.assertEqual((status, err), (3, "prun.py: error: nowhere.json: cannot be read: No such file or directory\n"))

    def test_keys_that_do_not_go_together(self):
        self.bad(self.good(consistency="bsp", ssp_switch=True),
                 'bad.json:9:2: key "ssp_switch": found true with "consistency": "bsp", want one of the two keys')
        self.bad(self.good(model="training.dat"), 'bad.json:8:2: key "model": not with training_input')

    def test_a_program_with_a_schema_and_no_config(self):
        status, _, err = self.prun(LR)
        self.assertEqual((status, err), (3, "prun.py: error: no config file given: want --cfg_file FILE\n"))

    def test_standard_input_that_is_a_terminal_is_refused(self):
        path = os.path.join(self.folder, "terminal.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.good(training_input="-"))
        ours, theirs = pty.openpty()
        try:
            done = subprocess.run([sys.executable, PRUN, "-c", "terminal.json", LR], cwd=self.folder, stdin=theirs, text=True,
                                  capture_output=True, env=clean_environment(), check=False)
        finally:
            os.close(ours)
            os.close(theirs)
        self.assertEqual((done.returncode, done.stderr), (3, (
            'prun.py: error: terminal.json:2:2: key "training_input": standard input is a terminal, want a file or a pipe\n')))

    def test_only_a_program_that_says_so_is_asked_to_check(self):
        silent = self.write_program("silent", 'echo "$@" >> asked')
        self.assertEqual(self.prun("-c", "cfg.json", silent)[0], 0)
        with open(os.path.join(self.folder, "asked"), encoding="utf-8") as file:
            self.assertNotIn("--check", file.read())

    def test_the_answer_of_any_program_is_used(self):
        program = self.write_program("deep", "# paracel-schema-v1", 'echo "$@" >> told',
                                     'case "$1" in',
                                     '  --check=) echo \'{"error": "no depth given", "status": 4}\' ; exit ;;',
                                     '  --check=*) echo \'{"plugins": ["plug/x.so"]}\' ; exit ;;',
                                     'esac')
        self.assertEqual(self.prun(program), (4, "", "prun.py: error: no depth given\n"))
        status, out, err = self.prun("--dry-run", "-c", "cfg.json", program)
        self.assertEqual(status, 0, err)
        self.assertIn(f" --plugin-dirs {self.folder}/plug:", out)
        with open(os.path.join(self.folder, "told"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "--check=\n--check=cfg.json\n")

    def test_files_on_other_hosts_are_not_looked_at(self):
        self.write_config("remote.json", training_input="/of/another/host.dat")
        command = [LR, "--check", "remote.json"]
        done = [subprocess.run(command + more, cwd=self.folder, capture_output=True, text=True, env=clean_environment(),
                               stdin=subprocess.DEVNULL, check=False) for more in ([], ["--no_files"])]
        self.assertEqual([one.returncode for one in done], [3, 0], done)
        self.assertIn("no such file or folder", done[0].stdout)

    def test_an_answer_that_is_none_is_as_no_schema(self):
        program = self.write_program("odd", "# paracel-schema-v1", "echo hello")
        self.assertEqual(self.prun("-c", "cfg.json", program)[0], 0)


class Programs(JobTest):
    """Jobs of shell scripts: the launcher's behaviour does not depend on the framework."""

    def test_worker_0_is_heard_the_others_are_in_their_logs(self):
        program = self.write_program("talk", 'echo "out of $PARACEL_RANK"', 'echo "err of $PARACEL_RANK" >&2')
        status, out, err = self.prun("-w", "3", "--run-dir", "talk_run", program)
        self.assertEqual((status, out), (0, "out of 0\n"), err)
        for rank in range(3):
            with open(os.path.join(self.folder, "talk_run", f"worker_{rank}.log"), encoding="utf-8") as file:
                self.assertEqual(sorted(file.read().splitlines()), [f"err of {rank}", f"out of {rank}"])
        self.assertIn(f"logs in {self.folder}/talk_run", err)

    def test_a_run_folder_has_one_job_at_a_time(self):
        program = self.write_program("waits", "echo here; exec sleep 30")
        first = self.start("--run-dir", "shared", "--on-worker-death", "wait:5", program)
        self.assertTrue(wait_until(lambda: first.out() == "here\n", 20), first.err())
        kept = os.path.join(self.folder, "shared", "0.kept0")  # as from a worker of that job
        self.touch(kept)
        files = sorted(os.listdir(os.path.join(self.folder, "shared")))
        with tempfile.TemporaryDirectory() as other:
            second = Run(["--run-dir", os.path.join(self.folder, "shared"), "--on-worker-death", "wait:5", program], other)
            self.addCleanup(second.destroy)
            self.assertEqual(second.wait(), 2)
            self.assertRegex(second.err(), r"error: the run folder \S+/shared belongs to a job that is running "
                                           rf"\(pid {first.pid} on \S+\): name another one with --run-dir\n$")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "shared"))), files)
        first.process.kill()  # then only the kernel unlocks it; its children hold no lock
        first.wait()
        self.assertEqual(self.prun("--run-dir", "shared", self.write_program("nothing", "exit 0"))[0], 0)
        self.assertNotIn("run.lock", os.listdir(os.path.join(self.folder, "shared")))

    def test_a_job_that_ends_before_its_servers_have_started_ends_at_once(self):
        begin = time.monotonic()
        status, _, err = self.prun("-w", "2", "-p", "2", self.write_program("nothing", "exit 0"))
        self.assertEqual(status, 0, err)
        self.assertLess(time.monotonic() - begin, patient(1.5))

    def test_a_line_is_heard_while_the_job_runs(self):
        program = self.write_program("slow", "echo first", "sleep 30")
        run = self.start(program)
        self.assertEqual(wait_until(run.out, 10), "first\n")
        self.assertIsNone(run.process.poll())

    def test_what_a_worker_is_told(self):
        program = self.write_program("told", 'echo "$@"', "env | grep ^PARACEL_ | sort")
        environment = clean_environment(PARACEL_RANK="77", PARACEL_STALE="1")
        status, out, _ = self.prun("-w", "2", "-c", "cfg.json", "--heartbeat-limit", "2.5", program, "-x", "y z",
                                   environment=environment)
        self.assertEqual(status, 0)
        arguments, *variables = out.splitlines()
        info = re.fullmatch(r"-x y z --server_info (paracel1;[0-9a-f]{16};ipc:///tmp/prc-[0-9a-f]{8}/s) --cfg_file cfg.json",
                            arguments).group(1)
        found = dict(v.split("=", 1) for v in variables)
        self.assertRegex(found.pop("PARACEL_PARENT"), r"^\d+$")
        self.assertTrue(found.pop("PARACEL_RUN_DIR").startswith(os.path.join(self.folder, "paracel_runs")))
        self.assertEqual(found, {"PARACEL_RENDEZVOUS": info, "PARACEL_RANK": "0", "PARACEL_SIZE": "2", "PARACEL_MODE": "local",
                                 "PARACEL_HEARTBEAT_LIMIT_MS": "2500"})

    def test_delivery_is_told_to_workers_and_servers_where_it_is_not_as_usual(self):
        status, out, _ = self.prun("--heartbeat-interval", "0.2", "--heartbeat-limit", "0.4", "--drop-messages", "1.5",
                                   "--dry-run", "-c", "cfg.json", LR)
        self.assertEqual(status, 0)
        for flags in ("--heartbeat-limit 0.4", "--heartbeat-interval 0.2", "--resend-after 0.1",
                      "--drop-messages 1.5 --seed 1"):
            self.assertIn(flags, next(line for line in out.splitlines() if "start_server" in line))
        self.assertIn("--heartbeat-interval 0.2", next(line for line in out.splitlines() if "start_scheduler" in line))
        program = self.write_program("delivery", "env | grep -E '^PARACEL_(HEARTBEAT_INTERVAL|RESEND|DROP)' | sort")
        status, out, _ = self.prun("--resend-after", "0.25", "--heartbeat-interval", "0.3", "--drop-messages", "2", "--seed", "9",
                                   program, environment=clean_environment())
        self.assertEqual(status, 0)
        self.assertEqual(out.split(), ["PARACEL_DROP_MESSAGES=2", "PARACEL_DROP_SEED=9", "PARACEL_HEARTBEAT_INTERVAL_MS=300",
                                       "PARACEL_RESEND_AFTER_MS=250"])
        program = self.write_program("fails", "env | grep ^PARACEL_DELIVERY")
        self.assertEqual(self.prun("--delivery", "fail", program, environment=clean_environment())[1], "PARACEL_DELIVERY=fail\n")

    def test_a_workers_own_status_is_passed_on_with_its_last_words(self):
        for code, status in ((1, 1), (4, 4), (9, 9), (77, 1)):
            program = self.write_program("fails", "[ $PARACEL_RANK = 1 ] || exec sleep 60",
                                         "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo line $i; done", f"exit {code}")
            begin = time.monotonic()
            got, _, err = self.prun("-w", "3", program)
            self.assertEqual(got, status, err)
            self.assertRegex(err, rf"prun: worker 1 \(pid \d+\) exited with status {code}\n")
            self.assertIn("    line 11\n", err)
            self.assertIn("    line 20\n", err)
            self.assertNotIn("    line 10\n", err)
            self.assertLess(time.monotonic() - begin, patient(5))

    def test_a_worker_killed_by_a_signal_is_a_lost_worker(self):
        program = self.write_program("crash", "[ $PARACEL_RANK = 2 ] || exec sleep 60", "kill -SEGV $$")
        status, _, err = self.prun("-w", "3", program)
        self.assertEqual(status, 10)
        self.assertRegex(err, r"worker 2 \(pid \d+\) was killed by SIGSEGV")

    def test_what_a_worker_leaves_behind_is_killed(self):
        program = self.write_program("leaves", "sleep 300 &", "sleep 300 &", "exit 0")
        run = self.start("-w", "2", program)
        self.assertEqual(run.wait(), 0)
        self.assertEqual(processes_of(run.job()), [])

    def test_a_script_that_cannot_be_executed_is_said(self):
        path = self.write_program("broken")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/nowhere/interpreter\n")
        status, _, err = self.prun("--run-dir", "broken_run", path)
        self.assertEqual(status, 1)
        self.assertRegex(err, "broken(: | cannot be run: )No such file or directory")

    def test_a_reader_that_has_gone_does_not_stop_the_job(self):
        program = self.write_program("much", "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo line $i of many; done",
                                     "echo done > finished")
        process = subprocess.Popen([sys.executable, PRUN, program], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=clean_environment())
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(patient(30)), 0)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "finished")))

    def test_a_reader_that_does_not_read_does_not_hide_a_failure(self):
        program = self.write_program("flood", "[ $PARACEL_RANK = 0 ] || { sleep 1; exit 4; }", "yes flood")
        process = subprocess.Popen([sys.executable, PRUN, "-w", "2", program], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=clean_environment())
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.wait(patient(15)), 4)

    def test_folders_of_launchers_that_were_killed_are_swept_away(self):
        stale, fresh, locked, foreign = (os.path.join("/tmp", "prc-" + os.urandom(4).hex()) for _ in range(4))
        for path in (stale, fresh, locked, foreign):
            os.mkdir(path, 0o700)
            with open(os.path.join(path, "thesis.tex" if path == foreign else MARK), "wb"):
                pass
        for path in (stale, locked, foreign):
            os.utime(path, (1, 1))
        held = os.open(locked, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertEqual(self.prun(self.write_program("nothing", "exit 0"))[0], 0)
            self.assertEqual([os.path.exists(path) for path in (stale, fresh, locked, foreign)], [False, True, True, True])
        finally:
            os.close(held)
            for path in (fresh, locked, foreign):
                remove_folder(path)


class Jobs(JobTest):
    def test_a_job_trains_and_leaves_only_its_logs(self):
        run = self.start("-v", "-w", "4", "-p", "2", "-c", "cfg.json", "-m", "local", LR)
        self.assertEqual(run.wait(), 0, run.err())
        self.assertIn("objective", run.out())
        self.assertRegex(run.err(), r"prun: round 30/30  objective 0\.\d+")
        self.assertIn("prun: done in ", run.err())
        self.assertEqual(processes_of(run.job()), [])
        sockets = re.search(r"--bind ipc://(/tmp/prc-\w{8})/s ", run.err()).group(1)
        self.assertFalse(os.path.exists(sockets))
        logs = os.listdir(re.search(r"logs in (\S+)", run.err()).group(1))
        self.assertEqual(sorted(logs),
                         ["run.json", "run_metrics.jsonl", "scheduler.log", "server_0.log", "server_1.log", "timeline.jsonl"] +
                         [f"worker_{r}.log" for r in range(4)])

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_a_job_under_mpirun(self):
        run = self.start("-w", "2", "-p", "2", "-c", "cfg.json", "-m", "mpi", LR)
        self.assertEqual(run.wait(), 0, run.err())
        self.assertIn("objective", run.out())
        self.assertNotIn("<stdout>", run.out())
        self.assertRegex(run.err(), r"prun: round 30/30  objective 0\.\d+")

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_what_worker_0_prints_under_mpirun_has_no_tags_in_it(self):
        # Lines that mpirun splits, and one that never ends.
        line = "0123456789" * 8
        program = self.write_program("prints", "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0", f"yes {line} | head -n 30000",
                                     "head -c 3000000 /dev/zero | tr '\\0' x", "sleep 1")
        status, out, err = self.prun("-w", "2", "-m", "mpi", "--m_server", "local", program)
        self.assertEqual(status, 0, err)
        self.assertEqual(out, f"{line}\n" * 30000 + "x" * 3000000)

    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_workers_under_mpirun_with_servers_of_the_launcher(self):
        run = self.start("-w", "2", "-p", "2", "-c", "cfg.json", "-m", "mpi", "--m_server", "local", LR)
        self.assertEqual(run.wait(), 0, run.err())

    def test_ten_jobs_at_once_on_one_host(self):
        runs = []
        for i in range(10):
            folder = os.path.join(self.folder, f"job{i}")
            os.mkdir(folder)
            self.write_config("ten.json", training_input=os.path.join(self.folder, "training.dat"))
            os.rename(os.path.join(self.folder, "ten.json"), os.path.join(folder, "ten.json"))
            run = Run(["-w", "2", "-p", "1", "-c", "ten.json", LR], folder)
            self.addCleanup(run.destroy)
            runs.append(run)
        objectives = set()
        for run in runs:
            self.assertEqual(run.wait(), 0, run.err())
            objectives.add(re.search(r"objective (\S+)", run.out()).group(1))
        self.assertEqual(len({run.job() for run in runs}), 10)
        self.assertEqual(len({o[:9] for o in objectives}), 1, objectives)  # and none affected another

    def test_bad_data_ends_the_job_with_status_4_and_its_place(self):
        with open(os.path.join(self.folder, "training.dat"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        lines[6] = lines[6].replace(",", ",oops,", 1)
        with open(os.path.join(self.folder, "spoiled.dat"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.write_config("spoiled.json", training_input="spoiled.dat")
        status, _, err = self.prun("-w", "2", "-c", "spoiled.json", LR)
        self.assertEqual(status, 4, err)
        self.assertRegex(err, r"spoiled\.dat:7:\d+")

    def test_a_value_beyond_the_servers_limit_ends_the_job_with_the_servers_words(self):
        status, _, err = self.prun("-w", "2", "-p", "1", "-c", "cfg.json", "--max-value-bytes", "64", LR)
        self.assertEqual(status, 1, err)
        self.assertRegex(err, r'key "theta": a value of 88 bytes; this server accepts at most 64')

    def test_a_message_beyond_the_limit_is_refused_before_it_is_sent(self):
        # 131,072 coordinates of theta are 1 MiB, and the message also has a header.
        with open(os.path.join(self.folder, "wide.dat"), "w", encoding="utf-8") as file:
            file.write("1 1:1 131072:2\n-1 2:1 3:1\n")
        self.write_config("wide.json", training_input="wide.dat")
        status, _, err = self.prun("-w", "1", "-p", "1", "-c", "wide.json", "--max-message-bytes", "1M", LR)
        self.assertEqual(status, 1, err)
        self.assertRegex(err, r"of 10\d\d\d\d\d bytes is over the limit of 1048576")

    def test_a_plug_in_that_cannot_be_loaded_ends_the_job_with_status_5(self):
        with open(os.path.join(self.folder, "no_plugin.so"), "wb") as file:
            file.write(b"not an ELF file")
        self.write_config("plugin.json", update_file="./no_plugin.so", update_func="f", method="downpour")
        self.assert_refused("no_plugin.so", "-w", "2", "-c", "plugin.json", LR, status=5)

    def test_eight_workers_count_exactly_with_every_verb(self):
        status, out, err = self.prun("-w", "8", "-p", "3", os.path.join(BIN, "test_counters"), "20", "20")
        self.assertEqual(status, 0, out + err)
        self.assertRegex(out, r"^exact, longest round \S+ s\n$")


class Parts(unittest.TestCase):
    """Functions of prun.py, called directly."""

    def test_lines_of_mpirun_are_taken_apart(self):
        text = (b"mpirun noticed\n[1,3]<stdout>:hello: [2,1]<x>\n[host:12] <x>:y\n[1,0]<stdout>:one li[1,0]<stdout>:ne\n"
                b"[1,12]<stderr>:\n[1,0]<stderr>:error\n[1,x]<stdout>:y\n[1,0]<stdout>:la[1,2]<stdout>:two\n[1,0]<stdout>:st\n")
        expected = {None: b"mpirun noticed\n[host:12] <x>:y\n[1,x]<stdout>:y\n", 3: b"hello: [2,1]<x>\n", 12: b"\n",
                    2: b"two\n", 0: b"one line\nerror\nlast\n"}
        for size in (1, 2, 3, 7, 16, 1000):  # in pieces of any size
            with tempfile.TemporaryDirectory() as folder:
                printed = []
                mpirun = Child("worker", None, [], os.path.join(folder, "None"), mpirun=True)
                own = OwnFolder(folder)
                files = Logs(self.fail, lambda path, o=own: o.open(os.path.basename(path), APPEND))
                tagged = Tagged(mpirun, files, lambda _, rank, f=folder: os.path.join(f, str(rank)), {}, printed.append)
                for at in range(0, len(text), size):
                    tagged.feed(text[at:at + size])
                tagged.close()
                own.close()
                self.assertEqual({name: read_bytes(os.path.join(folder, name)) for name in os.listdir(folder)},
                                 {str(rank): said for rank, said in expected.items()}, size)
                self.assertEqual(b"".join(printed), b"one line\nlast\n", size)

    def test_durations_are_short(self):
        for seconds, text in ((0.014, "0.014 s"), (3.14159, "3.1 s"), (42.4, "42 s"), (61, "1 min 01 s"),
                              (3600 * 5 + 60 * 7, "5 h 07 min")):
            self.assertEqual(duration(seconds), text)

    def test_a_load_is_shown_with_its_part_and_its_bytes(self):
        self.assertEqual(loading_text(1_204_000_000, 2_800_000_000), "loading 43 % (1.2 of 2.8 GB)")
        self.assertEqual(loading_text(500, 1_000), "loading 50 % (0.5 of 1.0 kB)")
        self.assertEqual(loading_text(0, 999), "loading 0 % (0 of 999 bytes)")
        self.assertEqual(loading_text(3_100_000, None), "loading 3.1 MB")
        self.assertEqual(loading_text("?", 3), "loading")

    def test_hosts_are_read_from_a_hostfile(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# all\n a slots=2\n\nuser@b # last\nlocalhost slots=4\n127.0.0.1\n")
            file.flush()
            self.assertEqual(hosts_in(file.name), ["a", "b", "localhost", "127.0.0.1"])
            self.assertEqual(slots_in(file.name), [("a", 2), ("b", 1), ("localhost", 4), ("127.0.0.1", 1)])
            options = parse_command_line(["-m", "mpi", "--hostfile", file.name, "prog"])
            self.assertEqual(remote_hosts(options), ["a", "b"])
            file.write("127.c.org\n127.0.0.2\n")
            file.flush()
            self.assertEqual(remote_hosts(options), ["a", "b", "127.c.org"])

    def test_loopback_is_an_address_and_no_name_that_begins_like_one(self):
        for address in ("127.0.0.1", "127.255.255.254", "::1", "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "[::ffff:7f00:1]"):
            self.assertTrue(is_loopback(address), address)
        for address in ("127.evil.example", "127.0.0.1.example", "localhost", "localhost.example", "127.0.0.256", "127.1",
                        "0x7f.1", "127.0.0.1 ", "", "[", "[]", "192.0.2.1", "::", "::127.0.0.1", "::ffff:192.0.2.1",
                        "127.0.0.1;0.0.0.0"):
            self.assertFalse(is_loopback(address), address)

    def test_servers_with_copies_are_dealt_out_over_the_hosts(self):
        places = Places([("a", 2), ("b", 2), ("c", 1)])
        self.assertEqual([places.take(s) for s in range(4)], ["a", "b", "c", "a"])
        self.assertEqual(places.take(3), "b")   # its replacement: the spare slot of another host
        self.assertEqual(places.take(0), "a")   # if no other host has a free slot, its previous one
        self.assertEqual(places.take(4), "a")
        self.assertEqual(places.free, {"a": 0, "b": 0, "c": 0})
        self.assertIn(places.take(5), "abc")    # more servers than slots
        self.assertEqual(Places([]).take(0), None)

    def test_options_after_the_program_are_the_programs(self):
        options = parse_command_line(["-w", "3", "prog", "-w", "4", "--ppn", "--dry-run"])
        self.assertEqual((options.wnum, options.program, options.arguments), (3, "prog", ["-w", "4", "--ppn", "--dry-run"]))


if __name__ == "__main__":
    main()
