#!/usr/bin/env python3
"""Records the logits of every toy as `transformers` computes them in fp32 with eager attention.

    pip install torch transformers numpy && python tests/parity/record_toys.py

Writes tests/golden/toy_NAME.npz: ids i32[T], logits f32[T, V], and a checksum of the weights, so
that a changed generator is noticed. No cache is used: all T positions are computed in one pass.
"""

import zlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

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
    )


def make_llama(t):
    rope = {"rope_type": "default", "rope_theta": t.rope_base}
    if t.llama3:
        factor, low, high, n0 = t.llama3
        rope = {
            "rope_type": "llama3",
            "rope_theta": t.rope_base,
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": n0,
        }
    return LlamaForCausalLM(LlamaConfig(**common(t), rope_parameters=rope))


def make_gemma3(t):
    full = {"rope_type": "default", "rope_theta": t.rope_base}
    if t.linear_factor != 1.0:
        full = {"rope_type": "linear", "rope_theta": t.rope_base, "factor": t.linear_factor}
    config = Gemma3TextConfig(
        **common(t),
        query_pre_attn_scalar=t.head_dim,
        sliding_window=t.window,
        final_logit_softcapping=t.final_softcap or None,
        layer_types=[
            "full_attention" if i % t.pattern == t.pattern - 1 else "sliding_attention"
            for i in range(t.n_layer)
        ],
        rope_parameters={
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": t.rope_base_local},
        },
    )
    return Gemma3ForCausalLM(config)


def main():
    torch.set_num_threads(1)
    for t in toys.TOYS.values():
        model = (make_llama if t.arch == "llama" else make_gemma3)(t).float().eval()
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
