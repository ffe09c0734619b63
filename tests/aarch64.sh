#!/usr/bin/env bash
# Gate A on AArch64: cross-builds, then runs under qemu the kernel tests, the signatures of toy models and the tests of
# sessions. Prints the signature of each target; the last line is "N passed, N failed, N skipped".
#
#   tests/aarch64.sh            installs the cross compiler and qemu when they are missing (as root)
#
# Results go to build/results. Environment: ENGINE_JOBS (all processors).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
if (($#)); then
  sed -n '2,7s/^# \{0,1\}//p' tests/aarch64.sh
  [[ $1 == -h || $1 == --help ]] && exit 0 || exit 2
fi

jobs=${ENGINE_JOBS:-$(nproc)}
results=build/results
mkdir -p "$results"
rm -f "$results"/*aarch64*
start=$SECONDS

heading() { printf '\n== aarch64: %s (%d s)\n' "$1" $((SECONDS - start)); }
finish() {
  printf '\n%d passed, %d failed, %d skipped\n' "$@"
  (($2 == 0)) && exit 0 || exit 1
}
# step NAME LOG COMMAND...: ends the script if it fails.
step() {
  local name=$1 log=$2
  shift 2
  heading "$name"
  "$@" > "$log" 2>&1 && return
  grep -A20 -E 'FAILED|[Ee]rror' "$log" | head -100
  echo "failed: $name, see $log"
  finish 0 1 0
}

step "dependencies" "$results/deps-aarch64.log" bash cmake/install_deps.sh build test aarch64
step "configure" "$results/configure-aarch64.log" cmake --preset aarch64
step "build" "$results/build-aarch64.log" \
  cmake --build --preset aarch64 -j "$jobs" --target kernel_tests unit_tests

heading "tests under qemu"
ctest --test-dir build/aarch64 -R '^(kernel|unit)_tests: ' -j "$jobs" --output-on-failure --no-tests=error \
  --output-junit "$PWD/$results/ctest-aarch64.xml" > "$results/ctest-aarch64.log" 2>&1
grep -E '\*\*\*|tests passed' "$results/ctest-aarch64.log"
grep '^signature of ' build/aarch64/Testing/Temporary/LastTest.log
if ! counts=$(python3 tests/count_results.py "$results/ctest-aarch64.xml") || [[ ! $counts ]]; then
  tail -30 "$results/ctest-aarch64.log"
  finish 0 1 0
fi
read -ra counts <<< "$counts"
heading "done"
finish "${counts[@]}"
