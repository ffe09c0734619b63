"""inspect and perplexity: what they print, the memory forecast against what a session allocates, perplexity against its
definition and against llama.cpp's."""

import ctypes as C
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

import engine_ctypes as ec
import models
import toys
from gguf_fixture import STR
from test_program_options import ROOT, command

ALLOCATE = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint64)
RELEASE = C.CFUNCTYPE(None, C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint64)


class Host(ec.Sized):
    _fields_ = [("struct_size", C.c_uint32), ("runner_threads", C.c_uint32), ("user", C.c_void_p), ("log", C.c_void_p),
                ("allocate", C.c_void_p), ("release", C.c_void_p), ("parallel_for", C.c_void_p), ("clock_ns", C.c_void_p),
                ("progress", C.c_void_p)]  # fmt: skip


class Memory(ec.Sized):
    _fields_ = [("struct_size", C.c_uint32), ("reserved", C.c_uint32)] + [
        (n, C.c_uint64) for n in "packed_bytes packing_bytes stored_bytes kv_bytes scratch_bytes peak_bytes".split()]  # fmt: skip


def run(program, *arguments, status=0):
    done = subprocess.run([*command(program), *map(str, arguments)], capture_output=True, timeout=600)
    assert done.returncode == status, done.stderr.decode()
    return done.stdout.decode()


class Counter:
    """A host whose allocator counts the bytes in use and their peak."""

    def __init__(self):
        libc = C.CDLL(None)
        libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = C.c_void_p, [C.c_size_t, C.c_size_t]
        libc.free.argtypes = [C.c_void_p]
        self.used = self.peak = 0

        def allocate(_, n, alignment):
            self.used += n
            self.peak = max(self.peak, self.used)
            return libc.aligned_alloc(alignment, -(-n // alignment) * alignment)

        def release(_, block, n, alignment):
            if block:
                self.used -= n
                libc.free(block)

        self.functions = ALLOCATE(allocate), RELEASE(release)
        self.host = Host(allocate=C.cast(self.functions[0], C.c_void_p), release=C.cast(self.functions[1], C.c_void_p))


def check_forecast(path, **options):
    """What a session with its whole context in use allocates, against the forecast."""
    counter = Counter()
    model, error = C.c_void_p(), ec.Error()
    lib = ec.load()
    params = ec.ModelParams(path=str(path).encode(), fd=-1, host=C.addressof(counter.host))
    ec._check(lib.engine_model_open(C.byref(params), C.byref(model), C.byref(error)), error)
    base = counter.used
    session_params, memory = ec.session_params(**options), Memory()
    code = lib.engine_memory_forecast(model, C.byref(session_params), C.byref(memory), C.byref(error))
    ec._check(code, error)
    assert counter.used == base, "a forecast allocates nothing that stays"
    session = C.c_void_p()
    ec._check(lib.engine_session_create(model, C.byref(session_params), C.byref(session), C.byref(error)), error)
    n = options["n_ctx"]
    ids = (C.c_int32 * n)(*([5] * n))
    ec._check(lib.engine_session_decode(session, ids, C.c_uint64(n), None, C.byref(error)), error)
    measured = counter.peak - base
    lib.engine_session_destroy(session)
    lib.engine_model_close(model)
    assert counter.used == 0
    assert abs(memory.peak_bytes / measured - 1) <= 0.03, (memory.peak_bytes, measured)
    return memory


@pytest.mark.parametrize("options", [{"n_ctx": 64}, {"n_ctx": 500, "kv": "f32", "threads": 2}, {"n_ctx": 200, "weights": "stored"}, {"n_ctx": 100, "mode": "planned"}])
def test_forecast_of_a_toy(engine, toy_path, options):
    memory = check_forecast(toy_path("llama_untied"), **options)
    assert memory.packed_bytes == 0 and memory.stored_bytes > 0  # F32 is not packed


def test_forecast_of_a_model(engine):
    path = models.find_model("smollm2")
    if path is None:
        pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    memory = check_forecast(path, n_ctx=512, threads=2)
    assert memory.packed_bytes > 50e6
    assert check_forecast(path, n_ctx=64, weights="stored").packed_bytes < memory.packed_bytes


def test_inspect_toy(engine, toy_path):
    path = toy_path("llama_untied")
    page = run("inspect", path, "--tensors", "--metadata")
    for words in ("hyper-parameters", "formats", "layers", "blk.0.attn_q.weight", "general.architecture", "memory", "problems\n  none"):
        assert words in page, words
    data = json.loads(run("inspect", path, "--json", "--ctx", "64"))
    toy = toys.TOYS["llama_untied"]
    assert data["architecture"] == "llama" and data["hyper_parameters"]["n_embd"] == toy.n_embd
    assert data["hyper_parameters"]["n_layer"] == len(data["layers"]) - 1
    assert sum(f["tensors"] for f in data["formats"]) == data["file"]["tensors"] == len(data["tensors"])
    assert sum(f["bytes"] for layer in data["layers"] for f in layer["formats"]) == sum(t["bytes"] for t in data["tensors"])
    assert data["problems"] == [] and data["memory"]["peak_bytes"] > 0


def test_inspect_names_problems(engine, toy_path, tmp_path):
    plain = toys.build_gguf(toys.TOYS["llama_untied"])
    plain.tensor("odd.weight", bytes(256), dims=[64], type_id=37)
    path = plain.write(tmp_path / "odd.gguf")
    data = json.loads(run("inspect", path, "--json", status=1))
    assert any("odd.weight" in p for p in data["problems"]) and data["memory"] is None
    assert any(t["name"] == "odd.weight" and t["format"] == "" for t in data["tensors"])
    other = toys.build_gguf(toys.TOYS["llama_untied"]).kv("tokenizer.chat_template", STR, "{% include 'x' %}")
    data = json.loads(run("inspect", other.write(tmp_path / "chat.gguf"), "--json"))
    assert any("chat template" in p for p in data["problems"])
    (tmp_path / "cut.gguf").write_bytes(plain.bytes()[:100])
    assert run("inspect", tmp_path / "cut.gguf", status=1) == ""


def test_perplexity_is_its_definition(engine, toy_path, tmp_path):
    path, n_ctx = toy_path("llama_untied"), 32
    text = "the test of the toy is the rest of it, and so on. " * 8
    (tmp_path / "text").write_text(text)
    with ec.Model(path) as model:
        ids = model.tokenize(text)
        nll = []
        for at in range(0, len(ids) // n_ctx * n_ctx, n_ctx):
            chunk = ids[at : at + n_ctx]
            if model.info.adds_bos:
                chunk[0] = model.info.bos_id
            with model.session(n_ctx=n_ctx) as session:
                logits = session.decode_all(chunk).astype(np.float64)
            for i in range(n_ctx // 2, n_ctx - 1):
                row = logits[i]
                nll.append(np.log(np.exp(row - row.max()).sum()) + row.max() - row[chunk[i + 1]])
    got = json.loads(run("perplexity", path, tmp_path / "text", "--ctx", n_ctx, "--json"))
    assert got["scored"] == len(nll) and got["ids"] == len(ids)
    assert math.isclose(got["nll"], np.mean(nll), rel_tol=1e-9)
    assert math.isclose(got["ppl"], math.exp(got["nll"]), rel_tol=1e-6)
    assert got["stderr"] > 0
    short = subprocess.run([*command("perplexity"), path, tmp_path / "text", "--ctx", "500"], capture_output=True)
    assert short.returncode == 1 and b"a chunk needs 500" in short.stderr


def golden():
    path = Path(__file__).resolve().parent.parent / "golden" / "perplexity.json"
    return json.loads(path.read_text()) if path.is_file() else {}


@pytest.mark.parametrize("name", sorted(golden()) or ["none"])
def test_perplexity_equals_llama_cpp(engine, name):
    """Within 0.5 %."""
    recorded, path = golden().get(name), models.find_model(name) if name in golden() else None
    if path is None:
        pytest.skip(f"{name}: no recording or no model")
    got = json.loads(run("perplexity", path, ROOT / recorded["text"], "--ctx", recorded["n_ctx"], "--json"))
    assert got["ids"] == recorded["ids"] and got["scored"] == recorded["scored"]
    assert abs(got["ppl"] / recorded["ppl"] - 1) <= 0.005, (got["ppl"], recorded["ppl"])
