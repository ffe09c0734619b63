"""What it costs to open a file until its first token, for one arm in a process of its own: one JSON object.

    python perf/bench_load.py --arm planned-fused --threads 2 MODEL.gguf

Twice: from the page cache ("warm"), and after the file's pages were dropped from it ("cold").
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import page_cache

N_CTX = 4096
PROMPT = [1, 300, 301, 302, 303, 304, 305, 306]


def status_kb(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def engine_start(arm, path, threads):
    import engine_arm

    base, start = status_kb("VmRSS"), time.perf_counter()
    model = engine_arm.open_model(path)
    opened = time.perf_counter()
    run = engine_arm.EngineArm(arm, model, threads).start(N_CTX)
    ready = time.perf_counter()
    row = run.evaluate(PROMPT)
    first = time.perf_counter()
    stats, plan = run.session.stats(), run.session.plan().to_dict()
    scratch = plan["prefill"]["arena"]["bytes"] + threads * plan["prefill"]["arena"]["thread_scratch_bytes"]
    why, _ = engine_arm.EngineArm(arm, model, threads).prove(run)
    out = {
        "open_s": opened - start, "session_s": ready - opened, "first_token_s": first - ready, "void": why,
        "base_kb": base, "packed_bytes": stats["packed_bytes"], "scratch_bytes": scratch, "finite": bool(np.isfinite(row).all()),
        "kv_bytes_reserved": plan["kv"]["bytes_per_position"] * N_CTX, "kv_bytes": stats["kv_bytes"],
        "stored_bytes": model.info["bytes_per_token"],
    }  # fmt: skip
    return out, run


def peer_start(path, threads):
    import peer_arm

    api = peer_arm.Api()
    base, start = status_kb("VmRSS"), time.perf_counter()
    model = peer_arm.PeerModel(path)
    opened = time.perf_counter()
    run = peer_arm.PeerArm(model, threads, 0).start(N_CTX)
    ready = time.perf_counter()
    row = run.evaluate(PROMPT)
    first = time.perf_counter()
    assert api.llama_n_ctx(run.context) >= N_CTX
    out = {
        "open_s": opened - start, "session_s": ready - opened, "first_token_s": first - ready, "void": [],
        "base_kb": base, "finite": bool(np.isfinite(row).all()),
    }  # fmt: skip
    return out, run


def once(arm, path, threads):
    before = resource.getrusage(resource.RUSAGE_SELF)
    out, run = peer_start(path, threads) if arm == "llama.cpp" else engine_start(arm, path, threads)
    after = resource.getrusage(resource.RUSAGE_SELF)
    out["major_faults"] = after.ru_majflt - before.ru_majflt
    out["minor_faults"] = after.ru_minflt - before.ru_minflt
    base_kb = out.pop("base_kb")  # Python and its libraries
    out["peak_rss_bytes"] = 1024 * (status_kb("VmHWM") - base_kb)
    out["resident_bytes"] = 1024 * (status_kb("VmRSS") - base_kb)
    for field in ("RssFile", "RssAnon", "RssShmem"):
        out[f"{field}_bytes"] = 1024 * status_kb(field)
    run.close()  # until here everything was resident
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in out.items()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--arm", required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--once", action="store_true", help="measure in this process")
    o = p.parse_args()
    if o.once:
        print(json.dumps(once(o.arm, o.model, o.threads)))
        return
    out = {"file_bytes": os.path.getsize(o.model)}
    for name, prepare in (("warm", page_cache.fill), ("cold", page_cache.drop)):
        cached = prepare(o.model)
        command = [sys.executable, __file__, "--once", "--arm", o.arm, "--threads", str(o.threads), o.model]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        out[name] = json.loads(done.stdout.strip().splitlines()[-1])
        out[name]["cached_share_before"] = round(cached, 4)
    page_cache.fill(o.model)
    w = out["warm"]
    # Weights once, the KV cache in use, scratch: what it must hold. The peer's parts are not known to us.
    if "packed_bytes" in w:
        out["needed_bytes"] = max(w["packed_bytes"], w["stored_bytes"]) + w["kv_bytes"] + w["scratch_bytes"]
        if w["packed_bytes"]:
            out["repack_gb_s_per_core"] = round(1e-9 * w["packed_bytes"] / w["session_s"] / o.threads, 3)
    out["summary"] = (
        f"open {1e3 * w['open_s']:.1f} ms, session {1e3 * w['session_s']:.0f} ms, first token {1e3 * w['first_token_s']:.0f} ms, "
        f"peak {1e-6 * w['peak_rss_bytes']:.0f} MB of a file of {1e-6 * out['file_bytes']:.0f} MB, cold major faults "
        f"{out['cold']['major_faults']} ({100 * out['cold']['cached_share_before']:.0f} % was still cached)"
    )
    print(json.dumps(out))


if __name__ == "__main__":
    main()
