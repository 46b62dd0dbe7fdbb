#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""paracel.torch, with PyTorch: embeddings beside torch.nn.Embedding, and the README's click model, which a killed server does not
disturb."""
import json
import os
import re
import subprocess
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import PACKAGE, PROGRAMS, PYTHON, PackageTest, paced  # noqa: E402
from process_support import main, wait_until  # noqa: E402

CHECKS = os.path.join(PROGRAMS, "torch_embedding.py")
FIELDS, CATEGORIES = 4, 50  # of each field
JOB = ("-w", "2", "-p", "2", "--replicas", "2")

# Killed in its sixth iteration unless it resumes or is told otherwise; the dense layer and its optimizer are the worker's.
RESUMED = """
import os, signal
import paracel, torch
from paracel.torch import Embedding, adagrad, average_gradients
class Resumed(paracel.Paralg):
    def solve(self):
        torch.manual_seed(1)
        rows = Embedding(20, 4, paralg=self, name="rows", optimizer=adagrad(lr=0.1))
        self.dense = torch.nn.Linear(4, 1)
        self.sgd = torch.optim.SGD(self.dense.parameters(), lr=0.1)
        for r in range(self.first_iteration(), 10):
            if r == 5 and not self.resumed and self.worker_id == 1 and "TEST_CALM" not in os.environ:
                os.kill(os.getpid(), signal.SIGKILL)
            batch = (torch.arange(6) * (r + 3) + self.worker_id) % 20
            loss = ((self.dense(rows(batch)) - 1)**2).mean()
            self.sgd.zero_grad()
            loss.backward()
            average_gradients(self.dense, self.comm)
            self.sgd.step()
            self.iter_commit()
        loss = self.comm.allreduce(loss.item())
        if self.worker_id == 0:
            print(self.resumed, loss)
    def checkpoint_state(self):
        return {name: value.numpy() for name, value in self.dense.state_dict().items()}
    def restore_state(self, state, all_states):
        with torch.no_grad():
            for name, value in self.dense.state_dict().items():
                value.copy_(torch.tensor(state[name]).view_as(value))
paracel.run(Resumed)
"""

# The area under the ROC curve of a saved model on other data: the share of pairs in the right order.
SCORE = """
import sys
import numpy as np, torch
data = np.load("held_out.npy")
fields, clicks = torch.from_numpy(data[:, :-1]), data[:, -1] == 1
rows = torch.nn.Embedding.from_pretrained(torch.from_numpy(np.load(sys.argv[1] + "/rows.npy")))
model = torch.nn.Sequential(rows, torch.nn.Flatten(), torch.nn.Linear(8 * fields.shape[1], 16), torch.nn.ReLU(),
                            torch.nn.Linear(16, 1), torch.nn.Flatten(0))
model.load_state_dict({"0.weight": rows.weight, **torch.load(sys.argv[1] + "/dense.pt")})
scores = model(fields).detach().numpy()
print((scores[clicks][:, None] > scores[~clicks]).mean())
"""


def clicks(count, seed):
    """(categories and click of each row, the area under the ROC curve of the true probabilities)."""
    effects = np.random.default_rng(1).normal(size=(FIELDS, CATEGORIES))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, CATEGORIES, (count, FIELDS))
    score = effects[np.arange(FIELDS), chosen].sum(1)
    clicked = rng.random(count) < 1 / (1 + np.exp(-score))
    best = (score[clicked][:, None] > score[~clicked]).mean()
    return np.column_stack([chosen + CATEGORIES * np.arange(FIELDS), clicked]).astype(np.int64), best


class Embeddings(PackageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            raise unittest.SkipTest("no PyTorch: tool/setup.sh --long installs python3-torch")

    def configure(self, name, **config):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            json.dump(config, file)
        return name

    def test_embeddings_in_one_process_and_as_a_job(self):
        status, one, err = self.python(CHECKS, limit=300)
        self.assertEqual((status, err), (0, ""), one)
        for workers, servers in (("1", "2"), ("3", "2")):
            status, out, err = self.prun("-w", workers, "-p", servers, CHECKS)
            self.assertEqual((status, out), (0, one), err)  # initial rows included

    def test_a_killed_server_does_not_disturb_the_click_model(self):
        with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
            self.program("clicks.py", re.search(r"<!-- file: clicks.py -->\n```python\n(.*?)```", file.read(), re.DOTALL)[1])
        self.program("paced.py", paced("clicks.py"))
        self.program("score.py", SCORE)
        train, _ = clicks(6000, 2)
        held_out, best = clicks(2000, 3)
        np.save(os.path.join(self.folder, "clicks.npy"), train)
        np.save(os.path.join(self.folder, "held_out.npy"), held_out)
        config = {"clicks": "clicks.npy", "categories": FIELDS * CATEGORIES, "batch": 100, "rounds": 4, "consistency": "bsp"}
        self.configure("calm.json", output="calm", **config)
        status, calm, err = self.prun(*JOB, "-c", "calm.json", "clicks.py")
        self.assertEqual(status, 0, err)
        self.configure("killed.json", output="killed", **config)
        enough = self.not_there("enough")
        run = self.start(*JOB, "-c", "killed.json", "paced.py", environment=self.environment(TEST_ENOUGH=enough))
        self.assertTrue(wait_until(lambda: "round" in run.err(), 60), run.err())
        run.find("server").kill()
        self.assertTrue(wait_until(lambda: "lost: it was killed" in run.err(), 30), run.err())
        self.touch(enough)
        self.assertEqual(run.wait(), 0, run.err())
        calm_loss, killed_loss = (float(out.split()[1]) for out in (calm, run.out()))
        self.assertLess(calm_loss, 0.55)  # 0.69 before the first step
        self.assertAlmostEqual(killed_loss, calm_loss, delta=0.005)
        areas = []
        for folder in ("calm", "killed"):
            status, out, err = self.python("score.py", folder)
            self.assertEqual((status, err), (0, ""))
            areas.append(float(out))
        self.assertGreater(areas[0], best - 0.03)
        self.assertAlmostEqual(areas[1], areas[0], delta=0.005)

    def test_a_resumed_job_has_the_rows_and_their_optimizers_state(self):
        self.program("resumed.py", RESUMED)
        self.configure("bsp.json", consistency="bsp")
        options = ("-w", "2", "-p", "2", "-c", "bsp.json", "resumed.py")
        status, calm, err = self.prun(*options, environment=self.environment(TEST_CALM="1"))
        self.assertEqual((status, calm.split()[0]), (0, "False"), err)
        saving = ("--checkpoint-dir", "saved", "--checkpoint-every", "2")
        self.assertNotEqual(self.prun(*saving, *options)[0], 0)
        status, out, err = self.prun(*saving, "--resume", "saved", *options)
        self.assertEqual((status, out), (0, calm.replace("False", "True")), err)

    def test_without_pytorch_an_import_says_what_is_missing(self):
        self.program("without.py", "import sys\nsys.modules['torch'] = None\nimport paracel.torch\n")
        status, out, err = self.python("without.py")
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(err.splitlines()[-1],
                         "ImportError: paracel.torch needs PyTorch, which is not installed: pip install torch")

    def test_pytorch_is_imported_when_it_is_asked_for(self):
        self.program("asked.py", "import sys, paracel\nassert 'torch' not in sys.modules\n"
                                 "from paracel.torch import Embedding\nassert 'torch' in sys.modules\n")
        self.assertEqual(self.python("asked.py"), (0, "", ""))


if __name__ == "__main__":
    main()
