"""The programs on hooks: observe, steer, logit_lens, activation_patching, bench_hooks. Usage and files on toys, the
rest on SmolLM2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import models
import toys

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(os.environ.get("ENGINE_BIN") or ROOT / "build" / "release" / "bin")
PYTHON_PROGRAMS = ROOT / "examples" / "python"


def run(program, *arguments, timeout=300):
    if program.endswith(".py"):
        command = [sys.executable, "-B", PYTHON_PROGRAMS / program]
    else:
        command = [BIN / program]
        if not command[0].is_file():
            pytest.skip(f"no {command[0]}: build the release preset or set ENGINE_BIN")
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL)


def ok(program, *arguments):
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def read_json(program, *arguments):
    return json.loads(ok(program, *arguments, "--json"))


@pytest.fixture(scope="module")
def toy(engine, toy_path):
    return toy_path("llama_untied")


@pytest.fixture(scope="module")
def smollm2(engine):
    path = models.find_model("smollm2")
    if path is None:
        pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    return path


# -- usage ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("program", ["observe", "steer", "bench_hooks", "logit_lens.py", "activation_patching.py"])
def test_usage(program, tmp_path):
    done = run(program, "--help")
    assert done.returncode == 0 and done.stderr == b"" and program.encode() in done.stdout
    assert b"Status: 0 = done" in done.stdout
    for arguments in ([], ["a.gguf", "--no-such-option"], ["a.gguf", "b.gguf"]):
        done = run(program, *arguments)
        assert done.returncode == 2 and done.stdout == b"" and program.encode() in done.stderr
    more = {"observe": ["-p", "x"], "steer": ["-p", "x", "--vector", "v", "--layer", "0"]}.get(program, [])
    done = run(program, tmp_path / "none.gguf", *more)
    assert done.returncode == 1 and done.stdout == b"" and b"FILE_OPEN" in done.stderr


@pytest.mark.parametrize("arguments", [
    ["observe", "a.gguf"], ["observe", "a.gguf", "-p", "x", "--mode", "fast"],
    ["observe", "a.gguf", "-p", "x", "--json", "--lines"], ["steer", "a.gguf", "-p", "x", "--layer", "1"],
    ["steer", "a.gguf", "-p", "x", "--vector", "v"], ["steer", "a.gguf", "--make-vector", "x"],
    ["steer", "a.gguf", "--make-vector", "x", "y", "--layer", "1"],
    ["steer", "a.gguf", "-p", "x", "--vector", "v", "--layer", "1", "--positions", "some"],
    ["bench_hooks", "a.gguf", "--repeats", "2"], ["bench_hooks", "a.gguf", "--rows", "no-such-row"],
    ["logit_lens.py", "a.gguf", "--top", "0"], ["activation_patching.py", "a.gguf", "--answers", "x"]], ids=" ".join)  # fmt: skip
def test_wrong_values(arguments):
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr


# -- observe ----------------------------------------------------------------------------------------
def test_observe(smollm2):
    arguments = [smollm2, "-p", "The capital of France is", "-n", 6]
    seen = read_json("observe", *arguments)
    norms = np.array(seen["norms"], float)
    n_layers = len(seen["layers"])
    assert norms.shape == (6, n_layers) and np.isfinite(norms).all() and (norms > 0).all()
    assert "".join(seen["tokens"]).startswith(" Paris")
    assert seen["positions"] == list(range(seen["positions"][0], seen["positions"][0] + 6))
    assert seen["hook"]["rows_captured"] == seen["hook"]["decode_positions"] == 6 * n_layers
    assert seen["hook"]["prefill_positions"] == seen["hook"]["rows_dropped"] == 0
    for options in (["--callback"], ["--mode", "reference"], ["-t", 1, "--callback", "--mode", "planned"]):
        other = read_json("observe", *arguments, *options)
        assert other["norms"] == seen["norms"] and other["ids"] == seen["ids"], options
    one = read_json("observe", *arguments, "--layer", 3)
    assert one["layers"] == [3] and [row[0] for row in one["norms"]] == [row[3] for row in seen["norms"]]
    generated = json.loads(subprocess.run([BIN / "generate", *map(str, arguments), "--json"], capture_output=True).stdout)
    assert generated["ids"] == seen["ids"]

    table = ok("observe", *arguments, "-n", 10).splitlines()
    blocks = [block.splitlines() for block in "\n".join(table).split("\n\n")]
    assert [len(b) for b in blocks] == [n_layers + 2] * 2
    assert all(len({len(line) for line in block}) == 1 for block in blocks), "the lines do not line up"
    assert float(blocks[0][2 + 5].split()[1]) == pytest.approx(norms[0, 5], rel=1e-4)
    lines = ok("observe", *arguments, "--lines").splitlines()
    assert len(lines) == 7 and float(lines[1].split()[-1]) == pytest.approx(norms[0, -1], rel=1e-4)


def test_observe_other_sites(toy):
    for site, layers in (("embed", 1), ("attn_pattern", toys.TOYS["llama_untied"].n_layer), ("mlp-output", None)):
        seen = read_json("observe", toy, "-p", "the test", "-n", 3, "--site", site)
        assert len(seen["norms"]) == len(seen["ids"]) and seen["ids"]
        assert layers is None or len(seen["layers"]) == layers
        assert seen["norms"] == read_json("observe", toy, "-p", "the test", "-n", 3, "--site", site, "--callback")["norms"]
    done = run("observe", toy, "-p", "x", "--site", "resid_pots")
    assert done.returncode == 1 and b"resid_post" in done.stderr
    done = run("observe", toy, "-p", "x", "--layer", 99)
    assert done.returncode == 1 and b"layer 99" in done.stderr


# -- steer ------------------------------------------------------------------------------------------
def steer(model, *options):
    return read_json("steer", model, "-p", "the test", "-n", 12, "--layer", 1, *options)


def test_steer_files(toy, tmp_path):
    """Raw, .npy, a row of a matrix: the same vector, the same text; and files that are refused."""
    width = toys.TOYS["llama_untied"].n_embd
    rows = np.random.default_rng(1).standard_normal((3, width)).astype(np.float32)
    files = {n: tmp_path / n for n in ("raw.bin", "one.npy", "rows.npy", "rows.bin", "v2.npy")}
    rows[1].tofile(files["raw.bin"])
    np.save(files["one.npy"], rows[1])
    np.save(files["rows.npy"], rows)
    rows.tofile(files["rows.bin"])
    with open(files["v2.npy"], "wb") as file:
        np.lib.format.write_array(file, rows[1], version=(2, 0))
    wanted = steer(toy, "--vector", files["raw.bin"], "--alpha", 3)
    assert wanted["with"]["ids"] != wanted["without"]["ids"]
    for name, options in [("one.npy", []), ("v2.npy", []), ("rows.npy", ["--row", 1]), ("rows.bin", ["--row", 1])]:
        assert steer(toy, "--vector", files[name], "--alpha", 3, *options) == wanted, name
    assert steer(toy, "--vector", files["rows.npy"], "--row", 2, "--alpha", 3)["with"] != wanted["with"]

    bad = {n: tmp_path / n for n in ("f8.npy", "wide.npy", "cut.npy", "head.npy", "nan.npy", "short.bin", "cube.npy",
                                     "fortran.npy", "empty.bin")}  # fmt: skip
    np.save(bad["f8.npy"], rows[1].astype(np.float64))
    np.save(bad["wide.npy"], np.zeros(width + 1, np.float32))
    bad["cut.npy"].write_bytes(files["one.npy"].read_bytes()[:-4])
    bad["head.npy"].write_bytes(files["one.npy"].read_bytes()[:40])
    np.save(bad["nan.npy"], np.full(width, np.nan, np.float32))
    bad["short.bin"].write_bytes(b"\0" * (4 * width - 1))
    np.save(bad["cube.npy"], np.zeros((1, 1, width), np.float32))
    np.save(bad["fortran.npy"], np.asfortranarray(rows))
    bad["empty.bin"].write_bytes(b"")
    for path in [*bad.values(), files["rows.npy"], tmp_path / "none.npy"]:
        done = run("steer", toy, "-p", "the", "--layer", 1, "--vector", path)
        assert done.returncode == 1 and path.name.encode() in done.stderr, path
    done = run("steer", toy, "-p", "the", "--layer", 1, "--vector", files["rows.npy"], "--row", 3)
    assert done.returncode == 1 and b"no row 3" in done.stderr


def test_steer_positions(toy, tmp_path):
    vector = tmp_path / "v.npy"
    np.save(vector, np.ones(toys.TOYS["llama_untied"].n_embd, np.float32))
    everywhere = steer(toy, "--vector", vector)["hook"]
    generated = steer(toy, "--vector", vector, "--positions", "generated")["hook"]
    assert everywhere["prefill_positions"] > 0 and generated["prefill_positions"] == 0
    assert everywhere["writes"] == everywhere["positions"] and generated["writes"] == generated["decode_positions"] > 0
    nothing = steer(toy, "--vector", vector, "--alpha", 0)
    assert nothing["with"] == nothing["without"] and nothing["hook"]["writes"] > 0
    random = [steer(toy, "--vector", vector, "--temp", 1, "--seed", 3, "--alpha", 0) for _ in range(2)]
    assert random[0] == random[1] and random[0]["with"] == random[0]["without"]


def test_steer_smollm2(smollm2, tmp_path):
    """The vector is the difference of means that NumPy finds; it changes the text the way it says, in every mode."""
    out = tmp_path / "love.npy"
    texts = ["I love it, it is wonderful", "I hate it, it is awful"]
    made = read_json("steer", smollm2, "--make-vector", *texts, "--layer", 12, "--out", out)
    vector = np.load(out)
    assert vector.dtype == np.float32 and vector.shape == (made["width"],)
    assert made["norm"] == pytest.approx(np.linalg.norm(vector), rel=1e-5)
    sys.path.insert(0, str(PYTHON_PROGRAMS))
    import engine as binding

    means = []
    with binding.Model(smollm2) as model, model.session(n_ctx=64) as s:
        for text in texts:
            s.truncate(0)
            with s.capture("resid_post", layer=12) as capture:
                s.decode(model.tokenize(text))
            means.append(capture.values[1:].astype(np.float64).mean(axis=0))
    assert np.allclose(vector, means[0] - means[1], rtol=1e-5, atol=1e-5)
    arguments = [smollm2, "-p", "I think that this film is", "--vector", out, "--layer", 12, "-n", 16]
    love = read_json("steer", *arguments, "--alpha", 2)
    assert love["with"]["text"] != love["without"]["text"]
    assert read_json("steer", *arguments, "--alpha", 2, "--mode", "reference", "-t", 1) == love
    hate = read_json("steer", *arguments, "--alpha", -2)
    assert hate["without"] == love["without"] and hate["with"] != love["with"]
    text = ok("steer", *arguments, "--alpha", 2)
    assert love["with"]["text"] in text and love["without"]["text"] in text and "rows written" in text


# -- Python programs --------------------------------------------------------------------------------
def test_logit_lens(smollm2, tmp_path):
    out = tmp_path / "lens.png"
    seen = read_json("logit_lens.py", smollm2, "-p", "The capital of France is the city of", "--out", out)
    top, p = np.array(seen["top_ids"]), np.array(seen["top_p"])
    assert top.shape == p.shape == (len(seen["layers"]), len(seen["ids"]), 3)
    assert seen["same_bits"] and (np.diff(p, axis=2) <= 0).all() and ((p >= 0) & (p <= 1)).all()
    assert seen["top_tokens"][-1][-1][0].strip() == "Paris"
    assert np.allclose(np.array(seen["final_p"])[-1], p[-1, :, 0]) and seen["seconds"] < 60
    assert p[-1, -1, 0] > np.array(seen["final_p"])[0, -1]
    assert out.read_bytes().startswith(b"\x89PNG") and out.stat().st_size > 20000


def test_activation_patching(smollm2, tmp_path):
    out = tmp_path / "patching.png"
    seen = read_json("activation_patching.py", smollm2, "--out", out)
    recovery = np.array(seen["recovery"])
    assert recovery.shape == (len(seen["layers"]), len(seen["tokens"])) and np.isfinite(recovery).all()
    assert seen["clean"] > 0 > seen["corrupted"] and seen["seconds"] < 60
    [changed] = seen["changed_positions"]
    # Before the changed token nothing differs; the first layer carries the fact there, the last at the end.
    assert (recovery[:, :changed] == 0).all()
    assert recovery[0, changed] > 0.8 and recovery[-1, -1] == 1 and (recovery[-1, :-1] == 0).all()
    assert out.read_bytes().startswith(b"\x89PNG") and out.stat().st_size > 10000

    # One cell again, from an empty session: what was kept of the positions before changes no bit.
    sys.path.insert(0, str(PYTHON_PROGRAMS))
    import engine as binding

    with binding.Model(smollm2) as model, model.session(n_ctx=64, mode="reference") as s:
        with s.capture("resid_post", layer=7) as clean:
            s.decode(model.tokenize("The capital of France is the city of"))
        s.truncate(0)
        with s.replace("resid_post", clean.values[changed], clean.records[changed : changed + 1]):
            logits = s.decode(model.tokenize("The capital of Italy is the city of"))
    a, b = seen["answers"]
    assert float(logits[a]) - float(logits[b]) == seen["differences"][7][changed]


def test_activation_patching_refuses(smollm2):
    done = run("activation_patching.py", smollm2, "--clean", "The capital of France", "--corrupted", "Rome", "--json")
    assert done.returncode == 1 and done.stdout == b"" and b"same number of tokens" in done.stderr
    done = run("activation_patching.py", smollm2, "--site", "resid_pots", "--json")
    assert done.returncode == 1 and b"resid_post" in done.stderr


# -- bench_hooks ------------------------------------------------------------------------------------
def test_bench_hooks_counts(toy):
    seen = read_json("bench_hooks", toy, "--repeats", 5, "--tokens", 8, "--threads", 2)
    rows = {row["name"]: row for row in seen["rows"]}
    assert set(rows) == {"null", "removed", "read-one", "capture-one", "add-one", "read-all", "capture-all"}
    n_layer = toys.TOYS["llama_untied"].n_layer
    for name, row in rows.items():
        per_token = {"null": 0, "removed": 0}.get(name, n_layer if name.endswith("-all") else 1)
        assert row["fired"] == row["expected"] == 5 * 8 * per_token, name
        assert row["a"]["allocations"] == row["b"]["allocations"] == 0, name
        assert 0 < row["a"]["ns_min"] <= row["a"]["ns_median"] <= row["a"]["ns_max"]
        assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
    table = ok("bench_hooks", toy, "--repeats", 5, "--tokens", 4, "--rows", "null,add-one").splitlines()
    assert len(table) == 4 and table[2].startswith("null") and table[3].split()[0] == "add-one"


def test_bench_hooks_sees_allocations(toy):
    """The counter works: mode reference allocates as it decodes."""
    seen = read_json("bench_hooks", toy, "--repeats", 5, "--tokens", 4, "--rows", "null", "--mode", "reference")
    assert seen["rows"][0]["a"]["allocations"] > 0
