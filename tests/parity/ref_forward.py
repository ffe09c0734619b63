"""A float64 forward pass of llama and gemma3 from a GGUF file: the second opinion next to
`transformers`.

    python tests/parity/ref_forward.py MODEL.gguf 1 2 3        prints the top five of each position

Written from the descriptions of the two families, one position block at a time, with no thought of
speed. Weights of any type are decoded to float32 exactly and then used in float64. `kv="f16"`
rounds keys and values as an f16 cache does. `sites()` gives every hook site of the pass, and
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


def rotate(x, angles, adjacent):
    """x [T, heads, D], angles [T, n_rot/2]."""
    half = angles.shape[1]
    c, s = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    out = x.copy()
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if adjacent
        else (slice(0, half), slice(half, 2 * half))
    )
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., first] * s + x[..., second] * c
    return out


class Reference:
    def __init__(self, path, overrides=None, without=()):
        """`overrides` replaces keys and `without` removes tensors: to see what a fault in either
        would do."""
        self.file = GgufFile(path)
        for name in without:
            del self.file.tensors[name]
        self.overrides = overrides or {}
        self.arch = self.file.keys["general.architecture"].decode()
        assert self.arch in ("llama", "gemma3"), self.arch
        self.n_layer, self.n_embd = self.key("block_count"), self.key("embedding_length")
        self.n_head = self.key("attention.head_count")
        self.n_head_kv = self.key("attention.head_count_kv", self.n_head)
        self.head_dim = self.key("attention.key_length", self.n_embd // self.n_head)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.n_rot = self.key("rope.dimension_count", self.head_dim)
        self.gemma = self.arch == "gemma3"
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

    def linear(self, x, stem):
        y = x @ self.w(stem + ".weight").T
        return y + self.w(stem + ".bias") if stem + ".bias" in self.file else y

    def is_local(self, layer):
        pattern = self.key("attention.sliding_window_pattern", 6)
        return (
            self.gemma
            and self.key("attention.sliding_window", 0) > 0
            and layer % pattern < pattern - 1
        )

    def angles(self, layer, n):
        base, factor = self.key("rope.freq_base", 10000.0), 1.0
        if self.gemma and self.is_local(layer):
            base = self.key("rope.freq_base_swa", 10000.0)
        elif self.key("rope.scaling.type", b"none") == b"linear":
            factor = self.key("rope.scaling.factor", 1.0)
        theta = float(base) ** (-2.0 * np.arange(self.n_rot // 2) / self.n_rot) / factor
        if "rope_freqs.weight" in self.file:
            theta = theta / self.w("rope_freqs.weight")
        return np.arange(n)[:, None] * theta

    def attention(self, layer, x, kv):
        n, p = len(x), f"blk.{layer}."
        q = self.linear(x, p + "attn_q").reshape(n, self.n_head, self.head_dim)
        k = self.linear(x, p + "attn_k").reshape(n, self.n_head_kv, self.head_dim)
        v = self.linear(x, p + "attn_v").reshape(n, self.n_head_kv, -1)
        q, k, v = self.at("q", layer, q), self.at("k", layer, k), self.at("v", layer, v)
        if p + "attn_q_norm.weight" in self.file:
            q = rms_norm(q, self.w(p + "attn_q_norm.weight"), self.eps)
            k = rms_norm(k, self.w(p + "attn_k_norm.weight"), self.eps)
            q, k = self.at("q_norm", layer, q), self.at("k_norm", layer, k)
        angles = self.angles(layer, n)
        q = self.at("q_rope", layer, rotate(q, angles, not self.gemma))
        k = self.at("k_rope", layer, rotate(k, angles, not self.gemma))
        if kv == "f16":
            k, v = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        visible = distance >= 0
        if self.is_local(layer):
            visible &= distance < self.key("attention.sliding_window")
        out, all_scores, patterns = [], [], []
        for head in range(self.n_head):
            g = head // (self.n_head // self.n_head_kv)
            scores = np.where(visible, q[:, head] @ k[:, g].T / np.sqrt(self.head_dim), -np.inf)
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            pattern = e / e.sum(axis=1, keepdims=True)
            all_scores.append(scores)
            patterns.append(pattern)
            out.append(pattern @ v[:, g])
        if self.seen is not None:  # [T, heads * T]; the engine's rows have n_ctx keys a head
            self.seen["attn_scores", layer] = np.concatenate(all_scores, axis=1)
            self.seen["attn_pattern", layer] = np.concatenate(patterns, axis=1)
        z = self.at("attn_z", layer, np.concatenate(out, axis=1))
        return self.linear(z, p + "attn_output")

    def feed_forward(self, layer, x):
        p = f"blk.{layer}."
        act = gelu_tanh if self.gemma else silu
        gate = self.at("ffn_gate", layer, self.linear(x, p + "ffn_gate"))
        up = self.at("ffn_up", layer, self.linear(x, p + "ffn_up"))
        return self.linear(self.at("ffn_act", layer, act(gate) * up), p + "ffn_down")

    def hidden(self, ids, kv="f32"):
        """Residual stream after the last block, [T, E]."""
        # only the needed rows are widened: the embedding may be large
        x = self.file.tensor("token_embd.weight")[np.asarray(ids)].astype(np.float64)
        if self.gemma:
            x = x * np.float64(np.float32(np.sqrt(self.n_embd)))
        x = self.at("embed", -1, x)
        for layer in range(self.n_layer):
            p = f"blk.{layer}."
            x = self.at("resid_pre", layer, x)
            normed = rms_norm(x, self.w(p + "attn_norm.weight"), self.eps)
            branch = self.attention(layer, self.at("attn_norm", layer, normed), kv)
            if self.gemma:
                branch = rms_norm(branch, self.w(p + "post_attention_norm.weight"), self.eps)
            x = self.at("resid_mid", layer, x + self.at("attn_out", layer, branch))
            normed = rms_norm(x, self.w(p + "ffn_norm.weight"), self.eps)
            branch = self.feed_forward(layer, self.at("ffn_norm", layer, normed))
            if self.gemma:
                branch = rms_norm(branch, self.w(p + "post_ffw_norm.weight"), self.eps)
            x = self.at("resid_post", layer, x + self.at("ffn_out", layer, branch))
        return x

    def logits(self, ids, kv="f32"):
        """Logits [T, V] in float64."""
        x = rms_norm(self.hidden(ids, kv), self.w("output_norm.weight"), self.eps)
        x = self.at("final_norm", -1, x)
        head = self.file.tensor(
            "output.weight" if "output.weight" in self.file else "token_embd.weight"
        )
        parts = [x @ head[i : i + 8192].astype(np.float64).T for i in range(0, len(head), 8192)]
        y = self.at("logits_raw", -1, np.concatenate(parts, axis=1))
        cap = self.key("final_logit_softcapping", 0.0) if self.gemma else 0.0
        return self.at("logits", -1, cap * np.tanh(y / cap) if cap else y)

    def sites(self, ids, kv="f32"):
        """(site, layer) -> [T, width] of every hook site; layer -1 outside the layers."""
        self.seen = {}
        self.logits(ids, kv)
        seen, self.seen = self.seen, None
        return seen


if __name__ == "__main__":
    ids_in = [int(a) for a in sys.argv[2:]]
    for position, row in enumerate(Reference(sys.argv[1]).logits(ids_in)):
        top = np.argsort(-row, kind="stable")[:5]
        print(position, ids_in[position], " ".join(f"{t}:{row[t]:.4f}" for t in top))
