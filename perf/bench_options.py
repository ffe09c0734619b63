"""The options of a measurement. Needs nothing but Python, so that --help always answers."""

import argparse

PEER = "llama.cpp"
ARMS = ["reference", "planned", "planned-fused", "planned-fused-stored", PEER]
REAL = ("smollm2", "gemma3")
FORMATS = {"Q4_K_M": 15, "Q6_K": 18, "Q8_0": 7}  # llama_ftype
SHAPES = ("llama32-1b", "qwen25-1p5b", "qwen3-0p6b")
SYNTHETIC = [f"{shape}.{name}" for shape in SHAPES for name in FORMATS]
ALL_MODELS = list(REAL) + SYNTHETIC


def parse(arguments=None):
    p = argparse.ArgumentParser(prog="perf/run.sh", description="Measures the engine against llama.cpp and its bars.")
    p.add_argument("--models", default="all", help=f"all, real, synthetic, or names and GGUF files with commas: {', '.join(ALL_MODELS)}")
    p.add_argument("--arms", help=f"of {', '.join(ARMS)} (default: all)")
    p.add_argument("--threads", default=None, help="counts with commas (default: 1 and all cores)")
    p.add_argument("--lanes", help="generation, prefill-N, passes, context-N, load, profile, allocations (default: all)")
    p.add_argument("--tokens", type=int, help="decoded tokens in a block (default 24)")
    p.add_argument("--repeats", type=int, help="blocks of each arm after warm-up (default 7, at least 5)")
    p.add_argument("--target", help="CPU target to force in our arms, such as avx2")
    p.add_argument("--long", action="store_true", help="also contexts of 8k and 32k")
    p.add_argument("--quick", action="store_true", help="smollm2, 8 tokens, 5 blocks, no long lanes: a test of the harness, no result")
    p.add_argument("--again", action="store_true", help="measure what the result file already has, too")
    p.add_argument("--out", help="result file (default: perf/results/MACHINE-COMMIT.jsonl)")
    o = p.parse_args(arguments)
    o.arms_given = o.arms is not None
    o.arms = o.arms.split(",") if o.arms else list(ARMS)
    if unknown := [a for a in o.arms if a not in ARMS]:
        p.error(f"no arm {unknown[0]}")
    o.repeats = o.repeats or (5 if o.quick else 7)
    if o.repeats < 5:
        p.error("--repeats must be at least 5")
    o.tokens = o.tokens or (8 if o.quick else 24)
    if o.quick and o.models == "all":
        o.models = "smollm2"
    sets = {"all": ALL_MODELS, "real": list(REAL), "synthetic": SYNTHETIC}
    o.models = sets.get(o.models) or o.models.split(",")
    o.threads = sorted({int(t) for t in o.threads.split(",")}) if o.threads else None
    lanes = o.lanes.split(",") if o.lanes else None
    o.extra = ["load", "profile", "allocations"] if lanes is None else [x for x in lanes if x in ("load", "profile", "allocations")]
    o.lanes = [x for x in lanes if x not in o.extra] if lanes else None
    return o


if __name__ == "__main__":
    parse()
