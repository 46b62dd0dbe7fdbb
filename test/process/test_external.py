#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs whose processes are started by anything (-m external, prun.py join): in any order, with one variable and a key's file;
the results have the bits of other jobs. Who is missing, which address was tried, and what a second process of a place does is
said."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from observed import assert_json  # noqa: E402
from process_support import (LR, PACED, PRUN, JobTest, clean_environment, free_port, main, patient,  # noqa: E402
                             read_bytes, wait_until)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


class Joined:
    """A process that joins by itself."""

    def __init__(self, arguments, environment, folder, log, prefix=()):
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen([*prefix, sys.executable, PRUN, "join", *arguments], cwd=folder, env=environment,
                                            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def text(self):
        return read_bytes(self.log).decode("utf-8", "replace")

    def wait(self, limit=60):
        try:
            return self.process.wait(patient(limit))
        except subprocess.TimeoutExpired:
            return None

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def place(self, limit=20):
        """Its place, such as "server s1", once it has one."""
        found = wait_until(lambda: re.search(r"^prun\.py: ((?:server|worker) s?\d+) of ", self.text(), re.M), limit)
        return found[1] if found else None


class External(JobTest):
    def setUp(self):
        self.key = self.not_there("job.key")
        with open(os.open(self.key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(os.urandom(32).hex())
        self.use(f"127.0.0.1:{free_port()}#train")
        self.logs = 0

    def use(self, rendezvous):
        self.rendezvous = rendezvous
        self.variables = {"PARACEL_RENDEZVOUS": rendezvous, "PARACEL_JOB_KEY_FILE": self.key}

    def join(self, *arguments, prefix=(), **more):
        self.logs += 1
        joined = Joined(arguments, clean_environment(**{**self.variables, **more}), self.folder,
                        self.not_there(f"join_{self.logs}.log"), prefix)
        self.addCleanup(joined.process.wait)
        self.addCleanup(joined.process.kill)
        return joined

    def schedule(self, *arguments, **more):
        run = self.start("-m", "external", *arguments, LR, environment=clean_environment(**{**self.variables, **more}))
        self.assertTrue(wait_until(lambda: "start each of them" in run.err() or run.process.poll() is not None, 20), run.err())
        return run

    def said(self, run, text, limit=20):
        self.assertTrue(wait_until(lambda: re.search(text, run.err()) or run.process.poll() is not None, limit), run.err())
        self.assertRegex(run.err(), text)

    def assert_ended(self, *joined, status=0):
        for one in joined:
            self.assertEqual(one.wait(), status, one.text())

    def model(self, folder):
        return read_bytes(os.path.join(self.folder, folder, "lr_theta_0"))

    # -- any order

    def test_the_result_has_the_bits_of_another_job_whoever_comes_first(self):
        self.write_config("first.json", output="local/")
        self.assertEqual(self.prun("-w", "3", "-p", "2", "-c", "first.json", LR)[0], 0)
        early = [self.join("server"), self.join("worker"), self.join("worker", "--index", "2", LR, "--cfg_file", "other.json")]
        self.write_config("other.json", output="external/")
        self.assertTrue(wait_until(lambda: all("Connection refused" in e.text() for e in early), 20), early[0].text())
        self.assertIn(f"waits for {self.rendezvous}: 127.0.0.1:", early[0].text())
        logs = self.not_there("traced")
        run = self.schedule("-w", "3", "-p", "2", "--trace", "--run-dir", logs, "-c", "other.json")
        late = [self.join("worker", JOB_COMPLETION_INDEX="1"), self.join(PARACEL_ROLE="server", PARACEL_INDEX="1")]
        self.assertEqual(run.wait(), 0, run.err() + "".join(j.text() for j in early + late))
        self.assert_ended(*early, *late)
        self.assertEqual([j.place() for j in early + late], ["server s0", "worker 0", "worker 2", "worker 1", "server s1"])
        self.assertTrue(self.model("local"))
        self.assertEqual(self.model("external"), self.model("local"))
        self.assertIn("output external", early[1].text())
        self.assertEqual({name.partition(".")[0] for name in os.listdir(logs) if name.endswith(".trace")},
                         {"server_0", "server_1", "worker_0", "worker_1", "worker_2"})
        for log in early + late:  # it is in its file only
            self.assertNotIn(read_bytes(self.key), read_bytes(log.log))

    @unittest.skipUnless(has_ipv6(), "this host has no IPv6")
    def test_over_ipv6(self):
        self.use(f"[::1]:{free_port()}#six")
        self.write_config("six.json", output="six/")
        run = self.schedule("-w", "2", "-p", "1", "-c", "six.json")
        joined = [self.join("server"), self.join("worker"), self.join("worker")]
        self.assertEqual(run.wait(), 0, run.err() + "".join(j.text() for j in joined))
        self.assert_ended(*joined)
        self.assertTrue(self.model("six"))

    @unittest.skipUnless(os.geteuid() == 0, "not root: no mount namespace with a hosts file of its own")
    def test_a_name_that_is_not_known_yet(self):
        hosts = self.not_there("hosts")
        with open(hosts, "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n")
        self.use(f"later.invalid:{free_port()}#named")
        run = self.schedule("-w", "1", "-p", "1", "-c", self.write_config("named.json", output="named/"))
        prefix = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts)
        joined = [self.join(role, prefix=prefix) for role in ("server", "worker")]
        for one in joined:
            self.assertTrue(wait_until(lambda one=one: "the name later.invalid is unknown: " in one.text(), 60), one.text())
        with open(hosts, "a", encoding="ascii") as file:
            file.write("127.0.0.1 later.invalid\n")
        self.assertEqual(run.wait(), 0, run.err() + "".join(j.text() for j in joined))
        self.assert_ended(*joined)

    def test_without_a_rendezvous_prun_makes_one_and_the_key(self):
        self.variables = {}
        run = self.schedule("-w", "1", "-p", "1", "-c", self.write_config("own.json", output="own/"))
        found = re.search(r"PARACEL_RENDEZVOUS='(127\.0\.0\.1:\d+#[0-9a-f]{16})' PARACEL_JOB_KEY_FILE='(\S+)'", run.err())
        self.assertTrue(found, run.err())
        self.assertEqual(os.stat(found[2]).st_mode & 0o777, 0o600)
        self.variables = {"PARACEL_RENDEZVOUS": found[1], "PARACEL_JOB_KEY_FILE": found[2]}
        joined = [self.join("server"), self.join("worker")]
        self.assertEqual(run.wait(), 0, run.err())
        self.assert_ended(*joined)
        self.assertFalse(os.path.exists(found[2]))

    def test_each_line_of_what_joins_is_an_object_if_that_is_asked_for(self):
        run = self.paced("objects.json", "-w", "2", "-p", "2", "--replicas", "2", "--log-format", "json", output="objects/",
                         rounds=3000)
        job = json.loads(run.err().splitlines()[0])["run"]
        self.assertIn("prun.py join --log-format json server ", run.err())
        servers = [self.join("--log-format", "json", "server", "--index", str(i)) for i in range(2)]
        worker, plain = self.join("worker", "--log-format", "json"), self.join("worker")
        self.said(run, "round 1/")
        pid = int(re.search(r"pid (\d+)", servers[1].text())[1])
        self.assertNotEqual(pid, servers[1].process.pid)
        servers[1].kill()  # its parent, which makes objects
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"), 10), "its process is still there")
        second = self.join("--log-format", "json", "server", "--index", "1")
        self.said(run, "2 replicas of everything exist again")
        self.touch(self.enough)
        self.assertEqual(run.wait(), 0, run.err() + worker.text())
        self.assert_ended(servers[0], second, worker, plain)
        for number, one in ((0, servers[0]), (1, servers[1]), (1, second)):
            assert_json(self, one.text(), job, "server", number)
        lines = [json.loads(line) for line in worker.text().splitlines()]
        self.assertEqual({(line["role"], line["run"]) for line in lines}, {("worker", job)})
        place = next(i for i, line in enumerate(lines) if re.match(r"prun\.py: worker \d of ", line["message"]))
        index = int(lines[place]["message"].split()[2])
        self.assertEqual({line["index"] for line in lines[:place]} - {None}, set(), "it is not known yet")
        self.assertEqual({line["index"] for line in lines[place:]}, {index})
        first = worker if index == 0 else plain
        self.assertIn("objective", first.text())

    def test_of_objects_too_signals_and_statuses_are_those_of_the_process(self):
        nobody = self.join("--log-format", "json", "worker", "--index", "3", "--wait", "0.1")
        self.assertEqual(nobody.wait(), 12, nobody.text())
        last = json.loads(nobody.text().splitlines()[-1])
        self.assertEqual((last["level"], last["role"], last["index"]), ("error", "worker", 3))
        self.assertIn("no place in", last["message"])
        waiting = self.join("--log-format", "json", "worker")
        self.assertTrue(wait_until(lambda: "waits for" in waiting.text(), 20))
        waiting.kill(signal.SIGTERM)
        self.assertIn(waiting.wait(), (143, -15))

    # -- deaths

    def paced(self, config, *options, **more):
        """A job that goes on until self.enough exists; how its processes are joined in `more`."""
        self.enough = self.not_there("enough")
        self.variables["TEST_ENOUGH"] = self.enough
        self.write_config(config, **PACED, **more)
        return self.schedule("-c", config, *options)

    def test_a_killed_server_is_replaced_by_starting_it_again(self):
        self.write_config("calm.json", output="calm/", rounds=3000)
        self.assertEqual(self.prun("-w", "2", "-p", "3", "--replicas", "2", "-c", "calm.json", LR)[0], 0)
        run = self.paced("killed.json", "-w", "2", "-p", "3", "--replicas", "2", output="killed/", rounds=3000)
        servers = [self.join("server", "--index", str(i)) for i in range(3)]
        workers = [self.join("worker") for _ in range(2)]
        self.said(run, "round 1/")
        second = self.join("server", "--index", "1")  # the first still lives
        self.assertTrue(wait_until(lambda: "waits for" in second.text() or second.process.poll() is not None, 20))
        self.assertRegex(second.text(), rf"waits for \S+: \S+ server s1 is pid {servers[1].process.pid} on \S+, and a place "
                                        "becomes free when the scheduler loses its process")
        self.assertIsNone(second.process.poll())
        servers[1].kill()
        self.assertEqual(second.place(), "server s1")
        self.said(run, "server s1 .* lost: no heartbeat for .*; the job continues with the replicas of its keys, and another "
                       "server may join as s1")
        self.said(run, "2 replicas of everything exist again")
        self.touch(self.enough)
        self.assertEqual(run.wait(), 0, run.err())
        self.assert_ended(servers[0], servers[2], second, *workers)
        self.assertEqual(self.model("killed"), self.model("calm"))

    def test_a_stopped_server_that_was_replaced_serves_nothing_any_more(self):
        run = self.paced("stopped.json", "-w", "2", "-p", "2", "--replicas", "2", output="stopped/", rounds=3000)
        servers = [self.join("server", "--index", str(i)) for i in range(2)]
        workers = [self.join("worker") for _ in range(2)]
        self.said(run, "round 1/")
        servers[0].kill(signal.SIGSTOP)
        second = self.join("server", "--index", "0")
        self.assertEqual(second.place(), "server s0")
        self.said(run, "2 replicas of everything exist again")
        servers[0].kill(signal.SIGCONT)
        self.assert_ended(servers[0], status=11)
        self.assertRegex(servers[0].text(), "another process has replaced it|was considered lost|it was considered lost")
        self.touch(self.enough)
        self.assertEqual(run.wait(), 0, run.err())
        self.assert_ended(servers[1], second, *workers)

    def test_who_dies_before_the_job_runs_costs_only_its_place(self):
        run = self.schedule("-w", "2", "-p", "2", "-c", self.write_config("early.json", output="early/"))
        dying = [self.join("server"), self.join("worker")]
        for one, name in zip(dying, ("server s0", "worker 0")):
            self.assertEqual(one.place(), name)
        self.assertTrue(wait_until(lambda: self.status_of(run).count(" up ") == 2, 20), self.status_of(run))
        for one in dying:
            one.kill()
        self.said(run, r"worker 0 \(pid \d+ on \S+\) lost: no heartbeat for .*; another process may take its place")
        self.said(run, r"server s0 \(pid \d+ on \S+\) lost: no heartbeat for .*; another process may take its place")
        joined = [self.join(role) for role in ("server", "worker") * 2]
        self.assertEqual(run.wait(), 0, run.err() + "".join(j.text() for j in joined))
        self.assert_ended(*joined)

    def test_a_workers_death_ends_all(self):
        run = self.paced("dead.json", "-w", "2", "-p", "1", output="dead/", rounds=100000)
        joined = [self.join("worker", "--index", "0", PARACEL_DIRECT_LINKS="0"), self.join("worker", "--index", "1"),
                  self.join("server")]
        self.said(run, "round 1/")
        for one, is_said in zip(joined, (True, False)):
            self.assertEqual(b"PARACEL_DIRECT_LINKS=0" in read_bytes(f"/proc/{one.process.pid}/environ"), is_said)
        joined[0].kill()
        self.assertEqual(run.wait(), 10, run.err())
        self.assertRegex(run.err(), "worker 0 .* lost: no heartbeat")
        self.assert_ended(joined[1], joined[2], status=10)

    def test_a_killed_worker_is_replaced_by_starting_it_again_where_the_others_wait(self):
        self.write_config("still.json", output="still/", rounds=300)
        self.assertEqual(self.prun("-w", "2", "-p", "1", "-c", "still.json", LR)[0], 0)
        run = self.paced("waits.json", "-w", "2", "-p", "1", "--on-worker-death", "wait:120", output="waits/", rounds=300)
        joined = [self.join("worker", "--index", "0"), self.join("worker", "--index", "1"), self.join("server")]
        self.said(run, "round 1/")
        joined[1].kill()
        second = self.join("worker", "--index", "1")
        self.assertEqual(second.place(60), "worker 1")
        self.said(run, r"worker 1 \(pid \d+\) has caught up", 60)
        self.touch(self.enough)
        self.assertEqual(run.wait(), 0, run.err())
        self.assert_ended(joined[0], joined[2], second)
        self.assertEqual(self.model("waits"), self.model("still"))

    def test_processes_of_a_job_that_is_started_again_end(self):
        run = self.paced("again.json", "-w", "1", "-p", "1", output="again/", rounds=100000)
        old = [self.join("worker"), self.join("server")]
        self.said(run, "round 1/")
        run.process.kill()
        run.process.wait()
        new = self.schedule("-w", "1", "-p", "1", "-c", self.write_config("new.json", output="new/"))
        self.assert_ended(*old, status=13)
        self.assertIn("a new scheduler does not know it", old[0].text() + old[1].text())
        joined = [self.join("worker"), self.join("server")]
        self.assertEqual(new.wait(), 0, new.err())
        self.assert_ended(*joined)

    # -- what is wrong is said

    def test_the_missing_are_named(self):
        run = self.schedule("-w", "4", "-p", "2", "--join-timeout", "3", "-c", "cfg.json")
        joined = [self.join("server", "--index", "0"), self.join("worker", "--index", "3")]
        self.assertEqual(run.wait(), 12, run.err())
        self.assertRegex(run.err(), "the job did not start within 3.0 s: server s1, worker 0, worker 1, worker 2 did not join")
        self.assert_ended(*joined, status=12)
        self.refused(12, "no place in .*: 127.0.0.1:\\d+: Connection refused", "worker", "--wait", "0.1")

    def refused(self, status, text, *arguments, **more):
        one = self.join(*arguments, **more)
        self.assertEqual(one.wait(), status, one.text())
        self.assertRegex(one.text(), text)

    def test_wrong_words_are_refused(self):
        for rendezvous in ("here", "here:70000#j", "here:1#", "::1:70#j", "here:1#a b", "h/x:1#j", "here:1#" + "j" * 65):
            self.refused(2, r"want HOST:PORT#JOB, such as", "worker", PARACEL_RENDEZVOUS=rendezvous)
        self.refused(2, "PARACEL_RENDEZVOUS is not set", "worker", PARACEL_RENDEZVOUS="")
        self.refused(2, "PARACEL_JOB_KEY_FILE is not set", "worker", PARACEL_JOB_KEY_FILE="")
        self.refused(2, "found no role, want server or worker")
        self.refused(2, "found boss, want server or worker", "boss")
        self.refused(2, "found lr after server", "server", "lr")
        self.refused(2, "JOB_COMPLETION_INDEX: .*'x' is not a whole number", "server", JOB_COMPLETION_INDEX="x")
        self.refused(2, "no such program", "worker", "no_program")
        self.refused(12, r"worker: no place in nowhere\.invalid:7#j within 0.1 s: the name nowhere.invalid is unknown: ",
                     "worker", "--wait", "0.1", PARACEL_RENDEZVOUS="nowhere.invalid:7#j")
        self.refused(12, "there is no key in /nowhere/key", "worker", "--wait", "0.1", PARACEL_JOB_KEY_FILE="/nowhere/key")
        os.chmod(self.key, 0o644)
        self.refused(2, "want a file of this user that no other may read, mode 0600", "worker")
        self.assertEqual(self.prun("-m", "external", "-c", "cfg.json", LR,
                                   environment=clean_environment(**self.variables))[0], 2)
        for arguments, text in ((("-m", "external", "--insecure"), "with -m external jobs are encrypted"),
                                (("-m", "external", "--m_server", "local"), "want --m_server external"),
                                (("-m", "external", "--on-worker-death", "eject"), "nobody reports that a worker is dead"),
                                (("-m", "external", "--rendezvous", "a:1#b", "--host", "c"), "want neither --host nor"),
                                (("--rendezvous", "a:1#b"), "--rendezvous requires -m external")):
            self.assert_refused(text, *arguments, "-c", "cfg.json", LR)

    def test_another_key_another_job_and_an_index_that_does_not_exist(self):
        run = self.schedule("-w", "1", "-p", "1", "-c", self.write_config("keys.json", output="keys/"))
        other = self.not_there("other.key")
        with open(os.open(other, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("0" * 64)
        self.refused(12, r"127\.0\.0\.1:\d+: it does not answer: is it of another job, or its key another one\?", "worker",
                     "--wait", "0.1", PARACEL_JOB_KEY_FILE=other)
        self.refused(12, "the request is of another", "worker", "--wait", "0.1",
                     PARACEL_RENDEZVOUS=self.rendezvous.replace("#train", "#other"))
        self.refused(2, "rank 1: the job has 1 workers, counted from 0", "worker", "--index", "1")
        joined = [self.join("worker"), self.join("server")]
        self.assertEqual(run.wait(), 0, run.err())
        self.assert_ended(*joined)


if __name__ == "__main__":
    main()
