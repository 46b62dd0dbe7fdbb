#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs missing packages, builds, and runs tests. Stops at the first step that fails.
#
#   tool/test.sh            some of every kind: units, cluster of threads, real processes, kills, simulated jobs, each algorithm,
#                           the README's first job; about 8 minutes on two processors from a fresh clone. If build/ has no tests
#                           yet, it compiles with -O1 in build-quick/, in half the time
#   tool/test.sh NAME ...   the tests whose names match one of these (ctest -R)
#   tool/test.sh --all      every test of these kinds, in a Release build
#   tool/test.sh --ci       as without an option, but units and cluster of the framework (not of the algorithms) under
#                           AddressSanitizer and UndefinedBehaviorSanitizer; a build of the benchmarks, the README's first
#                           command on a fresh machine (mmdebstrap; needs root and a Debian mirror)
#   tool/test.sh --full     every test, units and cluster under both sanitizers and ThreadSanitizer, too, the fuzzers, 20 kills
#                           of each kind of process instead of 3, 200 jobs with faults instead of 10, 10,000 simulated jobs
#                           instead of 150, clang-tidy on all files, quality on more data and seeds (PARACEL_LONG=1), two
#                           hosts and Slurm (network namespaces; needs root), the commands of README and documents on the fresh
#                           machine, the Python package's bindings under both sanitizers, its wheel on Debian 13 and from its
#                           sdist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

ci=0
all=0
full=0
names=()
for option in "$@"; do
  case $option in
    --all) all=1 ;;
    --ci) ci=1 ;;
    --full) ci=1 all=1 full=1 ;;
    -*) echo "test.sh: error: unknown option $option (allowed: --all, --ci, --full, or names of tests)" >&2; exit 2 ;;
    *) names+=("$option") ;;
  esac
done

jobs=$(nproc)
logs=build/test_logs
fuzz_seconds=10
mkdir -p "$logs"
rm -f "$logs"/*.log
started=$SECONDS
say() { printf '\n== [%d min %02d s] %s\n' $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)) "$*"; }

# build <folder> <targets> <cmake options>
build() {
  local folder=$1 targets=$2
  shift 2
  # A unity build from scratch takes less than half the time; an existing build folder keeps its configuration.
  [[ -f $folder/CMakeCache.txt ]] || set -- -DPARACEL_UNITY=ON -DPARACEL_BENCH=OFF -DPARACEL_ASSERTIONS=ON "$@"
  if ((ci)); then set -- "$@" -DPARACEL_BENCH=ON; fi
  # Re-enables what tool/demo.sh or another mode has disabled in that folder.
  cmake -S . -B "$folder" -G Ninja -DPARACEL_TESTS=ON "-DPARACEL_GTESTS=$programs" "$@" >"$logs/configure.log" 2>&1 ||
    { cat "$logs/configure.log"; exit 1; }
  # shellcheck disable=SC2086  # targets is a list of words
  cmake --build "$folder" --target $targets
}

# gtests <folder> <name>: runs the test programs, two processes for each processor at a time, since half of the cluster's time is
# waiting. The long ones are sharded, so that none is left alone at the end; a process that runs many tests is faster than one for
# each test. Without --all they leave out the suites that take longest.
slow=NoMemory*:*WorkerDeaths*:*ChunkLeases*:*/Connections.*:*OptimBars*:A9a*:Word2vecKernel*:BlockKrylov*:*LossyMessages*
shard() {
  local log="$logs/$2_$3_$4.log"
  if GTEST_TOTAL_SHARDS=$5 GTEST_SHARD_INDEX=$4 "$1/bin/$3" --gtest_brief=1 >"$log" 2>&1; then
    tail -n 3 "$log"
    return 0
  fi
  cat "$log"
  if grep -q 'FAILED TEST' "$log" && ! grep -q Sanitizer "$log"; then
    sed -nE "s/^\[  FAILED  \] ([^ ,]+).* \([0-9]+ ms\)$/$3 \1/p" "$log" >>"$logs/$2.failed"
  else
    echo "$3 crashed" >>"$logs/$2.failed"
  fi
  return 1
}
export -f shard
export logs
gtests() {
  local i program parts name
  rm -f "$logs/$2.failed"
  while read -r program; do
    case $program in
      cluster_*_tests | scheduler_tests | node_tests | worker_tests) parts=$((2 * jobs)) ;;
      *) parts=1 ;;
    esac
    for ((i = 0; i < parts; ++i)); do echo "$program $i $parts"; done
  done <"$1/test/gtest_programs" | xargs -P $((2 * jobs)) -L1 bash -c 'shard "$@"' shard "$1" "$2" && return
  # As with processes below: at most three that failed, and no crash or report of a sanitizer, are rerun alone.
  if [[ ! -s $logs/$2.failed ]] || (($(wc -l <"$logs/$2.failed") > 3)) || grep -q ' crashed$' "$logs/$2.failed"; then return 1; fi
  say "failed beside others, again alone: $(paste -sd ',' "$logs/$2.failed")"
  while read -r program name; do
    "$1/bin/$program" --gtest_filter="$name" 2>&1 | tee "$logs/$2_again_$program.log"
  done <"$logs/$2.failed"
}

case $ci$full in
  00) bash tool/setup.sh --test ;;
  10) bash tool/setup.sh --test --fresh ;;
  11) bash tool/setup.sh --long ;;
esac

# Names of tests may be of any program. With --ci units and cluster run under the sanitizers instead.
programs=all
if ((!all && !${#names[@]})); then programs=$( ((ci)) && echo none || echo quick); fi
targets=$([[ $programs == quick ]] && echo quick || echo all)
folder=build
type=Release
seconds=1150  # of a processor
if [[ $programs == quick ]] && ! grep -qs '^PARACEL_TESTS:BOOL=ON' build/CMakeCache.txt; then
  folder=build-quick
  type=Quick
  seconds=500
fi
say "building ($type) in $folder/: about $((seconds / jobs / 60 + 1)) min on this machine, if it was never built before"
build $folder "$targets" -DCMAKE_BUILD_TYPE=$type -DCMAKE_CXX_FLAGS_QUICK="-O1 -DNDEBUG" -DCMAKE_C_FLAGS_QUICK="-O1 -DNDEBUG"

finish() {
  say "all is well"
  awk '/tests passed, .* tests failed out of/ {passed += $NF}
       /^\[  PASSED  \]/ {passed += $4}
       /inputs, nothing found$/ {passed += 1}
       END {print passed " passed, 0 failed"}' "$logs"/*.log
  exit 0
}
# Three times as many tests in parallel as processors: half of the tests mostly wait, and CPU-bound ones count as two.
run_ctest() { ctest --test-dir $folder --output-on-failure --no-tests=error -j $((3 * jobs)) "$@"; }

# Tests of real processes have time limits, which a busy machine (the fresh machine compiles concurrently) may exceed. If at most
# three of these tests fail and nothing else does, they are rerun alone, and that result counts.
failed=$folder/Testing/Temporary/LastTestsFailed.log  # ctest writes it when it finishes
alone() {
  if [[ ! -s $failed ]] || (($(wc -l <"$failed") > 3)) || grep -qvE '^[0-9]+:(process|alg)\.' "$failed"; then return 1; fi
  say "failed beside others, again alone: $(cut -d: -f2 "$failed" | paste -sd ' ')"
  ctest --test-dir $folder --output-on-failure --no-tests=error --rerun-failed -j 1
}

if ((${#names[@]})); then
  say "tests that match ${names[*]}"
  run_ctest -R "$(IFS='|'; echo "${names[*]}")" 2>&1 | tee "$logs/ctest.log"
  finish
fi

((full)) && export PARACEL_KILL_RUNS=20 PARACEL_FAULT_RUNS=200 PARACEL_LONG=1 PARACEL_FRESH_PAGES=1
rm -f "$failed"
if ((all)); then
  say "every unit, cluster of threads, processes, simulated jobs, algorithms, installed tree, README"
  chosen=(-LE fresh)
  ((full)) && chosen=()
else
  export GTEST_FILTER="-$slow" PARACEL_QUICK=1 PARACEL_KILL_RUNS=1
  if ((!ci)); then
    say "units, cluster of threads"
    gtests $folder release
  fi
  say "processes, simulated jobs, algorithms, README"
  chosen=(-L quick -LE fresh)
  ((ci)) && chosen=(-L "quick|fresh" -LE long)
fi
run_ctest "${chosen[@]}" 2>&1 | tee "$logs/ctest.log" || alone
((ci)) || finish

say "building with AddressSanitizer and UndefinedBehaviorSanitizer in build-asan/"
((all)) && programs=all || programs=framework
# Clang needs half of GCC's time for it.
build build-asan gtests -DCMAKE_BUILD_TYPE=Sanitize -DPARACEL_SANITIZE=address,undefined \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
say "units and cluster under AddressSanitizer and UndefinedBehaviorSanitizer"
gtests build-asan asan
((full)) || finish

say "building with ThreadSanitizer in build-tsan/"
build build-tsan gtests -DCMAKE_BUILD_TYPE=Sanitize -DPARACEL_SANITIZE=thread \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
say "units and cluster under ThreadSanitizer"
# Debian's libzmq is not instrumented, so its synchronisation is invisible and causes false reports. The cluster uses the
# in-process transport.
GTEST_FILTER='-*Zmq*:*zmq_*:*ZeroMQ*' gtests build-tsan tsan

say "building the fuzzers (clang) in build-fuzz/"
build build-fuzz fuzz_targets -DCMAKE_BUILD_TYPE=Sanitize -DPARACEL_FUZZ=ON -DCMAKE_C_COMPILER=clang \
  -DCMAKE_CXX_COMPILER=clang++
say "fuzzing, $fuzz_seconds s a target"
fuzz() {
  local name
  name=$(basename "$1" .cpp)
  mkdir -p "build-fuzz/corpus/$name"
  local corpora=("build-fuzz/corpus/$name")
  [[ -d test/fuzz/corpus/$name ]] && corpora+=("test/fuzz/corpus/$name")
  if "build-fuzz/bin/$name" -max_total_time=$fuzz_seconds -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/$name-" "${corpora[@]}" >"$logs/$name.fuzz" 2>&1; then
    echo "$name: $(awk '/number_of_executed_units/ {print $2}' "$logs/$name.fuzz") inputs, nothing found"
  else
    tail -n 60 "$logs/$name.fuzz"
    return 1
  fi
}
export -f fuzz
export fuzz_seconds
printf '%s\n' test/fuzz/*.cpp | xargs -P "$jobs" -I{} bash -c 'fuzz {}' | tee "$logs/fuzz.log"

finish
