"""The toy models: what each is, and which traits its family has. toys.py makes their weights and files."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """What the weights and the file of a family look like, beyond those of llama."""

    adjacent: bool = False  # the converter reorders q and k rows to neighbouring pairs
    gemma_norms: bool = False  # norms are stored as 1 + w
    sandwich: bool = False  # post-norms
    qk_norm: str = ""  # "head" or "whole"
    fused: bool = False  # one tensor for q, k, v and one for gate and up
    qkv_bias: bool = False
    windowed: bool = False  # attention.sliding_window is written
    pattern: bool = False  # and the pattern key
    router: str = ""  # its name in transformers; a mixture of experts has one
    norm_topk: bool = False  # the weights of the chosen experts are made to sum to 1
    interleaved: bool = False  # gate and up rows alternate, matrices are [in, out], everything has a bias


FAMILIES = {
    "llama": Family(adjacent=True),
    "smollm3": Family(adjacent=True),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm="head"),
    "gemma2": Family(gemma_norms=True, sandwich=True, windowed=True, pattern=True),
    "gemma3": Family(
        gemma_norms=True, sandwich=True, qk_norm="head", windowed=True, pattern=True
    ),
    "gemma4": Family(sandwich=True, qk_norm="head", windowed=True),
    "phi3": Family(fused=True, windowed=True),
    "granite": Family(adjacent=True),
    "qwen3moe": Family(qk_norm="head", router="gate", norm_topk=True),
    "olmoe": Family(qk_norm="whole", router="gate"),
    "lfm2": Family(qk_norm="head"),
    "gpt-oss": Family(router="router", interleaved=True, windowed=True, pattern=True),
}


@dataclass(frozen=True)
class Toy:
    name: str
    arch: str
    n_layer: int = 3
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 16
    head_dim_v: int = 0  # 0: head_dim; transformers knows no other
    n_ff: int = 160
    n_vocab: int = 320
    n_ctx: int = 512
    eps: float = 1e-5
    rope_base: float = 10000.0
    n_rot: int = 0  # 0: head_dim
    tied: bool = False
    attention_bias: bool = False
    key_bias_range: float = 1.0
    qk_gain: float = 2.0  # 2: scores spread enough that attention is far from uniform
    vocabulary: str = "spm"
    # rope scaling: factor, low, high, original context
    llama3: tuple | None = None
    # factor, original context, beta fast, beta slow
    yarn: tuple | None = None
    # original context, factor on cos and sin; the tables come from the generator
    longrope: tuple | None = None
    linear_factor: float = 1.0
    window: int = 0
    pattern: int = 6
    rope_base_local: float = 10000.0
    attn_softcap: float = 0.0
    final_softcap: float = 0.0
    nope_period: int = 0
    # granite: embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling
    multipliers: tuple | None = None
    # lfm2: layers that are short convolutions, and how many positions one reaches
    convs: tuple = ()
    n_taps: int = 3
    # gemma4: layers that see all keys, and the sizes that they have of their own; head_dim and n_head_kv are the others'
    full_layers: tuple = ()
    head_dim_full: int = 0
    n_head_kv_full: int = 0
    keys_are_values: bool = False  # of the full layers, before the norms
    n_shared_kv: int = 0  # the last layers read an earlier one's keys and values; their feed-forward is twice as wide
    own_width: int = 0  # of each layer's own embedding
    n_expert: int = 0
    n_expert_used: int = 2
    n_ff_expert: int = 48
    # (part of a tensor's name, format) of matrices; the first that fits counts, F32 where none does
    formats: tuple = ()
    # keys left out of the file, so that the engine's defaults are what is tested
    absent: tuple = field(default=())

    @property
    def family(self):
        return FAMILIES[self.arch]

    def head_dim_of(self, layer):
        return self.head_dim_full if layer in self.full_layers else self.head_dim

    def n_head_kv_of(self, layer):
        is_full = layer in self.full_layers and self.n_head_kv_full
        return self.n_head_kv_full if is_full else self.n_head_kv

    def stores_kv(self, layer):
        return layer < self.n_layer - self.n_shared_kv

    def n_ff_of(self, layer):
        return self.n_ff if self.stores_kv(layer) else 2 * self.n_ff

    @property
    def value_dim(self):
        return self.head_dim_v or self.head_dim

    @property
    def rotated(self):
        return self.n_rot or self.head_dim

    @property
    def router(self):
        """Name of the router in transformers; "" where the feed-forward is dense."""
        return (self.family.router or "gate") if self.n_expert else ""

    @property
    def has_golden(self):
        """Whether `transformers` can compute it."""
        return self.value_dim == self.head_dim and not self.formats

    def format_of(self, name):
        return next((f for part, f in self.formats if part in name), "F32")


# Formats of rows of 32, another one for each role.
MIXED32 = (
    ("norm", "F32"),
    ("gate_inp", "F32"),
    ("token_embd", "Q8_0"),
    ("attn_qkv", "Q5_0"),
    ("attn_q", "Q4_0"),
    ("attn_k", "Q5_0"),
    ("attn_v", "Q8_0"),
    ("attn_output", "IQ4_NL"),
    ("in_proj", "Q4_1"),
    ("out_proj", "Q5_0"),
    ("ffn_gate", "Q4_1"),
    ("ffn_up", "Q5_1"),
    ("ffn_down", "Q4_0"),
    ("output.weight", "Q8_0"),
)


def quantised(arch, **traits):
    """A toy of block formats with keys wider than values; the head is tied where the recorded toys of the family have none."""
    return Toy("quant_" + arch.replace("-", ""), arch, **(dict(head_dim=32, head_dim_v=16, formats=MIXED32, n_layer=2) | traits))


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
        Toy("llama_values", "llama", n_layer=2, head_dim=32, head_dim_v=16),
        Toy("llama_window", "llama", window=16),
        Toy("llama_linear", "llama", n_layer=2, linear_factor=4.0),
        Toy("llama_yarn", "llama", n_layer=2, head_dim=32, yarn=(4.0, 64, 32.0, 1.0)),
        Toy("smollm3_nope", "smollm3", n_layer=5, nope_period=4, tied=True, rope_base=5e6),
        Toy("qwen2_tied", "qwen2", tied=True, rope_base=1e6, eps=1e-6, vocabulary="bpe"),
        # case 18: biases of k far above the projections, as real ones are
        Toy("qwen2_bias", "qwen2", key_bias_range=50.0, qk_gain=0.5),
        Toy("qwen2_yarn", "qwen2", n_layer=2, head_dim=16, yarn=(4.0, 32, 32.0, 1.0)),
        Toy("qwen3_wide", "qwen3", head_dim=32, rope_base=1e6, eps=1e-6),
        Toy("qwen3_tied", "qwen3", n_head_kv=1, tied=True, vocabulary="bpe"),
        # case 20: scores beyond +-60, window 8, both caps
        Toy(
            "gemma2_caps",
            "gemma2",
            n_layer=4,
            eps=1e-6,
            tied=True,
            window=8,
            pattern=2,
            attn_softcap=50.0,
            final_softcap=30.0,
            qk_gain=6.0,
            absent=(
                "attn_logit_softcapping",
                "final_logit_softcapping",
                "attention.sliding_window_pattern",
            ),
        ),
        Toy(
            "gemma2_wide",
            "gemma2",
            n_layer=2,
            head_dim=32,
            tied=True,
            window=24,
            pattern=2,
            attn_softcap=5.0,
            final_softcap=3.0,
        ),
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
        Toy(
            "gemma4_shared",
            "gemma4",
            n_layer=6,
            eps=1e-6,
            rope_base=1e6,
            tied=True,
            window=16,
            full_layers=(1, 3, 5),
            head_dim_full=32,
            n_shared_kv=2,
            own_width=32,
            final_softcap=3.0,
        ),
        Toy(
            "gemma4_keys",
            "gemma4",
            n_layer=3,
            rope_base=1e5,
            rope_base_local=5000.0,
            window=24,
            n_head_kv=4,
            full_layers=(0, 2),
            head_dim_full=24,
            n_head_kv_full=1,
            keys_are_values=True,
        ),
        Toy("phi3_window", "phi3", window=24, n_head_kv=4),
        # case 22: part of a head rotates
        Toy("phi3_partial", "phi3", n_head=2, head_dim=32, n_rot=8, tied=True),
        Toy("phi3_long", "phi3", n_layer=2, longrope=(64, 1.19)),
        Toy("phi3_short", "phi3", n_layer=2, n_head=2, head_dim=32, n_rot=24, longrope=(256, 1.05)),
        Toy("granite_scales", "granite", multipliers=(12.0, 0.15, 0.22, 8.0)),
        Toy("mixtral", "llama", n_layer=2, n_expert=4, n_ff=96, n_ff_expert=96),
        Toy("qwen3moe_untied", "qwen3moe", head_dim=32, n_expert=8, n_expert_used=3),
        Toy("qwen3moe_tied", "qwen3moe", n_layer=2, tied=True, n_expert=16, n_expert_used=4),
        Toy("olmoe", "olmoe", n_expert=8, n_expert_used=3, n_ff=48),
        Toy(
            "gptoss",
            "gpt-oss",
            n_layer=4,
            n_expert=8,
            n_expert_used=4,
            attention_bias=True,
            window=16,
            pattern=2,
            rope_base=150000.0,
            yarn=(32.0, 64, 32.0, 1.0),
        ),
        # case 21: a format per tensor, rows of 288 beside rows of 512
        Toy(
            "quant_mixed",
            "llama",
            n_layer=2,
            n_embd=288,
            n_head=4,
            head_dim=72,
            n_ff=512,
            formats=(
                ("norm", "F32"),
                ("token_embd", "Q8_0"),
                ("attn_q", "Q5_0"),
                ("attn_k", "IQ4_NL"),
                ("attn_v", "BF16"),
                ("attn_output", "F16"),
                ("ffn_gate", "MXFP4"),
                ("ffn_up", "Q4_1"),
                ("0.ffn_down", "Q4_K"),
                ("1.ffn_down", "Q6_K"),
                ("output", "Q5_1"),
            ),
        ),
        Toy(
            "quant_wide",
            "qwen3",
            n_layer=2,
            n_embd=256,
            n_head=4,
            head_dim=64,
            n_ff=512,
            tied=True,
            formats=(
                ("norm", "F32"),
                ("token_embd", "IQ4_XS"),
                ("attn_q", "TQ2_0"),
                ("attn_k", "IQ4_XS"),
                ("attn_v", "Q5_K"),
                ("attn_output", "TQ1_0"),
                ("ffn_gate", "Q3_K"),
                ("ffn_up", "Q2_K"),
                ("ffn_down", "IQ4_XS"),
            ),
        ),
        Toy(
            "quant_experts",
            "gpt-oss",
            n_layer=2,
            n_expert=8,
            n_expert_used=4,
            n_ff_expert=96,
            attention_bias=True,
            window=16,
            pattern=2,
            formats=(
                ("norm", "F32"),
                ("gate_inp", "F32"),
                ("exps.weight", "MXFP4"),
                (".weight", "Q8_0"),
            ),
        ),
        Toy("lfm2", "lfm2", n_layer=5, convs=(0, 1, 3), tied=True, n_head_kv=1, rope_base=1e6),
        Toy("lfm2_taps", "lfm2", n_layer=3, convs=(1, 2), n_taps=5),
        quantised("smollm3", n_layer=4, nope_period=4),
        quantised("qwen2"),
        quantised("qwen3"),
        quantised("gemma2", tied=True, window=16, pattern=2, attn_softcap=20.0, final_softcap=10.0),
        quantised("gemma3", window=16, pattern=2, rope_base=1e5, final_softcap=10.0),
        quantised(
            "gemma4",
            head_dim=16,
            head_dim_v=0,
            n_layer=4,
            n_ff=128,
            n_shared_kv=1,
            window=16,
            full_layers=(1, 2),
            head_dim_full=32,
            own_width=32,
            final_softcap=3.0,
        ),
        quantised("phi3", window=24),
        quantised("granite", multipliers=(6.0, 0.2, 0.5, 4.0)),
        quantised("qwen3moe", n_head_kv=1, n_expert=8, n_expert_used=3, n_ff_expert=64),
        quantised("olmoe", tied=True, n_expert=8, n_expert_used=3, n_ff=64, n_ff_expert=64),
        quantised(
            "gpt-oss",
            tied=True,
            n_expert=4,
            n_ff_expert=64,
            attention_bias=True,
            window=16,
            pattern=2,
            rope_base=150000.0,
            yarn=(32.0, 64, 32.0, 1.0),
        ),
        quantised("lfm2", n_layer=4, convs=(0, 2)),
        Toy("granite_tied", "granite", tied=True, attention_bias=True, multipliers=(6.0, 0.5, 1.5, 0.25)),
    ]
}
