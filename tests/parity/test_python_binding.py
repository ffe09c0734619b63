"""examples/python/engine.py: layouts as engine.h, hooks, and that what they say is true to the bit.

Toys stand for both families; SmolLM2 joins where its file is in the cache.
"""

import gc
import re
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import models
import toys

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "python"))
import engine as binding  # noqa: E402

MODES = ["reference", "planned", "planned-fused"]
NAMES = ["llama_untied", "gemma3_default", "smollm2"]


def bits(array):
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def same(a, b):
    return a.shape == b.shape and np.array_equal(bits(a), bits(b))


@pytest.fixture(scope="module", params=NAMES)
def model(request, engine, toy_path):
    if request.param == "smollm2":
        path = models.find_model("smollm2")
        if path is None:
            pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    else:
        path = toy_path(request.param)
    with binding.Model(path, library=engine.library_path()) as opened:
        opened.ids = ids_for(opened, request.param)
        yield opened


@pytest.fixture(scope="module")
def toy(engine, toy_path):
    with binding.Model(toy_path("llama_untied"), library=engine.library_path()) as opened:
        opened.ids = ids_for(opened, "llama_untied")
        yield opened


def ids_for(model, name):
    if name == "smollm2":
        return model.tokenize("The river rose slowly through the night, and by morning")
    return np.array([int(i) for i in toys.token_ids(toys.TOYS[name], 21)], np.int32)


def direction(model, seed=1):
    return np.random.default_rng(seed).standard_normal(model.n_embd).astype(np.float32)


# -- layout -----------------------------------------------------------------------------------------
def layout():
    sizes, fields, constants = {}, {}, {}
    for line in (ROOT / "tests" / "abi" / "layout.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        kind, what, name, a, b = line.split()
        if what == "size":
            sizes[kind] = int(a)
        elif what == "field":
            fields.setdefault(kind, {})[name] = (int(a), int(b))
        else:
            constants[name] = int(a)
    return sizes, fields, constants


@pytest.mark.parametrize("name", sorted(binding.STRUCTS))
def test_struct_layout(name):
    sizes, fields, _ = layout()
    struct = binding.STRUCTS[name]
    assert binding.C.sizeof(struct) == sizes[name]
    own = {n: (getattr(struct, n).offset, getattr(struct, n).size) for n, _ in struct._fields_}
    assert own == fields[name]


def test_record_layout():
    _, fields, _ = layout()
    own = {n: (offset, dtype.itemsize) for n, (dtype, offset) in binding.RECORD.fields.items()}
    assert own == fields["engine_capture_record"] and binding.RECORD.itemsize == 24


def test_constants():
    _, _, constants = layout()
    for prefix, table in [("BOS", binding.BOS), ("SPECIAL", binding.SPECIAL), ("KV", binding.KV),
                          ("TOKENS", binding.TOKENS), ("HOOK", binding.ACTIONS), ("OPEN", binding.OPEN_FLAGS),
                          ("MODE", binding.MODES), ("WEIGHTS", binding.WEIGHTS)]:  # fmt: skip
        for name, value in table.items():
            assert constants[f"ENGINE_{prefix}_{name.upper().replace('-', '_')}"] == value, name
    fusions = {n: v for n, v in constants.items() if n.startswith("ENGINE_FUSION_")}
    assert sorted(fusions.values()) == sorted(binding.FUSIONS.values())
    assert constants["ENGINE_CAPTURE_POST"] == binding.CAPTURE_POST
    assert constants["ENGINE_CAPTURE_RING"] == binding.CAPTURE_RING
    assert constants["ENGINE_HOOK_FAILED"] == binding.HOOK_FAILED
    assert constants["ENGINE_BUFFER_TOO_SMALL"] == binding.BUFFER_TOO_SMALL


def test_functions_are_in_the_header():
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "engine.h").read_text(), flags=re.S)
    for line in filter(None, binding._FUNCTIONS.split("\n")):
        _, name, *arguments = line.split()
        declared = re.search(rf"ENGINE_API [^;]*?\b{name}\(([^;]*)\);", header)
        assert declared, name
        n = 0 if declared[1].strip() == "void" else declared[1].count(",") + 1
        assert n == len(arguments), name


# -- model, text, sampling --------------------------------------------------------------------------
def test_model_and_text(model):
    assert model.n_vocab == model.info["n_vocab"] and model.architecture in ("llama", "gemma3")
    assert model.tensors()[0]["name"] and "resid_post" in model.sites()
    assert model.site("residual-post-mlp") == model.site("resid_post")
    if model.has_tokenizer:
        assert model.detokenize(model.tokenize("Hello world", bos="none")) == "Hello world"
        assert model.tokenize("Hello").dtype == np.int32


def test_errors(toy, tmp_path):
    with pytest.raises(binding.EngineError) as failed:
        binding.Model(tmp_path / "none.gguf", library=toy.lib.path)
    assert failed.value.status == "FILE_OPEN" and failed.value.message
    with toy.session(n_ctx=8) as s:
        with pytest.raises(binding.EngineError) as failed:
            s.decode([0] * 9)
        assert failed.value.status == "CONTEXT_FULL" and s.position == 0
        with pytest.raises(binding.EngineError) as failed:
            s.zero("resid_pots")
        assert failed.value.status == "ARGUMENT" and "resid_post" in str(failed.value)
        with pytest.raises(binding.EngineError):
            s.capture("resid_pots")
        with pytest.raises(binding.EngineError):
            s.zero("resid_post", layer=toy.n_layer)
        with pytest.raises(ValueError):
            s.unembed(np.zeros(toy.n_embd + 1, np.float32))
    with pytest.raises(ValueError):
        s.decode(toy.ids)
    s.close()
    with pytest.raises(OSError):
        binding.Library(tmp_path / "no_library.so")


def test_generate_and_stream(model):
    with model.session(n_ctx=64) as s:
        ids = list(s.generate(model.ids, 6, ignore_end=True))
        assert len(ids) == 6 and s.position == len(model.ids) + 5
        logits = s.decode(ids[-1])
        s.truncate(0)
        assert same(s.decode(np.concatenate([model.ids, ids])), logits)
        if model.has_tokenizer:
            s.truncate(0)
            text = "".join(s.stream(model.ids, 6, ignore_end=True))
            assert "\ufffd" in text or text == model.detokenize(ids) or text.lstrip() == model.detokenize(ids)
        s.truncate(0)
        random = [binding.Sampler(seed=5, temperature=1.0, library=model.lib.path) for _ in range(2)]
        first = list(s.generate(model.ids, 6, random[0], ignore_end=True))
        s.truncate(0)
        assert first == list(s.generate(model.ids, 6, random[1], ignore_end=True)) and random[0].seed == 5


# -- reading ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_unembed_of_the_last_layer(model, mode):
    with model.session(n_ctx=64, mode=mode) as s:
        capture = s.capture("resid_post", layers=model.n_layer - 1)
        logits = s.decode_all(model.ids)
        assert capture.values.shape == (len(model.ids), model.n_embd)
        assert same(s.unembed(capture.values), logits)
        assert same(s.unembed(capture.values[-1]), logits[-1])


@pytest.mark.parametrize("site", ["resid_post", "attn_z", "ffn_act", "k_rope", "embed"])
def test_capture_equals_callback(model, site):
    """Also over chunk and call sizes: the rows of a reference in one call."""
    wanted = None
    for mode, chunk, step in [("reference", 0, 99), ("planned-fused", 0, 99), ("planned-fused", 4, 5), ("planned", 3, 1)]:
        seen = {}

        def note(event, values):
            for position, token, row in zip(event.positions, event.token_ids, values):
                assert token == model.ids[position] and event.site == site
                assert (event.layer, int(position)) not in seen
                seen[event.layer, int(position)] = row

        with model.session(n_ctx=64, mode=mode, chunk=chunk) as s:
            capture, hook = s.capture(site), s.read(site, note)
            for i in range(0, len(model.ids), step):
                s.decode(model.ids[i : i + step])
            grid, layers, positions = capture.grid()
            assert positions.tolist() == list(range(len(model.ids)))
            assert layers.tolist() == ([-1] if site == "embed" else list(range(model.n_layer)))
            assert hook.stats()["positions"] == grid.shape[0] * grid.shape[1] == len(seen)
            called = np.stack([[seen[int(l), int(p)] for p in positions] for l in layers])
            assert same(grid, called)
        wanted = grid if wanted is None else wanted
        assert same(grid, wanted), (mode, chunk, step)


def test_hooks_that_read_change_nothing(model):
    with model.session(n_ctx=64) as s:
        base = s.decode_all(model.ids)
        s.truncate(0)
        with s.hooks():
            for name, site in model.sites().items():
                if site.n_layers:
                    s.capture(name, rows=4, ring=True)
            assert same(s.decode_all(model.ids), base)
        s.truncate(0)
        assert same(s.decode_all(model.ids), base)


def test_positions(toy):
    n = len(toy.ids)
    for positions, wanted in [
        ("all", range(n + 3)), ("last", [n - 1]), ("generated", range(n, n + 3)), ([2, 5], [2, 5]), (3, [3]),
        (range(4, 8), range(4, 8)), (range(0, 9, 4), [0, 4, 8]), (binding.every(5), range(0, n + 3, 5)),
        (binding.generated(1, 2), [n + 1]), (binding.generated(1), [n + 1, n + 2]),
    ]:  # fmt: skip
        with toy.session(n_ctx=64, chunk=4) as s:
            capture = s.capture("resid_mid", layer=1, positions=positions)
            s.decode(toy.ids)
            for id in (1, 2, 3):
                s.decode(id)
            assert capture.records["position"].tolist() == list(wanted), positions
            assert set(capture.records["layer"]) == {1} and capture.stats()["writes"] == 0


def test_ring_and_room(toy):
    with toy.session(n_ctx=64, sequence=7) as s:
        everything = s.capture("resid_post", layer=0)
        ring = s.capture("resid_post", layer=0, rows=5, ring=True)
        small = s.capture("resid_post", layer=0, rows=5)
        s.decode(toy.ids)
        n = len(toy.ids)
        assert ring.records["position"].tolist() == list(range(n - 5, n)) and ring.dropped == 0
        assert same(ring.values, everything.values[-5:])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert same(small.values, everything.values[:5])
        assert small.dropped == n - 5 and len(told) == 1 and "rows=" in str(told[0].message)
        assert (everything.records["sequence"] == 7).all()
        assert everything.records["token_id"].tolist() == toy.ids.tolist()


# -- writing ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("site", ["resid_pre", "q", "attn_out", "ffn_gate", "resid_post"])
def test_write_back_unchanged(model, mode, site):
    with model.session(n_ctx=64, mode=mode) as s:
        base = s.decode_all(model.ids)
        s.truncate(0)
        with s.write(site, lambda event, values: None) as hook:
            assert same(s.decode_all(model.ids), base)
            assert hook.stats()["writes"] == model.n_layer * len(model.ids)
        s.truncate(0)
        with s.write(site, lambda event, values: values * 0) as hook:
            assert not same(s.decode_all(model.ids), base)


def test_steering_is_reproducible(model):
    """The same ids and logits in every mode, thread count and chunk."""
    vector, layer, wanted = direction(model), model.n_layer // 2, None
    for mode, threads, chunk in [("reference", 1, 0), ("planned", 1, 3), ("planned-fused", 2, 0), ("planned-fused", 1, 5)]:
        weights = "stored" if threads == 2 else "packed"
        with model.session(n_ctx=64, mode=mode, threads=threads, chunk=chunk, weights=weights) as s:
            plain = s.decode(model.ids)
            s.truncate(0)
            with s.add("resid_post", layer=layer, values=vector, alpha=2.5) as hook:
                ids = list(s.generate(model.ids, 8, ignore_end=True))
                logits = s.decode(ids[-1])
                assert hook.stats()["writes"] == len(model.ids) + 8
                assert hook.stats()["decode_positions"] == 8
            s.truncate(0)
            assert same(s.decode(model.ids), plain)
        wanted = wanted or (ids, logits)
        assert ids == wanted[0] and same(logits, wanted[1]), (mode, threads, chunk)
    assert not same(plain, logits)


def test_declared_actions_as_numpy(toy):
    """Every declared writer against what NumPy makes of the captured value."""
    v, w, rank = direction(toy), direction(toy, 2), 3
    a = np.random.default_rng(3).standard_normal((toy.n_embd, rank)).astype(np.float32)
    b = np.random.default_rng(4).standard_normal((rank, toy.n_embd)).astype(np.float32)
    cases = {
        "add": (lambda s: s.add("resid_mid", v, layer=1, alpha=0.5), lambda x: x + 0.5 * v),
        "scale": (lambda s: s.scale("resid_mid", 0.25, layer=1), lambda x: 0.25 * x),
        "set": (lambda s: s.set("resid_mid", v, layer=1), lambda x: 0 * x + v),
        "zero": (lambda s: s.zero("resid_mid", layer=1), lambda x: 0 * x),
        "interpolate": (lambda s: s.interpolate("resid_mid", v, 0.3, layer=1), lambda x: x + 0.3 * (v - x)),
        "project_out": (
            lambda s: s.project_out("resid_mid", w, layer=1),
            lambda x: x - np.outer(x @ w / (w @ w), w),
        ),
        "clamp": (lambda s: s.clamp("resid_mid", -0.1, 0.2, layer=1), lambda x: np.clip(x, -0.1, 0.2)),
        "low_rank": (lambda s: s.low_rank("resid_mid", a, b, layer=1, alpha=0.1), lambda x: x + 0.1 * (x @ b.T) @ a.T),
    }
    for name, (register, expected) in cases.items():
        with toy.session(n_ctx=64) as s:
            before, hook = s.capture("resid_mid", layer=1), register(s)
            after = s.capture("resid_mid", layer=1, post=True)
            s.decode(toy.ids)
            assert hook.action == name and hook.stats()["writes"] == len(toy.ids)
            wanted = expected(before.values.astype(np.float64))
            assert np.allclose(after.values, wanted, rtol=1e-5, atol=1e-5), name


def test_replace_from_a_capture(model):
    """Activation patching: all rows put back give the bits of the run they are from."""
    other = model.ids[::-1].copy()
    layer = model.n_layer - 1
    with model.session(n_ctx=64) as s:
        with s.capture("resid_post", layers=[0, layer]) as clean:
            base = s.decode_all(model.ids)
        s.truncate(0)
        corrupted = s.decode_all(other)
        s.truncate(0)
        with s.replace("resid_post", clean.values, clean.records) as hook:
            assert same(s.decode_all(other), base)
            assert hook.stats()["writes"] == 2 * len(other)
        s.truncate(0)
        with s.replace("resid_post", clean.grid()[0][1][4], positions=4, layer=layer):
            patched = s.decode_all(other)
        assert same(patched[4], base[4]) and same(patched[:4], corrupted[:4]) and same(patched[5:], corrupted[5:])


# -- scopes, failures, lifetimes --------------------------------------------------------------------
def test_scopes(toy):
    with toy.session(n_ctx=64) as s:
        base = s.decode(toy.ids)
        s.truncate(0)
        outside = s.capture("resid_post")
        with s.hooks():
            outer = s.zero("ffn_out")
            with s.hooks():
                inner = s.zero("attn_out")
                assert not same(s.decode(toy.ids), base)
            assert outer.active and not inner.active and inner.stats()["writes"] == toy.n_layer * len(toy.ids)
            outer.remove()
            outer.remove()
        assert outside.active and not outer.active
        s.truncate(0)
        assert same(s.decode(toy.ids), base)
        try:
            with s.hooks():
                s.zero("ffn_out")
                raise KeyError
        except KeyError:
            pass
        s.truncate(0)
        assert same(s.decode(toy.ids), base)
    assert not outside.active and len(outside.values) == outside.stats()["rows_captured"] > 0


def test_failing_callback(toy):
    with toy.session(n_ctx=64) as s:
        s.decode(toy.ids[:5])
        counted = s.capture("resid_pre", layer=0)

        def fail(event, values):
            raise LookupError("on purpose")

        with s.read("resid_post", fail, layer=1):
            with pytest.raises(binding.EngineError) as failed:
                s.decode(toy.ids[5:])
        assert failed.value.status == "HOOK_FAILED" and isinstance(failed.value.__cause__, LookupError)
        assert s.position == 5 and counted.stats()["positions"] == 0 and len(counted.values) == 0
        after = s.decode(toy.ids[5:])
    with toy.session(n_ctx=64) as s:
        assert same(s.decode(toy.ids), after)

    def interrupt(event, values):
        raise KeyboardInterrupt

    with toy.session(n_ctx=64) as s, s.read("resid_post", interrupt):
        with pytest.raises(KeyboardInterrupt):
            s.decode(toy.ids)


def test_calls_from_a_callback(toy):
    with toy.session(n_ctx=64) as s:
        told = []

        def call_back(event, values):
            for call in (lambda: s.decode([1]), lambda: s.zero("resid_post"), lambda: s.unembed(values)):
                with pytest.raises(binding.EngineError) as failed:
                    call()
                told.append(failed.value.status)

        with s.read("resid_post", call_back, layer=0, positions="last"):
            s.decode(toy.ids)
        assert told == ["STATE"] * 3

        cancelling = threading.Event()
        with s.read("resid_post", lambda event, values: cancelling.set() or s.cancel(), layer=0):
            with pytest.raises(binding.EngineError) as failed:
                s.decode(toy.ids)
        assert failed.value.status == "CANCELLED" and cancelling.is_set() and s.position == len(toy.ids)


def test_arrays_outlive_everything(engine, toy_path):
    opened = binding.Model(toy_path("llama_untied"), library=engine.library_path())
    s = opened.session(n_ctx=32)
    capture, plan = s.capture("resid_post", layer=0), s.plan()
    s.read("resid_mid", lambda event, values: s.position)  # a cycle through the callback
    s.decode([1, 2, 3])
    values, copy = capture.values, capture.values.copy()
    del s, capture
    opened.close()
    with pytest.raises(ValueError):
        plan.json()
    with pytest.raises(ValueError):
        opened.session()
    del opened, plan
    gc.collect()
    assert same(values, copy) and np.abs(values).sum() > 0
    opened = binding.Model(toy_path("llama_untied"), library=engine.library_path())
    s = opened.session(n_ctx=32)
    opened._sessions.clear()  # as the collector leaves it where it ends the model first
    opened.close()
    with pytest.raises(ValueError):
        s.decode([1])
    s.close()
    for _ in range(5):  # the interpreter may end the parts of a cycle in any order
        opened = binding.Model(toy_path("llama_untied"), library=engine.library_path())
        s = opened.session(n_ctx=32)
        s.read("resid_mid", lambda event, values, s=s: s.position)
        s.decode([1, 2])
        opened.cycle = (opened, s, s.plan())
        del opened, s
        gc.collect()


def test_plans(toy):
    with toy.plan(hooks=[("ffn_act", [1])]) as plan, toy.plan() as plain:
        text = plan.json()
        assert plan.to_dict()["schema"] == "engine.plan/1"
        toy.verify_plan(text)
        assert binding.Plan.diff(text, text, toy.lib.path) == []
        assert binding.Plan.diff(text, plain.json(), toy.lib.path)
        with pytest.raises(binding.EngineError):
            toy.verify_plan(text.replace("ffn_act", "ffn_atc"))
        with toy.session() as s:
            before = s.plan().json()
            with s.capture("ffn_act", layer=1):
                assert binding.Plan.diff(before, s.plan().json(), toy.lib.path)


def test_look(toy):
    with toy.session(n_ctx=64, mode="planned-fused") as s:
        with s.profile() as entries:
            s.decode(toy.ids)
        assert s.kernels() and len(s.fusions()) == 6 and s.stats()["n_ctx"] == 64 == s.n_ctx
        assert entries and entries[-1]["op"] == "call" and entries[-1]["total_ns"] > 0
