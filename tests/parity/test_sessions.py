"""Sessions from Python: forks, saved states, portable snapshots read and edited with NumPy, prefixes, KV types."""

import sys
from pathlib import Path

import numpy as np
import pytest

import gates
import toys

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "python"))
sys.path.insert(0, str(ROOT / "perf"))
import engine as binding  # noqa: E402
import kv_quality  # noqa: E402

NAMES = ["llama_untied", "gemma3_default", "lfm2", "gptoss"]
KV_TYPES = ["f16", "f32", "q8_0"]


@pytest.fixture(scope="module", params=NAMES)
def model(request, engine, toy_path):
    with binding.Model(toy_path(request.param), library=engine.library_path()) as opened:
        opened.ids = np.array([int(i) for i in toys.token_ids(toys.TOYS[request.param], 40)], np.int32)
        yield opened


def same(a, b):
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("kv", KV_TYPES)
def test_forks_and_saved_states_go_on_with_the_same_bits(model, kv):
    with model.session(kv=kv) as session:
        session.decode(model.ids[:30], logits=False)
        fork, data = session.fork(), session.save()
        rest = session.decode_all(model.ids[30:])
    with fork:
        assert same(fork.decode_all(model.ids[30:]), rest)
    with model.session(kv=kv) as restored:
        restored.restore(data)
        assert restored.position == 30
        assert same(restored.decode_all(model.ids[30:]), rest)
        with pytest.raises(binding.EngineError, match="CORRUPT"):
            restored.restore(data[:-1])
        with pytest.raises(binding.EngineError, match="KV_MISMATCH"):
            model.session(kv=KV_TYPES[KV_TYPES.index(kv) - 1]).restore(data)


@pytest.mark.parametrize("kv", KV_TYPES)
def test_a_portable_snapshot_goes_back_in_with_the_same_bits(model, kv):
    with model.session(kv=kv) as session, model.session(kv=kv) as other:
        session.decode(model.ids[:30], logits=False)
        snapshot = session.kv()
        assert snapshot.manifest["ids"] == [int(i) for i in model.ids[:30]]
        assert snapshot.manifest["kv_type"] == kv
        assert {str(a.dtype) for a in snapshot.k + snapshot.v} == {"float16" if kv == "f16" else "float32"}
        other.set_kv(snapshot)
        assert same(other.decode_all(model.ids[30:]), session.decode_all(model.ids[30:]))


@pytest.mark.parametrize("kv", KV_TYPES)
def test_an_edited_snapshot_changes_what_follows(model, kv):
    with model.session(kv=kv) as session, model.session(kv=kv) as edited:
        session.decode(model.ids[:30], logits=False)
        snapshot = session.kv()
        for values in snapshot.v:
            values[:, 3:9] = 0  # these positions say nothing any more
        edited.set_kv(snapshot)
        again = edited.kv()
        for a, b in zip(again.k + again.v, snapshot.k + snapshot.v, strict=True):
            assert np.array_equal(a, b)
        assert not same(edited.decode(model.ids[30:31]), session.decode(model.ids[30:31]))
        snapshot.v[0][:, 0] = np.nan
        with pytest.raises(binding.EngineError, match="NONFINITE"):
            edited.set_kv(snapshot)


def test_keys_and_values_are_those_of_the_hooks(model):
    with model.session(kv="f32") as session:
        layers = [n for n, x in enumerate(session.kv().manifest["layers"]) if x["head_dim_k"] > 0]
        with session.hooks():
            captured = session.capture("v", layers=layers)
            session.decode(model.ids[:20], logits=False)
        values, at, _ = captured.grid()
        snapshot = session.kv()
        assert list(at) == layers
        for i, layer in enumerate(layers):
            stored = np.ascontiguousarray(snapshot.v[layer].transpose(1, 0, 2)).reshape(20, -1)
            assert same(stored, np.ascontiguousarray(values[i]))


def test_a_prefix_is_taken_where_it_is_known(engine, toy_path):
    with binding.Model(toy_path("llama_untied"), library=engine.library_path()) as model:
        ids = np.arange(150, dtype=np.int32) % model.n_vocab
        with model.session() as session:
            expected = session.decode(ids)
            assert session.stats()["prefix_bytes"] == 0
        model.prefix_cache(1 << 24)
        with model.session() as session, model.session() as second:
            session.decode(ids, logits=False)
            assert second.take_prefix(ids) == 128
            assert same(second.decode(ids[128:]), expected)


def test_kv_types_differ_by_what_they_round_away(model):
    rows = kv_quality.measure(model, model.ids, {})
    assert [row["kv"] for row in rows] == ["f32", "f16", "q8_0"]
    assert rows[0]["largest_difference"] == 0
    # f16 rounds to 2^-11 of a value, q8_0 to half of 1/127 of a block's largest one
    assert 0 < rows[1]["largest_difference"] < gates.TOY_BAR_F16
    assert 2 * rows[1]["largest_difference"] < rows[2]["largest_difference"] < 0.5
    assert rows[2]["bytes_per_position"] < 0.66 * rows[1]["bytes_per_position"]
    assert rows[1]["bytes_per_position"] == rows[0]["bytes_per_position"] / 2
