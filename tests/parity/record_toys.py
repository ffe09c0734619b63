#!/usr/bin/env python3
"""Records the logits of every toy as `transformers` computes them in fp32 with eager attention.

    pip install torch transformers numpy && python tests/parity/record_toys.py [NAME...]

Writes tests/golden/toy_NAME.npz: ids i32[T], logits f32[T, V], and a checksum of the weights, so
that a changed generator is noticed. No cache is used: all T positions are computed in one pass.
"""

import sys
import zlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import transformers

import toys

OUT = Path(__file__).resolve().parent.parent / "golden"


def common(t):
    return dict(
        vocab_size=t.n_vocab,
        hidden_size=t.n_embd,
        intermediate_size=t.n_ff,
        num_hidden_layers=t.n_layer,
        num_attention_heads=t.n_head,
        num_key_value_heads=t.n_head_kv,
        head_dim=t.head_dim,
        max_position_embeddings=t.n_ctx,
        rms_norm_eps=t.eps,
        tie_word_embeddings=t.tied,
        attention_bias=t.attention_bias,
        attn_implementation="eager",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def rope(t):
    out = {"rope_type": "default", "rope_theta": t.rope_base}
    if t.llama3:
        factor, low, high, n0 = t.llama3
        out |= {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": n0,
        }
    if t.linear_factor != 1.0:
        out |= {"rope_type": "linear", "factor": t.linear_factor}
    if t.yarn:
        factor, n0, fast, slow = t.yarn
        out |= {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": n0,
            "beta_fast": fast,
            "beta_slow": slow,
        }
    if t.rotated != t.head_dim:
        out["partial_rotary_factor"] = t.rotated / t.head_dim
    if t.longrope:
        short, long = toys.longrope_factors(t)
        out |= {
            "rope_type": "longrope",
            "short_factor": short.astype(float).tolist(),
            "long_factor": long.astype(float).tolist(),
            "original_max_position_embeddings": t.longrope[0],
            "attention_factor": t.longrope[1],
        }
    return out


def sliding(t):
    return [
        "full_attention" if i % t.pattern == t.pattern - 1 else "sliding_attention"
        for i in range(t.n_layer)
    ]


# family -> name of its classes in transformers, and what its configuration has beyond common() and rope()
CLASSES = {
    "llama": ("Llama", lambda t: {}),
    "smollm3": (
        "SmolLM3",
        lambda t: dict(
            no_rope_layers=[int((i + 1) % t.nope_period != 0) for i in range(t.n_layer)]
        ),
    ),
    "qwen2": ("Qwen2", lambda t: {}),
    "qwen3": ("Qwen3", lambda t: {}),
    "gemma2": (
        "Gemma2",
        lambda t: dict(
            query_pre_attn_scalar=t.head_dim,
            sliding_window=t.window,
            attn_logit_softcapping=t.attn_softcap,
            final_logit_softcapping=t.final_softcap,
            layer_types=sliding(t),
        ),
    ),
    "gemma3": (
        "Gemma3",
        lambda t: dict(
            query_pre_attn_scalar=t.head_dim,
            sliding_window=t.window,
            final_logit_softcapping=t.final_softcap or None,
            layer_types=sliding(t),
            rope_parameters={
                "full_attention": rope(t),
                "sliding_attention": {"rope_type": "default", "rope_theta": t.rope_base_local},
            },
        ),
    ),
    "gemma4": (
        "Gemma4",
        lambda t: dict(
            sliding_window=t.window,
            final_logit_softcapping=t.final_softcap or None,
            layer_types=[
                "full_attention" if i in t.full_layers else "sliding_attention" for i in range(t.n_layer)
            ],
            global_head_dim=t.head_dim_full,
            num_global_key_value_heads=t.n_head_kv_full or None,
            attention_k_eq_v=t.keys_are_values,
            num_kv_shared_layers=t.n_shared_kv,
            use_double_wide_mlp=t.n_shared_kv > 0,
            vocab_size_per_layer_input=t.n_vocab,
            hidden_size_per_layer_input=t.own_width,
            rope_parameters={
                "full_attention": {
                    "rope_type": "proportional",
                    "rope_theta": t.rope_base,
                    "partial_rotary_factor": 0.25,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": t.rope_base_local},
            },
        ),
    ),
    "phi3": (
        "Phi3",
        lambda t: dict(
            sliding_window=t.window or None,
            original_max_position_embeddings=t.longrope[0] if t.longrope else t.n_ctx,
        ),
    ),
    "qwen3moe": (
        "Qwen3Moe",
        lambda t: dict(
            num_experts=t.n_expert,
            num_experts_per_tok=t.n_expert_used,
            moe_intermediate_size=t.n_ff_expert,
            norm_topk_prob=True,
        ),
    ),
    "olmoe": (
        "Olmoe",
        lambda t: dict(num_experts=t.n_expert, num_experts_per_tok=t.n_expert_used),
    ),
    "lfm2": (
        "Lfm2",
        lambda t: dict(
            conv_L_cache=t.n_taps,
            norm_eps=t.eps,
            block_auto_adjust_ff_dim=False,
            layer_types=["conv" if i in t.convs else "full_attention" for i in range(t.n_layer)],
        ),
    ),
    "gpt-oss": (
        "GptOss",
        lambda t: dict(
            num_local_experts=t.n_expert,
            num_experts_per_tok=t.n_expert_used,
            intermediate_size=t.n_ff_expert,
            sliding_window=t.window,
            layer_types=sliding(t),
            rope_parameters=rope(t) | {"truncate": False},
        ),
    ),
    "granite": (
        "Granite",
        lambda t: dict(
            zip(
                (
                    "embedding_multiplier",
                    "attention_multiplier",
                    "residual_multiplier",
                    "logits_scaling",
                ),
                t.multipliers,
            )
        ),
    ),
}


def make(t):
    name, extra = CLASSES[t.arch]
    if t.arch == "llama" and t.window:  # the class whose llama layers slide
        name, extra = "Mistral", lambda t: dict(sliding_window=t.window)
    if t.arch == "llama" and t.n_expert:
        name, extra = "Mixtral", lambda t: dict(
            num_local_experts=t.n_expert, num_experts_per_tok=t.n_expert_used, sliding_window=None
        )
    config_class = getattr(transformers, name + ("TextConfig" if name in ("Gemma3", "Gemma4") else "Config"))
    config = config_class(**(common(t) | {"rope_parameters": rope(t)} | extra(t)))
    return getattr(transformers, name + "ForCausalLM")(config)


def main():
    torch.set_num_threads(1)
    for t in toys.TOYS.values():
        if not t.has_golden or (sys.argv[1:] and t.name not in sys.argv[1:]):
            continue
        model = make(t).float().eval()
        w = toys.weights(t)
        state = {k: torch.from_numpy(v.copy()) for k, v in w.items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected and set(missing) <= ({"lm_head.weight"} if t.tied else set()), (
            missing,
            unexpected,
        )
        if t.tied:
            model.tie_weights()
            assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
        ids = toys.token_ids(t)
        with torch.no_grad():
            logits = (
                model(torch.from_numpy(ids.astype(np.int64))[None], use_cache=False)
                .logits[0]
                .numpy()
            )
        assert logits.dtype == np.float32
        crc = zlib.crc32(b"".join(w[k].tobytes() for k in sorted(w)))
        path = OUT / f"toy_{t.name}.npz"
        np.savez_compressed(
            path,
            ids=ids,
            logits=logits,
            weights_crc32=np.uint32(crc),
            versions=np.array(f"transformers {version('transformers')}, torch {torch.__version__}"),
        )
        print(
            f"{t.name:18} max |logit| {np.abs(logits).max():.3f}  "
            f"std {logits.std():.3f}  {path.stat().st_size} bytes"
        )


if __name__ == "__main__":
    main()
