# SPDX-License-Identifier: BSD-3-Clause
"""paracel.update with assertions; for any number of workers and servers. Worker 0 prints what it has checked."""
import ctypes
import math

import numpy as np
import paracel

RATE = 0.1


@paracel.update
def clipped(value, delta):
    for i in range(value.size):
        value[i] -= RATE * min(max(delta[i], -1.0), 1.0)


@paracel.update(additive=True, dtypes=("float64", "float32", "int64", "int32"))
def plus(value, delta):
    for i in range(len(value)):
        value[i] += delta[i]


@paracel.update(elementwise=True)
def log_sum(value, delta):
    return max(value, delta) + math.log1p(math.exp(-abs(value - delta))) if value != delta else value + np.log(2.0)


@paracel.update(dtypes="float64")
def no_negative(value, delta):
    for i in range(value.size):
        value[i] = -1.0
        if delta[i] < 0:
            raise ValueError("negative")
        value[i] = delta[i]


class Updates(paracel.Paralg):
    def solve(self):
        for check in (self.in_place, self.sums, self.elements, self.exceptions, self.rows, self.registered, self.here):
            check()
            self.sync()
            if self.worker_id == 0:
                print(check.__name__, flush=True)

    def own(self, name):
        return f"{name} {self.worker_id}"

    def in_place(self):
        for dtype in ("float64", "float32"):
            for i in range(20):  # on every server
                key = self.own(f"{dtype} {i}")
                self.write(key, np.array([1, 2, 3], dtype))
                self.bupdate(key, np.array([0.5, 7, -7], dtype), function=clipped)
                found = self.read(key)
                assert found.dtype == dtype and np.array_equal(found, np.array([0.95, 1.9, 3.1]).astype(dtype)), found
        self.write(self.own("number"), 1.0)
        self.bupdate(self.own("number"), 5.0, function=clipped)
        assert self.read(self.own("number")) == 0.9
        self.write(self.own("long"), np.zeros(100001))
        self.bupdate(self.own("long"), np.full(100001, 0.25), function=clipped)
        assert (self.read(self.own("long")) == -0.025).all()

    def sums(self):
        self.set_consistency("ssp", 1)
        for dtype in ("float64", "float32", "int64", "int32"):
            if self.worker_id == 0:
                self.write(dtype, np.zeros(3, dtype))
            self.sync()
            before = self.read(dtype)
            self.update(dtype, np.array([1, 2, 3], dtype), function=plus)
            seen = self.read(dtype) - before  # its own deltas at least
            assert seen.tolist() in [[n, 2 * n, 3 * n] for n in range(1, self.worker_size + 1)], seen
            self.iter_commit()
            self.sync()
            assert np.array_equal(self.read(dtype), np.array([1, 2, 3], dtype) * self.worker_size)
            self.sync()
        self.set_consistency("asp")

    def elements(self):
        value, delta = np.array([0.0, 1.0, -2.0]), np.array([3.0, 1.0, 5.0])
        self.write(self.own("logs"), value)
        self.bupdate(self.own("logs"), delta, function=log_sum)
        np.testing.assert_allclose(self.read(self.own("logs")), np.logaddexp(value, delta), rtol=1e-15)

    def exceptions(self):
        key = self.own("x")
        self.write(key, np.ones(3))
        for delta, error, words in (([1.0, 2.0, -1.0], paracel.PluginError, "raised an exception"),
                                    ([1.0, 2.0], paracel.ValueTypeError, "the same size")):
            try:
                self.bupdate(key, np.array(delta), function=no_negative)
            except error as e:
                assert words in str(e) and "no_negative" in str(e), e
            else:
                raise AssertionError(words)
            assert self.read(key).tolist() == [1.0] * 3
        self.write(key, np.ones(3, "int64"))
        try:
            self.bupdate(key, np.ones(3, "int64"), function=clipped)
        except paracel.ValueTypeError as e:
            assert "takes float64 or float32 only" in str(e), e
        else:
            raise AssertionError("int64")

    def rows(self):
        table = paracel.Table(self, self.own("rows"), 4, optimizer=clipped)
        table.bupdate([1, 9], np.array([[0.5] * 4, [5.0] * 4]))
        assert np.array_equal(table.pull([9, 1]), np.array([[-0.1] * 4, [-0.05] * 4], "float32"))

    def registered(self):
        self.write(self.own("r"), np.array([1.0]))
        self.register_bupdate(*clipped)
        self.bupdate(self.own("r"), np.array([9.0]))
        assert self.read(self.own("r")).tolist() == [0.9]

    def here(self):
        value = np.ones(2)
        clipped(value, np.array([9.0, -9.0]))
        flags = {f[1]: (ctypes.c_uint32 * 3).in_dll(ctypes.CDLL(f[0]), f[1])[2] for f in (plus, clipped)}
        assert flags == {"plus": 1, "clipped": 0}, "additive"
        assert value.tolist() == [0.9, 1.1] and log_sum(0.0, 0.0) == np.log(2.0) and clipped.__name__ == "clipped"


paracel.run(Updates)
