"""Every program of examples/ and every option that its --help names: the help has an example, each option is
accepted under each of its names, no option is hidden, and the examples run as they are printed.

A new program or option fails here until it has a line in COMMANDS or VALUES.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import models
import toys
from gguf_fixture import STR
from test_programs import CHATML

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(os.environ.get("ENGINE_BIN") or ROOT / "build" / "release" / "bin")
PYTHON_PROGRAMS = ROOT / "examples" / "python"

C_PROGRAMS = sorted(p.stem for p in (ROOT / "examples").glob("*.c"))
PROGRAMS = C_PROGRAMS + sorted(p.name for p in PYTHON_PROGRAMS.glob("*.py") if p.name != "engine.py")

# Arguments after MODEL with which a program does its work on a toy, and its input.
COMMANDS = {
    "activation_patching.py": (["--clean", "the test", "--corrupted", "the tess", "--answers", "t", "e", "--json"], b""),
    "chat": (["-n", "2"], b"hi\n"),
    "decode_proxy": (["--tokens", "2", "--prompt", "the", "--skip-bandwidth"], b""),
    "generate": (["-p", "the", "-n", "2"], b""),
    "hello": ([], b""),
    "inspect": ([], b""),
    "inspect_plan": ([], b""),
    "logit_lens.py": (["-p", "the", "--json"], b""),
    "observe": (["-p", "the", "-n", "2"], b""),
    "perplexity": (["text.txt", "--ctx", "16"], b""),
    "steer": (["-p", "the", "--vector", "vector.npy", "--layer", "1", "-n", "2"], b""),
    "tokenize": ([], b"1 2"),
}
# Option -> its values. An option with values that are not here fails.
VALUES = {
    "--alpha": ["2"],
    "--answers": ["a", "b"],
    "--chunk": ["3"],
    "--chunks": ["1"],
    "--clean": ["the tese"],
    "--corrupted": ["the tesa"],
    "--ctx": ["64"],
    "--diff": ["plan.json"],
    "--file": ["prompt.txt"],
    "--frequency-penalty": ["0.5"],
    "--hooks": ["capture@resid_post:0-1"],
    "--kernels": ["*__cpu_scalar"],
    "--kv": ["f32"],
    "--layer": ["1"],
    "--library": [str(os.environ.get("ENGINE_LIB") or ROOT / "build" / "release" / "lib" / "libengine.so")],
    "--make-vector": ["a test", "the test"],
    "--min-p": ["0.1"],
    "--mode": ["planned"],
    "--out": ["out.png"],
    "--penalty-last-n": ["8"],
    "--plan-out": ["made.json"],
    "--positions": ["generated"],
    "--presence-penalty": ["0.5"],
    "--prompt": ["the test"],
    "--repeat-penalty": ["1.1"],
    "--row": ["0"],
    "--seed": ["7"],
    "--site": ["resid_mid"],
    "--special": ["all"],
    "--system": ["be brief"],
    "--target": ["scalar"],
    "--temp": ["0.7"],
    "--threads": ["1"],
    "--tokens": ["3"],
    "--top": ["2"],
    "--top-k": ["5"],
    "--top-p": ["0.9"],
    "--vector": ["vector.npy"],
    "--verify": ["plan.json"],
    "--weights": ["stored"],
    "--without": ["F1,F4"],
}
# What has to be there too, or instead of the program's usual arguments.
WITH = {
    ("generate", "--system"): ["-p", "the", "-n", "2", "--chat"],
    ("generate", "--file"): ["-n", "2"],
    ("steer", "--make-vector"): ["--layer", "1", "--out", "made.npy"],
    ("steer", "--out"): ["--make-vector", "a test", "the test", "--layer", "1"],
}


def command(program):
    if program.endswith(".py"):
        return [sys.executable, "-B", str(PYTHON_PROGRAMS / program)]
    if not (BIN / program).is_file():
        pytest.skip(f"no {BIN / program}: build the release preset or set ENGINE_BIN")
    return [str(BIN / program)]


def run(program, arguments, folder, stdin=b""):
    return subprocess.run([*command(program), *arguments], input=stdin, capture_output=True, timeout=300, cwd=folder)


def help_text(program, folder):
    done = run(program, ["--help"], folder)
    assert done.returncode == 0 and done.stderr == b""
    return done.stdout.decode()


def options(text):
    """[(names, takes a value)] of the lines of a help text that begin with an option."""
    out = []
    for line in text.splitlines():
        if not re.match(r"  -", line):
            continue
        names, takes_value = [], False
        for part in line.strip().split("  ", 1)[0].split(", "):
            words = part.split()
            if not re.fullmatch(r"--?[a-z][a-z-]*", words[0]):
                break
            names.append(words[0])
            takes_value = len(words) > 1 and (words[1].isupper() or words[1].startswith("{"))
        if names and "--help" not in names:
            out.append((names, takes_value))
    return out


@pytest.fixture(scope="module")
def folder(engine, tmp_path_factory):
    """A folder with a toy that has a chat template, and the files that VALUES name."""
    path = tmp_path_factory.mktemp("options")
    toy = toys.TOYS["llama_tied"]
    toys.build_gguf(toy).kv("tokenizer.chat_template", STR, CHATML).write(path / "model.gguf")
    np.save(path / "vector.npy", np.ones((1, toy.n_embd), np.float32))
    (path / "prompt.txt").write_text("the test")
    (path / "text.txt").write_text("the test " * 100)
    plan = run("inspect_plan", ["model.gguf", "--json"], path)
    assert plan.returncode == 0, plan.stderr.decode()
    (path / "plan.json").write_bytes(plan.stdout)
    return path


def test_no_program_is_forgotten():
    assert sorted(COMMANDS) == sorted(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_help(program, folder):
    text = help_text(program, folder)
    assert re.search(rf"Examples?: .*\b{re.escape(program)}\b", text), text
    if program != "hello":
        assert options(text), "no option is found in the help"


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_is_accepted(program, folder):
    arguments, stdin = COMMANDS[program]
    plain = run(program, ["model.gguf", *arguments], folder, stdin)
    assert plain.returncode == 0, plain.stderr.decode()
    for names, takes_value in options(help_text(program, folder)):
        long = next(n for n in names if n.startswith("--"))
        assert not takes_value or long in VALUES, f"{long} has no value here"
        values = VALUES[long] if takes_value else []
        for name in names:
            base = WITH.get((program, long), arguments)
            # an option that the usual arguments hold is given its value there, not twice
            held = next((n for n in names if n in base), None)
            if held:
                at = base.index(held)
                base = base[:at] + base[at + 1 + len(values) :]
            done = run(program, ["model.gguf", *base, name, *values], folder, stdin)
            # --diff: 1 = the plans differ
            assert done.returncode == 0, (name, done.returncode, done.stderr.decode())


def test_no_option_is_hidden(folder):
    """What the C programs accept is what their help says."""
    sources = [*(ROOT / "examples").glob("*.c"), *(ROOT / "examples" / "common").glob("*.[ch]")]
    accepted = set()
    for source in sources:
        accepted |= set(re.findall(r'"(--[a-z][a-z-]*)"', source.read_text()))
    told = {name for p in C_PROGRAMS for names, _ in options(help_text(p, folder)) for name in names}
    assert accepted - {"--help"} == {name for name in told if name.startswith("--")}


@pytest.mark.parametrize("program", C_PROGRAMS)
def test_examples_run_as_printed(program, engine, tmp_path):
    """The lines after "Example:", in a shell, with SmolLM2 as model.gguf."""
    path = models.find_model("smollm2")
    if path is None:
        pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    command(program)
    (tmp_path / "model.gguf").symlink_to(path)
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)
    lines = help_text(program, tmp_path).split("Example: ", 1)[1].splitlines()
    for line in filter(None, map(str.strip, lines)):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL, capture_output=True, timeout=300, cwd=tmp_path,
        )
        expected = 1 if "--diff" in line else 0  # 1: the plans differ
        assert done.returncode == expected, (line, done.returncode, done.stderr.decode())
