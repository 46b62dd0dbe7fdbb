#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The picture of a report in README.md, from a run: report_picture.py [OUT]

Trains logistic regression under ssp with 4 workers and 2 servers, one of which is killed when a third of the rounds are over, and
takes a picture of the top of the run's report. Needs a finished build and Debian's chromium (tool/setup.sh --long installs it).
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(TOP, "doc", "report.png")
BUILD = os.environ.get("PARACEL_BUILD") or os.path.join(TOP, "build")
ROWS, ROUNDS = 44_000, 900
WIDTH, HEIGHT = 1000, 828  # of the picture, in pixels
MOST_BYTES = 150_000
CONFIG = {"training_input": "train.csv", "test_input": "test.csv", "output": "model", "update_file": "liblr_update.so",
          "update_func": "lr_theta_update", "method": "dgd", "rounds": ROUNDS, "alpha": 0.05, "beta": 0.001,
          "consistency": "ssp", "limit_s": 2}
LIMIT = 120.0  # seconds


def status_of(prun, folder):
    """What `prun.py status` says of the run in `folder`/run; empty before it has begun."""
    done = subprocess.run([*prun, "status", "--run", os.path.join(folder, "run")], capture_output=True, text=True, check=False)
    return [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else []


def round_in(status):
    return next((int(words[words.index("round") + 1].partition("/")[0]) for words in status if words[:1] == ["progress:"]), 0)


def run(folder):
    """Runs the job, in which a server is lost."""
    rows = subprocess.run([sys.executable, os.path.join(TOP, "tool", "datagen.py"), "-m", "classification", "-n", str(ROWS), "-k",
                           "50", "-o", "-", "--no_truth"], stdout=subprocess.PIPE, check=True).stdout.splitlines(True)
    for name, part in (("train.csv", rows[ROWS // 10:]), ("test.csv", rows[:ROWS // 10])):
        with open(os.path.join(folder, name), "wb") as file:
            file.writelines(part)
    with open(os.path.join(folder, "lr.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    prun = [sys.executable, os.path.join(TOP, "prun.py")]
    job = subprocess.Popen([*prun, "-w", "4", "-p", "2", "--replicas", "2", "--run-dir", "run", "--report", "-c", "lr.json",
                            os.path.join(BUILD, "bin", "lr")], cwd=folder, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + LIMIT
        while round_in(status := status_of(prun, folder)) < ROUNDS / 3:
            if job.poll() is not None or time.monotonic() > end:
                sys.exit("report_picture.py: error: the job was over, or too slow, before a server was killed")
            time.sleep(0.1)
        os.kill(next(int(words[2]) for words in status if words[:2] == ["s1", "up"]), signal.SIGKILL)
        if job.wait(LIMIT) != 0:
            sys.exit(f"report_picture.py: error: the job ended with status {job.returncode}")
    finally:
        job.terminate()
        job.wait()


def main():
    out = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else OUT)
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("report_picture.py: error: no chromium: tool/setup.sh --long installs it")
    with tempfile.TemporaryDirectory(prefix="paracel_picture_") as folder:
        run(folder)
        picture = os.path.join(folder, "report.png")
        subprocess.run([chromium, "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder}/profile",
                        f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}", f"file://{folder}/run/report.html"],
                       stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=LIMIT)
        size = os.path.getsize(picture)
        if size > MOST_BYTES:
            sys.exit(f"report_picture.py: error: the picture has {size} bytes, want at most {MOST_BYTES}")
        shutil.copyfile(picture, out)
    print(f"{out}: {size} bytes")


if __name__ == "__main__":
    main()
