"""Toys of gate I': llama files in which one matrix is quantised, by random blocks, and all else is
F32; and the float64 reference that rounds the activations of that matrix as the engine does.

Rows are 256 and 512 wide, so that every format fits. Any bytes are valid blocks; only the scales
are drawn, so that a row has about unit gain. There is one layer, and attention is soft, so that the
float32 steps around the matrix cost less than the bar (the F32 file shows what they cost). What is
rounded at one position then reaches no other, so a rounding flip spoils its own position only.
"""

import functools

import numpy as np

import ref_forward
import ref_quant
import toys
from gguf_fixture import Gguf

TOY = toys.Toy("one_matrix", "llama", n_layer=1, n_embd=256, head_dim=64, n_ff=512)
TIED = toys.Toy("one_matrix", "llama", n_layer=1, n_embd=256, head_dim=64, n_ff=512, tied=True)

# What is quantised -> (tensor, site and layer of what it is multiplied with). An embedding row is
# decoded, not multiplied; a tied one is both.
MATRICES = {
    "head": ("output.weight", ("final_norm", -1)),
    "ffn_down": ("blk.0.ffn_down.weight", ("ffn_act", 0)),
    "attn_q": ("blk.0.attn_q.weight", ("attn_norm", 0)),
    "embedding": ("token_embd.weight", None),
    "tied": ("token_embd.weight", ("final_norm", -1)),
}
Q_GAIN = 0.25  # of a query row; toys.py has 2, for scores that are far apart
TYPE_IDS = {name: type_id for type_id, (name, _, _) in ref_quant.TYPES.items()}
# MXFP4 has a power of two as its scale, which no small change can put wrong; its files are those of gpt-oss (test_toys).
BLOCK_FORMATS = [name for name, values, _ in ref_quant.TYPES.values() if values > 1 and name != "MXFP4"]
# Byte offsets of the half-precision scale and minimum, and the minimum as a part of the scale that
# centres the values; a signed one is added, the others are subtracted.
_HALVES = {
    "Q4_0": (0, None, 0),
    "Q4_1": (0, 2, -7.5),
    "Q5_0": (0, None, 0),
    "Q5_1": (0, 2, -15.5),
    "Q8_0": (0, None, 0),
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0),
    "IQ4_NL": (0, None, 0),
    "IQ4_XS": (0, None, 0),
    "TQ1_0": (52, None, 0),
    "TQ2_0": (64, None, 0),
}


def sizes(format_name):
    """(values, bytes) of a block."""
    return ref_quant.TYPES[TYPE_IDS[format_name]][1:]


def scale_at(format_name):
    """Offset of the low byte of a block's half-precision scale."""
    return _HALVES[format_name][0]


def random_rows(format_name, rows, cols, gain=1.0):
    """uint8 [rows, bytes of a row]: random blocks whose values have a spread of gain / sqrt(cols)."""
    values, n_bytes = sizes(format_name)
    key = f"one_matrix/{format_name}/{rows}x{cols}"
    n_blocks = rows * cols // values
    if values == 1:
        w = (toys.uniform(key, rows * cols) - 0.5) * np.sqrt(12.0 / cols) * gain
        if format_name == "F16":
            return w.astype("<f2").view(np.uint8).reshape(rows, -1)
        bits = w.astype("<f4").view("<u4")
        return (bits if format_name == "F32" else (bits >> 16).astype("<u2")).view(np.uint8).reshape(rows, -1)
    blocks = (toys.uniform(key, n_blocks * n_bytes) * 256).astype(np.uint8).reshape(n_blocks, n_bytes)
    scale_at, min_at, ratio = _HALVES[format_name]

    def put(factor):
        # magnitudes differ from block to block, so that a scale of the wrong block is seen
        for at, part in ((scale_at, 1.0), (min_at, ratio)):
            if at is not None:
                size = factor * part * (0.5 + toys.uniform(f"{key}/{at}", n_blocks))
                blocks[:, at : at + 2] = size.astype("<f2").view(np.uint8).reshape(n_blocks, 2)

    put(1.0)
    values = ref_quant.dequantize(format_name, blocks.reshape(-1)).astype(np.float64)
    put(gain / np.sqrt(cols * np.mean(values * values)))
    return blocks.reshape(rows, -1)


def shape(what):
    t = TOY
    return {
        "head": (t.n_vocab, t.n_embd),
        "ffn_down": (t.n_embd, t.n_ff),
        "attn_q": (t.n_head * t.head_dim, t.n_embd),
        "embedding": (t.n_vocab, t.n_embd),
        "tied": (t.n_vocab, t.n_embd),
    }[what]


def matrix_bytes(what, format_name):
    return random_rows(format_name, *shape(what), gain=Q_GAIN if what == "attn_q" else 1.0)


@functools.lru_cache
def plain(tied):
    """Keys and tensors of the toy before any is quantised."""
    toy = TIED if tied else TOY
    return toys.build_gguf(toy).kvs, toys.gguf_tensors(toy)


def write(path, what, format_name, data):
    """The toy with `data` (uint8 [rows, bytes of a row]) as the one matrix that is not F32."""
    kvs, tensors = plain(what == "tied")
    g = Gguf()
    g.kvs = kvs
    for name, a in tensors.items():
        if name == MATRICES[what][0]:
            rows, cols = shape(what)
            g.tensor(name, data.tobytes(), dims=[cols, rows], type_id=TYPE_IDS[format_name])
        else:
            g.tensor(name, a * np.float32(Q_GAIN / 2) if name.endswith("attn_q.weight") else a)
    g.write(path)
    return path


# -- activation rounding -----------------------------------------------------------------------------
def quantise(x, block):
    """Codes and scales of rows [T, width] by the engine's rule, in the precision of `x`: 127 / amax
    and amax / 127, half to even."""
    blocks = x.reshape(len(x), -1, block)
    amax = np.abs(blocks).max(axis=2, keepdims=True)
    one = x.dtype.type(127)
    return np.rint(blocks * (one / amax)), amax / one


def block_of_activation(format_name):
    """Values under one activation scale; 0 where the format takes floats."""
    values, _ = sizes(format_name)
    return 0 if values == 1 else values


class RoundingReference(ref_forward.Reference):
    """Rounds the operand of one matrix. With `given`, float32 [T, width], it takes those values (the
    engine's own) as the operand instead of its own."""

    def __init__(self, path, what, format_name, given=None):
        super().__init__(path)
        self.tensor_name, self.given = MATRICES[what][0], given
        self.block = block_of_activation(format_name)
        self.own = None  # the operand before rounding, float64 [T, width]

    def operand(self, name, x):
        if name != self.tensor_name:
            return x
        self.own = x
        if self.given is not None:
            x = self.given
        if not self.block:
            return x.astype(np.float64)
        codes, scales = quantise(x, self.block)
        return (codes.astype(np.float64) * scales.astype(np.float64)).reshape(x.shape)
