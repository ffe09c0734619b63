"""Gate I: the engine on the toys against transformers fp32 and against the NumPy float64 reference,
at 120 positions."""

from pathlib import Path

import numpy as np
import pytest

import gates
import ref_forward
import toys

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
TOYS = list(toys.TOYS)
QUANTISED = [t.name for t in toys.TOYS.values() if t.formats]
PLAIN = [name for name in TOYS if name not in QUANTISED]
RECORDED = [t.name for t in toys.TOYS.values() if t.has_golden]


def engine_logits(engine, path, ids, kv):
    with engine.Model(path) as model, model.session(kv=kv, n_ctx=len(ids)) as session:
        logits = session.decode_all(ids)
        assert session.position() == len(ids)
        assert session.kernels(), "no kernel was counted"
        return logits


@pytest.mark.parametrize("name", RECORDED)
def test_f32_cache_against_transformers(name, engine, toy_path):
    golden = np.load(GOLDEN / f"toy_{name}.npz")
    logits = engine_logits(engine, toy_path(name), golden["ids"], "f32")
    assert gates.relative_error(logits, golden["logits"]) <= gates.TOY_BAR_F32


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_against_numpy(name, engine, toy_path):
    """The same weights, decoded, and the same rounding of activations; a value at the edge between two
    codes may take the other one."""
    ids = toys.token_ids(toys.TOYS[name])
    logits = engine_logits(engine, toy_path(name), ids, "f32")
    rounded = ref_forward.Reference(toy_path(name), round_act=True).logits(ids)
    error = np.abs(logits - rounded).max(axis=1) / np.abs(rounded).max()
    print(f"{name}: median position {np.median(error):.1e}, worst {error.max():.1e}")
    assert np.median(error) <= gates.TOY_BAR_QUANTISED
    assert error.max() <= gates.TOY_BAR_FLIPPED


@pytest.mark.parametrize("name", PLAIN)
def test_f32_cache_against_numpy(name, engine, toy_path):
    ids = toys.token_ids(toys.TOYS[name])
    logits = engine_logits(engine, toy_path(name), ids, "f32")
    oracle = ref_forward.Reference(toy_path(name)).logits(ids)
    error = gates.relative_error(logits, oracle)
    print(f"{name} f32: {error:.2e}")
    assert error <= gates.TOY_BAR_F32


@pytest.mark.parametrize("name", RECORDED)
def test_f16_cache(name, engine, toy_path):
    golden = np.load(GOLDEN / f"toy_{name}.npz")
    logits = engine_logits(engine, toy_path(name), golden["ids"], "f16")
    rounded = ref_forward.Reference(toy_path(name)).logits(golden["ids"], kv="f16")
    exact = ref_forward.Reference(toy_path(name)).logits(golden["ids"])
    cost = gates.relative_error(rounded, exact)
    plain, same_rounding = gates.relative_error(logits, golden["logits"]), gates.relative_error(
        logits, rounded
    )
    print(f"{name} f16: {plain:.2e}, same rounding {same_rounding:.2e} of {cost:.2e}")
    assert plain <= gates.TOY_BAR_F16
    assert same_rounding <= gates.TOY_BAR_F16_PART * cost


@pytest.mark.parametrize("name", PLAIN)
def test_q8_0_cache(name, engine, toy_path):
    ids = toys.token_ids(toys.TOYS[name])
    logits = engine_logits(engine, toy_path(name), ids, "q8_0")
    reference = ref_forward.Reference(toy_path(name))
    plain = gates.relative_error(logits, reference.logits(ids))
    rounded = reference.logits(ids, kv="q8_0")
    error = np.abs(logits - rounded).max(axis=1) / np.abs(rounded).max()
    print(f"{name} q8_0: {plain:.2e}, same rounding {error.min():.2e} to {error.max():.2e}")
    assert error.min() <= gates.TOY_BAR_Q8_0_BEST
    assert error.max() <= gates.TOY_BAR_Q8_0_PART * plain


@pytest.mark.parametrize("name", TOYS)
def test_info_of_the_toy(name, engine, toy_path):
    t = toys.TOYS[name]
    with engine.Model(toy_path(name)) as model:
        i = model.info
        assert (i.architecture.decode(), i.n_layer, i.n_embd, i.n_head, i.n_head_kv) == (
            t.arch,
            t.n_layer,
            t.n_embd,
            t.n_head,
            t.n_head_kv,
        )
        assert (i.head_dim_k, i.head_dim_v, i.n_ff, i.n_vocab, i.sliding_window) == (
            t.head_dim_full or t.head_dim,
            t.head_dim_full or t.value_dim,
            t.n_ff,
            t.n_vocab,
            t.window,
        )
        assert (
            i.head_is_tied == int(t.tied) and i.n_unused_tensors == 0 and i.n_ctx_train == t.n_ctx
        )
