"""Heap allocations and threads of decoded tokens, counted in a process where every allocation is seen: one JSON object.

    python perf/bench_allocations.py --arm planned-fused --threads 2 MODEL.gguf

The process is started with liballocation_count_preload.so in front of the C library. The counter is believed only
after it has seen what another thread allocates.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

import honesty

COUNTER = Path(__file__).resolve().parent.parent / "build" / "release" / "lib" / "liballocation_count_preload.so"
TOKENS, PAGE, WARM_UP = 48, 64, 4


def process_counter():
    """The counter of this process: a function."""
    process = ctypes.CDLL(None)
    function = process.allocation_count
    function.restype, function.argtypes = ctypes.c_int64, []
    return function


def allocate_elsewhere(n):
    """n blocks through this process's malloc, on a thread of their own."""
    process = ctypes.CDLL(None)
    process.malloc.restype, process.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    process.free.argtypes = [ctypes.c_void_p]

    def work():
        for block in [process.malloc(24) for _ in range(n)]:
            process.free(block)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def measure(arm_name, path, threads):
    import engine_arm

    count = process_counter()
    why = honesty.counter_sees_threads(count, allocate_elsewhere)
    model = engine_arm.open_model(path)
    arm = engine_arm.EngineArm(arm_name, model, threads)
    run = arm.start(256)
    decode, ids, out = run.session.lib.session_decode, np.array([1], np.int32), np.empty(model.n_vocab, np.float32)
    arguments = (run.session.handle, ids.ctypes.data, 1, out.ctypes.data, None)
    for _ in range(PAGE + WARM_UP):
        assert decode(*arguments) == 0
    n_threads = len(honesty.thread_affinities())
    before = count()
    for _ in range(TOKENS):  # all in one KV page
        decode(*arguments)
    allocations = count() - before
    reasons, ran = arm.prove(run)
    return {
        "allocations": allocations, "tokens": TOKENS, "process_threads": n_threads, "void": why + reasons, "mode": ran["mode"],
        "summary": f"{allocations} allocations in {TOKENS} tokens" + (f", VOID: {why + reasons}" if why + reasons else ""),
    }  # fmt: skip


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--arm", required=True)
    p.add_argument("--threads", type=int, required=True)
    o = p.parse_args()
    if os.environ.get("LD_PRELOAD", "").startswith(str(COUNTER)):
        print(json.dumps(measure(o.arm, o.model, o.threads)))
        return
    environment = {**os.environ, "LD_PRELOAD": str(COUNTER), "OPENBLAS_NUM_THREADS": "1"}
    sys.exit(subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode)


if __name__ == "__main__":
    main()
