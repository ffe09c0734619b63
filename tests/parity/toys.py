"""The toy models of toy_list.py: random weights made by numpy alone and written as F32 GGUF files.

    python tests/parity/toys.py DIR        writes every toy to DIR/toy_NAME.gguf

Weights come from a counter generator (splitmix64, uniform with unit variance) times 1/sqrt(fan-in),
so the same bytes come out everywhere; record_toys.py loads the same arrays into `transformers`.
Names of the arrays are those of `transformers`; `write_gguf` applies the converter's rules: q and k
rows reordered to adjacent pairs where the family has them, gemma norm weights plus one.
"""

import sys
import zlib
from pathlib import Path

import numpy as np

import ref_quant
import toy_vocab
from gguf_fixture import BOOL, F32, I32, STR, U32, Gguf
from toy_list import TOYS, Toy  # noqa: F401

N_POSITIONS = 120  # more than seven gemma windows of 16
BOS = 1


# -- numbers
# ----------------------------------------------------------------------------------------
def splitmix64(counter):
    with np.errstate(over="ignore"):
        z = counter * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(key, n):
    """n doubles in [0, 1): a function of the text `key` alone."""
    seed = np.uint64(zlib.crc32(key.encode())) << np.uint64(32)
    return (splitmix64(seed + np.arange(n, dtype=np.uint64)) >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53


def weight(key, rows, cols, gain=1.0):
    u = (uniform(key, rows * cols) - 0.5) * np.sqrt(12.0)  # mean 0, variance 1
    return (u * (gain / np.sqrt(cols))).astype(np.float32).reshape(rows, cols)


def vector(key, n, low, high):
    return (low + (high - low) * uniform(key, n)).astype(np.float32)


def token_ids(toy, n=N_POSITIONS):
    ids = (uniform(toy.name + "/ids", n) * toy.n_vocab).astype(np.int32)
    ids[0] = BOS
    return ids


# -- weights, under the names of transformers
# -------------------------------------------------------
def weights(toy):
    t, w, family = toy, {}, toy.family

    def norm(key, n):
        # gemma stores w and multiplies by 1 + w
        low, high = (-0.5, 0.5) if family.gemma_norms else (0.5, 1.5)
        w[key] = vector(f"{t.name}/{key}", n, low, high)

    def matrix(key, rows, cols, gain=1.0):
        w[key] = weight(f"{t.name}/{key}", rows, cols, gain)

    matrix("model.embed_tokens.weight", t.n_vocab, t.n_embd)
    for i in range(t.n_layer):
        p = f"model.layers.{i}."
        if i in t.convs:
            matrix(p + "conv.in_proj.weight", 3 * t.n_embd, t.n_embd, 1.5)
            matrix(p + "conv.out_proj.weight", t.n_embd, t.n_embd)
            w[p + "conv.conv.weight"] = vector(
                f"{t.name}/{p}conv", t.n_embd * t.n_taps, -1.0, 1.0
            ).reshape(t.n_embd, 1, t.n_taps)
        else:
            attention_weights(t, i, p, w, matrix, norm)
        feed_forward_weights(t, i, p, w, matrix)
        norm(p + "input_layernorm.weight", t.n_embd)
        norm(p + "post_attention_layernorm.weight", t.n_embd)
        if family.sandwich:
            norm(p + "pre_feedforward_layernorm.weight", t.n_embd)
            norm(p + "post_feedforward_layernorm.weight", t.n_embd)
        if t.arch == "gemma4":
            w[p + "layer_scalar"] = vector(f"{t.name}/{p}scalar", 1, 0.5, 1.5)
        if t.own_width:
            matrix(p + "per_layer_input_gate.weight", t.own_width, t.n_embd, 2.0)
            matrix(p + "per_layer_projection.weight", t.n_embd, t.own_width)
            norm(p + "post_per_layer_input_norm.weight", t.n_embd)
    if t.own_width:
        matrix("model.embed_tokens_per_layer.weight", t.n_vocab, t.n_layer * t.own_width)
        matrix("model.per_layer_model_projection.weight", t.n_layer * t.own_width, t.n_embd)
        norm("model.per_layer_projection_norm.weight", t.own_width)
    norm("model.norm.weight", t.n_embd)
    if not t.tied:
        matrix("lm_head.weight", t.n_vocab, t.n_embd)
    if t.arch == "lfm2":
        return {lfm2_name(key): a for key, a in w.items()}
    return w


LFM2_NAMES = {
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn.q_norm": "self_attn.q_layernorm",
    "self_attn.k_norm": "self_attn.k_layernorm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "operator_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.norm": "model.embedding_norm",
}


def lfm2_name(key):
    for ours, theirs in LFM2_NAMES.items():
        key = key.replace(ours, theirs)
    return key


def attention_weights(t, i, p, w, matrix, norm):
    head_dim, n_head_kv = t.head_dim_of(i), t.n_head_kv_of(i)
    value_dim = head_dim if t.full_layers else t.value_dim
    q, k, v = t.n_head * head_dim, n_head_kv * head_dim, n_head_kv * value_dim
    if t.family.fused:
        matrix(p + "self_attn.qkv_proj.weight", q + k + v, t.n_embd, 1.5)
    else:
        matrix(p + "self_attn.q_proj.weight", q, t.n_embd, t.qk_gain)
        if t.stores_kv(i):
            matrix(p + "self_attn.k_proj.weight", k, t.n_embd, t.qk_gain)
        if t.stores_kv(i) and not (t.keys_are_values and i in t.full_layers):
            matrix(p + "self_attn.v_proj.weight", v, t.n_embd)
    matrix(p + "self_attn.o_proj.weight", t.n_embd, t.n_head * value_dim)
    if t.attention_bias or t.family.qkv_bias:
        for part, n, r in (("q", q, 1.0), ("k", k, t.key_bias_range), ("v", v, 1.0)):
            w[p + f"self_attn.{part}_proj.bias"] = vector(
                f"{t.name}/{p}{part}.bias", n, -r, r
            )
    if t.attention_bias:
        w[p + "self_attn.o_proj.bias"] = vector(f"{t.name}/{p}o.bias", t.n_embd, -0.2, 0.2)
    if t.family.qk_norm:
        whole = t.family.qk_norm == "whole"
        norm(p + "self_attn.q_norm.weight", q if whole else head_dim)
        if t.stores_kv(i):
            norm(p + "self_attn.k_norm.weight", k if whole else head_dim)


def feed_forward_weights(t, i, p, w, matrix):
    n_ff = t.n_ff_of(i)
    if t.n_expert:
        expert_weights(t, p, w, matrix)
        return
    if t.family.fused:
        matrix(p + "mlp.gate_up_proj.weight", 2 * n_ff, t.n_embd, 1.5)
    else:
        matrix(p + "mlp.gate_proj.weight", n_ff, t.n_embd, 2.0)
        matrix(p + "mlp.up_proj.weight", n_ff, t.n_embd)
    matrix(p + "mlp.down_proj.weight", t.n_embd, n_ff)


def expert_weights(t, p, w, matrix):
    X, F, E = t.n_expert, t.n_ff_expert, t.n_embd
    matrix(p + f"mlp.{t.router}.weight", X, E, 4.0)

    def experts(key, rows, cols, gain=1.0):
        a = weight(f"{t.name}/{p}{key}", X * rows, cols, gain).reshape(X, rows, cols)
        w[p + key] = np.ascontiguousarray(a.swapaxes(1, 2)) if t.family.interleaved else a

    # gain 6 where the activation is clamped at 7: some values are beyond it
    experts("mlp.experts.gate_up_proj", 2 * F, E, 6.0 if t.family.interleaved else 2.0)
    experts("mlp.experts.down_proj", E, F)
    if t.family.interleaved:
        for key, shape in (
            (f"mlp.{t.router}.bias", (X,)),
            ("mlp.experts.gate_up_proj_bias", (X, 2 * F)),
            ("mlp.experts.down_proj_bias", (X, E)),
            ("self_attn.sinks", (t.n_head,)),
        ):
            n = int(np.prod(shape))
            w[p + key] = vector(f"{t.name}/{p}{key}", n, -1.5, 1.5).reshape(shape)


def longrope_factors(toy):
    """Divisors of the rotated pairs for short and for long contexts."""
    n = toy.rotated // 2
    short = 1.0 + 0.5 * np.arange(n) / n * uniform(toy.name + "/short", n)
    return short.astype(np.float32), (short * (1.0 + 7.0 * np.arange(n) / n)).astype(np.float32)


def rope_divisors(toy):
    """The llama3 rule as frequency divisors, one for each rotated pair."""
    factor, low, high, n0 = toy.llama3
    theta = toy.rope_base ** (-2.0 * np.arange(toy.head_dim // 2) / toy.head_dim)
    wavelength = 2.0 * np.pi / theta
    s = (n0 / wavelength - low) / (high - low)
    middle = 1.0 / ((1.0 - s) / factor + s)
    out = np.where(wavelength < n0 / high, 1.0, np.where(wavelength > n0 / low, factor, middle))
    return out.astype(np.float32)


# -- GGUF
# ---------------------------------------------------------------------------------------------
def adjacent_pairs(a, n_head):
    """Rows of each head from halves (i, i + D/2) to neighbours (2i, 2i + 1)."""
    head_dim = a.shape[0] // n_head
    return np.ascontiguousarray(
        a.reshape(n_head, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(a.shape)
    )


_BLOCK_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "conv.conv": "shortconv.conv",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_BLOCK_NAMES_SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_BLOCK_NAMES |= {
    theirs: _BLOCK_NAMES[ours] for ours, theirs in LFM2_NAMES.items() if ours in _BLOCK_NAMES
}
_MODEL_NAMES = {
    "model.embedding_norm.weight": "token_embd_norm.weight",
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}


def expert_tensors(toy, name, a):
    """What the converter makes of a tensor of experts: gate and up apart, [X, out, in]."""
    if name == "self_attn.sinks":
        return {"attn_sinks.weight": a}
    kind = "bias" if name.endswith("_bias") else "weight"
    if kind == "weight" and toy.family.interleaved:
        a = a.swapaxes(1, 2)
    if "down" in name:
        return {f"ffn_down_exps.{kind}": np.ascontiguousarray(a)}
    F = toy.n_ff_expert
    gate, up = (a[:, ::2], a[:, 1::2]) if toy.family.interleaved else (a[:, :F], a[:, F:])
    return {
        f"ffn_gate_exps.{kind}": np.ascontiguousarray(gate),
        f"ffn_up_exps.{kind}": np.ascontiguousarray(up),
    }


def gguf_tensors(toy):
    """GGUF name -> array, converted."""
    family = toy.family
    block_names = _BLOCK_NAMES | (_BLOCK_NAMES_SANDWICH if family.sandwich else {})
    out = {}
    for name, a in weights(toy).items():
        if family.gemma_norms and "norm" in name:
            a = a + np.float32(1)
        if family.adjacent and ".q_proj." in name:
            a = adjacent_pairs(a, toy.n_head)
        if family.adjacent and ".k_proj." in name:
            a = adjacent_pairs(a, toy.n_head_kv)
        if name.endswith("conv.conv.weight"):
            a = a[:, 0]
        if name in _MODEL_NAMES:
            out[_MODEL_NAMES[name]] = a
            continue
        _, _, i, rest = name.split(".", 3)
        if "experts" in rest or "sinks" in rest:
            out |= {f"blk.{i}.{k}": v for k, v in expert_tensors(toy, rest, a).items()}
            continue
        if rest == "layer_scalar":
            out[f"blk.{i}.layer_output_scale.weight"] = a
            continue
        stem, kind = rest.rsplit(".", 1)
        if toy.arch == "gpt-oss" and stem == "post_attention_layernorm":
            stem = "post_attention_norm"
        out[f"blk.{i}.{block_names.get(stem, stem)}.{kind}"] = a
    if toy.llama3:
        out["rope_freqs.weight"] = rope_divisors(toy)
    if toy.head_dim_full:  # a quarter of the pairs rotates
        n = toy.head_dim_full // 2
        divisors = np.where(np.arange(n) < n // 4, 1.0, 1e30)
        out["rope_freqs.weight"] = divisors.astype(np.float32)
    if toy.longrope:
        short, long = longrope_factors(toy)
        out["rope_factors_short.weight"], out["rope_factors_long.weight"] = short, long
    return out


def rope_keys(t):
    n_rot = t.head_dim_full or t.rotated
    keys = [("rope.freq_base", F32, t.rope_base), ("rope.dimension_count", U32, n_rot)]
    if t.linear_factor != 1.0:
        keys += [
            ("rope.scaling.type", STR, "linear"),
            ("rope.scaling.factor", F32, t.linear_factor),
        ]
    if t.yarn:
        factor, n0, _, _ = t.yarn
        keys += [
            ("rope.scaling.type", STR, "yarn"),
            ("rope.scaling.factor", F32, factor),
            ("rope.scaling.original_context_length", U32, n0),
        ]
    if t.longrope:  # the type is not written
        keys += [
            ("rope.scaling.original_context_length", U32, t.longrope[0]),
            ("rope.scaling.attn_factor", F32, t.longrope[1]),
        ]
    return keys


def gguf_keys(toy):
    """(key without the architecture, kind, value), less the ones that this toy leaves to
    defaults."""
    t = toy
    keys = [
        ("context_length", U32, t.n_ctx),
        ("embedding_length", U32, t.n_embd),
        ("block_count", U32, t.n_layer),
        ("attention.head_count", U32, t.n_head),
        ("attention.layer_norm_rms_epsilon", F32, t.eps),
    ]
    if t.n_shared_kv:
        keys.append(("feed_forward_length", I32, [t.n_ff_of(i) for i in range(t.n_layer)]))
    else:
        keys.append(("feed_forward_length", U32, t.n_ff))
    if t.n_head_kv_full:
        keys.append(("attention.head_count_kv", I32, [t.n_head_kv_of(i) for i in range(t.n_layer)]))
    elif t.convs:
        heads = [0 if i in t.convs else t.n_head_kv for i in range(t.n_layer)]
        keys += [
            ("attention.head_count_kv", I32, heads),
            ("shortconv.l_cache", U32, t.n_taps),
        ]
    else:
        keys.append(("attention.head_count_kv", U32, t.n_head_kv))
    keys += rope_keys(t)
    if t.full_layers:
        is_local = [int(i not in t.full_layers) for i in range(t.n_layer)]
        keys += [
            ("attention.key_length", U32, t.head_dim_full),
            ("attention.value_length", U32, t.head_dim_full),
            ("attention.key_length_swa", U32, t.head_dim),
            ("attention.value_length_swa", U32, t.head_dim),
            ("rope.dimension_count_swa", U32, t.head_dim),
            ("attention.sliding_window_pattern", BOOL, is_local),
            ("attention.shared_kv_layers", U32, t.n_shared_kv),
            ("embedding_length_per_layer_input", U32, t.own_width),
        ]
    elif t.head_dim != t.n_embd // t.n_head or t.value_dim != t.head_dim:
        keys += [
            ("attention.key_length", U32, t.head_dim),
            ("attention.value_length", U32, t.value_dim),
        ]
    if t.arch == "llama":
        keys.append(("vocab_size", U32, t.n_vocab))
    if t.family.windowed or t.window:
        keys.append(("attention.sliding_window", U32, t.window))
    if t.family.pattern:
        keys.append(("attention.sliding_window_pattern", U32, t.pattern))
    if t.arch in ("gemma3", "gemma4"):
        keys.append(("rope.freq_base_swa", F32, t.rope_base_local))
    if t.attn_softcap:
        keys.append(("attn_logit_softcapping", F32, t.attn_softcap))
    if t.final_softcap:
        keys.append(("final_logit_softcapping", F32, t.final_softcap))
    if t.n_expert:
        keys += [("expert_count", U32, t.n_expert), ("expert_used_count", U32, t.n_expert_used)]
        if t.n_ff != t.n_ff_expert:
            keys.append(("expert_feed_forward_length", U32, t.n_ff_expert))
    if t.multipliers:
        names = ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
        keys += [(name, F32, value) for name, value in zip(names, t.multipliers)]
    return [k for k in keys if k[0] not in t.absent]


# Scales that make the values of random blocks of a format have a variance of about 1 / cols: offsets of
# the half-precision fields, and each one's factor on 1 / sqrt(cols).
_SCALES = {
    "Q4_0": {0: 0.217},
    "Q5_0": {0: 0.11},
    "Q4_1": {0: 0.22, 2: -1.6},
    "Q5_1": {0: 0.11, 2: -1.7},
    "Q8_0": {0: 0.0137},
    "Q2_K": {80: 0.12, 82: 0.18},
    "Q3_K": {108: 0.025},
    "Q4_K": {0: 0.006, 2: 0.045},
    "Q5_K": {0: 0.003, 2: 0.045},
    "Q6_K": {208: 0.0008},
    "IQ4_NL": {0: 0.0145},
    "IQ4_XS": {0: 0.0008},
    "TQ1_0": {52: 1.2},
    "TQ2_0": {64: 0.9},
}


def random_blocks(key, name, n_values, cols):
    """Bytes of n_values weights of a block format: any bytes are weights, so nothing is quantised."""
    values, size = next(t[1:] for t in ref_quant.TYPES.values() if t[0] == name)
    n = n_values // values
    blocks = (uniform(key, n * size) * 256).astype(np.uint8).reshape(n, size)
    if name == "MXFP4":  # 2^(x - 128) times numbers of a deviation of about 5
        low = int(np.floor(np.log2(0.2 / np.sqrt(cols)))) + 128
        blocks[:, 0] = low + blocks[:, 0] % 2
    for at, factor in _SCALES.get(name, {}).items():
        spread = 0.75 + 0.5 * uniform(f"{key}/{at}", n)
        half = (factor / np.sqrt(cols) * spread).astype("<f2")
        blocks[:, at : at + 2] = half.view(np.uint8).reshape(n, 2)
    return blocks.tobytes()


def put_tensor(g, toy, name, a):
    kind = toy.format_of(name) if a.ndim > 1 and name.endswith(".weight") else "F32"
    if kind == "F32":
        g.tensor(name, a)
        return
    type_id = next(i for i, t in ref_quant.TYPES.items() if t[0] == kind)
    if kind == "F16":
        data = a.astype("<f2").tobytes()
    elif kind == "BF16":
        data = (a.view(np.uint32) >> 16).astype("<u2").tobytes()
    else:
        data = random_blocks(f"{toy.name}/{name}", kind, a.size, a.shape[-1])
    g.tensor(name, data, dims=list(reversed(a.shape)), type_id=type_id)


def build_gguf(toy):
    g = Gguf()
    g.kv("general.architecture", STR, toy.arch)
    g.kv("general.name", STR, "toy " + toy.name)
    for key, kind, value in gguf_keys(toy):
        put = g.array if isinstance(value, list) else g.kv
        put(f"{toy.arch}.{key}", kind, value)
    if toy.vocabulary == "spm":
        toy_vocab.put_spm(g)
    else:
        toy_vocab.put_bpe(g)
    for name, a in gguf_tensors(toy).items():
        put_tensor(g, toy, name, a)
    return g


def write_gguf(toy, path):
    build_gguf(toy).write(path)
    return path


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for toy in TOYS.values():
        print(write_gguf(toy, folder / f"toy_{toy.name}.gguf"))
