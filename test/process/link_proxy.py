# SPDX-License-Identifier: BSD-3-Clause
"""Connections to a job's servers that a test can break: every connection to a server, and each server's own to the scheduler,
goes through this process. A server s<n> is bound to 127.X.n.1 and advertises 127.X.n.2 (start_server --advertise), where this
process listens on the same ports; its connection to the scheduler is a socket of this process too. prun.py uses a start_server
script next to the program, which adds these options. On request the workers' connections to the scheduler go through here, too:
then the program is a script."""
import asyncio
import errno
import os
import random
import shutil
import socket
import stat
import threading

from process_support import BIN, BUILD

SCRIPT = """#!/bin/sh
before=
for word in "$@"; do
  [ "$before" = --slot ] && slot=$word
  [ "$before" = --rendezvous ] && echo "$word" > "{folder}/scheduler.new" && mv "{folder}/scheduler.new" "{folder}/scheduler"
  before=$word
done
exec "{real}" "$@" --bind "tcp://{net}.$slot.1:*" --advertise "{net}.$slot.2" --rendezvous "ipc://{folder}/s$slot" \
  --transport zmq
"""


WORKER_SCRIPT = """#!/bin/sh
echo "${{PARACEL_RENDEZVOUS##*;}}" > "{folder}/scheduler.$$" && mv "{folder}/scheduler.$$" "{folder}/scheduler"
export PARACEL_RENDEZVOUS="${{PARACEL_RENDEZVOUS%;*}};ipc://{folder}/w$PARACEL_RANK"
exec "{real}" "$@"
"""


class Pipe:
    """Two connections, and the data forwarded from one to the other."""

    def __init__(self, reader, writer):
        self.ends = [(reader, writer)]
        self.open = asyncio.Event()
        self.open.set()
        self.swallows = False
        self.swallowed = 0  # bytes
        self.tasks = []

    async def run(self, connect):
        try:
            self.ends.append(await connect())
        except OSError:
            return self.abort()
        (r0, w0), (r1, w1) = self.ends
        self.tasks = [asyncio.ensure_future(self.carry(r0, w1)), asyncio.ensure_future(self.carry(r1, w0))]
        await asyncio.wait(self.tasks)

    async def carry(self, reader, writer):
        try:
            while True:
                data = await reader.read(1 << 16)
                await self.open.wait()
                if not data:
                    break
                if self.swallows:
                    self.swallowed += len(data)
                else:
                    writer.write(data)
                    await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.abort()

    def abort(self):
        for _, writer in self.ends:
            writer.transport.abort()


class Links:
    def __init__(self, folder, program, servers, workers=0):
        """`program`: prun.py must start a copy of it, `self.program`. `workers`: whose connections to the scheduler go through
        here."""
        self.folder = folder
        self.net = f"127.{random.randrange(64, 250)}"
        self.servers = servers
        self.workers = [f"w{rank}" for rank in range(workers)]
        self.pipes = {slot: set() for slot in [*range(servers), *self.workers]}
        self.silent = set()
        self.mute = set()
        self.listening = {}
        bin_folder = os.path.join(folder, "bin")
        os.makedirs(bin_folder)
        os.symlink(os.path.join(BUILD, "lib"), os.path.join(folder, "lib"))
        for name in ("start_scheduler", "send_request"):
            os.symlink(os.path.join(BIN, name), os.path.join(bin_folder, name))
        script = os.path.join(bin_folder, "start_server")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT.format(folder=folder, real=os.path.join(BIN, "start_server"), net=self.net))
        os.chmod(script, stat.S_IRWXU)
        if workers == 0:
            self.program = shutil.copy2(program, bin_folder)
        else:
            self.program = os.path.join(bin_folder, os.path.basename(program))
            with open(self.program, "w", encoding="utf-8") as file:
                file.write(WORKER_SCRIPT.format(folder=folder, real=program))
            os.chmod(self.program, stat.S_IRWXU)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.main(),), daemon=True)
        self.stopped = asyncio.Event()
        self.thread.start()

    def close(self):
        self.loop.call_soon_threadsafe(self.stopped.set)
        self.thread.join()
        self.loop.close()

    # -- faults; each has taken effect when the call returns

    def reset(self, slot, swallow=0.0):
        """Breaks every connection of a server. All data of the `swallow` seconds before is certain to be lost; returns its
        number of bytes."""
        async def do():
            pipes = list(self.pipes[slot])
            for pipe in pipes:
                pipe.swallows = True
            await asyncio.sleep(swallow)
            for pipe in pipes:
                pipe.abort()
            return sum(pipe.swallowed for pipe in pipes)
        return self.call(do())

    def silence(self, slot):
        """Blocks all data, without losing any, until `restore`."""
        async def do():
            self.silent.add(slot)
            for pipe in self.pipes[slot]:
                pipe.open.clear()
        self.call(do())

    def restore(self, slot):
        async def do():
            self.silent.discard(slot)
            for pipe in self.pipes[slot]:
                pipe.open.set()
        self.call(do())

    def swallow(self, name):
        """Connections of a server, or of a worker ("w0") to the scheduler, swallow everything from now on, both ways, and stay
        open; new ones work."""
        async def do():
            for pipe in self.pipes[name]:
                pipe.swallows = True
        self.call(do())

    def answer_nothing(self, name, seconds=0.05):
        """Breaks its connections; those that replace them within these seconds are accepted, and never answered."""
        async def do():
            self.mute.add(name)
            for pipe in list(self.pipes[name]):
                pipe.abort()
            await asyncio.sleep(seconds)
            self.mute.discard(name)
        self.call(do())

    def call(self, what):
        return asyncio.run_coroutine_threadsafe(what, self.loop).result()

    # -- the event loop

    async def main(self):
        for slot in range(self.servers):
            self.listening[slot, "scheduler"] = await asyncio.start_unix_server(
                lambda r, w, s=slot: self.accept(s, r, w, self.to_scheduler), os.path.join(self.folder, f"s{slot}"))
        for name in self.workers:
            self.listening[name, "scheduler"] = await asyncio.start_unix_server(
                lambda r, w, n=name: self.accept(n, r, w, self.to_scheduler), os.path.join(self.folder, name))
        while not self.stopped.is_set():
            for slot, port in listeners(self.net):
                if (slot, port) not in self.listening and slot < self.servers:
                    try:
                        self.listening[slot, port] = await asyncio.start_server(
                            lambda r, w, s=slot, p=port: self.accept(s, r, w, lambda: self.to_server(s, p)),
                            f"{self.net}.{slot}.2", port)
                    except OSError as error:
                        if error.errno != errno.EADDRINUSE:
                            raise
                        # Another program has the port on all addresses: retry until it has exited.
            try:
                await asyncio.wait_for(self.stopped.wait(), 0.1)
            except asyncio.TimeoutError:
                pass
        for server in self.listening.values():
            server.close()
        for pipes in self.pipes.values():
            for pipe in list(pipes):
                pipe.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)  # closes aborted connections

    async def accept(self, slot, reader, writer, connect):
        pipe = Pipe(reader, writer)
        self.pipes[slot].add(pipe)
        if slot in self.silent:
            pipe.open.clear()
        try:
            if slot in self.mute:
                pipe.swallows = True
                while await reader.read(1 << 16):
                    pass
                writer.close()
            else:
                await pipe.run(connect)
        except OSError:
            pass
        finally:
            self.pipes[slot].discard(pipe)

    async def to_server(self, slot, port):
        return await asyncio.open_connection(f"{self.net}.{slot}.1", port)

    async def to_scheduler(self):
        with open(os.path.join(self.folder, "scheduler"), encoding="utf-8") as file:
            return await asyncio.open_unix_connection(file.read().strip().removeprefix("ipc://"))


def listeners(net):
    """(slot, port) of each socket that listens on net.slot.1."""
    found = []
    with open("/proc/net/tcp", encoding="ascii") as table:
        next(table)
        for line in table:
            words = line.split()
            address, port = words[1].split(":")
            host = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            if words[3] == "0A" and host.startswith(net + ".") and host.endswith(".1"):
                found.append((int(host.split(".")[2]), int(port, 16)))
    return found
