"""Numerics rules: chunk size, call size, thread count and CPU target never change a bit of a
logit."""

import numpy as np
import pytest

import toys

TOYS = list(toys.TOYS)
CHUNKS = [1, 7, 32, 0]
THREADS = [1, 2, 4]


def bits(logits):
    return logits.view(np.uint32)


def run(model, ids, step=None, **options):
    with model.session(**options) as session:
        logits = session.decode_all(ids, step)
        stats = session.stats()
        if options.get("target"):
            assert stats.target.decode() == options["target"]
        if options.get("threads"):
            assert stats.n_threads == options["threads"]
        return logits


def check_all(model, ids, kv, n_ctx, targets=True):
    base = bits(run(model, ids, kv=kv, n_ctx=n_ctx))
    assert np.isfinite(base.view(np.float32)).all()

    def same(what, **options):
        other = bits(run(model, ids, kv=kv, n_ctx=n_ctx, **options))
        rows = np.flatnonzero((other != base).any(axis=1))
        assert (
            not rows.size
        ), f"{what}: {rows.size} of {len(ids)} positions differ, the first is {rows[0]}"

    for chunk in CHUNKS:
        for threads in THREADS:
            same(f"chunk {chunk}, {threads} threads", chunk=chunk, threads=threads)
    for step in (1, 5):
        same(f"{step} ids a call", step=step)
    if targets:
        for target in model.targets():
            same(f"target {target}", target=target, chunk=7)
            same(f"target {target}, one id a call", target=target, step=1)
    with model.session(kv=kv, n_ctx=n_ctx) as session:  # the last row of decode, and truncate
        session.decode(ids[: len(ids) // 2 + 3])
        session.truncate(len(ids) // 2)
        assert np.array_equal(
            bits(session.decode(ids[len(ids) // 2 :])), base[-1]
        ), "decode after truncate"


@pytest.mark.parametrize("kv", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("name", TOYS)
def test_toys(name, kv, engine, toy_path):
    toy = toys.TOYS[name]
    with engine.Model(toy_path(name)) as model:
        assert model.targets()[-1] == "scalar"
        check_all(model, [int(i) for i in toys.token_ids(toy, 70)], kv, 70)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models(name, real_model):
    model = real_model(name)
    ids = model.tokenize("The river rose slowly through the night, and by morning")
    # the scalar target takes seconds a token on these models, so targets run on fewer ids
    check_all(model, ids, "f16", 64, targets=False)
    base = bits(run(model, ids[:4], n_ctx=64))
    for target in model.targets():
        assert np.array_equal(bits(run(model, ids[:4], n_ctx=64, target=target)), base), target
