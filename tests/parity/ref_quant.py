"""Decodes quantised tensor bytes to float32 with numpy, written from the format table; the same
bits as PyPI `gguf`."""

import numpy as np

# id -> (name, values in a block, bytes in a block)
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


def _half(b, at):
    return b[:, at : at + 2].copy().view("<f2").astype(np.float32)  # [n, 1]


def _nibbles(qs):
    """[n, m] bytes -> [n, 2m]: all low nibbles, then all high ones."""
    return np.concatenate([qs & 15, qs >> 4], axis=1).astype(np.int32)


def _bits32(b, at):
    word = b[:, at : at + 4].copy().view("<u4")
    return ((word >> np.arange(32, dtype=np.uint32)) & 1).astype(np.int32)


def _two_bits(b, at, n_bytes):
    """Groups of 32 bytes -> [n, 4 * n_bytes] two-bit values in the order h, k, l of the format
    table."""
    q = b[:, at : at + n_bytes].reshape(len(b), n_bytes // 32, 1, 32)
    return (
        ((q >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3).reshape(len(b), -1).astype(np.int32)
    )


def _scales_4k(s):
    """12 bytes -> scales[n, 8], minimums[n, 8]."""
    low, high, mixed = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    sc = np.concatenate([low & 63, (mixed & 15) | ((low >> 6) << 4)], axis=1)
    mn = np.concatenate([high & 63, (mixed >> 4) | ((high >> 6) << 4)], axis=1)
    return sc.astype(np.float32), mn.astype(np.float32)


def _q4_k(b, five_bits):
    d, dmin = _half(b, 0), _half(b, 2)
    sc, mn = _scales_4k(b[:, 4:16])
    qs = b[:, 48:] if five_bits else b[:, 16:]
    q = np.stack([_nibbles(qs[:, 32 * i : 32 * i + 32]) for i in range(4)], axis=1).reshape(
        len(b), 8, 32
    )
    if five_bits:
        qh = b[:, 16:48]
        q = q + 16 * ((qh[:, None, :] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1)
    out = (d * sc)[:, :, None] * q.astype(np.float32) - (dmin * mn)[:, :, None]
    return out.reshape(len(b), 256)


def _q2_k(b):
    sc = b[:, 0:16]
    d, dmin = _half(b, 80), _half(b, 82)
    q = _two_bits(b, 16, 64).reshape(len(b), 16, 16).astype(np.float32)
    out = (d * (sc & 15).astype(np.float32))[:, :, None] * q - (
        dmin * (sc >> 4).astype(np.float32)
    )[:, :, None]
    return out.reshape(len(b), 256)


def _q3_k(b):
    hmask, s, d = b[:, 0:32], b[:, 96:108], _half(b, 108)
    j = np.arange(16)
    low = np.where(j < 8, s[:, j % 8] & 15, s[:, j % 8] >> 4)
    high = (s[:, 8 + j % 4] >> (2 * (j // 4)).astype(np.uint8)) & 3
    scale = (low | (high << 4)).astype(np.float32) - 32
    bit = (
        ((hmask[:, None, :] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1)
        .reshape(len(b), 256)
        .astype(np.int32)
    )
    q = _two_bits(b, 32, 64) - 4 * (1 - bit)
    return ((d * scale)[:, :, None] * q.reshape(len(b), 16, 16).astype(np.float32)).reshape(
        len(b), 256
    )


def _q6_k(b):
    ql, qh, d = b[:, 0:128], b[:, 128:192], _half(b, 208)
    scale = b[:, 192:208].copy().view(np.int8).astype(np.float32)
    low = np.concatenate([_nibbles(ql[:, 0:64]), _nibbles(ql[:, 64:128])], axis=1)
    q = low + 16 * _two_bits(qh, 0, 64) - 32
    return ((d * scale)[:, :, None] * q.reshape(len(b), 16, 16).astype(np.float32)).reshape(
        len(b), 256
    )


IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _iq4_xs(b):
    part = np.arange(8)
    high = (b[:, 2:4].copy().view("<u2") >> (2 * part)) & 3
    low = (b[:, 4 + part // 2] >> (4 * (part % 2)).astype(np.uint8)) & 15
    scale = (low | (high << 4)).astype(np.float32) - 32
    q = np.stack([_nibbles(b[:, 8 + 16 * i : 24 + 16 * i]) for i in range(8)], axis=1)
    return ((_half(b, 0) * scale)[:, :, None] * IQ4[q]).reshape(len(b), 256)


def _tq1_0(b):
    def digits(at, n_bytes, n_digits):
        powers = 3 ** np.arange(n_digits)
        top = b[:, None, at : at + n_bytes].astype(np.int32) * powers[:, None] % 256
        return ((top * 3) >> 8).reshape(len(b), -1)

    trits = np.concatenate([digits(0, 32, 5), digits(32, 16, 5), digits(48, 4, 4)], axis=1)
    return _half(b, 52) * (trits - 1).astype(np.float32)


def _mxfp4(b):
    scale = np.ldexp(np.float32(1), b[:, 0:1].astype(np.int32) - 128).astype(np.float32)
    return scale * MXFP4[_nibbles(b[:, 1:])]


def _decode(name, b):
    if name == "Q4_0":
        return _half(b, 0) * (_nibbles(b[:, 2:]) - 8).astype(np.float32)
    if name == "Q4_1":
        return _half(b, 0) * _nibbles(b[:, 4:]).astype(np.float32) + _half(b, 2)
    if name == "Q5_0":
        return _half(b, 0) * (_nibbles(b[:, 6:]) + 16 * _bits32(b, 2) - 16).astype(np.float32)
    if name == "Q5_1":
        return _half(b, 0) * (_nibbles(b[:, 8:]) + 16 * _bits32(b, 4)).astype(np.float32) + _half(
            b, 2
        )
    if name == "Q8_0":
        return _half(b, 0) * b[:, 2:].copy().view(np.int8).astype(np.float32)
    return {
        "IQ4_NL": lambda x: _half(x, 0) * IQ4[_nibbles(x[:, 2:])],
        "IQ4_XS": _iq4_xs,
        "TQ1_0": _tq1_0,
        "TQ2_0": lambda x: _half(x, 64) * (_two_bits(x, 0, 64) - 1).astype(np.float32),
        "MXFP4": _mxfp4,
        "Q2_K": _q2_k,
        "Q3_K": _q3_k,
        "Q4_K": lambda x: _q4_k(x, False),
        "Q5_K": lambda x: _q4_k(x, True),
        "Q6_K": _q6_k,
    }[name](b)


def dequantize(name, data):
    """Flat float32 values of `data`, a uint8 array of whole blocks."""
    if name == "F32":
        return data.view("<f4")
    if name == "F16":
        return data.view("<f2").astype(np.float32)
    if name == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    n_bytes = next(t[2] for t in TYPES.values() if t[0] == name)
    with np.errstate(over="ignore"):
        return _decode(name, data.reshape(-1, n_bytes)).reshape(-1)
