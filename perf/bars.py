"""The bars of the design (performance.md) as data, and whether a set of rows meets them."""

from collections import namedtuple

# value: what was measured; bar: what it must reach; at_least: or stay below. met None = nothing to judge by.
Result = namedtuple("Result", "name model threads value bar at_least met note")

DEFAULT, PEER, REFERENCE = "planned-fused", "llama.cpp", "reference"
DECODE_OF_READ = 0.90
DECODE_TIMES_PEER = {"llama32-1b.Q4_K_M": 1.6, "llama32-1b.Q6_K": 1.6, "llama32-1b.Q8_0": 1.05}
# Shapes whose decode must reach DECODE_OF_READ; one thread only for the first.
READ_SHAPES = ("llama32-1b", "qwen3-0p6b")
ONE_THREAD_SHAPES = ("llama32-1b",)
PREFILL_512_TIMES_PEER = {True: 4.0, False: 1.5}  # with AMX, without
EIGHT_TOKENS_PASSES = 1.35
TIMES_REFERENCE = 2.7
TIMES_REFERENCE_MODELS = [f"{s}.{q}" for s in ("llama32-1b", "qwen25-1p5b") for q in ("Q4_K_M", "Q6_K")]
OPEN_MS_PER_GB = 50.0
REPACK_GB_S = 1.0


def _speed(row):
    """Median tok/s of a proven row."""
    return row["tok_s"]["median"] if row and not row["void"] and row.get("tok_s") else None


def _ratio(a, b):
    return a / b if a and b else None


def _result(name, model, threads, value, bar, at_least=True, note=""):
    met = None if value is None else (value >= bar if at_least else value <= bar)
    return Result(name, model, threads, value, bar, at_least, met, note)


def judge(rows, loads, amx_ran):
    """rows: {(model, threads, lane, arm): row}; loads: {(model, arm): load}; amx_ran(row): whether its kernels used AMX.
    A list of Result, one for each bar that the measured models are held to."""
    out = []
    most = {m: max(t for mm, t, _, _ in rows if mm == m) for m, _, _, _ in rows}

    def row(model, threads, lane, arm):
        return rows.get((model, threads, lane, arm))

    for model, threads in sorted({(m, t) for m, t, _, _ in rows}):
        shape, all_cores = model.split(".")[0], threads == most[model] and threads > 1
        own = row(model, threads, "generation", DEFAULT)
        peer = _speed(row(model, threads, "generation", PEER))
        if shape in READ_SHAPES and own and (all_cores or shape in ONE_THREAD_SHAPES):
            share = own.get("of_read") if not own["void"] else None
            out.append(_result("decode, of best read", model, threads, share, DECODE_OF_READ))
        if all_cores and model in DECODE_TIMES_PEER and own:
            bar = DECODE_TIMES_PEER[model]
            out.append(_result("decode, times llama.cpp", model, threads, _ratio(_speed(own), peer), bar))
        if all_cores and model in TIMES_REFERENCE_MODELS and own:
            reference = _speed(row(model, threads, "generation", REFERENCE))
            out.append(_result("decode, times reference", model, threads, _ratio(_speed(own), reference), TIMES_REFERENCE))
        prefill = row(model, threads, "prefill-512", DEFAULT)
        if all_cores and shape in ("llama32-1b", "qwen25-1p5b") and prefill:
            amx = amx_ran(prefill)
            ratio = _ratio(_speed(prefill), _speed(row(model, threads, "prefill-512", PEER)))
            bar = PREFILL_512_TIMES_PEER[amx]
            out.append(_result("prefill 512, times llama.cpp", model, threads, ratio, bar, note="AMX" if amx else "no AMX"))
        passes = row(model, threads, "passes", DEFAULT)
        if all_cores and shape == "llama32-1b" and passes:
            value = passes["passes"]["8"]["median"] if not passes["void"] and passes.get("passes") else None
            out.append(_result("8 tokens, in passes", model, threads, value, EIGHT_TOKENS_PASSES, at_least=False))
    for (model, arm), load in sorted(loads.items()):
        if arm != DEFAULT or load["file_bytes"] < 5e8:
            continue
        warm = load["warm"]
        value = 1e3 * warm["open_s"] / (load["file_bytes"] * 1e-9)
        out.append(_result("open, ms per GB", model, load["threads"], value, OPEN_MS_PER_GB, at_least=False))
        rate = load.get("repack_gb_s_per_core")
        out.append(_result("repack, GB/s per core", model, load["threads"], rate, REPACK_GB_S))
    return out
