# SPDX-License-Identifier: BSD-3-Clause
"""A straight line through points x,y by gradient descent: replace solve() with your own."""

import numpy as np
import paracel


class MyAlgorithm(paracel.Paralg):
    def solve(self):
        rounds, alpha = self.config["rounds"], self.config["alpha"]
        points = np.array([self.point_of(line) for line in self.load(self.config["training_input"])]).reshape(-1, 2)
        n = self.comm.allreduce(len(points))
        mean = self.comm.allreduce(points[:, 0].sum()) / n
        x, y = points[:, 0] - mean, points[:, 1]
        spread = self.comm.allreduce((x * x).sum())
        if not spread > 0:
            raise paracel.DataError("want points with at least two different x")
        step = paracel.function("libparacel_default.so", "paracel_sgd", lr=alpha)  # how the servers apply a gradient
        if self.worker_id == 0:
            self.write("line", np.zeros(2))
        self.sync()
        for r in range(rounds):
            line = self.read("line")  # height at the mean of x, slope
            residual = line[0] + line[1] * x - y
            self.update("line", np.array([residual.sum() / n, (residual * x).sum() / spread]), function=step)
            self.iter_commit()  # takes effect when all workers have committed
            loss = self.comm.allreduce((residual * residual).sum()) / n
            self.report_progress(r + 1, rounds, loss, "loss")
        height, slope = self.read("line")
        if self.worker_id == 0:
            print(f"y = {height - slope * mean:.6f} {slope:+.6f} x\nobjective {loss:.10g}")
            np.save(self.result("line.npy"), [height - slope * mean, slope])

    @staticmethod
    def point_of(line):
        try:
            x, y = map(float, line.split(","))
            return x, y
        except ValueError:
            raise paracel.DataError(f"found {line}, want x,y") from None


if __name__ == "__main__":
    paracel.run(MyAlgorithm)
