#!/usr/bin/env bash
# Measures the engine against llama.cpp and its own bars: builds, finds or makes the models, runs, prints, draws.
#
#   perf/run.sh                      everything: hours; stop and start it at will, what is measured stays
#   perf/run.sh --quick              two minutes on SmolLM2: a test of the harness
#   perf/run.sh --models llama32-1b.Q4_K_M --lanes generation,prefill-512
#   perf/run.sh --no-peer ...        without llama.cpp, and without building it
#   perf/run.sh --threads-bench M    case 40: thread counts, pinning, a neighbour, idle time, faults on model M
#   perf/run.sh --help               all options of perf/bench.py
#
# Results: perf/results/MACHINE-COMMIT.jsonl, and a folder of the same name with pictures and token traces.
# The peer is built once, natively, into ${XDG_CACHE_HOME:-~/.cache}/engine/venv-llama. Leave the machine alone meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/engine
venv=$cache/venv-llama
log=$cache/venv-llama.log
say() { printf 'run: %s\n' "$*" >&2; }

peer=1 threads_model=
options=()
while (($#)); do
  case $1 in
    --no-peer) peer= ;;
    --threads-bench)
      threads_model=${2:?which model?}
      shift
      ;;
    -h | --help)
      sed -n '2,13s/^# \{0,1\}//p' perf/run.sh
      exec python3 perf/bench_options.py --help
      ;;
    *) options+=("$1") ;;
  esac
  shift
done

# ---- build ------------------------------------------------------------------------------------------

bash cmake/install_deps.sh build venv
python=$(bash cmake/install_deps.sh --print-python)
say "building"
mkdir -p build
[[ -f build/release/CMakeCache.txt ]] || cmake --preset release > build/perf-configure.log
cmake --build --preset release -j "$(nproc)" --target engine decode_proxy machine allocation_count_preload > build/perf-build.log ||
  { tail -40 build/perf-build.log >&2 && exit 1; }

# ---- the peer ---------------------------------------------------------------------------------------

has_peer() { [[ -x $venv/bin/python ]] && "$venv/bin/python" -c 'import llama_cpp' > /dev/null 2>&1; }
# wait_for PID TEXT: progress until a process ends.
wait_for() {
  local start=$SECONDS
  while kill -0 "$1" 2> /dev/null; do
    ((SECONDS - start < 5)) || printf '\rrun: %s, %d s ' "$2" $((SECONDS - start)) >&2
    sleep 1
  done
  printf '\n' >&2
}
make_peer() {
  local other
  mkdir -p "$cache"
  other=$(pgrep -f "$venv/bin/.*pip install" | head -1 || true)
  if [[ $other ]]; then
    wait_for "$other" "another process is building llama-cpp-python"
    has_peer && return
  fi
  say "building llama-cpp-python natively (ten to forty minutes, once); log: $log"
  rm -rf "$venv"
  python3 -m venv "$venv"
  CMAKE_ARGS="-DGGML_NATIVE=ON" "$venv/bin/python" -m pip install --disable-pip-version-check \
    --no-binary llama-cpp-python llama-cpp-python > "$log" 2>&1 &
  local build=$!
  wait_for "$build" "building llama-cpp-python"
  wait "$build" || { tail -5 "$log" >&2 && return 1; }
}
if [[ $peer ]]; then
  exec 8> "$cache/.venv-llama.lock"
  flock 8
  has_peer || make_peer || say "no llama.cpp: its arm is left out, and synthetic models cannot be made"
  exec 8>&-
fi
runner=$python
[[ $peer ]] && has_peer && runner=$venv/bin/python

# ---- measure ----------------------------------------------------------------------------------------

if [[ $threads_model ]]; then
  path=$("$runner" -B perf/bench_models.py "$threads_model")
  exec "$runner" -B perf/bench_threads.py "$path"
fi
load=$(cut -d ' ' -f 1 /proc/loadavg)
awk -v l="$load" 'BEGIN { exit !(l > 0.5) }' && say "the load is $load: something else runs here; rows will say how much it took"
status=0
results=$("$runner" -B perf/bench.py "${options[@]}") || status=$?
[[ ! $results ]] || "$python" -B perf/report.py "$results"
exit $status
