"""The oracles against each other, and proof that the toys and the gates notice faults. Needs no
engine."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

import gates
import models
import ref_forward
import toys

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
TOYS = [t.name for t in toys.TOYS.values() if t.has_golden]


@pytest.mark.parametrize("name", TOYS)
def test_generator_still_makes_the_recorded_weights(name):
    golden, w = np.load(GOLDEN / f"toy_{name}.npz"), toys.weights(toys.TOYS[name])
    assert zlib.crc32(b"".join(w[k].tobytes() for k in sorted(w))) == int(golden["weights_crc32"])
    assert np.array_equal(golden["ids"], toys.token_ids(toys.TOYS[name]))


@pytest.mark.parametrize("name", TOYS)
def test_float64_reference_agrees_with_transformers(name, toy_path):
    golden = np.load(GOLDEN / f"toy_{name}.npz")
    logits = ref_forward.Reference(toy_path(name)).logits(golden["ids"])
    noisy = ref_forward.Float32Noise(toy_path(name)).logits(golden["ids"])
    error, noise = gates.relative_error(logits, golden["logits"]), gates.relative_error(noisy, logits)
    print(f"{name}: {error:.1e}, {error / noise:.2f} of the noise of float32")
    assert error <= gates.F32_NOISE_BAR * noise
    assert noise < gates.TOY_BAR_F32, "the toy is too sensitive for gate I"


@pytest.mark.parametrize("name", TOYS)
def test_f16_cache_costs_less_than_its_bar(name, toy_path):
    golden = np.load(GOLDEN / f"toy_{name}.npz")
    error = gates.relative_error(
        ref_forward.Reference(toy_path(name)).logits(golden["ids"], kv="f16"), golden["logits"]
    )
    assert gates.TOY_BAR_F32 < error < gates.TOY_BAR_F16


# Each line is a fault that gives plausible numbers; the toy must miss the bar of gate I by a wide
# margin.
FAULTS = [
    ("llama_untied", {"rope.freq_base": 10100.0}, ()),
    ("llama_untied", {"attention.layer_norm_rms_epsilon": 2e-5}, ()),
    ("llama_untied", {}, ("output.weight",)),
    ("llama_rope_freqs", {}, ("rope_freqs.weight",)),
    ("llama_bias", {}, ("blk.0.attn_q.bias",)),
    ("llama_bias", {}, ("blk.2.attn_output.bias",)),
    ("llama_wide", {"rope.dimension_count": 16}, ()),
    ("gemma3_default", {"attention.sliding_window": 17}, ()),
    ("gemma3_default", {"attention.sliding_window": 15}, ()),
    ("gemma3_default", {"attention.sliding_window": 0}, ()),
    ("gemma3_default", {"attention.sliding_window_pattern": 7}, ()),
    ("gemma3_default", {"rope.freq_base_swa": 1e6}, ()),
    ("gemma3_default", {"rope.freq_base": 1e4}, ()),
    ("gemma3_scaled", {"rope.scaling.factor": 1.0}, ()),
    ("gemma4_shared", {}, ("blk.2.layer_output_scale.weight",)),
    ("gemma4_shared", {}, ("rope_freqs.weight",)),
    ("gemma4_shared", {}, ("blk.4.inp_gate.weight",)),
    ("gemma4_shared", {"attention.sliding_window": 17}, ()),
    ("gemma4_keys", {"rope.freq_base_swa": 10000.0}, ()),
    ("gemma3_scaled", {"rope.freq_base_swa": 10000.0}, ()),
    ("gemma3_scaled", {"attention.sliding_window_pattern": 6}, ()),
    ("gemma3_scaled", {"final_logit_softcapping": 0.0}, ()),
    ("gemma3_scaled", {}, ("output.weight",)),
    ("llama_window", {"attention.sliding_window": 17}, ()),
    ("llama_linear", {"rope.scaling.factor": 4.1}, ()),
    ("llama_yarn", {"rope.scaling.factor": 4.1}, ()),
    ("llama_yarn", {"rope.scaling.original_context_length": 32}, ()),
    ("qwen2_bias", {}, ("blk.0.attn_q.bias",)),
    ("qwen2_bias", {}, ("blk.1.attn_k.bias",)),
    ("qwen2_yarn", {"rope.scaling.type": b"linear"}, ()),
    ("qwen3_wide", {"rope.dimension_count": 16}, ()),
    ("gemma2_caps", {"attn_logit_softcapping": 0.0}, ()),
    ("gemma2_caps", {"final_logit_softcapping": 0.0}, ()),
    ("gemma2_caps", {"attention.sliding_window": 9}, ()),
    ("gemma2_wide", {"attention.sliding_window": 0}, ()),
    ("phi3_window", {"attention.sliding_window": 0}, ()),
    ("phi3_partial", {"rope.dimension_count": 16}, ()),
    ("phi3_long", {"rope.scaling.original_context_length": 512}, ()),
    ("phi3_long", {"rope.scaling.attn_factor": 1.0}, ()),
    ("phi3_short", {"rope.scaling.original_context_length": 64}, ()),
    ("granite_scales", {"embedding_scale": 1.0}, ()),
    ("granite_scales", {"attention.scale": 0.25}, ()),
    ("granite_scales", {"residual_scale": 0.25}, ()),
    ("granite_scales", {"logit_scale": 1.0 / 8.0}, ()),
    ("qwen3moe_untied", {"expert_used_count": 2}, ()),
    ("olmoe", {"expert_used_count": 2}, ()),
    ("lfm2", {"rope.freq_base": 1e5}, ()),
    ("lfm2_taps", {"attention.layer_norm_rms_epsilon": 1e-3}, ()),
    ("gptoss", {}, ("blk.0.attn_sinks.weight",)),
    ("gptoss", {}, ("blk.1.ffn_gate_inp.bias",)),
    ("gptoss", {}, ("blk.2.ffn_down_exps.bias",)),
    ("gptoss", {"attention.sliding_window": 15}, ()),
    ("gptoss", {"rope.scaling.factor": 16.0}, ()),
]


@pytest.mark.parametrize("name,overrides,without", FAULTS, ids=lambda v: str(v))
def test_toys_notice_a_fault(name, overrides, without, toy_path):
    golden = np.load(GOLDEN / f"toy_{name}.npz")
    logits = ref_forward.Reference(toy_path(name), overrides, without).logits(golden["ids"])
    assert gates.relative_error(logits, golden["logits"]) > 3 * gates.TOY_BAR_F32


# Gate G's rule, run on the float64 reference in the engine's place: it must pass as it is and fail
# with a fault.
REAL = [
    ("smollm2", {}, True),
    ("smollm2", {"rope.freq_base": 10000.0}, False),
    ("gemma3", {}, True),
    ("gemma3", {"attention.sliding_window_pattern": 5}, False),
]


@pytest.mark.parametrize("name,overrides,passes", REAL, ids=lambda v: str(v))
def test_gate_g_rule_on_the_reference(name, overrides, passes):
    path = models.find_model(name)
    if path is None:
        pytest.skip(f"{name}: run examples/fetch_model.sh {name}")
    golden = json.loads((GOLDEN / f"llama_{name}.json").read_text())
    entry = golden["prompts"]["en_river"]
    ids = entry["prompt_ids"] + entry["generated_ids"][:-1]
    logits = ref_forward.Reference(path, overrides).logits(ids, kv="f16")
    figures, failed = gates.gate_g(logits, golden, "en_river")
    print(name, overrides, figures)
    assert (not failed) == passes, failed
