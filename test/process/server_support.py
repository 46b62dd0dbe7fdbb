# SPDX-License-Identifier: BSD-3-Clause
"""A real start_server and clients that do not use the framework: libzmq through ctypes, and the frames as drawn in
src/net/README.md."""
import ctypes
import ctypes.util
import json
import os
import shutil
import struct
import subprocess
import tempfile

from process_support import BIN

ZMQ_LIBRARY = ctypes.util.find_library("zmq")
DEALER, REQ = 5, 3
ROUTING_ID, LINGER, RCVTIMEO, SNDHWM, RCVHWM = 5, 17, 27, 23, 24
DONTWAIT, SNDMORE, RCVMORE = 1, 2, 13
CURVE_PUBLICKEY, CURVE_SECRETKEY, CURVE_SERVERKEY = 48, 49, 50
PULL, PUSH, REMOVE, PULL_MULTI, PUSH_MULTI, REMOVE_MULTI, CLOCK_WAIT, PING, STATS = 1, 2, 6, 16, 17, 21, 49, 65, 66
OK, NOT_FOUND, BAD_REQUEST, TOO_LARGE = 0, 1, 5, 8
F64_ARRAY = 0x14
REQUEST = struct.Struct("<4sBBHQQQQIIIHBxQIIIIIIQ")
REPLY = struct.Struct("<4sBBHQQQIIIIQBBHI")


class Reply:
    def __init__(self, frames):
        (self.magic, self.version, self.verb, self.status, self.sequence, self.value_version, self.server, self.clock,
         self.epoch, self.count, self.body_bytes, self.tail_bytes, self.tag, self.order, self.flags,
         self.credit) = REPLY.unpack(frames[0][:REPLY.size])
        self.body = frames[0][REPLY.size:]
        self.tail = frames[1] if len(frames) > 1 else b""


class Zmq:
    """libzmq: one context."""

    def __init__(self):
        self.lib = ctypes.CDLL(ZMQ_LIBRARY, use_errno=True)
        for name in ("zmq_ctx_new", "zmq_socket"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.zmq_socket.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.lib.zmq_setsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        self.lib.zmq_getsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.zmq_connect.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.lib.zmq_send.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
        self.lib.zmq_recv.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
        self.lib.zmq_close.argtypes = [ctypes.c_void_p]
        self.lib.zmq_ctx_term.argtypes = [ctypes.c_void_p]
        self.context = ctypes.c_void_p(self.lib.zmq_ctx_new())

    def public_key(self, secret):
        text, public, raw = (ctypes.create_string_buffer(size) for size in (41, 41, 32))
        self.lib.zmq_z85_encode(text, secret, ctypes.c_size_t(len(secret)))
        assert self.lib.zmq_curve_public(public, text) == 0
        self.lib.zmq_z85_decode(raw, public)
        return raw.raw

    def close(self):
        self.lib.zmq_ctx_term(self.context)


class Client:
    """A socket to one thread of a server. `most_replies`: how many replies ZeroMQ may buffer."""

    def __init__(self, zmq, address, job, kind=DEALER, client=1, rank=0, most_replies=0, timeout=20, keys=None):
        """`keys`: of an encrypted connection (public key of the server, public and secret key of the client), 32 bytes each."""
        self.zmq, self.lib, self.job, self.client, self.rank, self.kind = zmq, zmq.lib, job, client, rank, kind
        self.socket = ctypes.c_void_p(self.lib.zmq_socket(zmq.context, kind))
        for option, value in ((LINGER, 0), (RCVTIMEO, int(timeout * 1000)), (SNDHWM, 0), (RCVHWM, most_replies)):
            number = ctypes.c_int(value)
            self.lib.zmq_setsockopt(self.socket, option, ctypes.byref(number), ctypes.sizeof(number))
        for option, key in zip((CURVE_SERVERKEY, CURVE_PUBLICKEY, CURVE_SECRETKEY), keys or ()):
            assert self.lib.zmq_setsockopt(self.socket, option, key, len(key)) == 0
        assert self.lib.zmq_connect(self.socket, address.encode()) == 0, address
        self.sequence = 0
        self.buffer = ctypes.create_string_buffer(1 << 20)

    def send(self, verb, key=b"", payload=b"", tag=0, count=0, tail=b"", epoch=0, table=0):
        self.sequence += 1
        head = REQUEST.pack(b"PRCQ", 1, verb, 0, self.job, self.client, self.sequence, 0, self.rank, 0xffffffff, epoch, 0xffff,
                            tag, 0, table, 0, 0, count, len(key), len(key) + len(payload), len(tail))
        frames = ([b""] if self.kind == DEALER else []) + [head + key + payload] + ([tail] if tail else [])
        for i, frame in enumerate(frames):
            last = i + 1 == len(frames)
            assert self.lib.zmq_send(self.socket, frame, len(frame), 0 if last else SNDMORE) >= 0
        return self.sequence

    def receive(self):
        """The next reply, or None on timeout."""
        frames = []
        while True:
            size = self.lib.zmq_recv(self.socket, self.buffer, len(self.buffer), 0)
            if size < 0:
                return None
            assert size <= len(self.buffer), size
            frames.append(self.buffer.raw[:size])
            more = ctypes.c_int(0)
            length = ctypes.c_size_t(ctypes.sizeof(more))
            self.lib.zmq_getsockopt(self.socket, RCVMORE, ctypes.byref(more), ctypes.byref(length))
            if not more.value:
                return Reply(frames[1:] if self.kind == DEALER else frames)

    def ask(self, *args, **more):
        sequence = self.send(*args, **more)
        while True:
            reply = self.receive()
            if reply is None or reply.sequence == sequence:
                return reply

    def close(self):
        self.lib.zmq_close(self.socket)


def items(keys, value=None, tag=F64_ARRAY):
    """The payload of a multi request."""
    if value is None:
        return b"".join(struct.pack("<IIB3x", len(k), 0, 0) + k for k in keys)
    return b"".join(struct.pack("<IIB3x", len(k), len(value), tag) + k + value for k in keys)


class Server:
    """A scheduler and one server of a job with one worker, which never joins. `servers`: of the job; the others never join
    either, so the server has no membership. `before`: called in the server's process before it starts."""

    def __init__(self, threads=1, options=(), servers=1, before=None):
        self.folder = tempfile.mkdtemp(prefix="prc-server-", dir="/tmp")
        self.job = int.from_bytes(os.urandom(8), "little")
        self.processes = []
        job = f"{self.job:016x}"
        scheduler = self.start("start_scheduler", "--bind", f"ipc://{self.folder}/s", "--job", job, "--workers", "1",
                               "--servers", str(servers), "--join-timeout", "3600", "--run-dir", self.folder,
                               stdout=subprocess.PIPE)
        self.log_path = os.path.join(self.folder, "log")
        with open(self.log_path, "wb") as log:
            for line in scheduler.stdout:
                if json.loads(line).get("event") == "ready":
                    break
            self.process = self.start("start_server", "--rendezvous", f"ipc://{self.folder}/s", "--job", job, "--slot", "0",
                                      "--threads", str(threads), "--bind", f"ipc://{self.folder}", *options, stderr=log,
                                      preexec_fn=before)

    def start(self, name, *words, **more):
        process = subprocess.Popen([os.path.join(BIN, name), *words, "--parent", str(os.getpid())], **more)
        self.processes.append(process)
        return process

    def address(self, thread="0"):
        return f"ipc://{self.folder}/0_{thread}"

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def close(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            if process.stdout:
                process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
