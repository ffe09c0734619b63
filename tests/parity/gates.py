"""The pass rules of gates G and I as plain functions over arrays, so that they can be tested
without an engine."""

import numpy as np

# Gate I: largest error over all positions and ids, relative to the largest logit.
TOY_BAR_F32 = 1e-4
# f16 keys and values cost 1e-4 to 1.5e-2 (gemma4) on these toys (the float64 reference with rounded keys and
# values, against transformers).
TOY_BAR_F16 = 1.5e-2
# The engine's f16 cache against the float64 reference with the same rounding, as a part of what that rounding costs on the
# toy. A key or value that the engine knows to a relative d falls on the other side of a boundary with probability
# p = d / 2^-11; it is then wrong by a whole step, where rounding alone makes all of them wrong by up to half a step, a
# deviation of a step / sqrt(12). Errors add up as their squares: the part is sqrt(12 p). The toys' f32 logits show d up
# to 2.2e-5 (gemma4), so p = 0.045 and the part 0.73; 0.57 was seen (lfm2, few flips), mostly it is below 0.1.
TOY_BAR_F16_PART = 0.75
# float32 arithmetic against float64, as a multiple of what the float64 pass loses when each value that it names is made
# wrong by what a float32 sum of n products loses, 2^-24 * sqrt(n) of the row's size: see ref_forward.Float32Noise.
# transformers was seen at 0.1 to 0.77 of that on all 33 toys; one draw of the noise stands for many.
F32_NOISE_BAR = 1.5

# The engine's q8_0 cache against the float64 reference with the same rounding: the best position, and the worst as a
# part of what q8_0 costs on this toy. A value between two codes may take the other one, and all later positions
# see it; most toys have no such value and stay below 1e-6 throughout, the worst was 1/11 of the cost.
TOY_BAR_Q8_0_BEST = 1e-6
TOY_BAR_Q8_0_PART = 0.25

# Toys of block formats against float64 on the decoded weights with activations rounded as the engine does: the
# median position (4e-7 was seen), and the worst, where a value between two codes took the other one (1.7e-2 was
# seen). Rounding alone costs 3e-2 to 9e-2 against exact activations.
TOY_BAR_QUANTISED = 1e-6
TOY_BAR_FLIPPED = 4e-2

# Gate G, the stated bars (llama family). llama.cpp itself lies further than that from the mean of
# its own runs on some prompts, and so does exact arithmetic (float64 on the same weights: up to
# 1.03 on SmolLM2, 1.69 on Gemma). Each bar is therefore the larger of the stated one and SPREAD
# times llama.cpp's own distance: an engine with an activation rounding of its own is one more such
# run. The maximum is a tail, so it takes the worst of the model's prompts; the mean is stable and
# is judged for each prompt. Seen with a fault (wrong rotary base, wrong window pattern): max 4 to
# 8, mean 0.7 to 2.3.
LOGIT_MAX, LOGIT_MEAN, LOGIT_COSINE = 1.0, 0.2, 0.998
SPREAD = 1.5


def relative_error(logits, oracle):
    oracle = np.asarray(oracle, np.float64)
    return float(np.abs(logits - oracle).max() / np.abs(oracle).max())


def gate_g(logits, golden, prompt):
    """Compares logits [T, V] with one prompt of a recorded file. Returns (figures, list of what
    failed)."""
    entry, sample_ids, least_margin = (
        golden["prompts"][prompt],
        golden["info"]["sample_ids"],
        flip_margin(golden),
    )
    ours = np.asarray(logits[:, sample_ids], np.float64)
    theirs = np.array(entry["sampled_logits"])
    top_ids, top_logits = np.array(entry["top_ids"]), np.array(entry["top_logits"])
    our_top = np.take_along_axis(np.asarray(logits, np.float64), top_ids, axis=1)
    error = np.concatenate([np.abs(ours - theirs).ravel(), np.abs(our_top - top_logits).ravel()])
    margin = top_logits[:, 0] - top_logits[:, 1]
    decided = margin > least_margin
    wrong = decided & (np.argmax(logits, axis=1) != top_ids[:, 0])
    worst_max = max(e["self"]["max"] for e in golden["prompts"].values())
    bars = {
        "max": max(LOGIT_MAX, SPREAD * worst_max),
        "mean": max(LOGIT_MEAN, SPREAD * entry["self"]["mean"]),
    }
    figures = {
        "max": float(error.max()),
        "mean": float(np.abs(ours - theirs).mean()),
        "cosine": float(
            (ours * theirs).sum() / np.sqrt((ours * ours).sum() * (theirs * theirs).sum())
        ),
        "decided": int(decided.sum()),
        "positions": len(decided),
        "wrong": int(wrong.sum()),
        "max_bar": bars["max"],
        "mean_bar": bars["mean"],
    }
    failed = []
    if wrong.any():
        failed.append(
            f"top-1 differs at positions {np.flatnonzero(wrong).tolist()}: "
            f"margins {margin[wrong].tolist()} > {least_margin:.2f}"
        )
    failed += [
        f"{k} {figures[k]:.4f} > {bar:.4f}" for k, bar in bars.items() if not figures[k] <= bar
    ]
    if not figures["cosine"] >= LOGIT_COSINE:
        failed.append(f"cosine {figures['cosine']:.5f} < {LOGIT_COSINE}")
    return figures, failed


def flip_margin(golden):
    """The envelope of gate G: a top-2 margin above which the winner must be llama.cpp's.

    At least SPREAD times the widest margin at which llama.cpp's own runs change the winner. Those
    are six runs, so the tail is derived as well: a logit's error is taken as normal with llama.cpp's
    own mean absolute distance m, so its deviation is m * sqrt(pi / 2), that of the difference of two
    logits is m * sqrt(pi), and three of those are beyond chance for some hundred positions."""
    entries = golden["prompts"].values()
    seen = max(e["self"]["flip_margin"] for e in entries)
    mean = max(e["self"]["mean"] for e in entries)
    return max(SPREAD * seen, 3.0 * float(np.sqrt(np.pi)) * mean)
