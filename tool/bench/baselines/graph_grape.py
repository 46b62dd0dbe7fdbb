# SPDX-License-Identifier: BSD-3-Clause
"""graph_grape.py FOLDER OUTPUT SOURCE: libgrape-lite's shortest paths on its own graph p2p-31, by two processes of mpirun; the
distances must be those that its folder dataset/ has for that source (6)."""
import glob
import math
import os
import subprocess
import sys

folder, out, source = sys.argv[1:4]
data = os.path.join(folder, "dataset", "p2p-31")


def distances(paths):
    found = {}
    for path in paths:
        with open(path, encoding="ascii") as file:
            found.update((int(vertex), float(d)) for vertex, d in map(str.split, file))
    return {vertex: d for vertex, d in found.items() if d < 1e300}  # it writes infinity, or the greatest double


os.makedirs(out, exist_ok=True)
words = ["mpirun", "--allow-run-as-root", "-n", "2", os.path.join(folder, "build", "run_app"), "--vfile", data + ".v", "--efile",
         data + ".e", "--application", "sssp", "--sssp_source", source, "--out_prefix", out, "--directed"]
done = subprocess.run(words, capture_output=True, text=True, check=False)
if done.returncode != 0:
    sys.exit("libgrape-lite ended with %d: %s" % (done.returncode, (done.stderr or done.stdout).strip()[-200:]))
found = distances(glob.glob(os.path.join(out, "result_frag_*")))
wanted = distances([data + "-SSSP-directed"])
if found.keys() != wanted.keys() or any(not math.isclose(d, wanted[v], rel_tol=1e-9) for v, d in found.items()):
    sys.exit("libgrape-lite's distances are not those of %s-SSSP-directed" % data)
print("reached %d" % len(found))
print("sum_of_distances %.17g" % math.fsum(found.values()))
