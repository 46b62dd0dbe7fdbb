# SPDX-License-Identifier: BSD-3-Clause
"""Every call of the package on parameters, arrays and tables, with assertions; for any number of workers and servers."""
import numpy as np

import paracel
from paracel import Array, Table, function


class Calls(paracel.Paralg):
    def solve(self):
        self.me, self.all = self.worker_id, self.worker_size
        for check in (self.values, self.updates, self.asynchronous, self.key_sets, self.lists, self.arrays, self.tables,
                      self.rounded_tables, self.results, self.collectives, self.errors):
            check()
            self.sync()
            if self.me == 0:
                print(check.__name__, flush=True)

    def own(self, name):
        return f"{name}_{self.me}"

    def values(self):
        stored = {"float": 1.5, "int": -3, "text": "grüße", "bytes": b"\0\xff", "list": [1, "two", None], "flag": True,
                  "nothing": None, "map": {"a": [1.5], "b": {"c": 2}}, "big": 2**63}
        for name, value in stored.items():
            self.write(self.own(name), value)
            found = self.read(self.own(name))
            expect(type(found) is type(value), (name, found))
            expect(found == value if name != "map" else found["b"] == {"c": 2}, (name, found))
        for dtype in ("float64", "float32", "int64", "int32"):
            array = np.arange(7, dtype=dtype)
            array.flags.writeable = False
            self.write(self.own("array"), array)
            found = self.read(self.own("array"))
            expect(found.dtype == dtype and np.array_equal(found, array), found)
            expect(found.flags.owndata or found.base is not None, found)
            found[0] = 9  # it is the caller's own
            expect(self.read(self.own("array"))[0] == 0, "the cache was changed through a result")
            out = np.empty(7, dtype)
            expect(self.read(self.own("array"), out=out) is out and np.array_equal(out, array), out)
        wide = np.empty(7, "float64")
        self.read(self.own("array"), out=wide)  # int32 to float64
        expect(np.array_equal(wide, np.arange(7)), wide)
        self.write(self.own("strided"), np.arange(10.0)[::2])
        expect(self.read(self.own("strided")).tolist() == [0, 2, 4, 6, 8], "strided")
        self.write(self.own("list of numbers"), [1, 2.5])
        expect(self.read(self.own("list of numbers")).dtype == "float64", "list")
        self.write(self.own("scalar"), np.float32(0.5))
        expect(self.read(self.own("scalar")) == 0.5, "scalar")
        expect(self.get("no such key", 7) == 7 and self.get(self.own("int")) == -3, "get")
        expect(self.contains(self.own("int")) and self.remove(self.own("int")) and not self.remove(self.own("int")), "remove")

    def updates(self):
        self.update("sum", np.array([1.0, self.me]))
        self.sync()
        expect(self.read("sum").tolist() == [self.all, self.all * (self.all - 1) / 2], self.read("sum"))
        self.update("greatest", float(self.me), function=function("libparacel_default.so", "paracel_max"))
        self.sync()
        expect(self.read("greatest") == self.all - 1, "max")
        key = self.own("own")
        self.bupdate(key, 1)
        expect(self.bupdate_get(key, 2) == 3 and self.incr(key, 4) == 7, "bupdate")
        self.update_default(self.own("default"), 10.0, 1.0).get()
        self.update_default(self.own("default"), 10.0, 1.0).get()
        expect(self.read(self.own("default")) == 11, "update_default")
        value, version = self.read_version(key)
        expect(self.cas(key, version, value + 1)[0] and not self.cas(key, version, 0)[0] and self.read(key) == 8, "cas")
        self.register_update("libparacel_default.so", "paracel_sgd", lr=0.5)
        self.write(self.own("stepped"), np.ones(3))
        self.update(self.own("stepped"), np.ones(3)).get()
        expect(self.read(self.own("stepped")).tolist() == [0.5] * 3, "hyper-parameters")
        self.register_update("libparacel_default.so", "paracel_add")

    def asynchronous(self):
        self.write(self.own("a"), np.arange(5.0))
        self.write(self.own("n"), np.arange(3))
        numbers = self.read(self.own("n"))
        expect(numbers.dtype.char == np.dtype(np.int64).char and repr(numbers) == "array([0, 1, 2])", repr(numbers))
        futures = [self.read_async(self.own("a")) for _ in range(50)]
        expect(all(np.array_equal(f.get(), np.arange(5.0)) and f.ready() for f in futures), "read_async")
        expect(futures[0].get() is futures[0].get(), "a result is kept")
        for _ in range(20):
            self.read_async(self.own("a"))  # dropped: its memory must live until the reply
        first = self.update(self.own("a"), np.ones(5))
        self.write_async(self.own("b"), 5.0, after=first)
        self.wait()
        expect(self.read(self.own("b")) == 5, "after")
        seen = []
        self.read_then(self.own("a"), lambda value: seen.append(value[0]))
        self.wait()
        expect(seen == [1.0], seen)
        expect_error(paracel.MissingKeyError, "no such key", self.read_async("no such key").get)

    def key_sets(self):
        keys = [f"set_{self.me}_{i}" for i in range(100)]
        numbers = self.prepare(keys)
        expect(len(numbers) == 100 and numbers.keys == keys, "prepare")
        self.write(numbers, np.arange(100, dtype="float32"))
        self.update(numbers, np.ones(100, "float32")).get()
        found = self.read(numbers)
        expect(found.dtype == "float32" and found.shape == (100,) and found[7] == 8, found)
        out = np.empty(100, "float64")
        self.read(numbers, out=out)
        expect(out[99] == 100, out)
        expect(self.bupdate_get(numbers, np.ones(100, "float32"))[0] == 2, "bupdate_get")
        rows = self.prepare([key + "_row" for key in keys])
        self.write(rows, np.arange(300.0).reshape(100, 3))
        expect(self.read_async(rows).get().shape == (100, 3) and self.read(rows)[99, 2] == 299, "rows")
        self.write(rows, [f"text {i}" for i in range(100)])
        expect(self.read(rows)[3] == "text 3", "texts")
        expect_error(paracel.Error, "100 keys got 3 numbers", lambda: self.write(rows, np.ones(3)))

    def lists(self):
        keys = [f"list_{self.me}_{i}" for i in range(10)]
        self.write_multi(dict(zip(keys, np.arange(10.0))))
        self.update_multi(keys, np.ones(10))
        self.wait()
        expect(self.read_multi(keys).tolist() == list(range(1, 11)), "read_multi")
        expect(self.read_multi_async(keys).get()[0] == 1, "read_multi_async")
        expect(self.read_multi([*keys, "none"], skip_missing=True)[keys[3]] == 4, "skip_missing")
        self.write(keys[0], "a text")
        expect(self.read_multi(keys)[0] == "a text", "a list of different types")
        self.write(keys[0], 1.0)
        expect(self.bupdate_multi_get(keys, np.ones(10))[9] == 11, "bupdate_multi_get")
        prefix = f"list_{self.me}_"
        expect(sorted(self.keys(prefix)) == sorted(keys) and self.count(prefix) == 10, "keys")
        expect(self.sum(prefix) == sum(range(2, 12)) and self.summary(prefix)["maximum"] == 11, "sum")
        counts, below, above = self.histogram(0, 10, 5, prefix)
        expect((counts.tolist(), below, above) == ([0, 2, 2, 2, 3], 0, 1), (counts, below, above))
        expect(self.remove_multi(keys), "remove_multi")

    def arrays(self):
        array = Array(self, "theta", 1000, first=1.0)
        expect(len(array) == 1000 and array.dtype == "float64", "array")
        array.update(np.full(1000, 1.0))
        array.update_at([3, 3, 5], [1.0, 1.0, 1.0])
        self.sync()
        whole = array.read()
        expect(whole[3] == 1 + 3 * self.all and whole[5] == 1 + 2 * self.all and whole[0] == 1 + self.all, whole[:6])
        expect(array.read_at([5, 3]).tolist() == [whole[5], whole[3]], "read_at")
        expect(array.read(2, 3).tolist() == whole[2:5].tolist(), "a part")
        self.sync()
        if self.me == 0:
            array.write(np.zeros(10), 990)
            array.bupdate(np.ones(10), 990)
        self.sync()
        expect(array.read(990).tolist() == [1.0] * 10, "write")
        small = Array(self, "whole numbers", 4, "int32", first=7)
        expect(small.read().tolist() == [7] * 4, "int32")
        expect_error(TypeError, "cannot be stored", lambda: Array(self, "bad", 4, "complex64"))

    def tables(self):
        table = Table(self, "rows", 4, init=("uniform", -1.0, 1.0, 7),
                      optimizer=function("libparacel_default.so", "paracel_sgd", lr=1.0))
        ids = np.array([1, 2**63 + 1, 1], "uint64")
        before = table.pull(ids)
        expect(before.shape == (3, 4) and before.dtype == "float32" and np.array_equal(before[0], before[2]), before)
        self.sync()
        if self.me == 0:
            table.bupdate(ids, np.ones((3, 4)))
        self.sync()
        expect(np.allclose(table.pull_async(ids).get(), before - [[2.0], [1.0], [2.0]]), "optimizer")
        table.push([f"name {self.me}"], np.full((1, 4), 5.0))
        expect(table.pull([f"name {self.me}"])[0, 0] == 5, "names")
        self.sync()
        expect(len(table) == 2 + self.all and sorted(table.rows()[0]) == [1, 2**63 + 1], "rows")

    def rounded_tables(self):
        every = np.arange(65536, dtype="uint16").view("float16")
        every = every[np.isfinite(every)]
        random = np.random.RandomState(self.me)
        others = (random.standard_normal(5000) * 10.0 ** random.uniform(-9, 4, 5000)).clip(-65519, 65519)
        for dtype in ("float32", "float64"):
            numbers = np.concatenate([every.astype(dtype), others.astype(dtype), np.array([np.inf, -np.inf, np.nan], dtype)])
            name = f"halves {dtype} {self.me}"
            exact, halves = Table(self, name, 1, dtype), Table(self, name, 1, dtype, wire="f16")
            ids = np.arange(len(numbers), dtype="uint64")
            exact.push(ids, numbers[:, None])
            got = halves.pull(ids)[:, 0]
            expect(got.dtype == dtype and np.array_equal(got, numbers.astype("float16").astype(dtype), equal_nan=True),
                   "numpy rounds to the same halves")
        exact, table = Table(self, "rounded", 8), Table(self, "rounded", 8, wire="i8")
        deltas = random.standard_normal((40, 100, 8)).astype("float32")
        for some in deltas:
            table.update(np.arange(100), some)
        expect(len(table.residuals()) == 24 + 100 * (8 + 8 * 4), "what is kept")
        again = Table(self, "rounded", 8, wire="i8")
        again.restore_residuals(table.residuals())
        again.flush()
        expect(table.residuals() != b"" and len(again.residuals()) == 24, "flush")
        self.sync()
        want = self.comm.allreduce(deltas.sum(axis=0, dtype="float64"))
        expect(np.allclose(exact.pull(np.arange(100)), want, atol=1e-4), "the sum of all updates")
        expect_error(ValueError, 'found "f8", want "full"', lambda: Table(self, "bad", 4, wire="f8"))
        expect_error(paracel.Error, "want float or double", lambda: Table(self, "bad", 4, "int32", wire="f16"))
        self.sync()

    def results(self):
        if not self.output:
            return
        self.dump_vector(np.arange(3.0), "vector_")
        self.dump_dict({"b": [1.0, 2.0], "a": [3.0]}, "dict_")
        for name, wanted in ((self.result_name("vector_"), "0,1,2\n"), (self.result_name("dict_"), "a\t3\nb\t1|2\n")):
            with open(f"{self.output}/{name}", encoding="utf-8") as file:
                text = file.read()
                expect(text == wanted, text)

    def collectives(self):
        comm, me, n = self.comm, self.me, self.all
        expect((comm.rank, comm.size) == (me, n), "rank")
        expect(comm.allreduce(1) == n and comm.allreduce(np.ones((2, 2)))[1, 1] == n, "allreduce")
        mine = np.array([me], "float32")
        expect(comm.allreduce(mine, "max", in_place=True) is mine and mine[0] == n - 1, "in place")
        expect(comm.bcast({"from": me} if me == 0 else None) == {"from": 0}, "bcast")
        expect(comm.allgather(f"w{me}") == [f"w{i}" for i in range(n)], "allgather")
        exchanged = comm.alltoall([np.array([me, i]) for i in range(n)])
        expect([x.tolist() for x in exchanged] == [[i, me] for i in range(n)], "alltoall")
        comm.send(b"\0bytes", (me + 1) % n, 5)
        expect(comm.recv(tag=5) == (b"\0bytes", (me - 1) % n, 5), "send")
        expect(comm.split(me % 2).size == (n + 1 - me % 2) // 2, "split")
        comm.synchronize()

    def errors(self):
        expect_error(paracel.MissingKeyError, 'key "none" does not exist', lambda: self.read("none"))
        expect_error(KeyError, 'key "none" does not exist', lambda: self.read("none"))
        self.write(self.own("text"), "x")
        expect_error(paracel.ValueTypeError, "packed string", lambda: self.read(self.own("text"), out=np.empty(3)))
        expect_error(TypeError, "writable", lambda: self.read(self.own("text"), out=np.frombuffer(b"12345678")))
        expect_error(paracel.PluginError, "no_such.so", lambda: self.register_update("no_such.so", "f"))
        expect_error(paracel.PluginError, "rate", lambda: self.register_update("libparacel_default.so", "paracel_sgd", rate=1))
        expect_error(TypeError, "cannot be a value", lambda: self.write("x", object()))
        expect_error(TypeError, "complex128", lambda: self.write("x", np.ones(2, "complex128")))
        expect_error(paracel.ConfigError, "want", lambda: self.set_consistency("none"))
        self.update(self.own("text"), 1.0)
        expect_error(paracel.Error, self.own("text"), self.wait)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_error(kind, words, call):
    try:
        call()
    except kind as error:
        expect(words in str(error), str(error))
        expect(not isinstance(error, paracel.Error) or isinstance(error.status, int), error)
    else:
        raise AssertionError(f"no {kind.__name__}")


paracel.run(Calls)
