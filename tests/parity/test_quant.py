"""The recorded quantised blocks: both files say the same, and our own numpy decoder agrees bit for
bit."""

import struct
from pathlib import Path

import numpy as np
import pytest

import ref_quant

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
FORMATS = [
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
    "TQ1_0",
    "TQ2_0",
    "MXFP4",
]


@pytest.mark.parametrize("name", FORMATS)
def test_numpy_decoder_equals_recorded_bits(name):
    golden = np.load(GOLDEN / "quant_blocks.npz")
    values = ref_quant.dequantize(name, golden[name + "_bytes"])
    assert np.array_equal(values.view(np.uint32), golden[name + "_values"].view(np.uint32))


def test_binary_file_holds_the_same():
    golden = np.load(GOLDEN / "quant_blocks.npz")
    data = (GOLDEN / "quant_blocks.bin").read_bytes()
    assert data[:8] == b"EQBLOCK1"
    (count,), at, names = struct.unpack_from("<I", data, 8), 12, []
    for _ in range(count):
        name, n_bytes, n_values = struct.unpack_from("<16sII", data, at)
        at += 24
        names.append(name.rstrip(b"\0").decode())
        assert data[at : at + n_bytes] == golden[names[-1] + "_bytes"].tobytes()
        at += n_bytes
        assert data[at : at + 4 * n_values] == golden[names[-1] + "_values"].tobytes()
        at += 4 * n_values
    assert at == len(data) and names == FORMATS
