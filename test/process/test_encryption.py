#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs whose connections are encrypted (--encrypt; on several hosts without an option, see test_two_hosts.py): the results have
the bits of jobs that are not, strangers are not heard and cost little memory, and the key is nowhere but in its file."""
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from process_support import (BIN, LR, MPI, PRUN, JobTest, clean_environment, main, processes_of, read_bytes,  # noqa: E402
                             role_of, wait_until)
from server_support import STATS, ZMQ_LIBRARY, Client, Zmq  # noqa: E402
from test_bounds import MORE, Raw, listening, memory, ready  # noqa: E402

MB = 1 << 20
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + b"\0" + bytes(31)
STRANGERS = 1000
HELLO_BYTES = 202
# Once in each process, in what has arrived over tcp with the FLIP_AT-th call: flips a bit, as somebody on the way could.
FLIP = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
extern "C" ssize_t recv(int fd, void* into, size_t size, int flags) {
  static const auto real = reinterpret_cast<decltype(&recv)>(dlsym(RTLD_NEXT, "recv"));
  static std::atomic<int> calls{0};
  const ssize_t got = real(fd, into, size, flags);
  sockaddr_storage peer{};
  socklen_t peer_size = sizeof peer;
  char program[256] = {};
  const char* at = getenv("FLIP_AT");
  if (at == nullptr || got <= 0 || size < 1000 || readlink("/proc/self/exe", program, sizeof program - 1) <= 0 ||
      strstr(getenv("FLIP_IN"), strrchr(program, '/')) == nullptr ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 || peer.ss_family != AF_INET || ++calls != atoi(at))
    return got;
  static_cast<char*>(into)[got - 1] ^= 1;
  const int log = open(getenv("FLIP_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dprintf(log, "%s\n", strrchr(program, '/'));
  close(log);
  return got;
}
"""


class Encryption(JobTest):
    @unittest.skipUnless(MPI, "mpirun is not installed")
    def test_what_other_hosts_can_reach_is_encrypted_unless_that_is_declined(self):
        with open(os.path.join(self.folder, "hosts"), "w", encoding="utf-8") as file:
            file.write("# two hosts\nlocalhost slots=2\n192.0.2.7 slots=2\n")
        job = ("-c", "cfg.json", "-m", "mpi", "--hostfile", "hosts", "--host", "192.0.2.1", "--dry-run")
        for options in ((), ("--encrypt",)):
            status, out, err = self.prun(*job, *options, LR)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(len(re.findall(r"^PARACEL_JOB_KEY_FILE=/tmp/prc-XXXXXX/job\.key ", out, re.M)), 3, out)
            self.assertIn("PARACEL_MODE=spread", out)
            self.assertNotIn("PARACEL_JOB_KEY=", out)
            self.assertNotIn("insecure", out)
        status, out, err = self.prun(*job, "--insecure", LR)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("PARACEL_MODE=spread", out)
        self.assertIn("PARACEL_INSECURE=1", out)
        self.assertNotIn("/tmp/prc-XXXXXX/job.key", out)
        self.assertIn("PARACEL_MODE=mpi", self.prun(*job, "--insecure", "--mpi-messages", LR)[1])
        self.assert_refused("--mpi-messages: what MPI sends is not encrypted: want -m mpi --insecure", *job, "--mpi-messages", LR)
        local = ["127.0.0.1" if word == "192.0.2.1" else word for word in job]  # servers listen on every interface
        self.assertIn("/job.key ", self.prun(*local, LR)[1])
        for host, is_encrypted in (("127.0.0.1", False), ("127.1.2.3", False), ("localhost", False), ("127.1", False),
                                   ("192.0.2.1", True), ("fd00::1", True), ("[::1]", False), ("::1", False)):
            _, out, _ = self.prun("-c", "cfg.json", "--host", host, "--dry-run", LR)
            self.assertEqual(("/tmp/prc-XXXXXX/job.key" in out, "tcp://*:*" in out), (is_encrypted, is_encrypted), out)
        for host, words in (("127.invalid", "--host 127.invalid: "), ("a..b", "--host a..b: "),
                            ("localhost", "--host localhost: that is 127.0.0.1 here, which 192.0.2.7 cannot reach")):
            named = [host if word == "192.0.2.1" else word for word in job]
            self.assert_refused(words, *named, LR)
        status, _, err = self.prun(*job, "--encrypt", "--insecure", LR)
        self.assertEqual(status, 2)
        self.assertIn("--encrypt and --insecure exclude each other", err)

    def test_a_job_listens_at_what_a_name_stands_for(self):
        for host in ("localhost", "::1", "[::1]"):
            status, _, err = self.prun("-w", "2", "-c", "cfg.json", "--host", host, LR)
            self.assertEqual(status, 0, err)

    def test_a_signal_while_a_host_is_given_the_key_leaves_none(self):
        with open(os.path.join(self.folder, "silent"), "w", encoding="utf-8") as file:
            file.write("192.0.2.7 slots=4\n")
        agent = self.write_program("silent_agent", f'echo "$@" > {self.folder}/asked.new',
                                   f"mv {self.folder}/asked.new {self.folder}/asked", "cat > /dev/null")
        asked = os.path.join(self.folder, "asked")
        for number, word in ((signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP"), (signal.SIGINT, "interrupted")):
            with self.subTest(number=number):
                run = self.start("-w", "2", "-c", "cfg.json", "-m", "ssh", "--hostfile", "silent", "--host", "192.0.2.1", LR,
                                 environment=clean_environment(PARACEL_SSH=agent))
                self.assertTrue(wait_until(lambda: os.path.exists(asked), 20), run.err())
                folder = run.socket_folder()
                self.assertTrue(os.path.exists(os.path.join(folder, "job.key")))
                run.process.send_signal(number)
                self.assertEqual(run.wait(10), 128 + number, run.err())
                self.assertEqual(run.err(), f"prun.py: {word}\n")
                self.assertFalse(os.path.exists(folder))
                os.unlink(asked)

    def run_lr(self, name, *options, environment=None, **changes):
        """The model, and what worker 0 has printed."""
        self.write_config(f"{name}.json", output=f"{name}/", **changes)
        run = self.start("-w", "3", "-p", "2", "-c", f"{name}.json", "--run-dir", name + "_run", *options, LR,
                         environment=environment)
        self.assertEqual(run.wait(), 0, run.err())
        return read_bytes(os.path.join(self.folder, name, "lr_theta_0")), run.out().splitlines()[0]

    def test_results_have_the_bits_of_a_job_that_is_not_encrypted(self):
        for consistency in ("bsp", None):
            with self.subTest(consistency=consistency):
                plain = self.run_lr("plain", consistency=consistency)
                self.assertEqual(self.run_lr("encrypted", "--encrypt", consistency=consistency), plain)
                self.assertEqual(self.run_lr("replicated", "--encrypt", "--replicas", "2", consistency=consistency), plain)
                if MPI:
                    self.assertEqual(self.run_lr("mpi", "--encrypt", "-m", "mpi", consistency=consistency), plain)

    def test_a_bit_that_changes_on_the_way_costs_a_connection_and_not_the_job(self):
        plain = self.run_lr("unchanged", consistency="bsp")
        library = os.path.join(self.folder, "libflip.so")
        subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library, "-ldl"], input=FLIP, text=True, check=True)
        # In handshakes, and in messages: with the scheduler at first, then with servers.
        for at in (1, 2, 6, 15, 40):
            for programs, options in (("/lr", ()), ("/lr", ("--replicas", "2")),
                                      ("/lr /start_server /start_scheduler", ("--replicas", "2"))):
                with self.subTest(at=at, programs=programs, options=options):
                    log = self.not_there("flips")
                    environment = clean_environment(LD_PRELOAD=library, FLIP_AT=str(at), FLIP_IN=programs, FLIP_LOG=log)
                    changed = self.run_lr("changed", "--encrypt", *options, environment=environment, consistency="bsp")
                    self.assertEqual(changed, plain)
                    self.assertEqual(set(read_bytes(log).decode().split()), set(programs.split()))

    def test_a_resumed_job_has_another_key_and_the_same_result(self):
        plain = self.run_lr("through", consistency="bsp")
        self.run_lr("first", "--encrypt", "--checkpoint-dir", "kept", "--checkpoint-every", "10", consistency="bsp")
        self.assertEqual(self.run_lr("second", "--encrypt", "--resume", "kept", consistency="bsp"), plain)

    def begin(self, *options):
        """Counters that run until `enough` exists."""
        enough = self.not_there("enough")
        run = self.start("-w", "2", "-p", "2", "--threads", "2", "--encrypt", *options, os.path.join(BIN, "test_counters"),
                         enough, "20")
        run.enough = enough
        self.assertTrue(wait_until(lambda: "round" in run.err(), 30), run.err())
        return run

    def end(self, run):
        self.touch(run.enough)
        self.assertEqual(run.wait(60), 0, run.err() + run.out())
        self.assertRegex(run.out(), "^exact")

    def nodes(self, run):
        """The role, and the addresses, of each process."""
        found = {p.pid: role_of(p) for p in processes_of(run.job()) if role_of(p) in ("worker", "server", "scheduler")}
        ports = {pid: (role, listening(pid)) for pid, role in found.items()}
        self.assertEqual({role for role, addresses in ports.values() if addresses}, {"worker", "server", "scheduler"})
        return ports

    def key(self, run):
        return bytes.fromhex(read_bytes(os.path.join(run.socket_folder(), "job.key")).decode())

    @unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
    def test_strangers_are_not_answered_and_members_are(self):
        run = self.begin()
        secret, other, zmq = self.key(run), os.urandom(32), Zmq()
        self.addCleanup(zmq.close)
        public = zmq.public_key(secret)
        cases = {"plain": (None, False), "another job": (2 * (zmq.public_key(other),) + (other,), False),
                 "the public key alone": ((public, zmq.public_key(other), other), False),
                 "a member": ((public, public, secret), True)}
        servers = [pid for pid, (role, _) in self.nodes(run).items() if role == "server"]
        for name, (keys, is_answered) in cases.items():
            for pid in servers:
                for address in listening(pid):
                    with self.subTest(name=name, address=address):
                        client = Client(zmq, address, int(run.job(), 16), client=7, keys=keys, timeout=20 if is_answered else 0.2)
                        self.assertEqual(client.ask(STATS) is not None, is_answered)
                        client.close()
        self.end(run)

    def hello_of_a_member(self, address, keys):
        """Greeting and HELLO, as somebody on the way sees them."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        zmq = Zmq()
        client = Client(zmq, f"tcp://127.0.0.1:{listener.getsockname()[1]}", 1, client=9, keys=keys, timeout=5)
        client.send(STATS)
        near, _ = listener.accept()
        host, port = address.removeprefix("tcp://").split(":")
        with near, socket.create_connection((host, int(port))) as far:
            near.settimeout(10)
            far.settimeout(10)
            seen = b""
            while len(seen) < len(GREETING) + HELLO_BYTES:
                piece = near.recv(4096)
                self.assertNotEqual(piece, b"")
                far.sendall(piece)
                seen += piece
                if len(seen) <= len(GREETING):
                    near.sendall(far.recv(4096))
        client.close()
        zmq.close()
        return seen

    @unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
    def test_a_thousand_strangers_who_announce_a_megabyte_cost_little_memory(self):
        run = self.begin()
        secret, zmq = self.key(run), Zmq()
        self.addCleanup(zmq.close)
        public = zmq.public_key(secret)
        nodes = self.nodes(run)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        announced = b"\x02" + struct.pack(">Q", MB) + bytes(MB - 1)
        for role in ("scheduler", "server", "worker"):
            pid, address = next((pid, a[0]) for pid, (r, a) in nodes.items() if r == role)
            hello = self.hello_of_a_member(address, (public, public, secret))
            self.assertEqual(len(hello), len(GREETING) + HELLO_BYTES)
            before, most, strangers = memory(pid), 0, []
            # As far as a stranger gets: through a greeting, or with a member's HELLO until INITIATE. Half of them announce, and
            # send, a megabyte then; the others hold their connections.
            for number in range(STRANGERS):
                raw = Raw(address, greets=False)
                raw.socket.settimeout(5)
                strangers.append(raw)
                raw.send(GREETING if number % 2 else hello)
                raw.socket.setblocking(False)
                if number % 4 < 2:
                    raw.send(announced)
                if number % 20 == 0:
                    most = max(most, memory(pid) - before)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                most = max(most, memory(pid) - before)
                time.sleep(0.02)
            with self.subTest(role=role):
                print(f"{role}: {most / MB:.1f} MiB more for {STRANGERS} strangers", file=sys.stderr)
                self.assertLess(most, 100 * MB)
                for raw in strangers:
                    raw.socket.settimeout(20)
                    self.assertTrue(raw.is_dropped())
            for raw in strangers:
                raw.close()
        self.end(run)
        logs = read_bytes(os.path.join(run.logs(), "server_0.log")).decode()
        self.assertIn("drops a connection: it does not begin as a member of the job does, encrypted", logs)

    @unittest.skipUnless(ZMQ_LIBRARY, "libzmq is not installed")
    def test_with_few_descriptors_left_strangers_give_way_to_members(self):
        run = self.begin()
        secret, zmq = self.key(run), Zmq()
        self.addCleanup(zmq.close)
        public = zmq.public_key(secret)

        def used(pid):
            return len(os.listdir(f"/proc/{pid}/fd"))

        for pid, (role, addresses) in self.nodes(run).items():
            limit = used(pid) + 24
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
            most, strangers, answered = 0, [], 0
            for number in range(300):
                raw = Raw(addresses[0], greets=False)
                self.addCleanup(raw.close)
                raw.send(GREETING)
                strangers.append(raw)
                most = max(most, used(pid))
                if role == "server" and number in (100, 200, 299):
                    client = Client(zmq, addresses[0], int(run.job(), 16), client=11 + number, keys=(public, public, secret),
                                    timeout=20)
                    answered += client.ask(STATS) is not None
                    client.close()
            with self.subTest(role=role):
                self.assertEqual(answered, 3 if role == "server" else 0)
                self.assertLess(most, limit)
                for raw in strangers:
                    self.assertTrue(raw.is_dropped())
        self.end(run)
        logs = read_bytes(os.path.join(run.logs(), "server_0.log")).decode()
        self.assertRegex(logs, "drops a connection: (too many connections have|few file descriptors are left)")

    def test_endless_messages_and_slow_handshakes_end_their_connections(self):
        run = self.begin()
        for role, addresses in self.nodes(run).values():
            for what in (GREETING + MORE + b"\0", GREETING.replace(b"CURVE", b"NULL\0") + ready() + (MORE + b"\0") * 1000,
                         b"GET / HTTP/1.0\r\n\r\n" * 10, GREETING + b"\x06" + struct.pack(">Q", 4097)):
                with self.subTest(role=role, what=what[:20]):
                    raw = Raw(addresses[0], greets=False)
                    self.addCleanup(raw.close)
                    raw.send(what)
                    self.assertTrue(raw.is_dropped())
        begin = time.monotonic()
        slow = [Raw(addresses[0], greets=False) for _, addresses in self.nodes(run).values()]
        for byte in GREETING[:10]:
            for raw in slow:
                raw.send(bytes([byte]))
            time.sleep(0.05)
        for raw in slow:
            self.addCleanup(raw.close)
            self.assertTrue(raw.is_dropped())
        self.assertLess(time.monotonic() - begin, 15)  # 2 s, if the machine is idle
        self.end(run)

    def forms(self, secret):
        """How the key could be written somewhere."""
        digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
        z85 = ""
        for (word,) in struct.iter_unpack(">I", secret):
            z85 += "".join(digits[word // 85**i % 85] for i in (4, 3, 2, 1, 0))
        return {"bytes": secret[:16], "hex": secret.hex()[:32].encode(), "Z85": z85[:20].encode()}

    def test_the_key_is_in_its_file_alone(self):
        enough = self.not_there("enough")
        self.write_config("secret.json", output="secret/", rounds=100000000)
        run = self.start("-w", "2", "-p", "2", "--encrypt", "-v", "--run-dir", "secret_run", "--checkpoint-dir", "secret_ckpt",
                         "--checkpoint-every", "20", "--replicas", "2", "--on-worker-death", "wait:20", "-c", "secret.json", LR,
                         environment=clean_environment(TEST_ENOUGH=enough))
        checkpoint = os.path.join(self.folder, "secret_ckpt")
        self.assertTrue(wait_until(lambda: os.path.isdir(checkpoint) and any(n.isdigit() for n in os.listdir(checkpoint)), 60),
                        run.err())
        path = os.path.join(run.socket_folder(), "job.key")
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o7777, 0o700)
        forms = self.forms(self.key(run))
        told = subprocess.run([sys.executable, PRUN, "tell", "--servers", "stats", "--run",
                               os.path.join(self.folder, "secret_run")], capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, text=True)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("running for", self.status_of(run))
        seen = {f"/proc/{name}/{what}": read_bytes(f"/proc/{name}/{what}") for name in os.listdir("/proc") if name.isdigit()
                for what in ("cmdline", "environ")}
        self.assertTrue(any(path.encode() in text for text in seen.values()), "they are told where it is")
        run.find("server").kill()
        self.assertTrue(wait_until(lambda: "is restarted" in run.err(), 30), run.err())
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(30), 143, run.err())
        self.assertFalse(os.path.exists(path))
        for folder in ("secret_run", "secret_ckpt"):
            for where, _, names in os.walk(os.path.join(self.folder, folder)):
                seen.update((os.path.join(where, name), read_bytes(os.path.join(where, name))) for name in names)
        self.assertIn(os.path.join(self.folder, "secret_run", "run.json"), seen)
        self.assertGreater(len([name for name in seen if "secret_ckpt" in name]), 2)
        seen.update({"output": (run.out() + run.err() + told.stdout + told.stderr).encode()})
        for name, text in seen.items():
            for form, key in forms.items():
                self.assertNotIn(key, text, f"{form} in {name}")

    def status(self, folder):
        done = subprocess.run([sys.executable, PRUN, "status", "--run", os.path.join(self.folder, folder)], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_a_command_on_a_host_without_the_key_says_where_to_run_it(self):
        run = self.begin("--run-dir", "away")
        path = os.path.join(run.socket_folder(), "job.key")
        os.rename(path, path + ".away")
        status, _, err = self.status("away")
        self.assertEqual(status, 1)
        self.assertRegex(err, r"the job \w+ is encrypted, and its key \S+/job\.key is not on this host: run this command on \S+,")
        with open(path, "w", encoding="ascii") as file:
            file.write(os.urandom(32).hex())
        os.chmod(path, 0o644)
        self.assertIn("may be read by others: want mode 0600", self.status("away")[2])
        os.chmod(path, 0o600)
        status, _, err = self.status("away")
        self.assertEqual(status, 13, err)  # it is of another job, which gets no answer
        os.rename(path + ".away", path)
        self.assertIn("running for", self.status("away")[1])
        with open(os.path.join(self.folder, "away", "run.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["key"], path)
        self.end(run)


if __name__ == "__main__":
    main()
