#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tool/site.sh builds the site of the documents: each page, link and anchor exists, and nothing is loaded from other hosts. It
needs Doxygen and PyPI; skipped otherwise, and unless PARACEL_LONG=1."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from python_support import SOURCE, build_wheel, why_not  # noqa: E402
from process_support import patient  # noqa: E402


class Site(unittest.TestCase):
    def test_it_is_built_without_a_warning(self):
        if os.environ.get("PARACEL_LONG") != "1":
            self.skipTest("PARACEL_LONG is not 1")
        if why_not() or not shutil.which("doxygen"):
            self.skipTest(why_not() or "no doxygen: tool/setup.sh --long installs it")
        build_wheel()
        made = subprocess.Popen([os.path.join(SOURCE, "tool", "site.sh")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            said, _ = made.communicate(timeout=min(patient(900), 3000))
        except subprocess.TimeoutExpired:
            os.killpg(made.pid, signal.SIGKILL)  # what it has started would write into the next one's folder
            self.fail(made.communicate()[0])
        self.assertEqual(made.returncode, 0, said)
        site = os.path.join(SOURCE, "build", "site", "html")
        pages = glob.glob(site + "/**/*.html", recursive=True)
        for name in ("index.html", "doc/tutorial.html", "alg/gbdt/index.html", "include/paracel/paralg.hpp.html"):
            self.assertIn(os.path.join(site, name), pages)
        for name, words in (("site/python.html", ("LogisticRegression", "n_workers", "MissingKeyError")),
                            ("paracel/classparacel_1_1paralg.html", ("iter_commit", "Joins the job"))):
            with open(os.path.join(site, name), encoding="utf-8") as file:
                text = file.read()
            for word in words:
                self.assertIn(word, text, name)
        loads = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=\"https?://|<link[^>]*rel=\"stylesheet\"[^>]*href=\"https?://")
        for page in pages:
            with open(page, encoding="utf-8") as file:
                self.assertIsNone(loads.search(file.read()), page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
