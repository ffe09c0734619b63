"""Case 40 a-c: too many threads, pinning, quotas, a neighbour; idle CPU after decoding; faults at the first token.

    python perf/bench_threads.py MODEL.gguf [--json]

Each measurement runs in a process of its own. A bar that is missed is marked; status 1. Needs a machine that is idle
otherwise: the foreign load is measured and told.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import page_cache

TOKENS, BLOCKS = 24, 3
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu"))
IDLE_MS, FAULTS, TOUCHED, OVERSUBSCRIBED, NEIGHBOUR = 10.0, 10, 0.01, 0.8, 1.3


# ---- in a process of its own ------------------------------------------------------------------------


def child_speed(path, threads):
    """Best of a few blocks of decoding; threads 0 = the engine's own choice."""
    import engine_arm
    from block_probe import Block

    model = engine_arm.open_model(path)
    run = engine_arm.EngineArm("planned-fused", model, threads).start(512)
    row = run.evaluate([1, 300, 301, 302])
    best, foreign, chosen = 1e9, 0.0, [int(np.argmax(row))]
    for _ in range(BLOCKS + 1):  # the first warms up
        with Block() as block:
            for _ in range(TOKENS):
                chosen.append(int(np.argmax(run.evaluate(chosen[-1:]))))
        best, foreign = min(best, block.wall_s), max(foreign, block.foreign)
    return {"tok_s": TOKENS / best, "threads": run.session.stats()["n_threads"], "foreign_cores": foreign, "choices": chosen}


def child_idle(path, threads):
    """CPU time of this process in the second after ten tokens."""
    import engine_arm

    run = engine_arm.EngineArm("planned-fused", engine_arm.open_model(path), threads).start(512)
    for i in range(10):
        run.evaluate([300 + i])
    start = time.process_time()
    time.sleep(1.0)
    return {"idle_cpu_ms": 1e3 * (time.process_time() - start)}


def child_faults(path, threads):
    """Open a cold file; then prefetch it; then major faults until the first token."""
    import resource

    import engine_arm

    cached = page_cache.cached_share(path)
    model = engine_arm.open_model(path)
    touched = page_cache.cached_share(path) - cached
    page_cache.fill(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    run = engine_arm.EngineArm("planned-fused-stored", model, threads).start(512)
    run.evaluate([300])
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
    return {"cached_before": cached, "touched_by_open": touched, "major_faults": faults}


CHILDREN = {"speed": child_speed, "idle": child_idle, "faults": child_faults}


def in_child(what, path, threads, cores=None, group=None):
    """Runs a child, on some cores only, in a control group."""

    def prepare():
        if cores:
            os.sched_setaffinity(0, cores)
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, __file__, "--child", what, "--threads", str(threads), path]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=prepare)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---- the rows ---------------------------------------------------------------------------------------


class Report:
    def __init__(self):
        self.rows = []

    def add(self, name, value, unit, bar=None, at_most=False, note=""):
        met = None if bar is None or value is None else bool(value <= bar if at_most else value >= bar)
        self.rows.append({"name": name, "value": value, "unit": unit, "bar": bar, "met": met, "note": note})
        shown = "-" if value is None else f"{value:.2f}"
        wanted = "" if bar is None else f"{'<=' if at_most else '>='} {bar:g}"
        mark = {None: "", True: "met", False: "MISSED"}[met]
        print(f"{name:46} {shown:>10} {unit:9} {wanted:10} {mark:7} {note}", file=sys.stderr, flush=True)


def thread_rows(report, path, cores):
    """(a) t = 1 .. 2 x cores; the default under taskset."""
    n, results = len(cores), {}
    for t in range(1, 2 * n + 1):
        results[t] = in_child("speed", path, t)
        report.add(f"{t} threads on {n} cores", results[t]["tok_s"], "tok/s", note=f"others {results[t]['foreign_cores']:.1f} cores")
    best = max(r["tok_s"] for r in results.values())
    report.add("2 x cores, of the best", results[2 * n]["tok_s"] / best, "", OVERSUBSCRIBED)
    alike = len({tuple(r["choices"]) for r in results.values()})
    report.add("different outputs of all thread counts", alike, "", 1, at_most=True)
    default = in_child("speed", path, 0)
    report.add("default threads, all cores", default["threads"], "threads", n, at_most=True)
    for k in sorted({1, min(2, n), n}):
        pinned = in_child("speed", path, 0, cores=cores[:k])
        report.add(f"default threads, taskset to {k}", pinned["threads"], "threads", k, at_most=True,
                   note=f"{pinned['tok_s']:.1f} tok/s")  # fmt: skip
    return results[n]["tok_s"]


def spin(core):
    return subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"])


def neighbour_row(report, path, cores, alone):
    """A neighbour spins on half of the cores: we lose at most the share that is proportional, times 1.3."""
    half = cores[: max(1, len(cores) // 2)]
    neighbours = [spin(core) for core in half]
    try:
        time.sleep(0.3)
        beside = in_child("speed", path, len(cores))["tok_s"]
    finally:
        for process in neighbours:
            process.kill()
            process.wait()
    share = (len(cores) - 0.5 * len(half)) / len(cores)
    report.add(f"slower beside {len(half)} spinning neighbours", alone / beside, "times", NEIGHBOUR / share, at_most=True,
               note="proportional share x 1.3")  # fmt: skip


def quota_row(report, path, n):
    """A control group with 1.5 cores: the default number of threads is at most 2."""
    for root in CGROUPS:
        group, second = root / "engine-bench", root.name != "cpu"
        name, text = ("cpu.max", "150000 100000") if second else ("cpu.cfs_quota_us", "150000")
        try:
            group.mkdir(exist_ok=True)
            (group / name).write_text(text)
            result = in_child("speed", path, 0, group=group)
        except (OSError, subprocess.SubprocessError):
            continue
        finally:
            try:
                group.rmdir()
            except OSError:
                pass
        report.add("default threads, quota of 1.5 cores", result["threads"], "threads", min(2, n), at_most=True,
                   note=f"{result['tok_s']:.1f} tok/s")  # fmt: skip
        return
    report.add("default threads, quota of 1.5 cores", None, "threads", note="no control group can be made here")


def fault_rows(report, path, n):
    """On a copy of the file: what others map cannot be dropped from the cache."""
    copy = Path(path).with_name(f".{Path(path).name}.bench_threads")
    try:
        subprocess.run(["cp", "--reflink=never", path, str(copy)], check=True)
        page_cache.drop(copy)
        result = in_child("faults", str(copy), n)
    finally:
        copy.unlink(missing_ok=True)
    note = f"{100 * result['cached_before']:.0f} % was cached before"
    report.add("file read in by opening", 100 * result["touched_by_open"], "%", 100 * TOUCHED, at_most=True, note=note)
    report.add("major faults from prefetch to first token", result["major_faults"], "", FAULTS, at_most=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("--json", action="store_true", help="one JSON object on standard output")
    p.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    p.add_argument("--threads", type=int, default=0, help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.child:
        print(json.dumps(CHILDREN[o.child](o.model, o.threads)))
        return 0
    report, cores = Report(), sorted(os.sched_getaffinity(0))
    alone = thread_rows(report, o.model, cores)
    quota_row(report, o.model, len(cores))
    neighbour_row(report, o.model, cores, alone)
    idle = in_child("idle", o.model, len(cores))
    report.add("CPU time in the second after decoding", idle["idle_cpu_ms"], "ms", IDLE_MS, at_most=True)
    fault_rows(report, o.model, len(cores))
    if o.json:
        print(json.dumps({"kind": "threads", "model": Path(o.model).name, "cores": len(cores), "rows": report.rows}))
    return 1 if any(r["met"] is False for r in report.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
