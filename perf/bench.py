"""Runs all lanes of all arms on the chosen models and writes one JSON line for each thing measured. See run.sh."""

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np

import bench_models
import bench_options
import engine_arm
import honesty
import peer_arm
import result_file
from lane import PASS_TOKENS, Lane, LaneRun, compare

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
PEER = bench_options.PEER
# Unless arms are named, long prompts leave out what has its bar at short ones and would take minutes.
LONG_PROMPT, LONG_PROMPT_ARMS = 256, ("planned-fused", PEER)
TEXT = (
    "The river rises in the hills above the town, where the first mills were built. In spring its water is cold and "
    "clear, and people walk along the banks to see the herons. The old stone bridge was finished in 1842; it carries "
    "two lanes of traffic, and a narrow path for those who go on foot. "
)


def make_lanes(options):
    n = options.tokens
    lanes = [Lane("generation", "generation", 32, n)]
    lanes += [Lane(f"prefill-{k}", "prefill", k) for k in ((64,) if options.quick else (64, 512))]
    lanes.append(Lane("passes", "passes", 32))
    contexts = [] if options.quick else [4096]
    contexts += [8192, 32768] if options.long else []
    lanes += [Lane(f"context-{c}", "context", c, n) for c in contexts]
    if options.lanes:
        wanted = {lane.name: lane for lane in lanes}
        for name in options.lanes:
            if name.startswith("prefill-"):
                wanted.setdefault(name, Lane(name, "prefill", int(name[8:])))
            if name.startswith("context-"):
                wanted.setdefault(name, Lane(name, "context", int(name[8:]), n))
        unknown = [name for name in options.lanes if name not in wanted]
        if unknown:
            sys.exit(f"bench: no lane {unknown[0]}: generation, prefill-N, passes, context-N, load, profile, allocations")
        lanes = [wanted[name] for name in options.lanes]
    return lanes


def run_json(command, ok=(0,)):
    """The JSON object that a program prints; None and a message where it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode not in ok:
        print(f"bench: {Path(command[0]).name} failed: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def read_bandwidth(threads):
    measured = run_json([BIN / "machine", "--bandwidth-only", "--threads", threads])
    return measured["read_bandwidth_gb_s"][str(threads)] if measured else 0.0


def spread(values, scale=None):
    """min, median, max of values, or of scale / value."""
    values = sorted(scale / v for v in values) if scale else sorted(values)
    if not values:
        return None
    r = [round(float(v), 4) for v in values]
    return {"min": r[0], "median": round(float(np.median(values)), 4), "max": r[-1], "n": len(r)}


class Progress:
    def __init__(self):
        self.start, self.total, self.done, self.failed, self._width = time.monotonic(), 0, 0, 0, 0

    def say(self, text):
        self._clear()
        print(f"[{self.done}/{self.total} {time.monotonic() - self.start:5.0f} s] {text}", file=sys.stderr, flush=True)

    def tick(self, text):
        if sys.stderr.isatty():
            self._clear()
            print(f"  {text}", end="\r", file=sys.stderr, flush=True)
            self._width = len(text) + 2

    def _clear(self):
        if self._width:
            print(" " * self._width, end="\r", file=sys.stderr)
            self._width = 0


class Group:
    """One model at one thread count: its open arms and its prompt."""

    def __init__(self, name, path, threads, options):
        self.name, self.path, self.threads = name, path, threads
        self.arms, self.refused, self.model, self.peer = [], {}, None, None
        try:
            self.model = engine_arm.open_model(path)
        except Exception as reason:  # what our engine cannot open is a result
            why = f"architecture: {reason}" if "architecture" in str(reason).lower() else str(reason)
            self.refused.update({a: why for a in options.arms if a != PEER})
        if PEER in options.arms:
            try:
                self.peer = peer_arm.PeerModel(path)
            except peer_arm.Unusable as reason:
                self.refused[PEER] = str(reason)
        for arm in options.arms:
            if arm == PEER and self.peer:
                n_bytes = self.model.info["bytes_per_token"] if self.model else Path(path).stat().st_size
                self.arms.append(peer_arm.PeerArm(self.peer, threads, n_bytes))
            elif arm != PEER and self.model:
                self.arms.append(engine_arm.EngineArm(arm, self.model, threads, options.target))

    def macs_per_token(self):
        """Multiply-adds of the matmuls of one token: every weight once; an untied embedding is only looked up."""
        if not self.model:
            return None
        i = self.model.info
        return i["n_params"] - (0 if i["head_is_tied"] else i["n_vocab"] * i["n_embd"])

    def kv_bytes_per_token(self, context):
        """KV bytes that attention reads for one token at this context."""
        if not self.model:
            return 0
        plan = self.model.plan(threads=self.threads).to_dict()
        windows = [layer["window"] or context for layer in plan["model"]["layers"]]
        share = sum(min(context, w) for w in windows) / max(1, len(windows))
        return plan["kv"]["bytes_per_position"] * share

    def ids(self, n):
        """A text for models that know one, else fixed ids: n of them."""
        if self.model and not self.name.startswith(tuple(bench_models.SHAPES)):
            ids = [int(i) for i in self.model.tokenize(TEXT)]
            body = ids[1:]
            while len(ids) < n:
                ids += body
            return ids[:n]
        n_vocab = self.model.n_vocab if self.model else self.peer.n_vocab
        return [1] + [int(i) for i in np.random.default_rng(3).integers(300, n_vocab, n - 1)]

    def close(self):
        for thing in (self.model, self.peer):
            if thing:
                thing.close()


def rows_of(lane, group, measured, read_gb_s, common):
    """One row for each arm."""
    peer = next((m for m in measured if m.arm.kind == "peer"), None)
    reference = next((m for m in measured if m.arm.name == "reference"), None)
    kv_bytes = group.kv_bytes_per_token(lane.prompt + lane.tokens / 2) if lane.tokens else 0
    for m in measured:
        row = {
            **common, "kind": "row", "arm": m.arm.name, "prompt_tokens": lane.prompt, "generated_tokens": lane.tokens,
            "context_start": lane.prompt if lane.kind != "prefill" else 0, "context_end": lane.positions(),
            "bytes_per_token": m.bytes_per_token, "kv_bytes_per_token": round(kv_bytes),
            "macs_per_token": group.macs_per_token(), "read_gb_s": read_gb_s, "checksum": m.checksum,
            "ran": m.ran, "void": m.void, "major_faults": m.major_faults,
            "foreign_cores": spread(m.foreign), "stolen_cores": spread(m.stolen), "clock_probe_ms": spread(m.probes),
            **(compare(m, peer) if m is not peer else {"verdict": "peer"}),
        }  # fmt: skip
        if reference and m.arm.kind == "engine":
            row["same_bits_as_reference"] = m.checksum == reference.checksum
        if m.prefill_s:
            row["prefill_s"] = spread(m.prefill_s)
            row["prefill_tok_s"] = spread(m.prefill_s, lane.prompt)
        if m.decode_s:
            row["decode_s"] = spread(m.decode_s)
            row["tok_s"] = spread(m.decode_s, lane.tokens)
            gb_s = 1e-9 * row["tok_s"]["median"] * (m.bytes_per_token + kv_bytes)
            row["gb_s"] = round(gb_s, 3)
            row["of_read"] = round(gb_s / read_gb_s, 4) if read_gb_s else None
        if lane.kind == "prefill":
            row["tok_s"] = row["prefill_tok_s"]
        if lane.kind == "passes":
            row["pass_ms"] = {str(n): spread([1e3 * s for s in m.pass_s[n]]) for n in PASS_TOKENS}
            one = m.pass_s[1]
            row["passes"] = {str(n): spread([s / o for s, o in zip(m.pass_s[n], one)]) for n in PASS_TOKENS}
        yield row, m


def measure_lane(lane, group, options, results, common, progress):
    """Measures a lane and writes its rows."""
    arms = group.arms
    if lane.prompt > LONG_PROMPT and not options.arms_given:
        arms = [a for a in arms if a.name in LONG_PROMPT_ARMS]
    before = read_bandwidth(group.threads)
    run = LaneRun(lane, arms, group.ids(max(lane.prompt, 64)), options.contexts, options.cores, progress.tick)
    measured = run.measure(options.repeats)
    read_gb_s = max(before, read_bandwidth(group.threads))
    trace = f"{group.name}.{group.threads}t.{lane.name}"
    for row, m in rows_of(lane, group, measured, read_gb_s, common):
        if m.choices:
            row["trace"] = results.write_trace(
                f"{trace}.{m.arm.name}", [f"prompt {' '.join(map(str, run.prompt))}"] +
                [f"choice {c} margin {g:.5f}" for c, g in zip(m.choices[0], m.margins + [0.0] * len(m.choices[0]))]
            )  # fmt: skip
        results.add(row)
        if "passes" in row:
            number = f"8 tokens in {row['passes']['8']['median']:.2f} passes"
        else:
            number = f"{row['tok_s']['median']:9.2f} tok/s"
        verdict = "VOID: " + "; ".join(m.void) if m.void else row["verdict"]
        share = f"{100 * row['of_read']:5.1f} % of read" if row.get("of_read") else ""
        progress.say(f"{group.name} {group.threads}t {lane.name:13} {m.arm.name:21} {number} {share}  {verdict}")
    for arm, why in group.refused.items():
        results.add({**common, "kind": "row", "arm": arm, "verdict": "not comparable", "why": why, "void": []})
        progress.say(f"{group.name} {group.threads}t {lane.name:13} {arm:21} not comparable ({why})")
    results.add({**common, "kind": "lane", "arms": options.arms})


def profile(name, path, threads, options, results, common, progress):
    """Per-operator times of the reference and of the default mode, by decode_proxy."""
    for mode in ("reference", "planned-fused"):
        out = run_json(
            [BIN / "decode_proxy", path, "--json", "--profile-operators", "--skip-bandwidth", "--mode", mode, "--threads",
             threads, "--tokens", options.tokens, "--prompt", "The capital of France is"], ok=(0, 3),
        )  # fmt: skip
        if out:
            results.add({**common, "kind": "profile", "mode": mode, "proxy": out})
            progress.say(f"{name} {threads}t profile {mode}: {out['profile']['accounted']:.1f} % of the time in operators")
    results.add({**common, "kind": "lane", "arms": options.arms})


def child(script, name, path, threads, arms, results, common, progress):
    """Lanes that need a process of their own for each arm: load, allocations."""
    for arm in arms:
        command = [sys.executable, ROOT / "perf" / f"bench_{script}.py", "--arm", arm, "--threads", threads, path]
        out = run_json(command)
        if out:
            results.add({**common, "kind": script, "arm": arm, **out})
            progress.say(f"{name} {threads}t {script} {arm}: {out['summary']}")
    results.add({**common, "kind": "lane", "arms": arms})


def work(options, results, run, progress):
    lanes = make_lanes(options) if options.lanes != [] else []
    models = bench_models.ensure(options.models)
    progress.total = len(models) * (len(lanes) * len(options.threads) + len(options.extra) * 1)
    for name, path in models.items():
        if isinstance(path, Exception):
            results.add({"kind": "missing", "model": name, "why": str(path), **run})
            progress.say(f"{name}: {path}")
            continue
        for threads in options.threads:
            group = None
            for lane in lanes:
                common = {"model": name, "threads": threads, "lane": lane.name, "quick": options.quick, **run}
                key = {"model": name, "threads": threads, "lane": lane.name, "quick": options.quick, "arms": options.arms}
                if not options.again and results.has("lane", **key):
                    progress.done += 1
                    continue
                group = group or Group(name, path, threads, options)
                try:
                    measure_lane(lane, group, options, results, common, progress)
                except Exception:
                    progress.failed += 1
                    progress.say(f"{name} {threads}t {lane.name} failed:\n{traceback.format_exc()}")
                progress.done += 1
            if group:
                group.close()
        for extra in options.extra:
            threads = max(options.threads)
            common = {"model": name, "threads": threads, "lane": extra, "quick": options.quick, **run}
            if options.again or not results.has("lane", model=name, threads=threads, lane=extra, quick=options.quick, arms=[]):
                if extra == "profile":
                    profile(name, path, threads, options, results, common, progress)
                else:
                    # The reference allocates as it goes, by contract; the peer's allocations are its own affair.
                    without = (PEER, "reference") if extra == "allocations" else () if options.peer else (PEER,)
                    arms = [a for a in options.arms if a not in without]
                    child(extra, name, path, threads, arms, results, common, progress)
            progress.done += 1


def main():
    options = bench_options.parse()
    options.cores, options.contexts = honesty.machine_cores(), honesty.Contexts()
    options.threads = options.threads or sorted({1, options.cores})
    pinned = honesty.affinity(honesty.thread_affinities(), options.cores)
    if pinned:
        sys.exit(f"bench: {pinned[0]}; run without taskset (bench_threads.py measures pinned runs)")
    machine = run_json([BIN / "machine", "--threads", max(options.threads)])
    if machine is None:
        sys.exit("bench: no build/release/bin/machine; use perf/run.sh")
    commit = result_file.commit()
    path = options.out or result_file.FOLDER / f"{result_file.machine_name(machine)}-{commit}.jsonl"
    results = result_file.ResultFile(path)
    run = {"run": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit}
    results.add({"kind": "machine", **machine, **run})
    options.peer = PEER in options.arms
    if options.peer:
        try:
            results.add({"kind": "peer", **peer_arm.describe(), **run})
        except peer_arm.Unusable as reason:
            print(f"bench: without a peer: {reason}", file=sys.stderr)
            results.add({"kind": "peer", "name": None, "why": str(reason), **run})
            options.peer = False
    progress = Progress()
    work(options, results, run, progress)
    print(results.path)
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
