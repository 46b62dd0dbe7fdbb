# SPDX-License-Identifier: BSD-3-Clause
"""svd_scipy.py ENTRIES K: SciPy's svds (ARPACK)."""
import sys

import numpy
from scipy.sparse.linalg import svds

import reading

values = numpy.sort(svds(reading.ratings(sys.argv[1]), k=int(sys.argv[2]), tol=1e-10, return_singular_vectors=True)[1])
print("sigma_sum %.17g" % values.sum())
print("sigma_1 %.17g" % values[-1])
