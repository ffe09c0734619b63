#!/bin/sh
# Sessions for two minutes under the thread sanitizer (8 of 2 models on 8 threads), and 100,000 tokens with forks,
# batches and undone calls in a release build, after which no more memory may be held.
#
#   tests/soak.sh [SECONDS [TOKENS]]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-120} tokens=${2:-100000} jobs=${ENGINE_JOBS:-$(nproc)}
for preset in tsan release; do
  cmake --preset "$preset" -DENGINE_BUILD_TESTS=ON > /dev/null
  cmake --build --preset "$preset" -j "$jobs" --target abi_session_soak
done
TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" build/tsan/bin/abi_session_soak "$seconds" 2000
build/release/bin/abi_session_soak 1 "$tokens"
