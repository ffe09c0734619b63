#!/usr/bin/env bash
# Line and branch coverage of lib/ and backends/cpu by all CTest and parity tests; fails below 90 % of lines.
#
#   tests/coverage.sh [MINIMUM]     percent of lines, default 90
#
# The report is build/coverage/report.txt (per file) and report.html. Kernels for CPU targets that this machine
# does not have cannot run here; such lines are compiled out of Highway's static dispatch, not counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
minimum=${1:-90}

bash cmake/install_deps.sh build test venv coverage
python=$(bash cmake/install_deps.sh --print-python)
cmake --preset coverage > /dev/null
cmake --build --preset coverage -j "$(nproc)" > build/coverage/build.log 2>&1 || { tail -50 build/coverage/build.log && exit 1; }
find build/coverage -name '*.gcda' -delete

# A failing test is not this script's business, but it is said: coverage of a failing suite means little.
ctest --test-dir build/coverage -j "$(nproc)" > build/coverage/ctest.log 2>&1 || echo "note: some CTest tests failed"
ENGINE_LIB=$PWD/build/coverage/lib/libengine.so ENGINE_BIN=$PWD/build/coverage/bin \
  "$python" -B -m pytest -q -p no:cacheprovider tests/parity > build/coverage/pytest.log 2>&1 ||
  echo "note: some parity tests failed"

# Branches that only exceptions take are the compiler's, not ours.
gcovr --root . --object-directory build/coverage --filter 'lib/' --filter 'backends/cpu/' \
  --exclude-throw-branches --exclude-unreachable-branches --print-summary \
  --txt build/coverage/report.txt --html-details build/coverage/report.html --fail-under-line "$minimum"
