#!/usr/bin/env python3
"""Activation patching: which layer and position carries a fact.

Decodes the clean prompt and keeps a hidden state (--site) of every layer and position. Then decodes the corrupted
prompt again and again, each time with the state of one layer at one position replaced by the clean one, and measures
logit(first answer) - logit(second answer) after the last token. The map, layer x position, shows how much of the
difference between the two prompts comes back: 0 = as corrupted, 1 = as clean.

The prompts must have the same number of tokens. Positions before the patched one are decoded once and kept.
Needs NumPy; for the map Matplotlib (cmake/install_deps.sh venv has both: its Python is told by --print-python).
Status: 0 = done, 1 = failed (the reason is on stderr), 2 = wrong command line.

Example: activation_patching.py model.gguf --clean "The capital of France is the city of" \\
             --corrupted "The capital of Italy is the city of" --answers " Paris" " Rome" --out patching.png
"""

import argparse
import json
import sys
import time

import numpy as np

import engine
from logit_lens import draw, main, progress


def first_token(model, text):
    """The id that an answer begins with."""
    ids = model.tokenize(text, bos="none")
    if not len(ids):
        raise ValueError(f"the answer {text!r} has no token")
    return int(ids[0])


def clean_run(session, site, ids, difference):
    """The clean values of the site: (Capture, logit difference)."""
    session.truncate(0)
    with session.capture(site) as capture:
        return capture, difference(session.decode(ids))


def patch_map(session, site, clean, ids, difference, told):
    """Logit differences [L, T] of the corrupted ids with one clean row put in, and the layers [L]."""
    records, values = clean.records, clean.values
    layers = np.unique(records["layer"])
    out = np.full((len(layers), len(ids)), np.nan)
    session.truncate(0)
    for position in range(len(ids)):
        for row in np.flatnonzero(records["position"] == position):
            layer = int(records["layer"][row])
            told(position, layer)
            with session.replace(site, values[row], records[row : row + 1]) as hook:
                out[np.searchsorted(layers, layer), position] = difference(session.decode(ids[position:]))
                if hook.stats()["writes"] != 1:
                    raise RuntimeError(f"the patch of layer {layer}, position {position} was not applied once")
            session.truncate(position)
        if position + 1 < len(ids):
            session.decode(ids[position], logits=False)  # as it is, for the positions that follow
    return out, layers


def parse_options(arguments):
    parser = argparse.ArgumentParser(
        prog="activation_patching.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="a GGUF file")
    parser.add_argument("--clean", default="The capital of France is the city of", help="the prompt with the fact")
    parser.add_argument("--corrupted", default="The capital of Italy is the city of", help="the prompt without it")
    parser.add_argument("--answers", nargs=2, default=[" Paris", " Rome"], metavar=("CLEAN", "CORRUPTED"),
                        help="what each prompt should go on with; the first token of each counts")  # fmt: skip
    parser.add_argument("--site", default="resid_post", help="what is patched (default resid_post)")
    parser.add_argument("-o", "--out", metavar="FILE", help="the map, by name (default activation_patching.png)")
    parser.add_argument("--json", action="store_true", help="a JSON object to stdout; a map only with --out")
    parser.add_argument("--mode", choices=engine.MODES, default="default")
    parser.add_argument("-t", "--threads", type=int, default=0, help="default: all cores that this process may use")
    parser.add_argument("--library", help="libengine.so (default: $ENGINE_LIB, then build/release/lib)")
    options = parser.parse_args(arguments)
    if not options.out and not options.json:
        options.out = "activation_patching.png"
    return options


def run_options(options):
    start = time.monotonic()
    with engine.Model(options.model, library=options.library) as model:
        clean_ids, corrupted_ids = model.tokenize(options.clean), model.tokenize(options.corrupted)
        tokens = [model.token_text(id) for id in corrupted_ids]
        if len(clean_ids) != len(corrupted_ids) or not len(clean_ids):
            clean_tokens = [model.token_text(id) for id in clean_ids]
            raise ValueError(
                f"the prompts must have the same number of tokens, not {len(clean_ids)} and {len(corrupted_ids)}:"
                f"\n  {clean_tokens}\n  {tokens}"
            )
        answers = [first_token(model, a) for a in options.answers]
        n_layers, n_positions = model.n_layer, len(clean_ids)

        def difference(logits):
            return float(logits[answers[0]]) - float(logits[answers[1]])

        def told(position, layer):
            progress(f"position {position + 1} of {n_positions}, layer {layer + 1} of {n_layers}")

        with model.session(threads=options.threads, mode=options.mode, n_ctx=max(n_positions, 8)) as session:
            clean, clean_difference = clean_run(session, options.site, clean_ids, difference)
            session.truncate(0)
            corrupted_difference = difference(session.decode(corrupted_ids))
            differences, layers = patch_map(session, options.site, clean, corrupted_ids, difference, told)
        progress("", "\n" if sys.stderr.isatty() else "")
        changed = [i for i in range(n_positions) if clean_ids[i] != corrupted_ids[i]]
        clean_tokens = [model.token_text(id) for id in clean_ids]
        answer_tokens = [model.token_text(id) for id in answers]
    span = clean_difference - corrupted_difference
    if span == 0:
        raise ValueError("both prompts give the same logit difference; there is nothing to bring back")
    recovery = (differences - corrupted_difference) / span
    if options.out:
        shown = [f"{c.strip()}/{t.strip()}" if c != t else t for c, t in zip(clean_tokens, tokens)]
        limit = max(1.0, float(np.nanmax(np.abs(recovery))))
        title = f"{options.site} patched, {model.name or model.architecture}: {answer_tokens[0]!r} or {answer_tokens[1]!r}"
        draw(options.out, title, shown, layers.tolist(), None, recovery, "share of the logit difference that comes back",
             cmap="RdBu", vmin=-limit, vmax=limit)  # fmt: skip
    seconds = time.monotonic() - start
    if options.json:
        print(json.dumps({
            "site": options.site, "tokens": tokens, "clean_tokens": clean_tokens, "changed_positions": changed,
            "answers": answers, "answer_tokens": answer_tokens, "clean": clean_difference,
            "corrupted": corrupted_difference, "layers": layers.tolist(), "differences": differences.tolist(),
            "recovery": recovery.tolist(), "seconds": seconds,
        }))  # fmt: skip
    else:
        print(f"logit difference: clean {clean_difference:.3f}, corrupted {corrupted_difference:.3f}")
        order = np.argsort(-recovery, axis=None, kind="stable")[:5]
        for layer, position in zip(*np.unravel_index(order, recovery.shape)):
            print(f"  layer {layers[layer]:3d}, position {position:3d} {tokens[position]!r:14} "
                  f"brings back {100 * recovery[layer, position]:.0f} %")  # fmt: skip
        print(f"{options.out}: {recovery.size} patches in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(parse=parse_options, run=run_options, name="activation_patching.py"))
