"""Gate B: reference, planned and planned-fused give the same bits and the same greedy ids, on the real
models and the toys, and the counters prove which of them ran.

For each prompt the reference decodes the prompt and then N_GREEDY tokens one by one; that sequence with all
its logits is what every mode, thread count, chunk and set of fusions must give again.
"""

import numpy as np
import pytest

import engine_ctypes
import prompts
import toys

N_GREEDY = 12
MODELS = ["smollm2", "gemma3"]
THREADS = [1, 2, 4, 8]
CHUNKS = [1, 7, 32, 0]  # 0: all of these prompts at once
CROSSED = "en_river"  # every thread count with every chunk; the other prompts take them in pairs
# A llama has no norm between a projection and the residual, so the projection adds (F5) and no F2 is
# left; Gemma has one, so the add belongs to it (F2) and F5 has no place.
FUSIONS = {
    "smollm2": {"F1", "F3", "F4", "F5", "F6"},
    "gemma3": {"F1", "F2", "F3", "F4", "F6"},
}
TOYS = list(toys.TOYS)


def bits(logits):
    return np.ascontiguousarray(logits).view(np.uint32)


def first_difference(got, expected):
    rows = np.flatnonzero((bits(got) != bits(expected)).any(axis=1))
    return "" if not rows.size else f"{rows.size} of {len(expected)} rows differ, first {rows[0]}"


class Expected:
    """The reference's answer: ids and a row of logits for each."""

    def __init__(self, model, prompt, n_greedy, **options):
        self.n_prompt = len(prompt)
        self.ids, self.logits = greedy(
            model, prompt, n_greedy, mode="reference", threads=1, chunk=1, **options
        )


def greedy(model, prompt, n_greedy, seen=None, **options):
    """Prompt in one call, then token by token. `seen` takes the session's counters."""
    ids = list(prompt)
    with model.session(n_ctx=len(ids) + n_greedy, **options) as session:
        rows = [session.decode_all(ids)]
        for _ in range(n_greedy):
            ids.append(int(np.argmax(rows[-1][-1])))
            rows.append(session.decode([ids[-1]])[None])
        proof(session, options.get("mode", "default"), seen)
    return ids, np.concatenate(rows)


def prefill(model, ids, step=None, seen=None, **options):
    with model.session(n_ctx=len(ids), **options) as session:
        logits = session.decode_all(ids, step)
        if options.get("threads"):
            assert session.stats().n_threads == options["threads"]
        proof(session, options.get("mode", "default"), seen)
    return logits


def proof(session, mode, seen):
    """The mode is the one that was asked for, by its own word and by what it counted."""
    number = engine_ctypes.MODE["planned-fused" if mode == "default" else mode]
    assert session.stats().mode == number
    counts = session.fusions()
    assert session.kernels()
    if number != engine_ctypes.MODE["planned-fused"]:
        assert not any(counts.values()), (mode, counts)
    if seen is not None:
        seen.update(counts)


@pytest.fixture(scope="module")
def expected(real_model):
    made = {}

    def get(name, prompt):
        if (name, prompt) not in made:
            model = real_model(name)
            ids = model.tokenize(prompts.PROMPTS[prompt])
            made[name, prompt] = Expected(model, ids, N_GREEDY)
        return made[name, prompt]

    return get


@pytest.mark.parametrize("prompt", prompts.PROMPTS)
@pytest.mark.parametrize("name", MODELS)
def test_greedy_ids_and_logits(name, prompt, real_model, expected):
    model, want = real_model(name), expected(name, prompt)
    for mode in ("planned", "planned-fused"):
        seen = {}
        ids, logits = greedy(
            model, want.ids[: want.n_prompt], N_GREEDY, seen, mode=mode, threads=2
        )
        assert ids == want.ids, f"{mode}: other greedy ids"
        assert not (d := first_difference(logits, want.logits)), f"{mode}: {d}"
        ran = {f for f, n in seen.items() if n}
        assert ran == (FUSIONS[name] if mode == "planned-fused" else set()), f"{mode}: {seen}"


@pytest.mark.parametrize("prompt", prompts.PROMPTS)
@pytest.mark.parametrize("name", MODELS)
def test_threads_and_chunks(name, prompt, real_model, expected):
    model, want = real_model(name), expected(name, prompt)
    pairs = (
        [(t, c) for t in THREADS for c in CHUNKS]
        if prompt == CROSSED
        else list(zip(THREADS, CHUNKS))
    )
    for weights in ("packed", "stored"):
        logits = prefill(model, want.ids, threads=2, chunk=7, weights=weights)
        assert not (d := first_difference(logits, want.logits)), f"{weights} weights: {d}"
    for mode in engine_ctypes.MODES:
        # the reference is the yardstick: its own invariance is in test_invariance
        for threads, chunk in pairs if mode != "reference" else [(2, 7)]:
            logits = prefill(model, want.ids, mode=mode, threads=threads, chunk=chunk)
            d = first_difference(logits, want.logits)
            assert not d, f"{mode}, {threads} threads, chunk {chunk}: {d}"


@pytest.mark.parametrize("name", MODELS)
def test_each_fusion_turned_off(name, real_model, expected):
    model, want = real_model(name), expected(name, "en_river")
    ids, logits = want.ids[: want.n_prompt + 4], want.logits[: want.n_prompt + 4]
    for off in sorted(engine_ctypes.FUSION):
        seen = {}
        got = prefill(model, ids, seen=seen, threads=2, chunk=7, without=[off])
        assert not (d := first_difference(got, logits)), f"without {off}: {d}"
        assert seen[off] == 0, f"without {off}: {seen}"
        # what it left undone may be another's to do (without F5, F2 adds), but nothing else stops
        assert {f for f, n in seen.items() if n} >= FUSIONS[name] - {off} - _needs(off), seen
    seen = {}
    got = prefill(model, ids, seen=seen, threads=2, without=list(engine_ctypes.FUSION))
    assert not (d := first_difference(got, logits)), f"without any: {d}"
    assert not any(seen.values()), seen


def _needs(off):
    """Fusions that cannot run without this one: F6 includes the launch of gate and up (F3)."""
    return {"F6"} if off == "F3" else set()


@pytest.mark.parametrize("name", MODELS)
def test_kernel_pattern_and_target(name, real_model, expected):
    """The scalar kernels, chosen by name or by target, in the fused mode: the same bits."""
    model, want = real_model(name), expected(name, "en_river")
    ids, logits = want.ids[:3], want.logits[:3]
    for options in ({"kernels": "rms_norm*scalar"}, {"target": "scalar"}):
        with model.session(n_ctx=8, threads=2, **options) as session:
            d = first_difference(session.decode_all(ids), logits)
            assert not d, f"{options}: {d}"
            names = set(session.kernels())
        scalar = {n for n in names if n.endswith("__cpu_scalar")}
        assert scalar, (options, names)
        if "target" in options:
            assert scalar == names, options
    with pytest.raises(engine_ctypes.EngineError) as raised:
        model.session(kernels="no_such_kernel*")
    assert raised.value.code == 40 and "no_such_kernel" in raised.value.message


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("name", TOYS)
def test_toys(name, kv, engine, toy_path):
    toy = toys.TOYS[name]
    with engine.Model(toy_path(name)) as model:
        prompt = [int(i) for i in toys.token_ids(toy, 70)]
        want = Expected(model, prompt, 8, kv=kv)
        for weights in ("packed", "stored"):
            got = prefill(model, want.ids, threads=2, chunk=7, kv=kv, weights=weights)
            assert not (d := first_difference(got, want.logits)), f"{weights}: {d}"
        for mode in engine_ctypes.MODES:
            for threads, chunk in [(1, 0), (2, 1), (3, 7), (8, 32)]:
                options = {"mode": mode, "threads": threads, "chunk": chunk, "kv": kv}
                got = prefill(model, want.ids, **options)
                assert not (d := first_difference(got, want.logits)), f"{options}: {d}"
            ids, got = greedy(model, prompt, 8, mode=mode, threads=2, kv=kv)
            assert ids == want.ids and not first_difference(got, want.logits), mode


def test_the_comparison_notices_a_bit(real_model, expected):
    """One flipped bit of one logit, and a chunk-dependent KV type, are seen."""
    model, want = real_model("smollm2"), expected("smollm2", "en_river")
    logits = want.logits.copy()
    bits(logits)[-1, 7] ^= 1
    assert first_difference(logits, want.logits).endswith(f"first {len(logits) - 1}")
    other = prefill(model, want.ids, mode="planned-fused", kv="f32")
    assert first_difference(other, want.logits)
