#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# From a fresh clone to a trained model: installs missing packages, builds, trains logistic regression with four workers and two
# servers on this machine, and prints the quality of the model. Can be repeated at any time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

say() { printf '\n== %s\n' "$*"; }

bash tool/setup.sh

say "configuring and building (Release) in build/: about $((185 / $(nproc) + 1)) s on this machine, if it was never built before"
# Tests and benchmarks are not needed here; tool/test.sh enables them again in the same build folder. A unity build from scratch
# takes less than half the time; an existing build folder keeps its configuration.
options=(-DPARACEL_TESTS=OFF -DPARACEL_BENCH=OFF)
[[ -f build/CMakeCache.txt ]] || options+=(-DPARACEL_UNITY=ON)
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}"
cmake --build build --target lr lr_update start_server start_scheduler send_request paracel_default paracel_mpi

demo=build/demo
mkdir -p "$demo"
source=$(dpkg -L python3-sklearn 2>/dev/null | grep '/breast_cancer\.csv$' || true)
if [[ -n $source && -r $source ]]; then
  say "preparing $source: tumours, benign or malignant, by measurements of cell nuclei"
  /usr/bin/python3 -B tool/demo_data.py "$source" --train "$demo/train.csv" --test "$demo/test.csv"
else
  say "generating data: python3-sklearn, whose data set is used otherwise, is not installed"
  /usr/bin/python3 -B tool/datagen.py -m classification -o "$demo/all.csv" -n 2500 -k 30 --seed 1
  head -n 2000 "$demo/all.csv" >"$demo/train.csv"
  tail -n 500 "$demo/all.csv" >"$demo/test.csv"
fi

say "writing $demo/cfg.json"
cat >"$demo/cfg.json" <<CONFIG
{
  "training_input": "$demo/train.csv",
  "test_input": "$demo/test.csv",
  "predict_input": "$demo/test.csv",
  "output": "$demo/output",
  "update_file": "build/lib/liblr_update.so",
  "update_func": "lr_theta_update",
  "method": "dgd",
  "rounds": 300,
  "alpha": 0.5,
  "beta": 0.001,
  "debug": false
}
CONFIG
cat "$demo/cfg.json"

say "training: ./prun.py -w 4 -p 2 -c $demo/cfg.json -m local build/bin/lr"
./prun.py -w 4 -p 2 -c "$demo/cfg.json" -m local build/bin/lr

say "done"
echo "model        $demo/output/lr_theta_0 and $demo/output/model.json"
echo "predictions  $demo/output/pred_v_<rank>"
echo "every round  $demo/output/metrics.jsonl"
