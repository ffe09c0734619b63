"""The models that are measured: two real ones, and random weights at public shapes, made here and kept.

    python perf/bench_models.py NAME...     make or find them, print their paths; --list: the names
"""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import synthetic_gguf
from bench_options import ALL_MODELS as ALL
from bench_options import FORMATS, REAL, SHAPES, SYNTHETIC

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "engine" / "perf"
SPARE_BYTES = 4 << 30  # left free on the disk


class CannotMake(Exception):
    """Says why a model is not to be had."""


def say(text):
    print(f"models: {text}", file=sys.stderr, flush=True)


def synthetic_path(name):
    return CACHE / f"{name}.gguf"


def need_disk(n_bytes):
    CACHE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(CACHE).free
    if free < n_bytes + SPARE_BYTES:
        raise CannotMake(f"{n_bytes / 1e9:.1f} GB are needed in {CACHE}, {free / 1e9:.1f} GB are free")


def quantize(source, target, ftype):
    """llama.cpp's own quantiser, all cores."""
    try:
        import llama_cpp
    except ImportError:
        raise CannotMake("llama-cpp-python quantises the synthetic models and is not installed") from None
    quiet = llama_cpp.llama_log_callback(lambda _level, _text, _user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = ftype, len(os.sched_getaffinity(0))
    part = target.with_suffix(".part")
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params))
    if code != 0:
        part.unlink(missing_ok=True)
        raise CannotMake(f"llama_model_quantize failed: {code}")
    part.rename(target)


def make_shape(shape, formats):
    """The missing formats of one shape; the F16 file is deleted afterwards."""
    f16 = CACHE / f"{shape}.F16.part"
    n_bytes = synthetic_gguf.f16_bytes(shape)
    need_disk(n_bytes + n_bytes * 6 // 10 * len(formats))
    start = time.monotonic()
    say(f"{shape}: writing {n_bytes / 1e9:.1f} GB of random F16")
    try:
        synthetic_gguf.write(shape, f16, lambda done: say(f"{shape}: {100 * done:.0f} %"))
        for name in formats:
            say(f"{shape}: quantising to {name} ({time.monotonic() - start:.0f} s so far)")
            quantize(f16, synthetic_path(f"{shape}.{name}"), FORMATS[name])
    finally:
        f16.unlink(missing_ok=True)


def find(name):
    """The file if it is there, else None."""
    if name in SYNTHETIC:
        return synthetic_path(name) if synthetic_path(name).is_file() else None
    return Path(name) if name.endswith(".gguf") and Path(name).is_file() else None


def ensure(names):
    """{name: path or CannotMake}; a name may be the path of a GGUF file."""
    out, missing = {}, {}
    for name in names:
        if name in REAL:
            made = subprocess.run(
                ["bash", str(ROOT / "examples" / "fetch_model.sh"), name], stdout=subprocess.PIPE, text=True
            )
            out[name] = Path(made.stdout.strip()) if made.returncode == 0 else CannotMake("fetch_model.sh failed")
        elif found := find(name):
            out[name] = found
        elif name in SYNTHETIC:
            shape, quantisation = name.split(".")
            missing.setdefault(shape, []).append(quantisation)
        else:
            out[name] = CannotMake(f"no model {name}; there are {', '.join(ALL)} and GGUF files")
    for shape, formats in missing.items():
        try:
            make_shape(shape, formats)
            out.update({f"{shape}.{f}": synthetic_path(f"{shape}.{f}") for f in formats})
        except CannotMake as reason:
            say(f"{shape}: {reason}")
            out.update({f"{shape}.{f}": reason for f in formats})
    return {name: out[name] for name in names}


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(ALL))
    else:
        for path in ensure(sys.argv[1:] or ALL).values():
            print(path)
