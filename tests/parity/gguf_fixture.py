"""Writes GGUF files for tests, right ones and wrong ones: every field of the file can be given a
false value.

    g = Gguf()
    g.kv("general.architecture", STR, "llama")
    g.array("tokenizer.ggml.tokens", STR, ["a", "b"])
    g.tensor("token_embd.weight", np.zeros((320, 64), np.float32))   # numpy order: rows first
    g.write(path)

To write wrong values: `Gguf(magic=, version=, n_tensors=, n_kv=, alignment=, endian=)`; a
`Text(data, length=)` wherever a string goes; `array(..., count=)`; a kind outside 0..12 with
`bytes` as the value; `tensor(..., n_dims=, dims=, type_id=, offset=)`; `raw_kv`, `raw_info`;
`bytes()` to cut or change the result.
"""

import struct
from dataclasses import dataclass

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
_PACK = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "B",
    U64: "Q",
    I64: "q",
    F64: "d",
}

TENSOR_F32, TENSOR_F16, TENSOR_BF16 = 0, 1, 30
_TENSOR_TYPE = {
    "float32": TENSOR_F32,
    "float16": TENSOR_F16,
}  # by numpy name, so that numpy is not needed here


@dataclass
class Text:
    """A string whose written length may differ from its bytes."""

    data: bytes
    length: int | None = None


def _wrap(value, bits):
    """Numbers are written modulo the field's width, so -1 and 2^64 + 4 can be said plainly."""
    return value & ((1 << bits) - 1)


class Gguf:
    def __init__(
        self, *, magic=b"GGUF", version=3, alignment=32, n_tensors=None, n_kv=None, endian="<"
    ):
        """`alignment` is what this writer pads to; the key general.alignment is only written if a
        test adds it."""
        self.magic, self.version, self.alignment, self.endian = magic, version, alignment, endian
        self.n_tensors, self.n_kv = n_tensors, n_kv
        self.kvs, self.infos, self.blobs = [], [], []
        self.data_bytes = 0

    # -- parts ------------------------------------------------------------------------------------
    def _u32(self, v):
        return struct.pack(self.endian + "I", _wrap(v, 32))

    def _u64(self, v):
        return struct.pack(self.endian + "Q", _wrap(v, 64))

    def _string(self, s):
        if isinstance(s, str):
            s = s.encode()
        if isinstance(s, bytes):
            s = Text(s)
        return self._u64(len(s.data) if s.length is None else s.length) + s.data

    def _scalar(self, kind, value):
        if isinstance(value, bytes) and kind != STR:
            return value
        if kind == STR:
            return self._string(value)
        return struct.pack(self.endian + _PACK[kind], value)

    def kv(self, key, kind, value):
        self.kvs.append(self._string(key) + self._u32(kind) + self._scalar(kind, value))
        return self

    def array(self, key, kind, values, count=None):
        if isinstance(values, bytes):
            body, n = values, 0
        else:
            n = len(values)
            if kind == STR:
                body = b"".join(self._string(v) for v in values)
            else:
                body = struct.pack(f"{self.endian}{n}{_PACK[kind]}", *values)
        head = self._u32(kind) + self._u64(n if count is None else count)
        self.kvs.append(self._string(key) + self._u32(ARR) + head + body)
        return self

    def raw_kv(self, data):
        self.kvs.append(data)
        return self

    def tensor(self, name, data, *, dims=None, n_dims=None, type_id=None, offset=None):
        """`data` is an array, or bytes with `dims` (fastest first) and `type_id` given."""
        if hasattr(data, "dtype"):
            dims = list(reversed(data.shape)) if dims is None else dims
            type_id = _TENSOR_TYPE[data.dtype.name] if type_id is None else type_id
            swapped = data.astype(data.dtype.newbyteorder(self.endian))
            data = swapped.tobytes()
        at = self.data_bytes if offset is None else offset
        info = self._string(name) + self._u32(len(dims) if n_dims is None else n_dims)
        info += b"".join(self._u64(d) for d in dims) + self._u32(type_id) + self._u64(at)
        self.infos.append(info)
        if offset is None:
            padding = -len(data) % self.alignment
            self.blobs.append(data + b"\0" * padding)
            self.data_bytes += len(data) + padding
        return self

    def raw_info(self, data):
        self.infos.append(data)
        return self

    # -- the whole --------------------------------------------------------------------------------
    def head(self):
        n_tensors = len(self.infos) if self.n_tensors is None else self.n_tensors
        n_kv = len(self.kvs) if self.n_kv is None else self.n_kv
        fixed = self.magic + self._u32(self.version) + self._u64(n_tensors) + self._u64(n_kv)
        return fixed + b"".join(self.kvs) + b"".join(self.infos)

    def data_start(self):
        n = len(self.head())
        return n + -n % self.alignment

    def bytes(self):
        head = self.head()
        return head + b"\0" * (-len(head) % self.alignment) + b"".join(self.blobs)

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())
        return path
