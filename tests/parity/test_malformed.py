"""The bar for malformed files, cases 1 to 11, through the library as a host uses it: an error that says
what and where, in 512 MB of address space and at most 4 times the file and 16 MiB of memory, nothing
printed, and a good file opens afterwards. The unit tests look at each case more closely."""

import copy
import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import toys
from gguf_fixture import ARR, BOOL, F32, I32, STR, U8, U32, U64, Gguf, Text

WORKER = Path(__file__).resolve().parent / "malformed_worker.py"
OK, FORMAT, UNSUPPORTED, ARCHITECTURE, KEY, TENSOR, TOKENIZER, MEMORY = 0, 21, 22, 30, 31, 32, 33, 50
FILE = {FORMAT, UNSUPPORTED}
BIG = 2**64


def wrong_files(toy):
    """(name, statuses that are right, Gguf or bytes)."""
    plain = toys.build_gguf(toy)

    def key_of(entry):
        (n,) = struct.unpack_from("<Q", entry)
        return entry[8 : 8 + n].decode()

    def base(*without):
        g = copy.copy(plain)
        g.kvs = [e for e in plain.kvs if key_of(e) not in without]
        g.infos, g.blobs = list(plain.infos), list(plain.blobs)
        return g

    def key(name, kind, value):
        return base(name).kv(name, kind, value)

    f32 = {"type_id": 0}
    for dims in ([4, 0], [0], [0, 4], [4, 0, 1, 1], [1, 1, 1, 0]):
        yield f"1 dims {dims}", FILE, base().tensor("t", b"", dims=dims, **f32)
    yield "1 empty key", FILE, base().kv("", U32, 1)
    yield "2 wraps to 4 MiB", FILE, base().tensor("t", bytes(4 << 20), dims=[2**20, 2**42 + 1], **f32)
    yield "2 wraps as I64", FILE, base().tensor("t", bytes(8 << 20), dims=[2**20, 2**41 + 1], type_id=27)
    for count in (2**63 - 1, 2**61, 2**58, BIG // 40 + 1, BIG // 400 + 1):
        for field in ("n_tensors", "n_kv"):
            yield f"3 {field} {count}", FILE, Gguf(**{field: count}).bytes() + bytes(range(100))
    yield "4 key length", FILE, base().kv(Text(b"key", BIG - 1), U32, 1)
    yield "4 string length", FILE, base().kv("k", STR, Text(b"text", 2**40))
    yield "4 strings", FILE, base().array("k", STR, ["a"], count=2**30)
    yield "4 bytes", FILE, base().array("k", U8, [1], count=2**63)
    size = len(plain.bytes()) + 64
    for offset in (size // 32 * 32, size // 32 * 32 - 32, BIG - 320):
        yield f"5 offset {offset}", FILE, base().tensor("t", b"", dims=[64], offset=offset, **f32)
    yield "5 overlap", FILE, base().tensor("t", b"", dims=[64], offset=0, **f32)
    for value in (0, 1, 3, 2**30):
        yield f"6 alignment {value}", FILE | {KEY}, base().kv("general.alignment", U32, value)
    yield "6 alignment i32", FILE | {KEY}, base().kv("general.alignment", I32, 32)
    yield "6 alignment u64", FILE | {KEY}, base().kv("general.alignment", U64, 32)
    yield "6 alignment text", FILE | {KEY}, base().kv("general.alignment", STR, "32")
    yield "6 alignment array", FILE | {KEY}, base().array("general.alignment", U32, [32])
    twice = base().kv("general.alignment", U32, 32).kv("general.alignment", U32, 32)
    yield "6 alignment twice", FILE | {KEY}, twice
    for kind in (4, 5, 31, 32, 33, 36, 37, 38, 97, 150, 0x7FFFFFFF, 0xFFFFFFFF):
        yield f"7 type {kind}", FILE, base().tensor("t", bytes(256), dims=[64], type_id=kind)
    twin = base().tensor("blk.0.attn_q.weight", bytes(256), dims=[64], **f32)
    yield "8 tensor twice", FILE, twin
    yield "8 key twice", FILE, base().kv("llama.block_count", U32, 2)
    for kind in (13, 256, 2**32 - 1):
        yield f"9 kind {kind}", FILE, base().kv("k", kind, b"\0" * 8)
    for depth in (1, 4, 100_000):
        nested = struct.pack("<IQ", ARR, 1) * depth + struct.pack("<IQI", U32, 1, 7)
        yield f"9 nested {depth}", FILE, base().kv("k", ARR, nested)
    yield "9 bool", FILE, base().kv("k", BOOL, b"\2")
    yield "10 scores", {TOKENIZER}, base("tokenizer.ggml.scores").array("tokenizer.ggml.scores", F32, [0.0] * 319)
    types = "tokenizer.ggml.token_type"
    yield "10 types", {TOKENIZER}, base(types).array(types, I32, [1] * 10)
    for eos in (BIG // 2**32 - 1, 320):
        yield f"10 eos {eos}", {TOKENIZER}, key("tokenizer.ggml.eos_token_id", U32, eos)
    for name, kind, value in (
        ("block_count", U32, 0), ("block_count", U32, 4), ("block_count", F32, 3.0),
        ("attention.head_count", U32, 0), ("attention.head_count_kv", U32, 3), ("attention.head_count_kv", U32, 8),
        ("rope.dimension_count", U32, 15), ("rope.dimension_count", U32, 18), ("context_length", U32, 0),
        ("attention.layer_norm_rms_epsilon", F32, 0.0), ("attention.layer_norm_rms_epsilon", F32, math.nan),
        ("embedding_length", U32, 2**31), ("feed_forward_length", U32, 2**32 - 1),
    ):  # fmt: skip
        yield f"11 {name} {value}", {KEY, TENSOR}, key("llama." + name, kind, value)
    yield "11 no architecture", {KEY, ARCHITECTURE}, base("general.architecture")


@pytest.fixture(scope="module")
def report(engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed")
    toy = toys.TOYS["llama_untied"]
    good = folder / "good.gguf"
    toys.write_gguf(toy, good)
    paths, right = [good], {}
    for name, statuses, file in wrong_files(toy):
        path = folder / name.replace(" ", "_").replace("/", "_")
        path.write_bytes(file if isinstance(file, bytes) else file.bytes())
        paths.append(path)
        right[path.name] = statuses
    assert len(right) > 60
    (folder / "list.json").write_text(json.dumps([str(p) for p in paths]))
    done = subprocess.run(
        [sys.executable, "-I", "-B", WORKER, engine.library_path(), folder / "list.json", folder / "report.json"],
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout == b"" and done.stderr == b"", done
    return json.loads((folder / "report.json").read_text()), right


def test_every_file_is_refused_with_a_place(report):
    seen, right = report
    assert set(seen["bad"]) == set(right)
    for name, got in seen["bad"].items():
        assert got["code"] in right[name], (name, got)
        assert got["message"] and (got["name"] or got["offset"] != BIG - 1), (name, got)


def test_a_good_file_opens_after_each(report):
    seen, right = report
    assert [g["code"] for g in seen["good"]] == [OK] * (len(right) + 1)


def test_the_cap_bites(report):
    """The same open without room for it fails, so the cap was in force."""
    seen, _ = report
    assert seen["starved"]["code"] in (MEMORY, 20), seen["starved"]
