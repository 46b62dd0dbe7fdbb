# SPDX-License-Identifier: BSD-3-Clause
"""Samples of output in the documents. The test that produces such output compares it: the line before a sample,
`<!-- output of NAME -->`, names that test. Numbers, hosts and folders may differ."""
import os
import re
import signal
import subprocess

SOURCE = os.environ.get("PARACEL_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK = re.compile(r"<!-- output of (\w+) -->\n\n?((?:    .*\n|(?=\n    )\n)+)")

BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```\n", re.DOTALL)


def text_of(page):
    with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
        return file.read()


def normal(text):
    """Without what differs from run to run: numbers, ids, hosts, folders, line breaks."""
    text = re.sub(r"\(pid (\d+) on \S+\)", r"(pid \1 on host)", text)
    text = re.sub(r"[^\s'\"]*/(?=[^\s/])", "", text)
    text = re.sub(r"\b[0-9a-f]{16}\b|\d+(?:\.\d+)?", "#", text)
    return re.sub(r"\s+", " ", text)


def samples(page, name):
    """The lines of the page's samples that the test of this name compares."""
    return [line.strip() for block in MARK.findall(text_of(page)) if block[0] == name for line in block[1].splitlines()
            if line.strip()]


def check_samples(case, page, name, output, containing=""):
    """Each sample line, of those that contain a text, is in the output."""
    lines = [line for line in samples(page, name) if containing in line]
    case.assertTrue(lines, f"{page} has no sample of {name}")
    for line in lines:
        case.assertIn(normal(line), normal(output), f"{page}: {line}")


def run_group(command, limit, **more):
    """Exit status and output of a command. All processes that it has started are killed on timeout and when it exits, so that
    no background job outlives the test."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          start_new_session=True, **more) as process:
        try:
            said, _ = process.communicate(timeout=limit)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return 124, f"{said}\nnot done after {limit} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
