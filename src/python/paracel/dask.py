# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in a Dask cluster: each server and worker is a process of its own, started by a task::

    from dask.distributed import Client
    import paracel.dask

    client = Client("tcp://scheduler:8786")
    print(paracel.dask.run("lr", {"training_input": "/data/training.dat", ...}, workers=4, servers=2, client=client))
"""
from collections.abc import Mapping, Sequence
from typing import Any

try:
    import distributed as _distributed
except ImportError:
    raise ImportError("paracel.dask needs Dask, which is not installed: pip install 'dask[distributed]'") from None

import os
import time

from paracel._external import ExternalJob, run_process
from paracel.errors import UsageError

__all__ = ["run"]
_PAUSE = 0.2      # seconds between two looks at the job
_FAREWELL = 5.0   # seconds in which the tasks of a job that is over end


def run(program: str, config: Mapping[str, Any] | str, workers: int = 4, servers: int = 2, *, replicas: int = 1,
        client: Any = None, resources: Mapping[str, float] | None = None, max_restarts: int = 3,
        options: Sequence[str] = ()) -> str:
    """Runs a job, and waits for its end.

    The job's scheduler runs beside the caller. The package, the program and its files must have the same paths on all of Dask's
    workers; results are where the config says, on the host of the first worker. The key of the job's encryption is an argument
    of the tasks, so Dask's own connections carry it: set up TLS for them where others can read the network.

    Parameters
    ----------
    program : str
        One of the toolbox, such as ``lr``, or the path of another one, also in Python.
    config : dict or str
        Its config, or the name of the file with it.
    workers, servers, replicas : int
        Dask starts the tasks of a process of its own that has died again, elsewhere (``distributed.scheduler.allowed-failures``
        times), and we those whose own process was killed. With ``replicas`` above 1 a server's then takes the place of the dead
        one, and the job goes on; otherwise a death ends it.
    client : distributed.Client, optional
        By default the newest one of this process.
    resources : dict, optional
        What Dask reserves for each task.
    max_restarts : int
        How many tasks are started again whose own process was killed, at most.
    options : list of str
        Further options of prun, such as ``["--checkpoint-dir", "/data/checkpoints"]``. With ``["--on-worker-death", "wait:60"]``
        a worker is replaced, too, if all hosts see the caller's current folder.

    Returns
    -------
    str
        What the first worker has printed.

    Raises
    ------
    UsageError
        When the cluster has too few threads for all tasks at once.
    Error
        As the job ends; ``status`` is prun's exit status.
    """
    client = client or _distributed.get_client()
    count = workers + servers
    there = sum(client.nthreads().values())
    if count > there:
        raise UsageError(f"{count} processes need as many threads of Dask's workers at once, and the cluster has {there}: want "
                         "fewer")
    with ExternalJob(program, config if isinstance(config, str) else dict(config), workers, servers, replicas,
                     _own_address(client), options) as job:
        running, ended = {}, set()

        def start(role, index):
            running[role, index] = client.submit(run_process, job.order(role, index), pure=False, resources=resources,
                                                 key=f"paracel-{role}-{index}-{os.urandom(4).hex()}")

        try:
            for place in job.places:
                start(*place)
            while not job.is_over() and not all(future.done() for future in running.values()):
                time.sleep(_PAUSE)
                for place, future in list(running.items()):
                    if future.status != "finished" or future.key in ended:
                        continue
                    ended.add(future.key)
                    if job.was_killed(place, future.result()) and max_restarts > 0 and job.needs(place[0]):
                        max_restarts -= 1
                        start(*place)
            end = time.monotonic() + _FAREWELL  # they have been told that the job is over
            while time.monotonic() < end and not all(future.done() for future in running.values()):
                time.sleep(_PAUSE)
            job.results = {place: future.result() for place, future in running.items() if future.status == "finished"}
            return job.finish()
        finally:
            client.cancel(list(running.values()), force=True)


def _own_address(client):
    """This host's address towards Dask's scheduler."""
    import socket
    host, port = _distributed.comm.get_address_host_port(client.scheduler.address)
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as s:
        s.connect(address)  # sends nothing, but selects the interface
        return s.getsockname()[0]
