#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""An output folder belongs to one job, and contains only the results of its last run."""
import json
import os
import signal

from process_support import BIN, LR, JobTest, main, read_bytes, wait_until


class OutputFolder(JobTest):
    def results(self, folder):
        path = os.path.join(self.folder, folder)
        return {n for n in os.listdir(path) if not n.startswith(".")} if os.path.isdir(path) else set()

    def test_a_second_job_with_the_output_of_one_that_runs_is_refused_and_named(self):
        run = self.start("-w", "2", "-p", "1", "-c", "long.json", LR)
        self.assertTrue(wait_until(lambda: "metrics.jsonl" in self.results("long_out"), 60), run.err())
        job = run.job()  # the second run overwrites the metrics of the first
        self.assert_refused(f"output folder long_out belongs to a job that is running (job {job},",
                            "-w", "2", "-p", "1", "-c", "long.json", LR, status=3)
        # After kill -9 it holds no lock any more.
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        self.write_config("short.json", output="long_out/", rounds=3)
        status, _, err = self.prun("-w", "2", "-p", "1", "-c", "short.json", LR)
        self.assertEqual(status, 0, err)

    def test_results_of_a_run_with_more_workers_are_not_left_over(self):
        points = os.path.join(self.folder, "points.csv")
        with open(points, "w", encoding="ascii") as file:
            file.writelines(f"{i % 7},{i // 7}\n" for i in range(70))
        config = {"input": points, "output": "clusters", "kclusters": 3, "format": "npy"}
        with open(os.path.join(self.folder, "kmeans.json"), "w", encoding="ascii") as file:
            json.dump(config, file)
        program = os.path.join(BIN, "kmeans")
        for workers in (3, 2):
            status, _, err = self.prun("-w", str(workers), "-p", "1", "-c", "kmeans.json", program)
            self.assertEqual(status, 0, err)
            with open(os.path.join(self.folder, "clusters", "mine.txt"), "w", encoding="ascii") as file:
                file.write("stays")
        labels = {n for n in self.results("clusters") if n.startswith("labels_")}
        self.assertEqual(labels, {"labels_0.npy", "labels_1.npy"})
        self.assertIn("mine.txt", self.results("clusters"))
        # A model that is used in its own folder is kept, with all its files from the previous run.
        centers = read_bytes(os.path.join(self.folder, "clusters", "centers_0.npy"))
        config.update(model="clusters")
        del config["kclusters"]
        with open(os.path.join(self.folder, "again.json"), "w", encoding="ascii") as file:
            json.dump(config, file)
        status, _, err = self.prun("-w", "1", "-p", "1", "-c", "again.json", program)
        self.assertEqual(status, 0, err)
        self.assertEqual(read_bytes(os.path.join(self.folder, "clusters", "centers_0.npy")), centers)


if __name__ == "__main__":
    main()
