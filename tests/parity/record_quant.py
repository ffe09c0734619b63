#!/usr/bin/env python3
"""Records random quantised blocks and their values as PyPI `gguf` decodes them.

    pip install gguf numpy && python tests/parity/record_quant.py

Writes tests/golden/quant_blocks.npz (per format NAME: `NAME_bytes` u8, `NAME_values` f32) and the
same data as tests/golden/quant_blocks.bin for C++ tests. Layout of the .bin, little-endian, no
padding:

    magic    8 bytes  "EQBLOCK1"
    n        u32      number of formats
    n times: name     16 bytes, zero-padded ("Q4_K")
             n_bytes  u32
             n_values u32
             bytes    u8[n_bytes]    whole blocks, back to back
             values   f32[n_values]  decoded, to be compared bit for bit (NaN as "any NaN")

The blocks are random bytes with planted scales: zero, negative zero, subnormal, smallest normal,
largest finite and negative half-precision values. Integer fields are uniform, so all nibble,
high-bit and sub-scale paths occur. Infinite and NaN scales are left out: the engine rejects them
elsewhere, and numpy's NaN payloads are not portable.
"""

import struct
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

OUT = Path(__file__).resolve().parent.parent / "golden"
# byte offsets of the half-precision fields of one block
HALF_FIELDS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "MXFP4": [],  # one byte of exponent: every value of it
}
EDGE_HALVES = [
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x03FF,
    0x0400,
    0x7BFF,
    0xFBFF,
    0x3C00,
    0xBC00,
    0x1000,
    0x83FF,
]
N_RANDOM_BLOCKS = 8


def finite_halves(rng, n):
    h = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    bad = (h & 0x7C00) == 0x7C00
    h[bad] &= 0xBFFF  # clears the top exponent bit: finite
    return h


def make_blocks(rng, name):
    if name == "F16":
        h = np.concatenate([np.array(EDGE_HALVES, np.uint16), finite_halves(rng, 500)])
        return np.frombuffer(h.astype("<u2").tobytes(), np.uint8)
    if name == "BF16":
        h = rng.integers(0, 1 << 16, 500, dtype=np.uint16)
        h = h[(h & 0x7F80) != 0x7F80]
        h = np.concatenate(
            [np.array([0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x7F7F, 0xFF7F, 0x3F80], np.uint16), h]
        )
        return np.frombuffer(h.astype("<u2").tobytes(), np.uint8)
    size = GGML_QUANT_SIZES[T[name]][1]
    fields = HALF_FIELDS[name]
    if not fields:
        blocks = rng.integers(0, 256, (256, size), dtype=np.uint8)
        blocks[:, 0] = np.arange(256)
        return blocks.reshape(-1)
    scales = []
    for i, edge in enumerate(
        EDGE_HALVES
    ):  # each edge value in each field, the other field random or zero
        for j in range(len(fields)):
            row = finite_halves(rng, len(fields))
            if i % 3 == 2:
                row[:] = 0
            row[j] = edge
            scales.append(row)
    # typical scales of trained weights, so that ordinary blocks are in the set too
    typical = (rng.uniform(1e-4, 2e-2, (N_RANDOM_BLOCKS, len(fields))).astype(np.float16)).view(
        np.uint16
    )
    scales = np.array(scales + list(typical), np.uint16)
    blocks = rng.integers(0, 256, (len(scales), size), dtype=np.uint8)
    for j, offset in enumerate(fields):
        blocks[:, offset : offset + 2] = scales[:, j].astype("<u2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def main():
    rng = np.random.default_rng(20261130)
    arrays, flat = {}, []
    for name in ["F16", "BF16", *HALF_FIELDS]:
        data = make_blocks(rng, name)
        size = GGML_QUANT_SIZES[T[name]][1]
        with np.errstate(over="ignore", invalid="ignore"):
            values = dequantize(data.reshape(-1, size), T[name]).astype("<f4").reshape(-1)
        arrays[name + "_bytes"], arrays[name + "_values"] = data, values
        flat.append(
            struct.pack("<16sII", name.encode(), data.size, values.size)
            + data.tobytes()
            + values.tobytes()
        )
        print(
            f"{name:5} {data.size:6} bytes {values.size:6} values, "
            f"{np.isnan(values).sum()} nan, {np.isinf(values).sum()} inf"
        )
    arrays["gguf_version"] = np.array(version("gguf"))
    np.savez_compressed(OUT / "quant_blocks.npz", **arrays)
    (OUT / "quant_blocks.bin").write_bytes(
        b"EQBLOCK1" + struct.pack("<I", len(flat)) + b"".join(flat)
    )


if __name__ == "__main__":
    main()
