"""A float64 forward pass of every family from a GGUF file: the second opinion next to
`transformers`.

    python tests/parity/ref_forward.py MODEL.gguf 1 2 3        prints the top five of each position

Written from the descriptions of the families, one position block at a time, with no thought of
speed. Weights of any type are decoded to float32 exactly and then used in float64. `kv="f16"` and
`kv="q8_0"` round keys and values as such a cache does. `sites()` gives every hook site of the pass, and
`change` lets a test intervene at one.
"""

import mmap
import struct
import sys

import numpy as np

import ref_quant

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


class GgufFile:
    """Metadata as a dict, tensors decoded on demand. For files that are known to be good."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 4
        version, n_tensors, n_kv = self._take("<I"), self._take("<Q"), self._take("<Q")
        assert self.data[:4] == b"GGUF" and version in (2, 3)
        self.keys, self.tensors = {}, {}
        for _ in range(n_kv):
            key = self._string().decode()
            self.keys[key] = self._value(self._take("<I"))
        for _ in range(n_tensors):
            name, n_dims = self._string().decode(), self._take("<I")
            dims = [self._take("<Q") for _ in range(n_dims)]
            self.tensors[name] = (dims, self._take("<I"), self._take("<Q"))
        alignment = self.keys.get("general.alignment", 32)
        self.start = self.at + -self.at % alignment

    def _take(self, fmt):
        (v,) = struct.unpack_from(fmt, self.data, self.at)
        self.at += struct.calcsize(fmt)
        return v

    def _string(self):
        n = self._take("<Q")
        self.at += n
        return self.data[self.at - n : self.at]

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind == 9:
            element, n = self._take("<I"), self._take("<Q")
            return [self._value(element) for _ in range(n)]
        return self._take("<" + _SCALARS[kind])

    def __contains__(self, name):
        return name in self.tensors

    def tensor(self, name):
        """float32 array, rows first."""
        dims, type_id, offset = self.tensors[name]
        format_name, values, size = ref_quant.TYPES[type_id]
        n = int(np.prod(dims))
        raw = np.frombuffer(self.data, np.uint8, n // values * size, self.start + offset)
        return ref_quant.dequantize(format_name, raw).reshape(dims[::-1])


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(z):
    return z / (1.0 + np.exp(-z))


def gelu_tanh(z):
    return 0.5 * z * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (z + 0.044715 * z**3)))


def rotate(x, angles, adjacent, m=1.0):
    """x [T, heads, D], angles [T, n_rot/2]; m is the factor on cos and sin."""
    half = angles.shape[1]
    c, s = m * np.cos(angles)[:, None, :], m * np.sin(angles)[:, None, :]
    out = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if adjacent
        else (slice(0, half), slice(half, 2 * half))
    )
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., first] * s + x[..., second] * c
    return out


# What a family does by its name alone; all else is decided by keys and by which tensors there are.
ADJACENT = {"llama", "smollm3", "granite"}
GEMMA = {"gemma2", "gemma3", "gemma4"}  # embeddings times sqrt(E), GELU
FAMILIES = ADJACENT | GEMMA | {"qwen2", "qwen3", "phi3", "qwen3moe", "olmoe", "gpt-oss", "lfm2"}
SLIDES = {"llama": 0, "phi3": 0, "gemma2": 2, "gemma3": 6, "gemma4": 6, "gpt-oss": 2}  # family -> default period, 0 = every layer
SOFTCAPS = {"gemma2": (50.0, 30.0), "gemma3": (0.0, 0.0), "gemma4": (0.0, 0.0)}  # attention, final


def stored(x, kv):
    """What a cache of that type gives back of keys or values [..., head_dim]."""
    if kv == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kv != "q8_0":
        return x
    out = np.empty_like(x)
    for first in range(0, x.shape[-1], 32):
        block = x[..., first : first + 32].astype(np.float32)
        most = np.abs(block).max(axis=-1, keepdims=True)
        d = np.maximum((most / np.float32(127)).astype(np.float16), np.float16(2**-14)).astype(np.float32)
        out[..., first : first + 32] = np.rint(block * (np.float32(1) / d)).astype(np.float64) * d
    return out


class Reference:
    def __init__(self, path, overrides=None, without=(), round_act=False):
        """`overrides` replaces keys and `without` removes tensors: to see what a fault in either
        would do. `round_act` rounds what meets a matrix of a block format to int8 as the engine
        does."""
        self.round_act = round_act
        self.file = GgufFile(path)
        for name in without:
            del self.file.tensors[name]
        self.overrides = overrides or {}
        self.arch = self.file.keys["general.architecture"].decode()
        assert self.arch in FAMILIES, self.arch
        self.n_layer, self.n_embd = self.key("block_count"), self.key("embedding_length")
        self.n_head = self.key("attention.head_count")
        self.n_head_kv = self.key("attention.head_count_kv", self.n_head)
        self.head_dim = self.key("attention.key_length", self.n_embd // self.n_head)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.n_rot = self.key("rope.dimension_count", self.head_dim)
        self.gemma, self.adjacent = self.arch in GEMMA, self.arch in ADJACENT
        self.attn_cap, self.final_cap = SOFTCAPS.get(self.arch, (0.0, 0.0))
        if self.gemma:
            self.attn_cap = self.key("attn_logit_softcapping", self.attn_cap)
            self.final_cap = self.key("final_logit_softcapping", self.final_cap)
        granite = self.arch == "granite"
        self.embed_scale = self.key("embedding_scale", 1.0) if granite else 1.0
        if self.gemma:
            self.embed_scale = float(np.float32(np.sqrt(self.n_embd)))
        self.residual_scale = self.key("residual_scale", 1.0) if granite else 1.0
        self.logit_scale = self.key("logit_scale") if granite else 1.0
        self.score_scale = self.key("attention.scale", 0.0) if granite else 0.0
        if self.arch == "gemma4":
            self.score_scale = 1.0
        if not self.score_scale:
            self.score_scale = 1.0 / np.sqrt(self.head_dim)
        self.seen = None  # (site, layer) -> [T, width], while sites() runs
        self.change = None  # (site, layer, value [T, width]) -> value: an intervention

    def key(self, name, default=None):
        value = self.overrides.get(name, self.file.keys.get(f"{self.arch}.{name}", default))
        assert value is not None, name
        return value

    def at(self, site, layer, x):
        """The value of a site: recorded, then changed."""
        flat = x.reshape(len(x), -1)
        if self.seen is not None:
            self.seen[site, layer] = flat.copy()
        return x if self.change is None else self.change(site, layer, flat).reshape(x.shape)

    def w(self, name):
        return self.file.tensor(name).astype(np.float64)

    def rounded(self, x, name):
        block = ref_quant.TYPES[self.file.tensors[name][1]][1]
        if not self.round_act or block == 1:
            return x
        v = x.astype(np.float32).reshape(-1, block)
        most = np.abs(v).max(axis=1, keepdims=True)
        inverse = np.where(most > 0, np.float32(127) / np.where(most > 0, most, 1), 0)
        q = np.rint(v * inverse.astype(np.float32))
        return (q.astype(np.float64) * (most / np.float32(127))).reshape(x.shape)

    def operand(self, name, x):
        """What the matrix `name` is multiplied with; a subclass may round it as the engine does."""
        return self.rounded(x, name)

    def linear(self, x, stem, rows=slice(None)):
        """`rows`: those of the outputs that are wanted, of a tensor that holds more than one matrix."""
        y = self.operand(stem + ".weight", x) @ self.w(stem + ".weight")[rows].T
        return y + self.w(stem + ".bias")[rows] if stem + ".bias" in self.file else y

    def is_local(self, layer):
        if self.arch not in SLIDES or not self.key("attention.sliding_window", 0):
            return False
        pattern = self.key("attention.sliding_window_pattern", SLIDES[self.arch])
        if isinstance(pattern, list):
            return bool(pattern[layer])
        return pattern == 0 or layer % pattern < pattern - 1

    def rotates(self, layer):
        return self.arch != "smollm3" or (layer + 1) % 4 != 0

    def angles(self, layer, n):
        """[n, n_rot / 2] and the factor on cos and sin."""
        base, scaling = self.key("rope.freq_base", 10000.0), self.key("rope.scaling.type", b"none")
        m = self.key("rope.scaling.attn_factor", 1.0)
        if self.gemma and self.is_local(layer):
            base, scaling, m = self.key("rope.freq_base_swa", base if self.arch == "gemma2" else 1e4), b"none", 1.0
        n_rot = self.n_rot
        if self.is_local(layer):
            n_rot = self.key("rope.dimension_count_swa", n_rot)
        theta = float(base) ** (-2.0 * np.arange(n_rot // 2) / n_rot)
        n0 = self.key("rope.scaling.original_context_length", self.key("context_length"))
        if "rope_freqs.weight" in self.file and not (self.arch == "gemma4" and self.is_local(layer)):
            theta = theta / self.w("rope_freqs.weight")
        if "rope_factors_long.weight" in self.file:  # a session for exactly these positions
            theta = theta / self.w(f"rope_factors_{'long' if n > n0 else 'short'}.weight")
        if scaling == b"linear":
            theta = theta / self.key("rope.scaling.factor", 1.0)
        if scaling == b"yarn":
            f = self.key("rope.scaling.factor")
            pair = [
                self.n_rot * np.log(n0 / (2 * np.pi * beta)) / (2 * np.log(base))
                for beta in (32.0, 1.0)
            ]
            if self.arch != "gpt-oss":
                pair = [np.floor(pair[0]), np.ceil(pair[1])]
            low, high = max(0, pair[0]), min(self.n_rot - 1, pair[1])
            ramp = np.clip(
                (np.arange(self.n_rot // 2) - low) / max(0.001, high - low), 0.0, 1.0
            )
            theta = ramp * theta / f + (1.0 - ramp) * theta
            m *= 0.1 * np.log(f) + 1.0
        return np.arange(n)[:, None] * theta, m

    def qkv(self, layer, x, p):
        """[T, heads, width] each; v is None where there is no such tensor."""
        n, G = len(x), self.n_head_kv
        if isinstance(G, list):
            G = G[layer]
        n_q, n_k = self.n_head * self.head_dim, G * self.head_dim
        if p + "attn_qkv.weight" in self.file:
            q, k, v = (
                self.linear(x, p + "attn_qkv", rows)
                for rows in (slice(0, n_q), slice(n_q, n_q + n_k), slice(n_q + n_k, None))
            )
        else:
            q, k = self.linear(x, p + "attn_q"), self.linear(x, p + "attn_k")
            v = self.linear(x, p + "attn_v") if p + "attn_v.weight" in self.file else None
        return (
            q.reshape(n, self.n_head, -1),
            k.reshape(n, G, -1),
            None if v is None else v.reshape(n, G, -1),
        )

    def kv_source(self, layer):
        """The layer whose keys and values this one reads: the last of its kind that has some."""
        n_own = self.n_layer - self.key("attention.shared_kv_layers", 0)
        if layer < n_own:
            return layer
        return max(i for i in range(n_own) if self.is_local(i) == self.is_local(layer))

    def head_norm(self, site, layer, x, name):
        """RMS norm of each head, or of as much as the weight is long; nothing without a weight."""
        if name not in self.file:
            return x
        weight = self.w(name)
        normed = rms_norm(x.reshape(len(x), -1, len(weight)), weight, self.eps)
        return self.at(site, layer, normed.reshape(x.shape))

    def attention(self, layer, x, kv):
        n, p = len(x), f"blk.{layer}."
        if self.kv_source(layer) == layer:
            q, k, v = self.qkv(layer, x, p)
        else:
            q, k, v = self.linear(x, p + "attn_q").reshape(n, self.n_head, -1), None, None
        q = self.head_norm("q_norm", layer, self.at("q", layer, q), p + "attn_q_norm.weight")
        angles, m = self.angles(layer, n)
        if self.rotates(layer):
            q = self.at("q_rope", layer, rotate(q, angles, self.adjacent, m))
        if k is None:
            k, v = self.stored[self.kv_source(layer)]
        else:
            k = self.at("k", layer, k)
            v = k if v is None else self.at("v", layer, v)
            if self.arch == "gemma4":
                v = rms_norm(v, 1.0, self.eps)
            k = self.head_norm("k_norm", layer, k, p + "attn_k_norm.weight")
            if self.rotates(layer):
                k = self.at("k_rope", layer, rotate(k, angles, self.adjacent, m))
            k, v = self.stored[layer] = stored(k, kv), stored(v, kv)
        n_head_kv = k.shape[1]
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        visible = distance >= 0
        if self.is_local(layer):
            visible &= distance < self.key("attention.sliding_window")
        out, all_scores, patterns = [], [], []
        for head in range(self.n_head):
            g = head // (self.n_head // n_head_kv)
            scores = q[:, head] @ k[:, g].T * self.score_scale
            if self.attn_cap:
                scores = self.attn_cap * np.tanh(scores / self.attn_cap)
            scores = np.where(visible, scores, -np.inf)
            sink = -np.inf
            if p + "attn_sinks.weight" in self.file:
                sink = self.w(p + "attn_sinks.weight")[head]
            most = np.maximum(scores.max(axis=1, keepdims=True), sink)
            e = np.exp(scores - most)
            pattern = e / (e.sum(axis=1, keepdims=True) + np.exp(sink - most))
            all_scores.append(scores)
            patterns.append(pattern)
            out.append(pattern @ v[:, g])
        if self.seen is not None:  # [T, heads * T]; the engine's rows have n_ctx keys a head
            self.seen["attn_scores", layer] = np.concatenate(all_scores, axis=1)
            self.seen["attn_pattern", layer] = np.concatenate(patterns, axis=1)
        z = self.at("attn_z", layer, np.concatenate(out, axis=1))
        return self.linear(z, p + "attn_output")

    def short_conv(self, layer, x, kv):
        p, n = f"blk.{layer}.shortconv.", len(x)
        b, c, u = np.split(self.linear(x, p + "in_proj"), 3, axis=1)
        z = b * u
        z = stored(z, kv)  # as values are
        taps = self.w(p + "conv.weight")
        reach = taps.shape[1] - 1
        padded = np.concatenate([np.zeros((reach, z.shape[1])), z])
        y = sum(padded[j : j + n] * taps[:, j] for j in range(reach + 1))
        return self.linear(c * y, p + "out_proj")

    def experts(self, layer, x):
        """Each token's experts one by one; the sites hold them side by side in the order of the choice."""
        p, k = f"blk.{layer}.", self.key("expert_used_count")
        score = self.linear(x, p + "ffn_gate_inp")
        chosen = np.argsort(-score, axis=1, kind="stable")[:, :k]
        top = np.take_along_axis(score, chosen, axis=1)
        weight = np.exp(top - top[:, :1])
        if self.arch == "olmoe":
            weight /= np.exp(score - top[:, :1]).sum(axis=1, keepdims=True)
        else:  # renormalising the softmax over all gives the softmax over the chosen
            weight /= weight.sum(axis=1, keepdims=True)

        def per_expert(inputs, stem):
            w, inputs = self.w(p + stem + ".weight"), self.rounded(inputs, p + stem + ".weight")
            bias = self.w(p + stem + ".bias") if p + stem + ".bias" in self.file else None
            out = np.zeros((len(x), k, w.shape[1]))
            for t in range(len(x)):
                for j, e in enumerate(chosen[t]):
                    out[t, j] = w[e] @ inputs[t, j] + (0 if bias is None else bias[e])
            return out

        shared = np.repeat(x[:, None], k, axis=1)
        gate = self.at("ffn_gate", layer, per_expert(shared, "ffn_gate_exps"))
        up = self.at("ffn_up", layer, per_expert(shared, "ffn_up_exps"))
        if self.arch == "gpt-oss":
            gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
            act = gate / (1.0 + np.exp(-1.702 * gate)) * (up + 1.0)
        else:
            act = silu(gate) * up
        down = per_expert(self.at("ffn_act", layer, act), "ffn_down_exps")
        return (weight[:, :, None] * down).sum(axis=1)

    def feed_forward(self, layer, x):
        p = f"blk.{layer}."
        if p + "ffn_gate_inp.weight" in self.file:
            return self.experts(layer, x)
        act = gelu_tanh if self.gemma else silu
        if p + "ffn_gate.weight" in self.file:
            gate, up = self.linear(x, p + "ffn_gate"), self.linear(x, p + "ffn_up")
        else:
            gate, up = np.split(self.linear(x, p + "ffn_up"), 2, axis=1)
        gate, up = self.at("ffn_gate", layer, gate), self.at("ffn_up", layer, up)
        return self.linear(self.at("ffn_act", layer, act(gate) * up), p + "ffn_down")

    def hidden(self, ids, kv="f32"):
        """Residual stream after the last block, [T, E]."""
        # only the needed rows are widened: the embedding may be large
        x = self.file.tensor("token_embd.weight")[np.asarray(ids)].astype(np.float64)
        x = first = self.at("embed", -1, x * self.embed_scale)
        self.stored = {}  # layer -> keys and values
        for layer in range(self.n_layer):
            p = f"blk.{layer}."
            x = self.at("resid_pre", layer, x)
            normed = rms_norm(x, self.w(p + "attn_norm.weight"), self.eps)
            is_conv = p + "shortconv.conv.weight" in self.file
            mix = self.short_conv if is_conv else self.attention
            branch = mix(layer, self.at("attn_norm", layer, normed), kv)
            if self.gemma:
                branch = rms_norm(branch, self.w(p + "post_attention_norm.weight"), self.eps)
            branch = self.at("attn_out", layer, branch)
            x = self.at("resid_mid", layer, x + self.residual_scale * branch)
            norm = "post_attention_norm" if self.arch == "gpt-oss" else "ffn_norm"
            normed = rms_norm(x, self.w(p + norm + ".weight"), self.eps)
            branch = self.feed_forward(layer, self.at("ffn_norm", layer, normed))
            if self.gemma:
                branch = rms_norm(branch, self.w(p + "post_ffw_norm.weight"), self.eps)
            branch = self.at("ffn_out", layer, branch)
            x = x + self.residual_scale * branch
            if p + "inp_gate.weight" in self.file:
                x = x + self.own_embed(layer, x, first, ids)
            if p + "layer_output_scale.weight" in self.file:
                x = x * self.w(p + "layer_output_scale.weight")
            x = self.at("resid_post", layer, x)
        return x

    def own_embed(self, layer, x, first, ids):
        """What a gemma4 layer adds for its own embedding of the tokens."""
        p, P = f"blk.{layer}.", self.key("embedding_length_per_layer_input")
        part = slice(layer * P, (layer + 1) * P)
        own = self.linear(first, "per_layer_model_proj", part) / np.sqrt(self.n_embd)
        own = rms_norm(own, self.w("per_layer_proj_norm.weight"), self.eps)
        rows = self.file.tensor("per_layer_token_embd.weight")[np.asarray(ids), part]
        own = (own + np.sqrt(P) * rows) / np.sqrt(2.0)
        y = self.linear(gelu_tanh(self.linear(x, p + "inp_gate")) * own, p + "proj")
        return rms_norm(y, self.w(p + "post_norm.weight"), self.eps)

    def logits(self, ids, kv="f32"):
        """Logits [T, V] in float64."""
        norm = "token_embd_norm" if self.arch == "lfm2" else "output_norm"
        x = rms_norm(self.hidden(ids, kv), self.w(norm + ".weight"), self.eps)
        x = self.at("final_norm", -1, x)
        name = "output.weight" if "output.weight" in self.file else "token_embd.weight"
        x, head = self.operand(name, x), self.file.tensor(name)
        parts = [x @ head[i : i + 8192].astype(np.float64).T for i in range(0, len(head), 8192)]
        y = self.at("logits_raw", -1, np.concatenate(parts, axis=1)) / self.logit_scale
        cap = self.final_cap
        return self.at("logits", -1, cap * np.tanh(y / cap) if cap else y)

    def sites(self, ids, kv="f32"):
        """(site, layer) -> [T, width] of every hook site; layer -1 outside the layers."""
        self.seen = {}
        self.logits(ids, kv)
        seen, self.seen = self.seen, None
        return seen


class Float32Noise(Reference):
    """The float64 pass with every named value but the logits made wrong as float32 arithmetic makes it: a sum of n products
    loses 2^-24 * sqrt(n) of the row's root mean square, n being the row's width and at least 64. The same draw each time."""

    def at(self, site, layer, x):
        x = np.asarray(super().at(site, layer, x))
        if site == "logits":
            return x
        size = 2.0**-24 * np.sqrt(max(64, x.shape[-1])) * np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
        self.rng = getattr(self, "rng", None) or np.random.default_rng(1)
        return x + size * self.rng.standard_normal(x.shape)


if __name__ == "__main__":
    ids_in = [int(a) for a in sys.argv[2:]]
    for position, row in enumerate(Reference(sys.argv[1]).logits(ids_in)):
        top = np.argsort(-row, kind="stable")[:5]
        print(position, ids_in[position], " ".join(f"{t}:{row[t]:.4f}" for t in top))
