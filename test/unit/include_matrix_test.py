#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Folders are layers. Each layer may include only those listed here, so that dependencies point one way, and each external
library may be used only by the files listed here. The checks are also run on made-up files that violate them."""
import os
import re
import sys
import unittest

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SERVER = {"request", "plugin", "store", "shard", "replication", "node", "scheduler"}
ALG = {"alg-output", "alg-graph", "alg-solvers", "alg"}
WORKER = {"worker-results", "worker-job", "worker-comm", "worker-queue", "worker-parameters", "worker"}
BASE = {"public", "detail", "core"}
ALL = BASE | {"compat", "ps-public", "ps", "storage", "config", "net", "load", "client", "optim", "embed"} | ALG | WORKER | SERVER

# layer: (files that belong to it, layers it may include). The first pattern that matches a file determines its layer.
LAYERS = [
    ("old-calls", r"include/paracel/compat/old_calls\.hpp$", {"public"}),  # a base of paralg
    ("compat", r"include/paracel/compat/", {"compat", "public", "detail"}),
    ("ps-public", r"include/paracel/ps/", {"ps-public"}),
    # What users include, and the parts of it, which they do not.
    ("detail", r"include/paracel/detail/", {"public", "detail"}),
    ("public", r"include/paracel/", {"public", "detail", "old-calls"}),
    ("core", r"src/core/", BASE),
    # Files: the file system behind an interface, checkpoints.
    ("storage", r"src/storage/", BASE | {"storage"}),
    ("config", r"src/config/", BASE | {"storage", "config"}),
    ("net", r"src/net/", BASE | {"net"}),
    # Input: files, formats, and distribution of rows. Knows workers only as a Comm.
    ("load", r"src/load/", BASE | {"storage", "load"}),
    ("client", r"src/client/", BASE | {"net", "client"}),
    # The worker, bottom-up: what it writes, its place in the job, how workers talk to each other, and on that com_queue; the
    # parameters, which do without both; on all of them the program.
    ("worker-results", r"src/worker/results/", BASE | {"storage", "net", "load", "worker-results"}),
    ("worker-job", r"src/worker/job/", BASE | {"storage", "net", "client", "worker-results", "worker-job"}),
    ("worker-comm", r"src/worker/comm/", BASE | {"net", "worker-job", "worker-comm"}),
    ("worker-queue", r"src/worker/queue/", BASE | {"storage", "net", "worker-comm", "worker-queue"}),
    ("worker-parameters", r"src/worker/parameters/", BASE | {"net", "client", "worker-job", "worker-parameters"}),
    ("worker", r"src/worker/", BASE | {"storage", "config", "net", "load", "client"} | WORKER),
    # The programming model of ps-lite: on the transport, independent of everything else.
    ("ps", r"src/ps/", BASE | {"net", "ps-public", "ps"}),
    # Minimisers: on the public headers, like an algorithm.
    ("optim", r"src/optim/", {"public", "detail", "optim"}),
    # The only place where both sides meet: a server inside a worker's process.
    ("embed", r"src/embed/", BASE | {"config", "net", "client", "embed"} | WORKER | SERVER),
    # The bindings of the Python package, on whatever they make callable.
    ("python", r"src/python/binding/", BASE | {"storage", "config", "load", "alg", "python"} | WORKER | ALG),
    # The layers of the server, bottom-up.
    ("request", r"server/request/", BASE | {"net", "request"}),
    ("plugin", r"server/plugin/", BASE | {"net", "plugin"}),
    ("store", r"server/store/", BASE | {"net", "request", "plugin", "store"}),
    ("shard", r"server/shard/", BASE | {"net", "request", "plugin", "store", "shard"}),
    ("replication", r"server/replication/",
     BASE | {"net", "request", "plugin", "store", "shard", "replication"}),
    ("node", r"server/node/",
     BASE | {"net", "storage", "request", "plugin", "store", "shard", "replication", "node"}),
    ("scheduler", r"server/scheduler/", BASE | {"net", "storage", "request", "scheduler"}),
    ("server", r"server/\w+\.[ch]pp", BASE | {"net", "storage", "config", "server"} | SERVER),
    ("plug-in", r"(default/|alg/.*_update\.cpp$|test/support/plugins/)", {"update"}),
    # What the algorithms share: results, keys, checkpoints; on that graphs, and solvers with their kernels.
    ("alg-output", r"alg/common/output/", {"public", "alg-output"}),
    ("alg-graph", r"alg/common/graph/", {"public", "alg-output", "alg-graph"}),
    ("alg-solvers", r"alg/common/solvers/", {"public", "alg-output", "alg-solvers"}),
    ("alg", r"alg/", {"public"} | ALG),
    ("serial", r"tool/serial/", {"serial"}),
    ("balltree", r"tool/balltree/", {"balltree"}),
    ("datagen", r"tool/datagen/", {"public", "datagen"}),
    ("checkpoints", r"tool/checkpoint/", BASE | {"storage", "config"}),
    ("bench", r"tool/bench/", ALL - {"compat"} | {"bench"}),
    ("outside", r"(test/compat|tool/template)/", {"compat", "public"}),
    ("test", r"test/", ALL | {"test", "balltree"}),
]

# The headers for plug-ins; they do not need the framework's library.
UPDATE = {"include/paracel/" + name for name in
          ("update.hpp", "add.hpp", "codec.hpp", "error.hpp", "types.hpp", "detail/codec_packed.hpp", "detail/value.hpp",
           "detail/lease_table.hpp")}

# header of an external library: the files that may include it
LIBRARIES = [
    (r"zmq\.h(pp)?$", r"src/net/zmq_(transport\.cpp|(curve|socket|shared_router)\.(c|h)pp)$|tool/bench/|test/"),
    (r"mpi\.h$", r"src/worker/comm/mpi/comm_mpi\.cpp$|include/paracel/compat/|test/compat/"
                 r"|tool/bench/bench_(allreduce_mpi|collectives)\.cpp$"),
    (r"msgpack", r"include/paracel/detail/codec_packed\.hpp$|test/"),
    (r"xxhash\.h$", r"src/core/hash\.hpp$|tool/bench/|test/"),
    (r"(zlib|zstd)\.h$", r"src/load/|test/"),
    (r"dlfcn\.h$", r"server/(plugin/plugin_library|metrics_library)\.cpp$|"
                  r"src/(worker/(main_env|job/crash_report)|net/connection_guard)\.cpp$|"
                  r"include/paracel/compat/standard_headers\.hpp$|test/"),
    (r"prometheus/", r"server/metrics_exporter\.cpp$"),
    (r"gflags/", r"server/\w+\.cpp$|include/paracel/compat/google/|tool/bench/|test/compat/"),
    # core is pure: no thread, no socket.
    (r"(thread|mutex|shared_mutex|condition_variable|sys/socket\.h|poll\.h)$",
     r"(?!src/core/|include/)|include/paracel/(ps/|compat/standard_headers\.hpp$)"),
]

# Forbidden includes within a layer.
NEVER = [
    (r"src/client/", r"(src/worker/parameters/parasrv|include/paracel/(paralg|parameter_access|bulk_access))\."),
    (r"src/worker/parameters/parasrv\.", r"include/paracel/(paralg|parameter_access|bulk_access)\."),
    (r"src/net/(protocol|transport|disk|clock_source)\.", r"src/net/zmq_transport\."),
    (r"server/(request|store|plugin|shard|replication)/", r"src/net/(\w+_transport|zmq_\w+)\."),
    (r"(?!src/net/(zmq_|connection_guard|library_calls)|test/)",
     r"src/net/(zmq_(socket|shared_router)|connection_guard|library_calls)\."),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def layer_of(path):
    for name, pattern, _ in LAYERS:
        if re.match(pattern, path):
            return name
    return None


def project_sources():
    for top in ("include", "src", "server", "default", "alg", "tool", "test"):
        for folder, _, names in os.walk(os.path.join(SOURCE, top)):
            for name in names:
                if name.endswith((".hpp", ".cpp", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), SOURCE)


def resolve(path, target, quoted, exists):
    """The project file that an include refers to, or None for a library's header."""
    places = []
    if quoted:
        places.append(os.path.normpath(os.path.join(os.path.dirname(path), target)))
        places += ["include/paracel/compat/" + target, "include/paracel/ps/" + target]
    places += ["include/" + target, "src/" + target, target]
    return next((p for p in places if exists(p)), None)


def complaints(path, text, exists):
    layer = layer_of(path)
    if layer is None:
        return [f"{path}: belongs to no layer"]
    allowed = next(a for name, _, a in LAYERS if name == layer)
    found = []
    for match in INCLUDE.finditer(text):
        quoted = match.group(1) is not None
        target = match.group(1) or match.group(2)
        line = text.count("\n", 0, match.start()) + 1
        file = resolve(path, target, quoted, exists)
        if file is None:
            if quoted:
                found.append(f"{path}:{line}: no file is called {target}")
            for header, holders in LIBRARIES:
                if re.match(header, target) and not re.match(holders, path):
                    found.append(f"{path}:{line}: {target} is known to other files only ({holders})")
            continue
        if layer == "plug-in":
            if file not in UPDATE and os.path.dirname(file) != os.path.dirname(path):
                found.append(f"{path}:{line}: a plug-in may include <paracel/update.hpp>, not {file}")
        elif layer_of(file) not in allowed:
            found.append(f"{path}:{line}: {layer} must not include {layer_of(file)} ({file})")
        for one, other in NEVER:
            if re.match(one, path) and re.match(other, file):
                found.append(f"{path}:{line}: must not include {file}")
    return found


class IncludeMatrix(unittest.TestCase):
    def test_every_file_includes_only_what_its_layer_may(self):
        paths = list(project_sources())
        self.assertGreater(len(paths), 50)
        known = set(paths)
        found = []
        for path in sorted(paths):
            with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
                found += complaints(path, file.read(), known.__contains__)
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_headers_of_plug_ins_stay_among_themselves(self):
        for path in UPDATE:
            with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
                for match in INCLUDE.finditer(file.read()):
                    target = "include/" + (match.group(1) or match.group(2))
                    if target.startswith("include/paracel/"):
                        self.assertIn(target, UPDATE, path)

    def test_breaking_a_rule_is_noticed(self):
        files = {"include/paracel/paralg.hpp", "include/paracel/detail/bytes.hpp", "src/core/ring.hpp",
                 "src/net/zmq_transport.hpp", "src/client/kvclt.hpp",
                 "src/worker/job/session.hpp", "server/shard/shard.hpp", "test/support/cluster.hpp",
                 "tool/bench/floor.hpp", "alg/lr/lr.hpp"}
        for path, include in [
            ("server/node/server.cpp", '"client/kvclt.hpp"'),
            ("src/client/kvclt.cpp", '"worker/job/session.hpp"'),
            ("src/client/kvclt.cpp", '"server/shard/shard.hpp"'),
            ("src/core/ring.cpp", '"net/zmq_transport.hpp"'),
            ("src/core/ring.cpp", "<thread>"),
            ("src/net/zmq_transport.hpp", "<zmq.h>"),
            ("src/worker/job/session.cpp", "<mpi.h>"),
            ("src/worker/job/session.cpp", '"test/support/cluster.hpp"'),
            ("src/worker/results/output_folder.cpp", '"worker/job/session.hpp"'),
            ("server/shard/shard.cpp", '"tool/bench/floor.hpp"'),
            ("server/shard/shard.cpp", '"net/zmq_transport.hpp"'),
            ("src/client/kvclt.cpp", "<paracel/paralg.hpp>"),
            ("alg/lr/lr.cpp", '"core/ring.hpp"'),
            ("alg/lr/lr.cpp", "<paracel/detail/bytes.hpp>"),
            ("alg/lr/lr_update.cpp", "<paracel/paralg.hpp>"),
            ("tool/serial/lr_serial.cpp", "<paracel/paralg.hpp>"),
            ("include/paracel/paralg.hpp", '"core/ring.hpp"'),
            ("src/core/ring.cpp", '"core/missing.hpp"'),
            ("somewhere/else.cpp", "<vector>"),
        ]:
            with self.subTest(path=path, include=include):
                self.assertEqual(len(complaints(path, f"#include {include}\n", files.__contains__)), 1)
        self.assertEqual(complaints("src/client/kvclt.cpp", '#include "core/ring.hpp"\n', files.__contains__), [])
        self.assertEqual(complaints("alg/lr/lr.cpp", '#include "lr.hpp"\n', files.__contains__), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
