"""Writes an F16 GGUF of random weights at the shape of a public model: for timing, its text means nothing.

GGUF v3, little-endian: magic, version, counts, metadata, tensor table, then the data, each tensor at a multiple of 32.
Streamed, so that memory stays small.
"""

import struct
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 32
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9
PIECE_ELEMENTS = 8 << 20


@dataclass
class Shape:
    arch: str
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ff: int
    n_vocab: int


SHAPES = {
    "llama32-1b": Shape("llama", 2048, 16, 32, 8, 64, 8192, 128256),
    "qwen25-1p5b": Shape("qwen2", 1536, 28, 12, 2, 128, 8960, 151936),
    "qwen3-0p6b": Shape("qwen3", 1024, 28, 16, 8, 128, 3072, 151936),
}


def tensors(s):
    """(name, dims, kind) in the order of the file; kind: normal deviation, or the constant of a vector."""
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    out = [("token_embd.weight", (s.n_vocab, s.n_embd), 0.02), ("output_norm.weight", (s.n_embd,), 1.0)]
    for i in range(s.n_layer):
        b = f"blk.{i}."
        out += [(b + "attn_norm.weight", (s.n_embd,), 1.0), (b + "ffn_norm.weight", (s.n_embd,), 1.0)]
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            out.append((b + name + ".weight", (rows, s.n_embd), s.n_embd**-0.5))
            if s.arch == "qwen2":
                out.append((b + name + ".bias", (rows,), 0.0))
        if s.arch == "qwen3":
            out += [(b + f"attn_{x}_norm.weight", (s.head_dim,), 1.0) for x in "qk"]
        out.append((b + "attn_output.weight", (s.n_embd, q), q**-0.5))
        out.append((b + "ffn_gate.weight", (s.n_ff, s.n_embd), s.n_embd**-0.5))
        out.append((b + "ffn_up.weight", (s.n_ff, s.n_embd), s.n_embd**-0.5))
        out.append((b + "ffn_down.weight", (s.n_embd, s.n_ff), s.n_ff**-0.5))
    return out


def _size(dims):
    return int(np.prod(dims)) * (2 if len(dims) == 2 else 4)


def f16_bytes(shape):
    return sum(_size(dims) for _, dims, _ in tensors(SHAPES[shape]))


def _text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def _metadata(name, s):
    """Keys with their encoded values."""

    def u32(v):
        return struct.pack("<II", U32, v)

    def f32(v):
        return struct.pack("<If", F32, v)

    def array(kind, values):
        body = b"".join(map(_text, values)) if kind == STRING else np.array(values, "<f4" if kind == F32 else "<i4").tobytes()
        return struct.pack("<IIQ", ARRAY, kind, len(values)) + body

    n_plain = s.n_vocab - 259
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"\u2581w{i}" for i in range(n_plain)]
    numbers = {
        "context_length": 8192, "embedding_length": s.n_embd, "block_count": s.n_layer, "feed_forward_length": s.n_ff,
        "attention.head_count": s.n_head, "attention.head_count_kv": s.n_head_kv, "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim, "rope.dimension_count": s.head_dim, "vocab_size": s.n_vocab,
    }  # fmt: skip
    return {
        "general.architecture": struct.pack("<I", STRING) + _text(s.arch),
        "general.name": struct.pack("<I", STRING) + _text(f"synthetic {name}"),
        "general.file_type": u32(1),
        **{f"{s.arch}.{key}": u32(value) for key, value in numbers.items()},
        f"{s.arch}.attention.layer_norm_rms_epsilon": f32(1e-5),
        f"{s.arch}.rope.freq_base": f32(5e5),
        "tokenizer.ggml.model": struct.pack("<I", STRING) + _text("llama"),
        "tokenizer.ggml.tokens": array(STRING, tokens),
        "tokenizer.ggml.scores": array(F32, [0.0] * 259 + [-float(i) for i in range(n_plain)]),
        "tokenizer.ggml.token_type": array(I32, [2, 3, 3] + [6] * 256 + [1] * n_plain),
        "tokenizer.ggml.unknown_token_id": u32(0),
        "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
    }


def write(name, path, progress=lambda done: None):
    """progress(part of the bytes written), about ten times."""
    shape, rng = SHAPES[name], np.random.default_rng(1)
    table, offset, metadata = [], 0, _metadata(name, shape)
    for tensor, dims, _ in tensors(shape):
        entry = _text(tensor) + struct.pack(f"<I{len(dims)}Q", len(dims), *reversed(dims))
        table.append(entry + struct.pack("<IQ", 1 if len(dims) == 2 else 0, offset))
        offset += -(-_size(dims) // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(table), len(metadata))
    head += b"".join(_text(k) + v for k, v in metadata.items()) + b"".join(table)
    written, told = 0, 0.0
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, dims, kind in tensors(shape):
            if len(dims) == 1:
                file.write(np.full(dims, kind, np.float32).tobytes())
            else:
                step = max(1, PIECE_ELEMENTS // dims[1])
                for row in range(0, dims[0], step):
                    values = rng.standard_normal((min(step, dims[0] - row), dims[1]), dtype=np.float32)
                    file.write((values * np.float32(kind)).astype(np.float16).tobytes())
            file.write(bytes(-_size(dims) % ALIGNMENT))
            written += _size(dims)
            if written / offset >= told + 0.1:
                told = written / offset
                progress(told)
