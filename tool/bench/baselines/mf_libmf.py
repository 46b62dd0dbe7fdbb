# SPDX-License-Identifier: BSD-3-Clause
"""mf_libmf.py TRAIN TEST K ROUNDS ETA LAMBDA: LIBMF (PyPI) with a thread for each processor that it may use, on user,item,rating
with numbers as ids."""
import ctypes
import os
import sys
import time

import numpy

try:
    from libmf import mf
except ImportError as e:
    sys.exit("%s: pip install libmf numpy (flags: tool/bench/README.md), and --python names the interpreter" % e)

import reading

train, test = (reading.table(path, numpy.float32) for path in sys.argv[1:3])
k, rounds = int(sys.argv[3]), int(sys.argv[4])
rate, penalty = float(sys.argv[5]), float(sys.argv[6])
model = mf.MF(k=k, nr_iters=rounds, nr_threads=len(os.sched_getaffinity(0)), eta=rate, lambda_p2=penalty, lambda_q2=penalty,
              quiet=True)
begin = time.monotonic()
model.fit(train)
seconds = time.monotonic() - begin


def factors(which, count):
    return numpy.ctypeslib.as_array(ctypes.cast(which, ctypes.POINTER(ctypes.c_float)), (count, model.model.k))


users, items = factors(model.model.P, model.model.m), factors(model.model.Q, model.model.n)


def rmse(rows):
    """Of predictions within the scale of the training's ratings."""
    least, most, squares = train[:, 2].min(), train[:, 2].max(), 0.0
    for part in numpy.array_split(rows, len(rows) // 65536 + 1):
        u, i = part[:, 0].astype(int), part[:, 1].astype(int)
        predicted = numpy.einsum("ij,ij->i", users[u], items[i])
        squares += numpy.sum((numpy.clip(predicted, least, most) - part[:, 2]).astype(float) ** 2)
    return numpy.sqrt(squares / len(rows))


print("\ntrain_seconds %.3f\nrmse %.17g\ntest_rmse %.17g" % (seconds, rmse(train), rmse(test)))
