#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a source distribution and a wheel of the Python package, for an index or for machines without a clone.
#   tool/wheel.sh OUT                  paracel-<version>.tar.gz, and the wheel that is built from it (the whole framework, too)
#   tool/wheel.sh --build FOLDER OUT   the wheel takes the framework from a finished build of this tree
#   tool/wheel.sh --sdist OUT          no wheel
# Needs a clone, and the environment that tool/setup.sh --test creates (or PARACEL_PYTHON: an interpreter with the packages of
# src/python/pyproject.toml's [build-system] and pip). A build from the source distribution needs the packages of tool/setup.sh.
set -euo pipefail
fail() { echo "wheel.sh: error: $*" >&2; exit 2; }

build='' wheel=1 out=''
while (($#)); do
  case $1 in
    --build) build=$(realpath -e "${2:-}") || fail "--build: want the folder of a finished build"; shift ;;
    --sdist) wheel=0 ;;
    -*) fail "unknown option $1 (allowed: --build FOLDER, --sdist)" ;;
    *) [[ -z $out ]] || fail "found $out and $1, want one folder"; out=$1 ;;
  esac
  shift
done
[[ -n $out ]] || fail "want the folder for the results"
mkdir -p "$out"
out=$(realpath "$out")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PARACEL_PYTHON:-$PWD/build/python-tools/bin/python}
[[ -x $python ]] || fail "no $python: tool/setup.sh --test creates it"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || fail "$PWD is not a clone, or git is not installed"

# The package's folder, and in framework/ what CMake needs of the tree without tests and benchmarks.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
copy() {  # <from> <to> <paths>: the files that git knows or does not ignore
  mkdir -p "$2"
  (
    cd "$1"
    git ls-files -z --cached --others --exclude-standard -- "${@:3}" |
      while IFS= read -r -d '' file; do if [[ -e $file ]]; then printf '%s\0' "$file"; fi; done | tar -c --null -T -
  ) | tar -x -C "$2"
}
copy src/python "$stage" .
copy . "$stage/framework" CMakeLists.txt LICENSE prun.py include src server alg default \
  tool/CMakeLists.txt tool/cmake tool/checkpoint tool/datagen tool/launcher tool/template ':!src/python'

rm -f "$out"/paracel-*.tar.gz
hook='import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])'
(cd "$stage" && "$python" -c "$hook" "$out" >/dev/null)
sdist=$(echo "$out"/paracel-*.tar.gz)
echo "$sdist"
((wheel)) || exit 0

options=(--no-deps --no-build-isolation --disable-pip-version-check -q -w "$out")
[[ -z $build ]] || options+=("--config-settings=cmake.define.PARACEL_BUILD=$build")
rm -f "$out"/paracel-*.whl
PATH=$(dirname "$python"):$PATH CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja} "$python" -m pip wheel "${options[@]}" "$sdist"
echo "$out"/paracel-*.whl
