#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the site of the documents in build/site/html: MkDocs from PyPI (in build/site-tools), Doxygen's reference of the headers,
# the Python package's docstrings, taken from the package that the tests have unpacked in build/python/site.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

tools=build/site-tools
packages=(mkdocs==1.6.1 mkdocs-material==9.8.2 mkdocstrings-python==2.0.11 mkdoxy==1.2.8 numpy nanobind-backend)
command -v doxygen >/dev/null || { echo "site.sh: error: doxygen is missing (apt-get install doxygen)" >&2; exit 1; }
[[ -f build/python/site/paracel/__init__.py ]] || {
  echo "site.sh: error: no build/python/site: tool/test.sh python.test_wheel makes it" >&2; exit 1; }
# The system's interpreter, since the package is for it.
if [[ "$(cat $tools/packages 2>/dev/null)" != "${packages[*]}" ]]; then
  /usr/bin/python3 -m venv --clear "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" >"$tools/packages"
fi
/usr/bin/python3 -B doc/site/stage.py . build/site/pages
NO_MKDOCS_2_WARNING=1 "$tools/bin/mkdocs" build --strict -f doc/site/mkdocs.yml
echo "the site is build/site/html/index.html"
