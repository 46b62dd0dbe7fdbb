# SPDX-License-Identifier: BSD-3-Clause
"""The key of an encrypted job on its other hosts. Nothing that mpirun passes on is encrypted, so the key travels over a
connection of ssh to each host, through its standard input: never in a command line or an environment. There a shell writes it to
the file that the job's processes read, waits until the connection ends, however this launcher ends, and removes it."""
import os
import select
import shlex
import shutil
import time

from ..common.exit_status import FAILURE, USAGE, Failure, words_of
from ..folders.socket_folder import MARK

LIMIT = 30.0  # seconds for all hosts together
END_LIMIT = 2.0  # seconds for them to remove it
READY = b"ready\n"


def agent():
    """The command that runs another one on a host: PARACEL_SSH, or mpirun's, which may name several; otherwise ssh, and never
    rsh, which encrypts nothing. Raises Failure."""
    for variable in ("PARACEL_SSH", "OMPI_MCA_plm_rsh_agent"):
        named = os.environ.get(variable)
        if named:
            break
    try:
        choices = [shlex.split(one) for one in (named or "ssh").split(" : ")]
    except ValueError as error:
        raise Failure(USAGE, f"{variable}={named}: {error}") from None
    found = next((words for words in choices if words and shutil.which(words[0])), None)
    if found is None:
        raise Failure(USAGE, f"{variable}={named}: no such command" if named else
                      "ssh is not installed (Debian: openssh-client), which reaches the job's other hosts")
    return found


def agent_note():
    """What a person should know of the agent, or None."""
    name = os.path.basename(agent()[0])
    return (f"warning: {name} brings the job's key to the other hosts, and encrypts nothing: who can read that network can take "
            "part in the job") if name == "rsh" else None


def script(folder, name, size, read=None):
    """Reads the key, of `size` bytes, by the command `read`. It is never an argument: not every shell has a printf of its own.
    Where the folder is this launcher's own, as on a host that is this one or shares its /tmp, the file is already there. The
    lock and the mark are those of SocketFolder: if the shell is killed, a later launcher on that host removes the folder."""
    # A shell takes a signal while it waits, but not while it runs a command.
    return (f"umask 077; d={folder}; f=$d/{name}; ok=; trap 'exit 1' HUP INT TERM PIPE; "
            "if mkdir $d 2>/dev/null; then trap 'rm -r $d; kill $w 2>/dev/null' EXIT; "
            "exec 9<$d; flock -n 9 2>/dev/null && : >$d/" + MARK + "; "
            f"{read or f'head -c {size}'} >$f && [ $(wc -c <$f) -eq {size} ] && ok=1; "
            "elif [ -O $d ] && [ -s $f ]; then ok=1; fi; "
            "if [ $ok ]; then exec 3<&0; cat <&3 >/dev/null 9<&- & w=$!; echo ready; wait $w; "
            "else echo $f cannot be written >&2; fi")


def for_any_shell(script):
    """The command that runs a script of sh on a host, whatever its login shell is: to csh `!` and the end of a line mean
    something in single quotes, too, and to fish a backslash before another one."""
    for character in "\\!\n'":
        script = script.replace(character, f"\\0{ord(character):03o}")
    return f"""exec sh -c 'eval "$(printf %b "$1")"' sh '{script}'"""


class BySsh:
    """How a script is run on another host."""
    environment = None  # this process's
    hint = "; --insecure: without a key and encryption"

    def __init__(self):
        self.words = agent()
        self.name = self.words[0]
        if os.path.basename(self.name) == "ssh":
            self.words = [*self.words, "-o", "ServerAliveInterval=15"]  # so that it does not outlast its connection

    def command(self, host, folder, name, size):
        return [*self.words, host, for_any_shell(script(folder, name, size))]

    def sealed(self, key):
        """What the host is told: ssh encrypts it."""
        return key.encode()


class KeyHolders:
    def __init__(self, folder, name, key, hosts, carrier=None):
        """`folder`: a SocketFolder's path, for a folder of that name on each host. `carrier`: how to reach them, if not by ssh.
        Raises Failure, which names the host."""
        self.folder = folder
        import subprocess
        self.holders = []  # (host, Popen)
        carrier = carrier or BySsh()
        self.by, self.hint = carrier.name, carrier.hint
        try:
            for number, host in enumerate(hosts):
                with open(self.errors(number), "wb") as errors:
                    self.holders.append((host, subprocess.Popen(
                        carrier.command(host, folder, name, len(key)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=errors, start_new_session=True, env=carrier.environment)))
            end = time.monotonic() + LIMIT
            for number, (host, holder) in enumerate(self.holders):
                self.hand_over(number, host, holder, carrier.sealed(key), end)
        except OSError as error:
            self.end()
            raise Failure(FAILURE, f"the job's key cannot be brought to its hosts: {self.by}: {words_of(error)}{self.hint}"
                          ) from None
        except BaseException:
            self.end()
            raise

    def errors(self, number):
        return os.path.join(self.folder, f"key_holder_{number}.log")

    def hand_over(self, number, host, holder, key, end):
        try:
            holder.stdin.write(key)
            holder.stdin.flush()
        except BrokenPipeError:
            pass  # its words say why
        answer = b""
        while answer != READY:
            ready, _, _ = select.select([holder.stdout], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(holder.stdout.fileno(), 64) if ready else b""
            if not piece:
                with open(self.errors(number), encoding="utf-8", errors="replace") as file:
                    why = file.read().strip().splitlines()[-1:] or ["no answer" if not ready else "it has ended without a word"]
                raise Failure(FAILURE, f"the job's key cannot be brought to {host} by {self.by}: {why[0]}{self.hint}")
            answer = (answer + piece)[-len(READY):]  # a login shell may have printed something before

    def ended(self, pids):
        """The hosts of those among these processes, which have ended."""
        return [host for host, holder in self.holders if holder.pid in pids]

    def pids(self):
        return [holder.pid for _, holder in self.holders]

    def end(self):
        """The hosts remove the key. Blocks: 2 s at most."""
        for _, holder in self.holders:
            try:
                holder.stdin.close()
            except OSError:  # it has ended
                pass
        import subprocess
        end = time.monotonic() + END_LIMIT
        for _, holder in self.holders:
            try:
                holder.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                holder.kill()
                holder.wait()
            holder.stdout.close()
        self.holders = []
