# SPDX-License-Identifier: BSD-3-Clause
"""Input and com_queue, with assertions; for any number of workers. The config names three files."""
import time

import numpy as np

import paracel


class QueueAndInput(paracel.Paralg):
    def solve(self):
        for check in (self.lines, self.samples, self.sparse, self.graph, self.queue, self.messages, self.over_rows,
                      self.fails_in_a_queue):
            check()
            if self.worker_id == 0:
                print(check.__name__, flush=True)

    def lines(self):
        lines = self.load(self.config["lines"])
        assert self.comm.allreduce(len(lines)) == 3, lines
        assert self.loadall([self.config["lines"]]) == ["a,b,2", "b,c,3", "c,a,4"]

    def samples(self):
        dense = self.load_samples(self.config["csv"], label="real", header="no")
        assert dense.X.shape[1] == 2 and dense.rows_total == 4 and dense.X.dtype == "float64", dense
        assert self.comm.allreduce(dense.X.sum(axis=0)).tolist() == [16.0, 20.0], dense.X
        assert self.comm.allreduce(dense.y.sum()) == 1 + 2 + 3 + 4
        small = self.load_samples(self.config["csv"], label="real", header="no", float32=True)
        assert small.X.dtype == "float32"
        sparse = self.load_samples(self.config["libsvm"])
        assert sparse.X.shape[1] == 5 and self.comm.allreduce(sparse.X.sum()) == 10.5, sparse.X
        expect(paracel.DataError, "lines:1", lambda: self.load_samples(self.config["lines"]))
        expect(TypeError, "unknown option labels", lambda: self.load_samples(self.config["csv"], labels="real"))
        expect(ValueError, "want one of", lambda: self.load_samples(self.config["csv"], label="none of these"))

    def sparse(self):
        rows = self.load_sparse(self.config["lines"], ids="name")
        assert (rows.rows_total, rows.columns_total, rows.entries_total) == (3, 3, 3)
        entries = rows.X.tocoo()
        mine = [(rows.row_ids[i], rows.column_ids[j], x) for i, j, x in zip(entries.row, entries.col, entries.data)]
        assert sorted(sum(self.comm.allgather(mine), [])) == [["a", "b", 2.0], ["b", "c", 3.0], ["c", "a", 4.0]], mine

    def graph(self):
        """Distances from a, as a Pregel program on arrays: each superstep is a pull."""
        graph = self.load_graph(self.config["lines"], weighted=True, ids="name", incoming=True)
        assert graph.vertices_total == 3 and len(graph.ids) == graph.own
        distance = np.where(np.array(graph.ids, "U1") == "a", 0.0, np.inf)
        sources = np.repeat(np.arange(graph.own), np.diff(graph.in_indptr).astype(int))
        while True:
            all_distances = np.concatenate([distance, graph.pull(distance)])
            better = distance.copy()
            np.minimum.at(better, sources, all_distances[graph.in_indices] + graph.in_weights)
            changed = self.comm.allreduce(int((better < distance).sum()))
            distance = better
            if changed == 0:
                break
        found = dict(sum(self.comm.allgather(list(zip(graph.ids, distance.tolist()))), []))
        assert found == {"a": 0.0, "b": 2.0, "c": 5.0}, found
        both = graph.push(np.ones(len(graph.ghosts)), np.zeros(graph.own))
        assert self.comm.allreduce(both.sum()) == self.comm.allreduce(len(graph.ghosts))
        targets = graph.indices
        expect(ValueError, "read-only", lambda: targets.__setitem__(0, 1))
        del graph
        assert len(targets) >= 0 and targets.sum() >= 0  # the arrays keep the graph

    def queue(self):
        """The mean of everybody's numbers, by gradient descent."""
        queue = paracel.ComQueue(self)
        queue.init_with_partitioned_data("mine", np.arange(3.0) + self.worker_id)
        queue.init_with_broadcast_data("w", np.zeros(1) if self.worker_id == 0 else None)
        steps = []

        def gradient(c):
            mine, w = c.get_obj("mine"), c.get_obj("w")
            c.put_obj("sums", np.array([(w - mine).sum(), float(len(mine))]))
            c.put_obj("longest", float(len(mine) + c.task_id))

        def step(c):
            total, count = c.get_obj("sums")
            c.get_obj("w")[0] -= 0.5 * total / count  # in place
            c.put_obj("change", abs(total / count))
            c.set_metric("change", abs(total / count))

        queue.add(gradient)
        queue.all_reduce("sums")
        queue.all_reduce("longest", lambda a, b: np.maximum(a, b))
        queue.add(step)
        queue.set_compare_criterion_of_node0(lambda c: c.get_obj("change") < 1e-9)
        queue.set_max_iter(100)
        queue.set_watch(lambda report: steps.append(report["metrics"]["change"]))
        queue.close_with(lambda c: {"w": float(c.get_obj("w")[0]), "longest": c.get_obj("longest"), "steps": c.step_no})
        found = queue.exec()
        n = self.worker_size
        assert abs(found["w"] - (1 + (n - 1) / 2)) < 1e-8 and found["longest"] == 3 + n - 1, found
        assert queue.steps == found["steps"] and (len(steps) == queue.steps) == (self.worker_id == 0), steps

    def messages(self):
        """Each worker's number goes once around the ring, and is added up on the way."""
        n, me = self.worker_size, self.worker_id
        kept = []

        def around(c, tasks):
            kept.append(tasks)
            tasks.send((me + 1) % n, {"from": me, "numbers": [me, me + 1]})
            got = tasks.receive((me - 1) % n)
            assert got["from"] == (me - 1) % n and got["numbers"] == [got["from"], got["from"] + 1], got
            c.put_obj("seen", c.get_obj("seen") + got["from"] if c.contains_obj("seen") else got["from"])
            assert tasks.all_reduce(np.array([1.0, me])).tolist() == [n, n * (n - 1) / 2]
            assert tasks.all_reduce(np.arange(2) + me, "max").tolist() == [n - 1, n]
            assert tasks.all_gather(str(me)) == [str(r) for r in range(n)]
            assert tasks.broadcast("x" if me == n - 1 else None, n - 1) == "x"

        queue = paracel.ComQueue(self)
        queue.communicate(around)
        queue.set_max_iter(2)
        queue.close_each_with(lambda c: c.get_obj("seen"))
        assert queue.exec() == 2 * ((me - 1) % n)
        expect(paracel.Error, "outside of its function", lambda: kept[0].send(0, 1))

        def fails(c, tasks):
            if me == n - 1:
                raise paracel.DataError("no message")
            tasks.receive(n - 1)

        queue = paracel.ComQueue(self)
        queue.communicate(fails)
        queue.set_max_iter(1)
        expect(paracel.Error, "no message", queue.exec)

    def over_rows(self):
        """Sums by the nearest centre; with work stealing other workers compute chunks of the late one: the same bits."""
        me, n = self.worker_id, self.worker_size
        rows = np.random.RandomState(me).randn(500 + 7 * me, 3)
        centres = np.random.RandomState(99).randn(4, 3)
        results = {}
        late: dict = {}

        def compute(chunk, sums):
            assert chunk.rows.shape[1:] == (3,) and len(sums) == 16
            if chunk.owner == 0 and late["on"]:
                time.sleep(0.02)
            at = np.argmin(((chunk.rows[:, np.newaxis] - chunk.get_obj("centres").reshape(4, 3)) ** 2).sum(axis=2), axis=1)
            for k, row in zip(at, chunk.rows):
                sums[4 * k:4 * k + 3] += row
                sums[4 * k + 3] += 1
            late["chunks"].append((chunk.owner, chunk.first_row))

        for stealing in (False, True):
            late.update(on=stealing, chunks=[])
            reports: list = []
            queue = paracel.ComQueue(self)
            queue.init_with_partitioned_data("rows", rows)
            queue.init_with_broadcast_data("centres", centres)
            queue.over_rows("rows", "sums", compute, 16 if stealing else lambda c: c.get_obj("centres").size + 4,
                            reads=["centres"], chunks=20)
            queue.all_reduce("sums")
            queue.set_max_iter(3)
            queue.set_work_stealing(stealing)
            queue.set_watch(reports.append)
            queue.close_with(lambda c: c.get_obj("sums"))
            results[stealing] = queue.exec()
            computed = self.comm.allgather([list(c) for c in late["chunks"]])
            if me == 0:
                foreign = [owner for rank, done in enumerate(computed) for owner, _ in done if owner != rank]
                assert bool(foreign) == (stealing and n > 1), (stealing, foreign)
                assert [r["chunks_given"] > 0 for r in reports] == [stealing and n > 1] * 3 or not stealing, reports
        assert results[False].tobytes() == results[True].tobytes()
        every = np.concatenate([np.random.RandomState(r).randn(500 + 7 * r, 3) for r in range(n)])
        at = np.argmin(((every[:, np.newaxis] - centres) ** 2).sum(axis=2), axis=1)
        wanted = np.array([[*every[at == k].sum(axis=0), (at == k).sum()] for k in range(4)])
        np.testing.assert_allclose(results[True].reshape(4, 4), wanted, rtol=1e-10, atol=1e-10)

        queue = paracel.ComQueue(self)
        queue.init_with_partitioned_data("rows", rows)
        queue.over_rows("rows", "most", lambda chunk, most: np.maximum(most, chunk.rows.max(axis=0), out=most), 3, op="max",
                        empty=-np.inf)
        queue.all_reduce("most", "max")
        queue.set_max_iter(1)
        queue.close_with(lambda c: c.get_obj("most"))
        assert queue.exec().tolist() == every.max(axis=0).tolist()
        for compute, words in ((lambda chunk, sums: chunk.get_obj("centres"), "is not one of the objects that the step reads"),
                               (lambda chunk, sums: 1 / 0, "ZeroDivisionError: division by zero")):
            queue = paracel.ComQueue(self)
            queue.init_with_partitioned_data("rows", rows)
            queue.over_rows("rows", "sums", compute, 1)
            queue.set_max_iter(1)
            expect(paracel.Error, words, queue.exec)

    def fails_in_a_queue(self):
        queue = paracel.ComQueue(self)
        kept = []

        def fail(c):
            kept.append(c)
            if c.task_id == self.worker_size - 1:
                raise paracel.DataError("line 7 is wrong")

        queue.add(fail)
        queue.set_max_iter(1)
        try:
            queue.exec()
        except paracel.Error as error:
            assert "line 7 is wrong" in str(error) and error.status == 4, error
            own = self.worker_id == self.worker_size - 1
            assert isinstance(error.__cause__, paracel.DataError) if own else error.__cause__ is None
        else:
            raise AssertionError("no error")
        expect(paracel.Error, "outside of its function", lambda: kept[0].task_id)


def expect(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


paracel.run(QueueAndInput)
