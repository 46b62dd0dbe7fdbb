# SPDX-License-Identifier: BSD-3-Clause
"""daal.py kmeans POINTS K | svd ENTRIES K: daal4py (PyPI) with a thread for each processor that it may use, on dense CSV, or on
row,column,value of which no cell is missing."""
import os
import sys

import numpy

try:
    import daal4py
except ImportError as e:
    sys.exit("%s: pip install daal4py packaging, and --python names the interpreter" % e)

import reading

what, path, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
daal4py.daalinit(len(os.sched_getaffinity(0)))
if what == "kmeans":
    points = reading.table(path)
    engine = daal4py.engines_mt19937(seed=1)
    start = daal4py.kmeans_init(k, method="plusPlusDense", nTrials=6, engine=engine).compute(points).centroids
    found = daal4py.kmeans(k, 300, accuracyThreshold=0, assignFlag=False).compute(points, start)
    print("inertia %.17g" % found.objectiveFunction[0][0])
else:
    dense = numpy.ascontiguousarray(reading.ratings(path).toarray())
    values = daal4py.svd(leftSingularMatrix="notRequired").compute(dense).singularValues[0]
    print("sigma_sum %.17g" % values[:k].sum())
    print("sigma_1 %.17g" % values[0])
