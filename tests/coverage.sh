#!/usr/bin/env bash
# Line and branch coverage of lib/ and backends/cpu by the unit, kernel, ABI and parity tests; fails below 90 % of lines.
#
#   tests/coverage.sh [MINIMUM]     percent of lines, default 90
#
# The report is build/coverage/report.txt (per file) and report.html. Kernels for CPU targets that this machine
# does not have cannot run here; such lines are compiled out of Highway's static dispatch, not counted.
# Parity tests run on toys: the real models take the same paths, and an instrumented build takes hours for them.
# Environment: ENGINE_JOBS (all processors).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minimum=${1:-90}
jobs=${ENGINE_JOBS:-$(nproc)}
out=build/coverage

say() { printf 'coverage: %s (%d s)\n' "$*" "$SECONDS"; }
# suite NAME COMMAND...: a failing test is not this script's business, but it is said.
suite() {
  local name=$1
  shift
  "$@" > "$out/$name.log" 2>&1 || say "note: some $name tests failed, see $out/$name.log"
  say "$name: $(tail -1 "$out/$name.log")"
}

bash cmake/install_deps.sh build test venv coverage
python=$(bash cmake/install_deps.sh --print-python)
mkdir -p "$out"
say "building, log in $out/build.log"
{ cmake --preset coverage && cmake --build --preset coverage -j "$jobs"; } > "$out/build.log" 2>&1 ||
  { tail -50 "$out/build.log" && exit 1; }
find "$out" -name '*.gcda' -delete

# Whole programs rather than CTest: each process writes all its counters when it ends. [slow] adds no code path.
suite unit "$out/bin/unit_tests" '~[slow]'
suite kernel "$out/bin/kernel_tests" '~[slow]'
suite abi ctest --test-dir "$out" -R '^abi: ' -j "$jobs"
suite parity env ENGINE_LIB="$PWD/$out/lib/libengine.so" ENGINE_BIN="$PWD/$out/bin" ENGINE_MODELS_DIR=/nonexistent \
  "$python" -B -m pytest -q -p no:cacheprovider tests/parity

# Branches that only exceptions take are the compiler's, not ours.
gcovr --root . --object-directory "$out" --filter 'lib/' --filter 'backends/cpu/' \
  --exclude-throw-branches --exclude-unreachable-branches --print-summary -j "$jobs" \
  --txt "$out/report.txt" --html-details "$out/report.html" --fail-under-line "$minimum" ||
  { say "below $minimum % of lines, or no report" && exit 1; }
