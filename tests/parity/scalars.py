"""Case 30's strings: 1,000 of 200 random scalars each, and the one-line digest of their ids."""

import zlib

import numpy as np

import toys

N_STRINGS, N_SCALARS = 1000, 200
# Below this: anything, what vocabularies without bytes for the far planes can write, the scripts in
# use, and the basic plane.
LIMITS = [0x110000, 0x40000, 0x3000, 0x10000]


def texts():
    for n in range(N_STRINGS):
        limit = LIMITS[n % len(LIMITS)]
        scalars = (toys.uniform(f"case 30/{n}", N_SCALARS) * limit).astype(np.int64)
        yield "".join("x" if 0xD800 <= s < 0xE000 else chr(s) for s in scalars)


def digest(ids):
    """Number of ids and CRC-32 of them as little-endian 32-bit words; "!" for a text that the
    vocabulary cannot write."""
    if ids is None:
        return "!"
    return f"{len(ids)} {zlib.crc32(np.asarray(ids, '<i4').tobytes()):08x}"
