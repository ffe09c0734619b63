"""The programs of examples/: usage, exit codes, what they print, and the fingerprints of decode_proxy.

The programs are in $ENGINE_BIN, else build/release/bin.
"""
import json
import os
import pty
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

import models
import toy_vocab
import toys
from gguf_fixture import STR, Gguf

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(os.environ.get("ENGINE_BIN") or ROOT / "build" / "release" / "bin")
PROGRAMS = ["hello", "generate", "chat", "tokenize", "decode_proxy", "inspect_plan"]
WITH_OPTIONS = [p for p in PROGRAMS if p != "hello"]
LINE_FIELDS = ["tok_s", "prefill_tok_s", "mode", "fusions", "threads", "tokens", "bytes_per_token", "gb_s", "read_bandwidth_gb_s",
               "roofline", "target", "coherence"]
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TEXTS = ["", "Hello world", "  two  spaces\n\n and lines\n", "السلام عليكم ورحمة الله", "日本語のテキスト", "naïve café – “quotes”",
         "emoji 👩‍👩‍👧 and \U0001F600", "tab\tand\r\nreturn", "<|im_start|>user</s>", "12345 3.14159"]


def run(program, *arguments, stdin=b"", timeout=300):
    path = BIN / program
    if not path.is_file():
        pytest.skip(f"no {path}: build the release preset or set ENGINE_BIN")
    return subprocess.run([path, *map(str, arguments)], input=stdin, capture_output=True, timeout=timeout)


def ok(program, *arguments, stdin=b""):
    done = run(program, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="session")
def toy(toy_path):
    return toy_path("llama_untied")


@pytest.fixture(scope="session")
def chat_toy(tmp_path_factory):
    g = toys.build_gguf(toys.TOYS["llama_tied"])
    g.kv("tokenizer.chat_template", STR, CHATML)
    path = tmp_path_factory.mktemp("chat") / "chat.gguf"
    g.write(path)
    return path


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """A file without a single tensor."""
    g = Gguf()
    g.kv("general.architecture", STR, "llama")
    toy_vocab.put_spm(g)
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.gguf"
    g.write(path)
    return path


@pytest.fixture(scope="session")
def smollm2():
    path = models.find_model("smollm2")
    if path is None:
        pytest.skip("smollm2: run examples/fetch_model.sh smollm2")
    return path


# -- usage and errors -------------------------------------------------------------------------------
@pytest.mark.parametrize("program", PROGRAMS)
def test_help(program):
    done = run(program, "--help")
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.decode().startswith(program) and b"Example" in done.stdout


@pytest.mark.parametrize("program", WITH_OPTIONS)
@pytest.mark.parametrize("arguments", [[], ["a.gguf", "--no-such-option"], ["a.gguf", "b.gguf"]], ids=["none", "unknown", "two"])
def test_wrong_command_line(program, arguments):
    done = run(program, *arguments)
    assert done.returncode == 2 and done.stdout == b""
    assert f"{program}: ".encode() in done.stderr and b"--help" in done.stderr


@pytest.mark.parametrize("arguments", [
    ["generate", "a.gguf"], ["generate", "a.gguf", "-p"], ["generate", "a.gguf", "-p", "x", "-n", "many"],
    ["generate", "a.gguf", "-p", "x", "--temp", "nan"], ["generate", "a.gguf", "-p", "x", "-t", "-1"],
    ["generate", "a.gguf", "-p", "x", "-f", "y"], ["generate", "a.gguf", "-p", "x", "--system", "y"],
    ["generate", "a.gguf", "-p", "x", "--json=1"], ["tokenize", "a.gguf", "--special", "some"],
    ["decode_proxy", "a.gguf", "--mode", "fastest"], ["decode_proxy", "a.gguf", "--kv", "f8"],
    ["decode_proxy", "a.gguf", "--tokens=-3"], ["decode_proxy", "a.gguf", "--without", "F7"], ["decode_proxy", "a.gguf", "--weights", "folded"],
    ["decode_proxy", "a.gguf", "--without", "F1F2"], ["inspect_plan", "a.gguf", "--hooks", "capture"],
    ["inspect_plan", "a.gguf", "--hooks", "look@q"], ["inspect_plan", "a.gguf", "--hooks", "add@q:3-1"],
    ["inspect_plan", "a.gguf", "--hooks", "add@q:x"], ["inspect_plan", "a.gguf", "--json", "--verify", "x"], ["hello"]], ids=" ".join)
def test_wrong_values(arguments):
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr


def test_model_that_is_none(tmp_path):
    garbage = tmp_path / "garbage.gguf"
    garbage.write_bytes(b"no model at all, only some words")
    for command in (["hello"], ["generate", "-p", "x"], ["chat"], ["tokenize"], ["decode_proxy"], ["inspect_plan"]):
        program, rest = command[0], command[1:]
        missing = run(program, tmp_path / "none.gguf", *rest)
        assert missing.returncode == 1 and missing.stdout == b"" and b"FILE_OPEN" in missing.stderr
        broken = run(program, garbage, *rest)
        assert broken.returncode == 1 and broken.stdout == b"" and b"FILE_FORMAT" in broken.stderr
        assert b"[file offset 0]" in broken.stderr


def test_error_names_the_tensor(vocabulary):
    done = run("generate", vocabulary, "-p", "x")
    assert done.returncode == 1 and b"[name " in done.stderr


# -- tokenize ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", TEXTS)
def test_tokenize_round_trip(vocabulary, text):
    ids = ok("tokenize", vocabulary, stdin=text.encode())
    assert ids.count(b"\n") == 1 and ids.split()[0] == b"1"
    assert ok("tokenize", vocabulary, "--no-bos", stdin=text.encode()).split() == ids.split()[1:]
    assert ok("tokenize", vocabulary, "--decode", stdin=ids).decode() == text


@pytest.mark.parametrize("text", TEXTS)
def test_tokenize_round_trip_bpe(chat_toy, text):
    ids = ok("tokenize", chat_toy, stdin=text.encode())
    assert ok("tokenize", chat_toy, "--decode", stdin=ids.replace(b" ", b",\n")).decode() == text


@pytest.mark.parametrize("text", TEXTS)
def test_tokenize_round_trip_smollm2(smollm2, text):
    ids = ok("tokenize", smollm2, stdin=text.encode())
    assert ok("tokenize", smollm2, "--decode", stdin=ids).decode() == text


def test_tokenize_special(vocabulary, chat_toy):
    assert ok("tokenize", vocabulary, "--special", "all", "--no-bos", stdin=b"</s>").split() == [b"2"]
    assert ok("tokenize", vocabulary, "--no-bos", stdin=b"</s>").split() != [b"2"]
    tokens, _, _ = toy_vocab.bpe_tokens()
    user_defined, control = tokens.index("<|channel|>"), tokens.index("<|im_start|>")
    text = b"<|channel|><|im_start|>"
    by_policy = {p: [int(i) for i in ok("tokenize", chat_toy, "--special", p, stdin=text).split()] for p in ("none", "user", "all")}
    assert by_policy["all"] == [user_defined, control]
    assert by_policy["user"][0] == user_defined and control not in by_policy["user"]
    assert control not in by_policy["none"]
    assert ok("tokenize", vocabulary, "--decode", stdin=b"1 2") == b""
    assert ok("tokenize", vocabulary, "--decode", "--special", "all", stdin=b"1 2") == b"<s></s>"


def test_tokenize_pieces(vocabulary):
    lines = ok("tokenize", vocabulary, "--pieces", stdin="a\"é".encode()).decode().splitlines()
    assert lines[0].split() == ["1", '"<s>"']
    pieces = "".join(line.split(None, 1)[1].strip()[1:-1] for line in lines[1:])
    assert pieces == " a\\\"\\xC3\\xA9"


@pytest.mark.parametrize("ids", [b"1 x", b"1 99999999999", b"1 1000000", b"1 -1", b"1 2\x003"])
def test_decode_refuses(vocabulary, ids):
    done = run("tokenize", vocabulary, "--decode", stdin=ids)
    assert done.returncode == 1 and done.stdout == b"" and done.stderr


# -- generate ---------------------------------------------------------------------------------------
def test_generate_stream_is_the_text(toy):
    arguments = [toy, "-p", "the test", "-n", 24, "--ignore-eos"]
    answer = json.loads(ok("generate", *arguments, "--json"))
    assert ok("generate", *arguments).decode() == answer["text"] + "\n"
    assert len(answer["ids"]) == answer["generated_tokens"] == 24 and answer["stop"] == "length"
    assert answer["prompt_tokens"] == len(ok("tokenize", toy, stdin=b"the test").split())
    assert answer["read_bandwidth_gb_s"] > 0


def test_generate_equals_decode_proxy(toy):
    greedy = json.loads(ok("generate", toy, "-p", "the test", "-n", 24, "--ignore-eos", "--json"))
    proxy = json.loads(ok("decode_proxy", toy, "--prompt", "the test", "--tokens", 24, "--json", "--skip-bandwidth"))
    assert greedy["ids"] == proxy["ids"]


def test_generate_stats_line(toy):
    done = run("generate", toy, "-p", "the test", "-n", 8, "--ignore-eos", "--stats")
    assert done.returncode == 0
    assert re.fullmatch(r"prompt \d+ tokens, prefill [\d.]+ tok/s; generated 8 tokens, decode [\d.]+ tok/s; [\d.]+ GB/s, "
                        r"[\d.]+% of [\d.]+ GB/s read bandwidth \(\d+ threads\); stop: length\n", done.stderr.decode())


def test_generate_seed(toy):
    def ids(*options):
        return json.loads(ok("generate", toy, "-p", "the", "-n", 16, "--ignore-eos", "--json", "--temp", "1", *options))["ids"]

    assert ids("--seed", 7) == ids("--seed", 7)
    assert ids("--seed", 7) != ids("--seed", 8)
    assert ids("--seed", 7) == ids("--seed", 7, "--top-p", 1, "--top-k", 0, "--min-p", 0, "--repeat-penalty", 1)
    assert ids("--seed", 7, "--top-k", 1) == ids("--seed", 8, "--top-k", 1)
    assert ids("--seed", 7) != ids("--seed", 7, "--frequency-penalty", 50)
    assert len(set(ids("--seed", 7, "--presence-penalty", 1000, "--penalty-last-n", -1))) == 16


def test_generate_prompt_from_file(toy, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_bytes(b"the test")
    expected = ok("generate", toy, "-p", "the test", "-n", 5)
    assert ok("generate", toy, "-f", prompt, "-n", 5) == expected
    assert ok("generate", toy, "-f", "-", "-n", 5, stdin=b"the test") == expected
    assert run("generate", toy, "-f", tmp_path / "none", "-n", 5).returncode == 1


def test_generate_context(toy):
    n_prompt = len(ok("tokenize", toy, stdin=b"the test").split())
    full = json.loads(ok("generate", toy, "-p", "the test", "-c", n_prompt + 3, "-n", -1, "--ignore-eos", "--json"))
    assert full["stop"] == "context" and len(full["ids"]) == 4
    done = run("generate", toy, "-p", "the test", "-c", n_prompt - 1)
    assert done.returncode == 1 and done.stdout == b"" and b"-c" in done.stderr


def test_generate_without_template(toy):
    done = run("generate", toy, "-p", "x", "--chat")
    assert done.returncode == 1 and b"CHAT_TEMPLATE" in done.stderr


# -- chat -------------------------------------------------------------------------------------------
def test_chat_answers_as_generate(chat_toy):
    expected = ok("generate", chat_toy, "--chat", "-p", "the test", "-n", 8)
    assert ok("chat", chat_toy, "-n", 8, stdin=b"the test\n") == expected
    assert ok("chat", chat_toy, "-n", 8, stdin=b"the test") == expected
    twice = ok("chat", chat_toy, "-n", 8, stdin=b"the test\n/clear\nthe test\n/exit\nnever asked\n")
    assert twice == expected + expected
    system = ok("generate", chat_toy, "--chat", "-p", "the test", "--system", "be brief", "-n", 8)
    assert ok("chat", chat_toy, "-n", 8, "--system", "be brief", stdin=b"the test\n/clear\nthe test\n") == system + system


def test_chat_decodes_only_what_is_new(chat_toy):
    done = run("chat", chat_toy, "-n", 4, stdin=b"the first question of them\n/stats\nthe second\n/stats\n")
    assert done.returncode == 0
    first, second = [int(n) for n in re.findall(rb"prompt (\d+) new tokens", done.stderr)]
    held = [int(n) for n in re.findall(rb"context (\d+) of", done.stderr)]
    assert first + 3 == held[0]  # three of the four answer tokens were fed back
    assert second + held[0] + 3 >= held[1] > second + first


def test_chat_too_long(chat_toy):
    done = run("chat", chat_toy, "-n", 4, "-c", 60, stdin=b"hi\n" + b"long " * 40 + b"\nhi\n")
    assert done.returncode == 0
    assert b"too long" in done.stderr and b"-c" in done.stderr
    done = run("chat", chat_toy, "-n", 4, "-c", 60, stdin=b"how are you\nhow are you\nhow are you\n/clear\nhow are you\n")
    assert done.returncode == 0 and b"/clear" in done.stderr


def test_chat_without_template(toy):
    done = run("chat", toy)
    assert done.returncode == 1 and b"CHAT_TEMPLATE" in done.stderr


_unread = {}  # what came after the last wanted text, by terminal


def read_until(descriptor, wanted, seconds=60):
    """The text up to and with `wanted`; what came after it is kept for the next call."""
    text = _unread.pop(descriptor, b"")
    while wanted not in text:
        assert select.select([descriptor], [], [], seconds)[0], f"no {wanted!r} after {text!r}"
        try:
            more = os.read(descriptor, 4096)
        except OSError:  # a closed pty
            more = b""
        assert more, f"no {wanted!r} in {text!r}"
        text += more
    end = text.index(wanted) + len(wanted)
    _unread[descriptor] = text[end:]
    return text[:end]


def test_chat_interrupt_at_the_prompt(chat_toy):
    if not (BIN / "chat").is_file():
        pytest.skip("no programs")
    master, slave = pty.openpty()
    _unread.pop(master, None)
    process = subprocess.Popen([BIN / "chat", chat_toy], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    try:
        read_until(master, b"> ")
        process.send_signal(signal.SIGINT)
        read_until(master, b"> ")
        os.write(master, b"/stats\n")  # a line between: the count begins again
        read_until(master, b"no answer yet")
        read_until(master, b"> ")
        process.send_signal(signal.SIGINT)
        read_until(master, b"ends)")
        read_until(master, b"> ")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_chat_interrupt_stops_the_answer(smollm2):
    if not (BIN / "chat").is_file():
        pytest.skip("no programs")
    process = subprocess.Popen([BIN / "chat", smollm2, "-n", "400"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        process.stdin.write(b"Count from one to a thousand in words, and then write a long story.\n")
        process.stdin.flush()
        assert len(process.stdout.read(4)) == 4  # the answer has begun
        process.send_signal(signal.SIGINT)
        read_until(process.stderr.fileno(), b"stopped")
        process.stdin.write(b"What is the capital of France?\n")
        answer, rest = process.communicate(timeout=120)
        assert process.returncode == 0 and b"Paris" in answer, (answer, rest)
    finally:
        process.kill()
        process.wait()


# -- decode_proxy -----------------------------------------------------------------------------------
def test_proxy_line(smollm2):
    line = ok("decode_proxy", smollm2, "--tokens", 16, "--signature").decode()
    assert line.startswith("DECODE_PROXY ") and line.count("\n") == 1
    fields = dict(word.split("=", 1) for word in line.split()[1:])
    assert list(fields) == LINE_FIELDS + ["signature"]
    assert fields["coherence"] == "1" and fields["mode"] == "planned-fused" and fields["fusions"] == "F1+F3+F4+F5+F6" and fields["tokens"] == "16"
    assert re.fullmatch("[0-9a-f]{16}", fields["signature"])
    gb_s, bandwidth, roofline = (float(fields[k]) for k in ("gb_s", "read_bandwidth_gb_s", "roofline"))
    assert abs(roofline - 100 * gb_s / bandwidth) < 0.2
    assert abs(gb_s - float(fields["tok_s"]) * int(fields["bytes_per_token"]) * 1e-9) < 0.01


def test_proxy_json(toy):
    done = run("decode_proxy", toy, "--tokens", 8, "--json", "--signature", "--threads", 1)
    assert done.returncode == 3  # a random model does not know Paris
    answer = json.loads(done.stdout)
    assert set(LINE_FIELDS + ["signature", "text", "kernels", "ids"]) <= set(answer)
    assert answer["coherence"] == 0 and answer["threads"] == 1 and len(answer["ids"]) == 8
    assert answer["kernels"] and all(n > 0 for n in answer["kernels"].values())
    assert b"Paris" in done.stderr


def test_proxy_other_prompt_has_no_verdict(toy):
    line = ok("decode_proxy", toy, "--tokens", 4, "--prompt", "the", "--skip-bandwidth").decode()
    assert "coherence=na" in line and "roofline=na" in line and "signature" not in line


def test_proxy_without_vocabulary(tmp_path):
    g = toys.build_gguf(toys.TOYS["llama_untied"])
    g.kvs = [entry for entry in g.kvs if b"tokenizer." not in entry]
    path = tmp_path / "bare.gguf"
    g.write(path)
    answer = json.loads(ok("decode_proxy", path, "--tokens", 4, "--json", "--skip-bandwidth"))
    assert answer["coherence"] is None and len(answer["ids"]) == 4


def test_proxy_refuses(toy):
    done = run("decode_proxy", toy, "--target", "no_such_cpu")
    assert done.returncode == 1 and done.stdout == b"" and b"DEVICE" in done.stderr and b"no_such_cpu" in done.stderr
    done = run("decode_proxy", toy, "--ctx", 8)
    assert done.returncode == 1 and done.stdout == b"" and b"--ctx" in done.stderr
    done = run("decode_proxy", toy, "--kernels", "no_such*")
    assert done.returncode == 1 and done.stdout == b"" and b"PLAN" in done.stderr and b"no_such*" in done.stderr


def signature(model, *options):
    done = run("decode_proxy", model, "--json", "--signature", "--skip-bandwidth", *options)
    assert done.returncode in (0, 3), done.stderr.decode()
    answer = json.loads(done.stdout)
    return answer["signature"], answer


@pytest.mark.parametrize("model,n_tokens", [("toy", 24), ("chat_toy", 24), ("smollm2", 6)])
def test_signature_is_invariant(request, model, n_tokens):
    path = request.getfixturevalue(model)
    base, answer = signature(path, "--tokens", n_tokens, "--threads", 1)
    for options in (["--chunk", 1], ["--chunk", 7], ["--chunk", 4096], ["--threads", 2], ["--threads", 2, "--chunk", 3],
                    ["--ctx", 256]):
        other, got = signature(path, "--tokens", n_tokens, *(options if "--threads" in options else ["--threads", 1, *options]))
        assert other == base, options
        if "--threads" in options:
            assert got["threads"] == 2
    scalar, got = signature(path, "--tokens", n_tokens, "--threads", 2, "--target", "scalar")
    assert scalar == base and got["target"] == "scalar"
    assert not any("hwy" in name for name in got["kernels"])
    # and it does tell runs apart
    assert signature(path, "--tokens", n_tokens + 1, "--threads", 1)[0] != base
    assert signature(path, "--tokens", n_tokens, "--prompt", "The capital of Spain is")[0] != base


def test_signature_of_kv_types(toy):
    assert signature(toy, "--tokens", 8, "--kv", "f32")[0] != signature(toy, "--tokens", 8, "--kv", "f16")[0]


# -- sources ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("compiler,standard,suffix", [("cc", "c99", ".c"), ("c++", "c++17", ".cc"), ("c++", "c++20", ".cc")])
def test_header_alone(tmp_path, compiler, standard, suffix):
    source = tmp_path / ("header" + suffix)
    source.write_text('#include "engine.h"\nint main(void) { return 0; }\n')
    done = subprocess.run([compiler, f"-std={standard}", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                           f"-I{ROOT / 'include'}", source], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_layout_list_is_complete():
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "engine.h").read_text(), flags=re.S)
    listed = set(re.findall(r"\((.*?)\);", (ROOT / "tests" / "abi" / "layout_list.inc").read_text()))
    wanted = set()
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", header, re.S):
        wanted.add(name)
        for declaration in filter(None, (d.strip() for d in body.split(";"))):
            field = re.search(r"\(\*(\w+)\)", declaration) or re.search(r"(\w+)\s*(?:\[\d+\])?$", declaration)
            wanted.add(f"{name}, {field.group(1)}")
    for body in re.findall(r"\benum \{(.*?)\};", header, re.S):
        wanted |= set(re.findall(r"(ENGINE_\w+)\s*=", body))
    assert len(wanted) > 150 and listed == wanted


def test_hello_is_short():
    assert (ROOT / "examples" / "hello.c").read_text().count("\n") < 60
