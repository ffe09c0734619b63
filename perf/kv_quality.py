#!/usr/bin/env python3
"""What the KV types cost in quality: perplexity and top-1 agreement of f16 and q8_0 against f32, on one text.

    perf/kv_quality.py MODEL [--text FILE] [--tokens N] [--threads N] [--json]

The text (default: include/engine.h, prose and code) is decoded once per KV type. Columns: bytes of the cache per
position; perplexity, and its ratio to f32; positions whose most likely token is that of f32, and that of f16; the
largest difference of a logit from f32, in parts of the largest logit. Models with quantised weights round their
activations to 8 bits, so any change of a key, however small, turns some of those roundings: f16 shows how much. Bars:
the perplexity of q8_0 within 1.01 of f16's, and at most 1 % of the positions more than f16 lose the top-1 token of f32.

Example: perf/kv_quality.py model.gguf --tokens 1024
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "python"))
import engine  # noqa: E402

TYPES = ["f32", "f16", "q8_0"]


def log_probability(logits, ids):
    """Of ids[1:] after each logits[:-1], in float64."""
    x = logits[:-1].astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x[np.arange(len(x)), ids[1:]] - np.log(np.exp(x).sum(axis=1))


def measure(model, ids, options):
    """Rows of the table, one per KV type."""
    rows, logits = [], {}
    for kv in TYPES:
        with model.session(n_ctx=len(ids), kv=kv, **options) as session:
            logits[kv] = session.decode_all(ids)
            pages = (len(ids) + 63) // 64
            bytes_per_position = session.stats()["kv_bytes"] / (64 * pages)
        best = {k: v.argmax(axis=1) for k, v in logits.items()}
        rows.append(
            {
                "kv": kv,
                "bytes_per_position": bytes_per_position,
                "perplexity": float(np.exp(-log_probability(logits[kv], ids).mean())),
                "top1_f32": float((best[kv] == best["f32"]).mean()),
                "top1_f16": float((best[kv] == best["f16"]).mean()) if "f16" in best else None,
                "largest_difference": float(
                    np.abs(logits[kv] - logits["f32"]).max() / np.abs(logits["f32"]).max()
                ),
            }
        )
    for row in rows:
        row["ratio"] = row["perplexity"] / rows[0]["perplexity"]
    return rows


def bars(rows):
    """What q8_0 misses, in words."""
    f16, q8 = rows[1], rows[2]
    missed = []
    if q8["perplexity"] > 1.01 * f16["perplexity"]:
        missed.append(f"perplexity of q8_0 is {q8['perplexity'] / f16['perplexity']:.4f} of f16's")
    if q8["top1_f32"] < f16["top1_f32"] - 0.01:
        missed.append(f"q8_0 keeps {100 * q8['top1_f32']:.2f} % of f32's top-1 tokens, f16 {100 * f16['top1_f32']:.2f} %")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, default=ROOT / "include" / "engine.h")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with engine.Model(options.model) as model:
        ids = model.tokenize(options.text.read_text(encoding="utf-8"))[: options.tokens]
        rows = measure(model, np.asarray(ids), {"threads": options.threads})
    missed = bars(rows)
    if options.json:
        print(json.dumps({"tokens": len(ids), "rows": rows, "missed": missed}, indent=1))
    else:
        print(f"{len(ids)} tokens of {options.text}")
        print("kv     bytes/position  perplexity   ratio  top-1 of f32  top-1 of f16  largest difference")
        for r in rows:
            f16 = "" if r["top1_f16"] is None else f"{100 * r['top1_f16']:.2f} %"
            print(
                f"{r['kv']:5} {r['bytes_per_position']:15.0f} {r['perplexity']:11.4f} {r['ratio']:7.4f} "
                f"{100 * r['top1_f32']:11.2f} % {f16:>13} {r['largest_difference']:19.2e}"
            )
        for text in missed:
            print(f"missed: {text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
