# SPDX-License-Identifier: BSD-3-Clause
"""The rows of run.py: what is run, and its aim."""

# Group, name, options of bench_kv, the target ratio to the floor (None: for orientation).
KV_ROWS = [
    ("one", "pull 8 B, waiting", "--verb pull --value_bytes 8", 0.95),
    ("one", "update 8 B, waiting", "--verb update --value_bytes 8", 0.95),
    ("one", "pull 8 B, waiting, tcp", "--verb pull --value_bytes 8 --transport tcp", 0.95),
    ("one", "4 workers, 2 servers: bupdate 808 B", "--verb bupdate --value_bytes 808 --workers 4 --servers 2", 0.90),
    ("one", "4 workers, 2 servers: bupdate 808 B, tcp",
     "--verb bupdate --value_bytes 808 --workers 4 --servers 2 --transport tcp", 0.90),
    ("flight", "pull 8 B, 64 in flight", "--verb pull --value_bytes 8 --window 64", 0.80),
    ("flight", "update 8 B, 64 in flight", "--verb update --value_bytes 8 --window 64", 0.80),
    ("flight", "pull 8 B, 512 in flight", "--verb pull --value_bytes 8 --window 512", 0.80),
    ("flight", "update 8 B, 512 in flight", "--verb update --value_bytes 8 --window 512", 0.80),
    ("flight", "pull 8 B, futures, 64 in flight", "--api paralg --verb pull --value_bytes 8 --window 64", 0.80),
    ("flight", "update 8 B, futures, 64 in flight", "--api paralg --verb update --value_bytes 8 --window 64", 0.80),
    ("flight", "pull 8 B, futures, 512 in flight", "--api paralg --verb pull --value_bytes 8 --window 512", 0.80),
    ("flight", "update 8 B, futures, 512 in flight", "--api paralg --verb update --value_bytes 8 --window 512", 0.80),
    ("flight", "pull 8 B of 1 M keys, 512 in flight", "--verb pull --value_bytes 8 --window 512 --keys 1000000", None),
    ("flight", "pull 8 B, 64 in flight, tcp", "--verb pull --value_bytes 8 --window 64 --transport tcp", 0.80),
    ("flight", "pull 8 B, 512 in flight, tcp", "--verb pull --value_bytes 8 --window 512 --transport tcp", 0.80),
    ("many", "pull 100 keys x 8 B a call, waiting", "--verb pull_multi --value_bytes 8 --keys_per_call 100", 0.85),
    ("many", "update 100 keys x 8 B a call, waiting", "--verb update_multi --value_bytes 8 --keys_per_call 100", 0.85),
    ("many", "pull 100 keys x 8 B a call, 8 in flight",
     "--verb pull_multi --value_bytes 8 --keys_per_call 100 --window 8", 0.60),
    ("many", "update 100 keys x 8 B a call, 8 in flight",
     "--verb update_multi --value_bytes 8 --keys_per_call 100 --window 8", 0.60),
    ("many", "pull 10,000 keys x 1 float a call", "--verb pull_multi --value_bytes 4 --keys_per_call 10000", None),
    ("many", "update 10,000 keys x 1 float a call", "--verb update_multi --value_bytes 4 --keys_per_call 10000", None),
    ("sets", "prepared: pull 10,000 keys x 1 float, waiting", "--verb set_pull --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared: update 10,000 keys x 1 float, waiting",
     "--verb set_update --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared, futures: pull 10,000 keys x 1 float, waiting",
     "--api paralg --verb set_pull --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared, futures: update 10,000 x 1 float, waiting",
     "--api paralg --verb set_update --value_bytes 4 --keys_per_call 10000", 0.80),
    ("sets", "prepared, futures: update 10,000 x 1 float, 4 in flight",
     "--api paralg --verb set_update --value_bytes 4 --keys_per_call 10000 --window 4", None),
    ("large", "pull 1 MB", "--verb pull --value_bytes 1048576", 0.95),
    ("large", "push 1 MB", "--verb push --value_bytes 1048576", 0.95),
    ("large", "pull 4 MB", "--verb pull --value_bytes 4194304", 0.95),
    ("large", "push 4 MB", "--verb push --value_bytes 4194304", 0.95),
    ("large", "pull 1 MB, tcp", "--verb pull --value_bytes 1048576 --transport tcp", 0.95),
    ("large", "push 1 MB, tcp", "--verb push --value_bytes 1048576 --transport tcp", 0.95),
    ("large", "pull 4 MB, tcp", "--verb pull --value_bytes 4194304 --transport tcp", 0.95),
    ("large", "push 4 MB, tcp", "--verb push --value_bytes 4194304 --transport tcp", 0.95),
    ("large", "add 80 kB of doubles in the server, waiting", "--verb update --value_bytes 80000", 0.95),
    ("large", "add 80 kB of doubles in the server, 4 in flight", "--verb update --value_bytes 80000 --window 4", 0.70),
    ("large", "add 80 kB, waiting, tcp", "--verb update --value_bytes 80000 --transport tcp", 0.95),
    ("large", "add 80 kB, 4 in flight, tcp", "--verb update --value_bytes 80000 --window 4 --transport tcp", 0.70),
    ("unix", "pull 8 B, unix, waiting", "--verb pull --value_bytes 8 --transport unix", 0.80),
    ("unix", "update 8 B, unix, waiting", "--verb update --value_bytes 8 --transport unix", 0.80),
    ("unix", "pull 8 B, unix, 64 in flight", "--verb pull --value_bytes 8 --window 64 --transport unix", None),
    ("unix", "update 8 B, unix, 64 in flight", "--verb update --value_bytes 8 --window 64 --transport unix", None),
    ("unix", "pull 100 keys x 8 B a call, unix, waiting",
     "--verb pull_multi --value_bytes 8 --keys_per_call 100 --transport unix", None),
    ("unix", "prepared: pull 10,000 keys x 1 float, unix, waiting",
     "--verb set_pull --value_bytes 4 --keys_per_call 10000 --transport unix", None),
    ("unix", "pull 70 kB, unix", "--verb pull --value_bytes 70000 --transport unix", None),
    ("unix", "pull 1 MB, unix", "--verb pull --value_bytes 1048576 --transport unix", 1.5),
    ("unix", "push 1 MB, unix", "--verb push --value_bytes 1048576 --transport unix", None),
    ("unix", "pull 4 MB, unix", "--verb pull --value_bytes 4194304 --transport unix", None),
    ("unix", "push 4 MB, unix", "--verb push --value_bytes 4194304 --transport unix", None),
]

# Group, name, command, figures that it prints (the first one found is used), target (None: for orientation), and the command that
# it is relative to ("": none). A target begins with `>=` or `<=`.
PROGRAM_ROWS = [
    ("sets", "prepared, relative to string keys: pull 10,000 x 1 float",
     "bench_kv --verb set_pull --value_bytes 4 --keys_per_call 10000", ("calls_per_second",), ">= 3.2",
     "bench_kv --verb pull_multi --value_bytes 4 --keys_per_call 10000"),
    ("sets", "10,000 string keys that come again, to prepared: pull",
     "bench_kv --api paralg --verb pull_multi --value_bytes 4 --keys_per_call 10000", ("calls_per_second",), ">= 0.8",
     "bench_kv --api paralg --verb set_pull --value_bytes 4 --keys_per_call 10000"),
    ("sets", "10,000 string keys that come again, to prepared: update",
     "bench_kv --api paralg --verb update_multi --value_bytes 4 --keys_per_call 10000", ("calls_per_second",), ">= 0.8",
     "bench_kv --api paralg --verb set_update --value_bytes 4 --keys_per_call 10000"),
    ("sets", "prepared: pull 10,000 x 1 float, 4 in flight, calls/s",
     "bench_kv --verb set_pull --value_bytes 4 --keys_per_call 10000 --window 4", ("calls_per_second",), ">= 20000", ""),
    ("rows", "rows of 16 floats, 10,000 a call of 1 M: pulled/s", "bench_rows --op pull", ("rows_per_second",), ">= 15e6",
     ""),
    ("rows", "rows of 16 floats: added/s", "bench_rows --op add", ("rows_per_second",), ">= 10e6", ""),
    ("rows", "rows of 16 floats: AdaGrad/s", "bench_rows --op adagrad", ("rows_per_second",), ">= 5e6", ""),
    ("rows", "bytes of a row of 16 floats", "bench_rows --op add", ("bytes_per_row",), "<= 96", ""),
    ("rows", "bytes of a row of 16 floats with AdaGrad's state", "bench_rows --op adagrad", ("bytes_per_row",),
     "<= 160", ""),
    ("rows", "through a worker and a server process: pulled/s", "bench_rows --op pull --where ipc", ("rows_per_second",),
     None, ""),
    ("rows", "through a worker and a server process: added/s", "bench_rows --op add --where ipc", ("rows_per_second",), None,
     ""),
    ("unix", "pull 8 B, unix, waiting: calls/s to ZeroMQ's", "bench_kv --verb pull --value_bytes 8 --transport unix",
     ("calls_per_second",), ">= 2.5", "bench_kv --verb pull --value_bytes 8"),
    ("unix", "pull 8 B, unix, waiting: processor time to the echo's", "bench_kv --verb pull --value_bytes 8 --transport unix",
     ("cpu_s_per_million",), "<= 1.3", "bench_unix_floor --request_bytes 104 --reply_bytes 72"),
    ("unix", "pull 1 MB, unix: calls/s to ZeroMQ's", "bench_kv --verb pull --value_bytes 1048576 --transport unix",
     ("calls_per_second",), None, "bench_kv --verb pull --value_bytes 1048576"),
] + [
    ("ids", f"{what} 10,000 of 10 M rows of 1 float, to plain_rows",
     f"bench_rows --where ipc --width 1 --rows 10000000 --ids ascending --op {op} --lists {lists}", ("calls_per_second",),
     ">= 1.3", f"plain_rows --rows 10000000 --op {op} --lists {lists}")
    for op in ("pull", "add")
    for what, lists in ((f"{op}, 1 list:", 1), (f"{op}, 64 lists:", 64), (f"{op}, new lists:", 0))
] + [
    ("replicas", f"update 8 B, 64 in flight, {servers} servers, R = {servers}: to R = 1",
     f"bench_kv --verb update --value_bytes 8 --window 64 --servers {servers} --replicas {servers}", ("calls_per_second",),
     aim, f"bench_kv --verb update --value_bytes 8 --window 64 --servers {servers}")
    for servers, aim in ((2, ">= 0.65"), (3, ">= 0.5"))
] + [
    ("cache", "cached vector, a reference, ns", "bench_cache", ("hit_by_reference_ns",), "<= 200", ""),
    ("cache", "cached vectors of many keys, a reference, ns", "bench_cache", ("hit_by_reference_many_keys_ns",), None, ""),
    ("cache", "cached vector, copied, ns", "bench_cache", ("hit_copied_ns",), None, ""),
    ("cache", "an update that is added up until the commit, ns", "bench_cache", ("combined_update_ns",), None, ""),
    ("scan", "top 10 of 1 M keys in a shard, ms", "bench_shard --load 0", ("top_10.ms",), "<= 3", ""),
    ("scan", "sum over 1 M keys in a shard, ms", "bench_shard --load 0", ("sum.ms",), None, ""),
    ("scan", "longest slice of a scan of 1 M keys, ms", "bench_shard --load 0", ("scan.longest_slice_ms",), "<= 10", ""),
    ("scan", "bytes of a key in the shard alone", "bench_shard --load 0", ("bytes_a_key",), "<= 80", ""),
    ("checkpoint", "checkpoint of 1 GB relative to write + fsync", "bench_checkpoint --mb 1024 --repeat 3", ("ratio",),
     ">= 0.5", ""),
    ("checkpoint", "checkpoint of 1 M keys relative to write + fsync", "bench_checkpoint --mb 122 --value_bytes 128",
     ("ratio",), ">= 0.5", ""),
    ("checkpoint", "1 GB read back from a checkpoint, MB/s", "bench_checkpoint --mb 1024 --repeat 3",
     ("restore_mb_per_s",), None, ""),
    ("scale", "longest insertion of a key, 10^10 keys, us", "bench_scale", ("insert_us.longest",), "<= 2000", ""),
    ("scale", "longest insertion of a row, 10^10 rows, us", "bench_scale", ("row_insert_us.longest",), "<= 2000", ""),
    ("scale", "1,100 workers and servers join, ms", "bench_scale", ("joins_ms",), None, ""),
    ("memory", "bytes of a key (20 characters, one double, 1 M keys)", "bench_key_memory", ("bytes_per_key",), "<= 80", ""),
    ("memory", "growth after a million in and out twice, bytes", "bench_key_memory", ("growth_bytes",), "<= 4e6", ""),
    ("memory", "10 M keys loaded, keys/s", "bench_key_memory --keys 10000000 --turns 1", ("load_keys_per_second",), None, ""),
    ("memory", "10 M keys loaded, keys/s of a server's core", "bench_key_memory --keys 10000000 --turns 1",
     ("load_keys_per_core_second",), ">= 1e6", ""),
] + [
    ("allreduce", f"{tasks} workers, {size}: {what}, us", f"bench_allreduce --tasks {tasks} --bytes {count} {option}", ("us",),
     aim, base.format(tasks=tasks, count=count))
    for tasks in (2, 4, 8)
    for size, count in (("8 B", 8), ("64 KiB", 65536), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20))
    for what, option, aim, base in (
        ("relative to Open MPI by tcp", "", "<= 1.11", "bench_allreduce_mpi {tasks} {count} tcp"),
        ("relative to Open MPI by memory", "", None, "bench_allreduce_mpi {tasks} {count} vader"),
        ("relative to the memory traffic", "", None, "bench_allreduce --tasks {tasks} --bytes {count} --way memory"))
] + [
    ("allreduce", f"{tasks} ranks of MPI by tcp, {size}: to MPI_Allreduce",
     f"bench_allreduce_mpi {tasks} {count} tcp", ("ratio",), "<= 1.11", "")
    for tasks in (2, 4, 8)
    for size, count in (("8 B", 8), ("64 KiB", 65536), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20))
] + [
    ("straggler", "8 late workers, bsp: iterations/s relative to s = 0", "bench_straggler --consistency bsp",
     ("iterations_per_second",), None, "bench_straggler"),
    ("straggler", "8 late workers, s = 1: iterations/s relative to s = 0", "bench_straggler --staleness 1",
     ("iterations_per_second",), ">= 1.35", "bench_straggler"),
    ("straggler", "8 late workers, s = 4: iterations/s relative to s = 0", "bench_straggler --staleness 4",
     ("iterations_per_second",), ">= 1.8", "bench_straggler"),
    ("straggler", "8 late workers, s = 8: iterations/s relative to s = 0", "bench_straggler --staleness 8",
     ("iterations_per_second",), ">= 2.0", "bench_straggler"),
] + [
    ("straggler", f"8 workers, {pattern}, {what}: time to the ideal", f"bench_stealing --pattern {pattern} --runs 1",
     (figure,), aim, "")
    for pattern in ("none", "slow", "delays", "power_law")
    for what, figure, aim in (("work stealing", "on", "<= 1.1"), ("without", "off", None))
] + [
    ("objective", "8 late workers, bsp: seconds to the objective", "bench_straggler --consistency bsp --objective 0.46",
     ("objective_seconds",), None, ""),
] + [
    ("objective", f"8 late workers, s = {s}: seconds to the objective", f"bench_straggler --staleness {s} --objective 0.46",
     ("objective_seconds",), None, "") for s in (0, 1, 4, 8)
]
# Maximum runs of a row in these groups, unless --pairs is less: they take long, or vary little.
MOST_RUNS = {"rows": 5, "ids": 5, "cache": 5, "scan": 5, "checkpoint": 3, "memory": 3, "straggler": 3, "objective": 3,
             "allreduce": 3, "hot": 3, "scale": 3}

# Groups whose rows are measured on one processor, too.
PINNED = ("one", "flight", "many", "sets", "large", "unix", "rows", "ids")

# Method, transport ("": the usual one), target: seconds, or relative to the usual transport; 2,500 samples of 100 features, 100
# rounds, 4 workers, 2 servers.
LR_ROWS = [("dgd", "", "<= 0.4"), ("ipm", "", "<= 0.4"), ("downpour", "", "<= 1.5"), ("agd", "", "<= 9.0"),
           ("agd", "unix", "<= 0.4")]
# A small size of hot_keys.py, and the ways of which the time of an epoch is compared with that of uniform keys.
HOT, HOT_AIM = "--cells 100000", "<= 1.2"
HOT_ROWS = [(f"hot keys, {way}: s an epoch, to uniform keys", way) for way in ("single home", "caches", "caches + rebalance")]
# One round of the smallest of these jobs, and beside it as many processes that do nothing, at once.
START, START_AIM = "start and end of a job: 4 workers, 2 servers, s", "<= 0.1"
START_FLOOR = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7; do /bin/true & done; wait"]
