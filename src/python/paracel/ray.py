# SPDX-License-Identifier: BSD-3-Clause
"""Jobs in a Ray cluster: each server and worker is a process of its own, started by an actor::

    import ray
    import paracel.ray

    ray.init(address="auto")
    print(paracel.ray.run("lr", {"training_input": "/data/training.dat", ...}, workers=4, servers=2))
"""
from collections.abc import Mapping, Sequence
from typing import Any

try:
    import ray as _ray
except ImportError:
    raise ImportError("paracel.ray needs Ray, which is not installed: pip install ray") from None

from paracel._external import ExternalJob, run_process
from paracel.errors import UsageError

__all__ = ["run"]
_PAUSE = 0.2  # seconds between two looks at the job


class _Place:
    """An actor; its processor and memory are the process's."""

    def run(self, order):
        return run_process(order)


def run(program: str, config: Mapping[str, Any] | str, workers: int = 4, servers: int = 2, *, replicas: int = 1,
        num_cpus: float = 1, resources: Mapping[str, float] | None = None, max_restarts: int = 3,
        options: Sequence[str] = ()) -> str:
    """Runs a job, and waits for its end.

    The job's scheduler runs beside the caller. The package, the program and its files must have the same paths on all of Ray's
    nodes; results are where the config says, on the node of the first worker. The key of the job's encryption is an argument of
    the actors, so Ray's own connections carry it: set up TLS for them where others can read the network.

    Parameters
    ----------
    program : str
        One of the toolbox, such as ``lr``, or the path of another one, also in Python.
    config : dict or str
        Its config, or the name of the file with it.
    workers, servers, replicas : int
        With ``replicas`` above 1 a server that has died is replaced, in another actor, and the job goes on; otherwise a death
        ends it.
    num_cpus, resources
        What Ray reserves for each actor.
    max_restarts : int
        How many servers and workers are replaced, at most.
    options : list of str
        Further options of prun, such as ``["--checkpoint-dir", "/data/checkpoints"]``. With ``["--on-worker-death", "wait:60"]``
        a worker is replaced, too, if all nodes see the caller's current folder.

    Returns
    -------
    str
        What the first worker has printed.

    Raises
    ------
    UsageError
        When the cluster has too few processors for all actors at once.
    Error
        As the job ends; ``status`` is prun's exit status.
    """
    if not _ray.is_initialized():
        _ray.init()
    count = workers + servers
    there = _ray.cluster_resources().get("CPU", 0)
    if count * num_cpus > there:
        raise UsageError(f"{count} processes with num_cpus={num_cpus:g} need {count * num_cpus:g} processors at once, and the "
                         f"cluster has {there:g}: want fewer, or less for each")
    actor = _ray.remote(num_cpus=num_cpus, resources=dict(resources or {}), max_restarts=0)(_Place)
    host = _ray.util.get_node_ip_address()
    with ExternalJob(program, config if isinstance(config, str) else dict(config), workers, servers, replicas, host,
                     options) as job:
        actors: dict[tuple[str, int], Any] = {}
        running: dict[Any, tuple[str, int]] = {}

        def start(place):
            if place in actors:  # that has died, or that has nothing more to do
                _ray.kill(actors[place])
            actors[place] = actor.remote()
            running[actors[place].run.remote(job.order(*place))] = place

        try:
            for place in job.places:
                start(place)
            while running and not job.is_over():
                done, _ = _ray.wait(list(running), timeout=_PAUSE)
                for reference in done:
                    place = running.pop(reference)
                    lost = _take(job, place, reference)
                    if lost and max_restarts > 0 and job.needs(place[0]):
                        max_restarts -= 1
                        start(place)
            for reference, place in running.items():  # they have been told that the job is over
                if _ray.wait([reference], timeout=5)[0]:
                    _take(job, place, reference)
            return job.finish()
        finally:
            for one in actors.values():
                _ray.kill(one)


def _take(job, place, reference):
    """Returns: whether the actor, or its process, has died."""
    try:
        return job.was_killed(place, _ray.get(reference))
    except _ray.exceptions.RayActorError:
        return True
