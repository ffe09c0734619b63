"""Every way to hand over a file gives the same bits, and split sets (case 13): any shard opens the set, wrong sets are
errors that name the shard."""

import copy
import ctypes as C
import mmap
import os

import numpy as np
import pytest

import engine_ctypes as ec
import toys
from gguf_fixture import STR, U16, U32, Gguf

TOY = toys.TOYS["llama_untied"]
IDS = list(range(1, 40))
FORMAT, UNSUPPORTED, FILE_OPEN, ARGUMENT = 21, 22, 20, 10
READ = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.c_uint64, C.c_void_p, C.c_uint64)


class Opened(ec.Model):
    """A model from any source: fields of engine_model_params."""

    def __init__(self, **fields):
        self.lib, self.handle, error = ec.load(), C.c_void_p(), ec.Error()
        params = ec.ModelParams(**{"fd": -1, **fields})
        ec._check(self.lib.engine_model_open(C.byref(params), C.byref(self.handle), C.byref(error)), error)
        self.info = ec.ModelInfo()
        ec._check(self.lib.engine_model_info_get(self.handle, C.byref(self.info)), error)


def paths_of(paths):
    return {"paths": (C.c_char_p * len(paths))(*[str(p).encode() for p in paths]), "n_paths": len(paths)}


def bits(model):
    with model, model.session(n_ctx=64) as session:
        return session.decode_all(IDS).view(np.uint32)


def refusal(**fields):
    with pytest.raises(ec.EngineError) as caught:
        Opened(**fields).close()
    return caught.value


@pytest.fixture(scope="module")
def whole(engine, toy_path):
    path = toy_path("llama_untied")
    return path, bits(Opened(path=str(path).encode()))


@pytest.mark.parametrize("offset", [0, 4, 4096, 1, 2, 4097])
def test_descriptor_at_any_offset(whole, tmp_path, offset):
    path, right = whole
    data = path.read_bytes()
    outer = tmp_path / "outer"
    outer.write_bytes(b"x" * offset + data + b"tail")
    fd = os.open(outer, os.O_RDONLY)
    model = Opened(fd=fd, offset=offset, length=len(data))
    os.close(fd)
    assert model.info.file_bytes == len(data)
    assert (bits(model) == right).all()


@pytest.mark.parametrize("shift", [0, 4, 1, 3])
def test_memory_at_any_address(whole, shift):
    path, right = whole
    data = path.read_bytes()
    block = mmap.mmap(-1, len(data) + shift)
    block[shift:] = data
    address = C.addressof(C.c_char.from_buffer(block)) + shift
    released = []
    release = C.CFUNCTYPE(None, C.c_void_p, C.c_void_p, C.c_uint64)(lambda user, at, n: released.append((at, n)))
    model = Opened(data=address, length=len(data), release_data=C.cast(release, C.c_void_p))
    # What was copied is released at once.
    assert released == ([] if shift % 4 == 0 else [(address, len(data))])
    assert (bits(model) == right).all()
    assert released == [(address, len(data))]


def test_read_callback(whole):
    path, right = whole
    data = path.read_bytes()
    calls = []

    def read(user, offset, out, n):
        calls.append((offset, n))
        C.memmove(out, data[offset : offset + n], n)
        return 0

    callback = READ(read)
    model = Opened(read=C.cast(callback, C.c_void_p), length=len(data))
    assert sum(n for _, n in calls) == len(data) and [o for o, _ in calls] == sorted(o for o, _ in calls)
    assert (bits(model) == right).all()

    failing = READ(lambda user, offset, out, n: 7)
    assert refusal(read=C.cast(failing, C.c_void_p), length=100).code == FILE_OPEN
    assert refusal(read=C.cast(callback, C.c_void_p), length=100, path=str(path).encode()).code == ARGUMENT
    assert refusal().code == ARGUMENT


def split(n_shards, toy=TOY, numbers=None, count=None, total=None, align=None):
    """Shards as Gguf, in the way of llama.cpp's splitter: metadata in the first, some tensors in each."""
    plain = toys.build_gguf(toy)
    shards = []
    for i in range(n_shards):
        g = Gguf(alignment=align[i] if align else 32)
        g.kvs = list(plain.kvs) if i == 0 else []
        if align and align[i] != 32:
            g.kv("general.alignment", U32, align[i])
        g.kv("split.no", U16, numbers[i] if numbers else i)
        g.kv("split.count", U16, count or n_shards)
        g.kv("split.tensors.count", U32, total or len(plain.infos))
        shards.append(g)
    for at, (info, blob) in enumerate(zip(plain.infos, plain.blobs)):
        g = shards[at % n_shards]
        g.infos.append(info[:-8] + g._u64(g.data_bytes))
        blob += bytes(-len(blob) % g.alignment)
        g.blobs.append(blob)
        g.data_bytes += len(blob)
    return shards


def write_set(folder, shards, prefix="toy"):
    paths = [folder / f"{prefix}-{i + 1:05d}-of-{len(shards):05d}.gguf" for i in range(len(shards))]
    for path, shard in zip(paths, shards):
        shard.write(path)
    return paths


def test_any_shard_opens_the_set(whole, tmp_path):
    paths = write_set(tmp_path, split(3, align=[32, 64, 4096]))
    for path in paths:
        model = Opened(path=str(path).encode())
        assert model.info.file_bytes == sum(p.stat().st_size for p in paths)
        assert (bits(model) == whole[1]).all()
    renamed = [tmp_path / name for name in "abc"]
    for old, new in zip(paths, renamed):
        old.rename(new)
    assert (bits(Opened(**paths_of([renamed[2], renamed[0], renamed[1]]))) == whole[1]).all()
    got = refusal(path=str(renamed[1]).encode())
    assert got.code == UNSUPPORTED and "shard 2 of 3" in got.message


def test_keys_decide_and_not_names(whole, tmp_path):
    first, second, third = split(3)
    paths = write_set(tmp_path, [second, third, first])
    assert (bits(Opened(path=str(paths[0]).encode())) == whole[1]).all()


def test_a_whole_file_with_the_name_of_a_shard(whole, tmp_path):
    path = tmp_path / "x-00001-of-00003.gguf"
    path.write_bytes(whole[0].read_bytes())
    assert (bits(Opened(path=str(path).encode())) == whole[1]).all()


@pytest.mark.parametrize("wrong", ["missing", "count", "twice", "total", "other total", "other model", "same tensor", "no number", "number", "damaged"])
def test_wrong_sets_name_the_shard(engine, tmp_path, wrong):
    shards = split(3, total=7 if wrong == "total" else None)
    guilty, words = 2, {}
    if wrong == "count":
        shards[1] = split(3, count=4)[1]
    elif wrong == "twice":
        shards[2] = copy.copy(shards[1])
        guilty = 3
    elif wrong == "other total":
        shards[1] = split(3, total=99)[1]
    elif wrong == "other model":
        shards[1] = split(3)[1].kv("general.architecture", STR, "qwen2")
    elif wrong == "same tensor":
        shards[1].infos[0] = shards[0].infos[0]
    elif wrong == "no number":
        shards[1].kvs = shards[1].kvs[1:]
    elif wrong == "number":
        shards[1] = split(3, numbers=[0, 3, 2])[1]
    elif wrong == "damaged":
        shards[1].magic = b"GGUX"
    paths = write_set(tmp_path, shards)
    if wrong == "missing":
        paths[1].unlink()
    if wrong == "total":
        guilty = 1
    got = refusal(path=str(paths[0]).encode())
    assert got.code == (FILE_OPEN if wrong == "missing" else FORMAT), (got.code, got.message)
    assert f"-{guilty:05d}-of-" in got.message or f"shard {guilty}" in got.message, got.message


def test_shards_of_two_models(engine, tmp_path):
    """The keys agree; the tensors of the other model do not fit."""
    shards = split(3)
    shards[1] = split(3, toys.TOYS["llama_wide"])[1]
    paths = write_set(tmp_path, shards)
    assert refusal(path=str(paths[2]).encode()).code in (FORMAT, 32)
    assert refusal(**paths_of(paths[:2])).code == FORMAT
    assert refusal(**paths_of(paths + paths[:1])).code == FORMAT
    assert refusal(**paths_of([])).code == ARGUMENT
