# SPDX-License-Identifier: BSD-3-Clause
"""spectral_scipy.py EDGES K: SciPy's eigenvectors of D^-1/2 W D^-1/2, rows of length 1, scikit-learn's k-means (10 runs)."""
import sys

import numpy
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans

import reading

path, k = sys.argv[1], int(sys.argv[2])
source, target, ids = reading.edges(path)
other = source != target
source, target = source[other], target[other]
w = csr_matrix((numpy.ones(len(source)), (source, target)), shape=(len(ids), len(ids)))
w = w + w.T
degree = numpy.asarray(w.sum(axis=1)).ravel()
root = numpy.zeros(len(degree))
root[degree > 0] = degree[degree > 0] ** -0.5
values, vectors = eigsh(diags(root) @ w @ diags(root), k=k, which="LA", tol=1e-10, v0=numpy.ones(len(ids)))
points = vectors[degree > 0]
points /= numpy.linalg.norm(points, axis=1)[:, None]
model = KMeans(k, n_init=10, algorithm="lloyd", random_state=0).fit(points)
for number, value in enumerate(numpy.sort(1 - values)):
    print("eigenvalue_%d %.17g" % (number + 1, value))
print("inertia %.17g" % model.inertia_)
