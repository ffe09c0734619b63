"""The toy models: small random-weight llama and gemma3 models, made by numpy alone and written as
F32 GGUF files.

    python tests/parity/toys.py DIR        writes every toy to DIR/toy_NAME.gguf

Weights come from a counter generator (splitmix64, uniform with unit variance) times 1/sqrt(fan-in),
so the same bytes come out everywhere; record_toys.py loads the same arrays into `transformers`.
Names of the arrays are those of `transformers`; `write_gguf` applies the converter's rules: llama q
and k rows reordered to adjacent pairs, gemma norm weights plus one.
"""

import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import toy_vocab
from gguf_fixture import F32, STR, U32, Gguf

N_POSITIONS = 120  # more than seven gemma windows of 16
BOS = 1


@dataclass(frozen=True)
class Toy:
    name: str
    arch: str
    n_layer: int = 3
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    n_ff: int = 160
    n_vocab: int = 320
    n_ctx: int = 512
    eps: float = 1e-5
    rope_base: float = 10000.0
    tied: bool = False
    attention_bias: bool = False
    vocabulary: str = "spm"
    # llama3 rope scaling: factor, low, high, original context
    llama3: tuple | None = None
    # gemma3
    window: int = 0
    pattern: int = 6
    rope_base_local: float = 10000.0
    linear_factor: float = 1.0
    final_softcap: float = 0.0
    # keys left out of the file, so that the engine's defaults are what is tested
    absent: tuple = field(default=())


TOYS = {
    t.name: t
    for t in [
        Toy("llama_untied", "llama"),
        Toy("llama_tied", "llama", n_head_kv=1, tied=True, vocabulary="bpe", eps=1e-6),
        Toy("llama_rope_freqs", "llama", rope_base=500000.0, llama3=(8.0, 1.0, 4.0, 64)),
        Toy(
            "llama_bias",
            "llama",
            n_head_kv=4,
            attention_bias=True,
            absent=("attention.head_count_kv", "rope.freq_base"),
        ),
        Toy("llama_wide", "llama", n_layer=2, head_dim=24, rope_base=1e6),
        Toy(
            "gemma3_default",
            "gemma3",
            n_layer=7,
            head_dim=32,
            eps=1e-6,
            rope_base=1e6,
            tied=True,
            window=16,
            absent=(
                "rope.freq_base_swa",
                "attention.sliding_window_pattern",
                "rope.dimension_count",
            ),
        ),
        Toy(
            "gemma3_scaled",
            "gemma3",
            n_layer=4,
            n_head_kv=1,
            head_dim=32,
            eps=1e-6,
            rope_base=1e5,
            window=16,
            pattern=2,
            rope_base_local=5000.0,
            linear_factor=8.0,
            final_softcap=3.0,
        ),
    ]
}


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
    t, w = toy, {}
    gemma = toy.arch == "gemma3"

    def norm(key, n):
        # gemma stores w and multiplies by 1 + w
        low, high = (-0.5, 0.5) if gemma else (0.5, 1.5)
        w[key] = vector(f"{t.name}/{key}", n, low, high)

    def matrix(key, rows, cols, gain=1.0):
        w[key] = weight(f"{t.name}/{key}", rows, cols, gain)

    matrix("model.embed_tokens.weight", t.n_vocab, t.n_embd)
    for i in range(t.n_layer):
        p = f"model.layers.{i}."
        # gain 2: scores spread enough that attention is far from uniform
        matrix(p + "self_attn.q_proj.weight", t.n_head * t.head_dim, t.n_embd, 2.0)
        matrix(p + "self_attn.k_proj.weight", t.n_head_kv * t.head_dim, t.n_embd, 2.0)
        matrix(p + "self_attn.v_proj.weight", t.n_head_kv * t.head_dim, t.n_embd)
        matrix(p + "self_attn.o_proj.weight", t.n_embd, t.n_head * t.head_dim)
        if t.attention_bias:
            for part, n in (("q", t.n_head), ("k", t.n_head_kv), ("v", t.n_head_kv)):
                w[p + f"self_attn.{part}_proj.bias"] = vector(
                    f"{t.name}/{p}{part}.bias", n * t.head_dim, -1.0, 1.0
                )
            w[p + "self_attn.o_proj.bias"] = vector(f"{t.name}/{p}o.bias", t.n_embd, -0.2, 0.2)
        matrix(p + "mlp.gate_proj.weight", t.n_ff, t.n_embd, 2.0)
        matrix(p + "mlp.up_proj.weight", t.n_ff, t.n_embd)
        matrix(p + "mlp.down_proj.weight", t.n_embd, t.n_ff)
        norm(p + "input_layernorm.weight", t.n_embd)
        norm(p + "post_attention_layernorm.weight", t.n_embd)
        if gemma:
            norm(p + "pre_feedforward_layernorm.weight", t.n_embd)
            norm(p + "post_feedforward_layernorm.weight", t.n_embd)
            norm(p + "self_attn.q_norm.weight", t.head_dim)
            norm(p + "self_attn.k_norm.weight", t.head_dim)
    norm("model.norm.weight", t.n_embd)
    if not t.tied:
        matrix("lm_head.weight", t.n_vocab, t.n_embd)
    return w


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
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
_BLOCK_NAMES_LLAMA = {"post_attention_layernorm": "ffn_norm"}
_BLOCK_NAMES_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_tensors(toy):
    """GGUF name -> array, converted."""
    gemma = toy.arch == "gemma3"
    block_names = _BLOCK_NAMES | (_BLOCK_NAMES_GEMMA if gemma else _BLOCK_NAMES_LLAMA)
    out = {}
    for name, a in weights(toy).items():
        if gemma and "norm" in name:
            a = a + np.float32(1)
        if not gemma and ".q_proj." in name:
            a = adjacent_pairs(a, toy.n_head)
        if not gemma and ".k_proj." in name:
            a = adjacent_pairs(a, toy.n_head_kv)
        if name.startswith("model.layers."):
            _, _, i, rest = name.split(".", 3)
            stem, kind = rest.rsplit(".", 1)
            out[f"blk.{i}.{block_names[stem]}.{kind}"] = a
        else:
            out[
                {
                    "model.embed_tokens.weight": "token_embd.weight",
                    "model.norm.weight": "output_norm.weight",
                    "lm_head.weight": "output.weight",
                }[name]
            ] = a
    if toy.llama3:
        out["rope_freqs.weight"] = rope_divisors(toy)
    return out


def gguf_keys(toy):
    """(key without the architecture, kind, value), less the ones that this toy leaves to
    defaults."""
    t = toy
    keys = [
        ("context_length", U32, t.n_ctx),
        ("embedding_length", U32, t.n_embd),
        ("block_count", U32, t.n_layer),
        ("feed_forward_length", U32, t.n_ff),
        ("attention.head_count", U32, t.n_head),
        ("attention.head_count_kv", U32, t.n_head_kv),
        ("attention.layer_norm_rms_epsilon", F32, t.eps),
        ("rope.freq_base", F32, t.rope_base),
        ("rope.dimension_count", U32, t.head_dim),
    ]
    if t.head_dim != t.n_embd // t.n_head:
        keys += [
            ("attention.key_length", U32, t.head_dim),
            ("attention.value_length", U32, t.head_dim),
        ]
    if t.arch == "llama":
        keys.append(("vocab_size", U32, t.n_vocab))
    else:
        keys += [
            ("attention.sliding_window", U32, t.window),
            ("attention.sliding_window_pattern", U32, t.pattern),
            ("rope.freq_base_swa", F32, t.rope_base_local),
        ]
        if t.linear_factor != 1.0:
            keys += [
                ("rope.scaling.type", STR, "linear"),
                ("rope.scaling.factor", F32, t.linear_factor),
            ]
        if t.final_softcap:
            keys.append(("final_logit_softcapping", F32, t.final_softcap))
    return [k for k in keys if k[0] not in t.absent]


def build_gguf(toy):
    g = Gguf()
    g.kv("general.architecture", STR, toy.arch)
    g.kv("general.name", STR, "toy " + toy.name)
    for key, kind, value in gguf_keys(toy):
        g.kv(f"{toy.arch}.{key}", kind, value)
    if toy.vocabulary == "spm":
        toy_vocab.put_spm(g)
    else:
        toy_vocab.put_bpe(g)
    for name, a in gguf_tensors(toy).items():
        g.tensor(name, a)
    return g


def write_gguf(toy, path):
    build_gguf(toy).write(path)
    return path


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for toy in TOYS.values():
        print(write_gguf(toy, folder / f"toy_{toy.name}.gguf"))
