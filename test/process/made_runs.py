# SPDX-License-Identifier: BSD-3-Clause
"""Folders of runs as the launcher leaves them, with any content, for tests of what reads them."""
import json
import os

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e&\"'"


def write_run(folder, events, metrics=(), log="", **run):
    """`events`: dicts, with "t"; `metrics`: dicts or texts, a line each; `run`: what differs in the first line."""
    os.makedirs(folder, exist_ok=True)
    first = {
        "t": 0, "event": "run", "job": "0123456789abcdef", "program": "lr", "command": ["build/bin/lr", "--cfg_file", "cfg.json"],
        "workers": 2, "servers": 1, "threads": 1, "method": "local", "m_server": "local", "replicas": 1, "output": "result",
        "config_file": "cfg.json", "config": '{"rounds": 100}', "framework": "/nowhere/bin", "host": "here", "system": "Linux 6",
        "cores": 2, "wall": 1.7e9, "zone": "+0000"
    }
    first.update(run)
    lines = [json.dumps(event) for event in [first, *events]]
    note = {"job": first["job"], "scheduler": "ipc:///nowhere", "pid": 1, "host": "here", "program": first["program"]}
    end = next((e for e in events if e["event"] == "end"), None)
    if end is not None:
        note.update(status=end["status"], cause=end["cause"])
    for name, text in (("timeline.jsonl", "\n".join(lines) + "\n"), ("run.json", json.dumps(note)), ("worker_0.log", log),
                       ("run_metrics.jsonl", "".join((m if isinstance(m, str) else json.dumps(m)) + "\n" for m in metrics))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def usage(seconds, busy=0.5, **more):
    used = {"seconds": seconds, "cpu": busy * seconds, "system": 0.1 * busy * seconds, "delayed": 0.05 * seconds,
            "background": 0.01, "peak_bytes": 20_000_000, "requests": int(100 * seconds), "sent_bytes": int(1e5 * seconds),
            "received_bytes": int(2e5 * seconds), "ahead": int(seconds) % 3}
    return dict(used, **more)


def server_usage(seconds, load=200):
    return {
        "seconds": seconds, "cpu": 0.3 * seconds, "requests": int(load * seconds), "bytes_in": int(2e5 * seconds),
        "bytes_out": int(4e5 * seconds), "keys": 12,
        "shards": [[int(load * seconds * part), 1000, 2000, 6] for part in (0.7, 0.3)],
        "partitions": [[9153, int(3 * load * seconds), 4096], [17, int(load * seconds), 120]]
    }


def job_events(seconds, workers=2, servers=1, every=1.0, status=0, cause=""):
    """Of a job that ran that long, with samples and an end."""
    events = [{"t": 0.05, "event": "joined", "role": "server", "index": i, "pid": 100 + i, "host": "here", "threads": 2}
              for i in range(servers)]
    events += [{"t": 0.08, "event": "joined", "role": "worker", "index": i, "pid": 200 + i, "host": "here"}
               for i in range(workers)]
    events += [{"t": 0.1, "event": "started"}, {"t": 0.2, "event": "loaded", "what": {
        "names": ["training.dat"], "files": 1, "bytes": 3_045_126, "rows": 2500, "features": 100}}]
    t = every
    while t < seconds:
        events.append({"t": t, "event": "sample",
                       "workers": [{"index": i, "clock": int(10 * t), "usage": usage(t - 0.1, 0.2 + 0.6 * (i + 1) / workers)}
                                   for i in range(workers)],
                       "servers": [{"index": i, "memory_bytes": 1_000_000, "resident_bytes": int(1.5e7 + 1e5 * t),
                                    "usage": server_usage(t - 0.1)} for i in range(servers)]})
        t += every
    return events + [{"t": seconds, "event": "end", "status": status, "cause": cause}]


def descent(rounds, seconds, name="objective"):
    return [{"round": r, name: 0.7 / (1 + 0.1 * r), "seconds": seconds * r / rounds, "gradient_norm": 1.0 / r}
            for r in range(1, rounds + 1)]
