#!/usr/bin/env python3
"""Logit lens: what each layer of a model would say next, if it were the last.

Captures resid_post of every layer and position, sends it through the final norm and the head (engine_unembed), and
draws a map, layer x position, with the likeliest token in each cell and its probability as colour. The last layer is
the model's own answer: its logits are compared bit for bit with those of the decode.

Needs NumPy; for the map Matplotlib (cmake/install_deps.sh venv has both: its Python is told by --print-python).
Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.

Example: logit_lens.py model.gguf --prompt "The capital of France is the city of" --out lens.png
"""

import argparse
import json
import sys
import time
import warnings

import numpy as np

import engine

ROWS_AT_ONCE = 16  # logits of 16 rows of 256,000 values are 16 MB


def progress(text, end=""):
    if sys.stderr.isatty() or end:
        print(f"\r{text}\x1b[K" if sys.stderr.isatty() else text, end=end, file=sys.stderr, flush=True)


def log_softmax(logits):
    """float64 [n, V] of float32 [n, V]."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def lens(session, ids, top):
    """dict of arrays: top_ids and top_p [L, T, top]; final_p [L, T], of the token that the last layer likes best;
    entropy [L, T] in bits; same_bits: the last layer's logits are those of the decode."""
    capture = session.capture("resid_post", layers="all")
    try:
        logits = session.decode_all(ids)
    finally:
        capture.remove()
    residual, layers, _ = capture.grid()
    n_layers, n_positions, _ = residual.shape
    final = logits.argmax(axis=1)
    out = {
        "layers": layers.tolist(),
        "top_ids": np.zeros((n_layers, n_positions, top), np.int32),
        "top_p": np.zeros((n_layers, n_positions, top)),
        "final_p": np.zeros((n_layers, n_positions)),
        "entropy": np.zeros((n_layers, n_positions)),
        "same_bits": True,
    }
    for layer in range(n_layers):
        progress(f"layer {layer + 1} of {n_layers}")
        for begin in range(0, n_positions, ROWS_AT_ONCE):
            rows = slice(begin, min(begin + ROWS_AT_ONCE, n_positions))
            z = session.unembed(residual[layer, rows])
            if layer == n_layers - 1:
                out["same_bits"] &= z.tobytes() == logits[rows].tobytes()
            log_p = log_softmax(z)
            best = np.argsort(-z, axis=1, kind="stable")[:, :top]
            out["top_ids"][layer, rows] = best
            out["top_p"][layer, rows] = np.exp(np.take_along_axis(log_p, best, axis=1))
            out["final_p"][layer, rows] = np.exp(log_p[np.arange(len(z)), final[rows]])
            out["entropy"][layer, rows] = -(np.exp(log_p) * log_p).sum(axis=1) / np.log(2)
    progress("", "\n" if sys.stderr.isatty() else "")
    return out


def label(text, room=9):
    """A token as one line of text that the font can draw."""
    text = text.replace(" ", "␣").replace("\n", "\\n").replace("\t", "\\t").replace("$", r"\$")
    return text if len(text) <= room else text[: room - 1] + "…"


def draw(path, title, tokens, layers, texts, values, colour_label, **style):
    """A map, layer (upwards) x position, with a text in each cell."""
    import matplotlib

    matplotlib.use("Agg")
    warnings.filterwarnings("ignore", message="Glyph")  # the font may lack a token's script: a box is drawn
    from matplotlib import pyplot as plt

    n_layers, n_positions = values.shape
    figure, axes = plt.subplots(
        figsize=(2.5 + 0.85 * n_positions, 1.6 + 0.24 * n_layers), layout="constrained"
    )
    image = axes.imshow(values, aspect="auto", origin="lower", **style)
    axes.set_xticks(range(n_positions), [f"{label(t, 14)}\n{i}" for i, t in enumerate(tokens)], fontsize=8)
    axes.set_yticks(range(n_layers), layers, fontsize=7)
    axes.set_xlabel("token and position")
    axes.set_ylabel("layer")
    axes.set_title(title, fontsize=9)
    for layer in range(n_layers) if texts is not None else ():
        for position in range(n_positions):
            r, g, b, _ = image.cmap(image.norm(values[layer, position]))
            ink = "black" if 0.3 * r + 0.6 * g + 0.1 * b > 0.5 else "white"
            axes.text(position, layer, label(texts[layer][position]), ha="center", va="center", fontsize=6, color=ink)
    figure.colorbar(image, label=colour_label)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="logit_lens.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="a GGUF file")
    parser.add_argument("-p", "--prompt", default="The capital of France is the city of", help="the text to look into")
    parser.add_argument("-o", "--out", metavar="FILE", help="the map, PNG, PDF or SVG by name (default logit_lens.png)")
    parser.add_argument("--top", type=int, default=3, help="tokens for each cell in the JSON (default 3)")
    parser.add_argument("--json", action="store_true", help="a JSON object to stdout; a map only with --out")
    parser.add_argument("--mode", choices=engine.MODES, default="default")
    parser.add_argument("-t", "--threads", type=int, default=0, help="default: all cores that this process may use")
    parser.add_argument("--library", help="libengine.so (default: $ENGINE_LIB, then build/release/lib)")
    options = parser.parse_args(arguments)
    if options.top < 1:
        parser.error("--top must be at least 1")
    if not options.out and not options.json:
        options.out = "logit_lens.png"
    return options


def run(options):
    start = time.monotonic()
    with engine.Model(options.model, library=options.library) as model:
        ids = model.tokenize(options.prompt)
        if not len(ids):
            raise ValueError("the prompt is empty")
        with model.session(threads=options.threads, mode=options.mode, n_ctx=max(len(ids), 8)) as session:
            found = lens(session, ids, options.top)
        tokens = [model.token_text(id) for id in ids]
        texts = [[[model.token_text(id) for id in cell] for cell in row] for row in found["top_ids"]]
    if options.out:
        best = [[cell[0] for cell in row] for row in texts]
        draw(
            options.out, f"logit lens of {model.name or model.architecture}", tokens, found["layers"], best,
            found["top_p"][:, :, 0], "probability of the likeliest token", cmap="viridis", vmin=0, vmax=1,
        )  # fmt: skip
    seconds = time.monotonic() - start
    if options.json:
        answer = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}
        print(json.dumps({"prompt": options.prompt, "ids": ids.tolist(), "tokens": tokens, "top_tokens": texts,
                          **answer, "seconds": seconds}))  # fmt: skip
    else:
        print(f"{options.out}: {len(found['layers'])} layers x {len(ids)} positions in {seconds:.1f} s")
        for i, text in enumerate(tokens):
            when = np.flatnonzero((found["top_ids"][:, i, 0] != found["top_ids"][-1, i, 0])[::-1])
            settled = len(found["layers"]) - (when[0] if len(when) else len(found["layers"]))
            print(f"  {i:3d} {text!r:16} -> {texts[-1][i][0]!r:16} the likeliest from layer {settled} on")
    if not found["same_bits"]:
        print("logit_lens.py: the last layer does not give the bits of the logits", file=sys.stderr)
        return 1
    return 0


def main(arguments=None, parse=parse, run=run, name="logit_lens.py"):
    options = parse(arguments)
    try:
        return run(options)
    except (engine.EngineError, OSError, ValueError, RuntimeError, ImportError) as reason:
        progress("", "\n" if sys.stderr.isatty() else "")
        print(f"{name}: {reason}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
