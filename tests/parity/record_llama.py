#!/usr/bin/env python3
"""Records what llama.cpp computes for the two test models: ids, top-5 logits, sampled logits, token
ids of tricky text.

    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --no-binary llama-cpp-python llama-cpp-python
    examples/fetch_model.sh smollm2; examples/fetch_model.sh gemma3
    python tests/parity/record_llama.py

Ids: greedy, one thread, a fresh context for each prompt, f16 KV, no flash attention; the prompt is
evaluated in one batch, each generated token alone.

Logits: llama.cpp's own answer depends on how the tokens are grouped into batches, by as much as an
engine may differ from it at all (activation rounding to 8 bits; on these two small models up to 1.5
logits). So the fixed sequence (prompt and generated ids) is evaluated six times, in batches of 1, 4
and 16 with f16 and with f32 KV, and the mean is recorded: the noise of one run is not in it. `self`
says how far single runs lie from the mean of the other five, and at which top-2 margin the largest
logit still changed place; the gate derives its envelope from that.

`top_ids`, `top_logits` (five) and `sampled_logits` (64 fixed ids) are of that mean, rounded to five
significant digits. Writes tests/golden/llama_smollm2.json and tests/golden/llama_gemma3.json.
"""

import ctypes
import hashlib
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

import prompts
from models import MODELS, find_model

OUT = Path(__file__).resolve().parent.parent / "golden"
N_GENERATED = 64
N_SAMPLED = 64


def rounded(values):
    return [float(f"{v:.5g}") for v in values]


def argmax(row):
    return int(np.argmax(row))  # the first maximum: the lowest id


class Llama:
    """One model; `run` makes a fresh context each time."""

    def __init__(self, path):
        import llama_cpp

        self.api = llama_cpp
        self.path = str(path)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(self.path.encode(), params)
        assert self.model, f"llama.cpp cannot load {path}"
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text, add_special=True, parse_special=False):
        data = text.encode()
        out = (self.api.llama_token * (len(data) + 8))()
        n = self.api.llama_tokenize(
            self.vocab, data, len(data), out, len(out), add_special, parse_special
        )
        assert n >= 0
        return list(out[:n])

    def text(self, ids):
        raw = b""
        for i in ids:
            buf = ctypes.create_string_buffer(256)
            n = self.api.llama_token_to_piece(self.vocab, i, buf, 256, 0, True)
            raw += buf.raw[:n]
        return raw.decode("utf-8", "replace")

    def context(self, n_ctx, kv="f16"):
        p = self.api.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = n_ctx, n_ctx, n_ctx
        p.n_threads = p.n_threads_batch = 1
        p.type_k = p.type_v = self.api.GGML_TYPE_F16 if kv == "f16" else self.api.GGML_TYPE_F32
        p.flash_attn_type = self.api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        ctx = self.api.llama_init_from_model(self.model, p)
        assert ctx
        return ctx

    def decode(self, ctx, ids, position):
        """Logits [len(ids), n_vocab] of the ids appended at `position`."""
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = (
                token,
                position + i,
                1,
                1,
            )
            batch.seq_id[i][0] = 0
        assert self.api.llama_decode(ctx, batch) == 0
        rows = [
            np.ctypeslib.as_array(self.api.llama_get_logits_ith(ctx, i), (self.n_vocab,)).copy()
            for i in range(len(ids))
        ]
        self.api.llama_batch_free(batch)
        return np.stack(rows)

    def greedy(self, ids, n_generated):
        ctx = self.context(256)
        generated = [argmax(self.decode(ctx, ids, 0)[-1])]
        while len(generated) < n_generated:
            generated.append(
                argmax(self.decode(ctx, generated[-1:], len(ids) + len(generated) - 1)[0])
            )
        self.api.llama_free(ctx)
        return generated

    def forced(self, ids, chunk, kv="f16"):
        """Logits [T, V] for every position of a given sequence, fed `chunk` ids at a time."""
        ctx = self.context(256, kv)
        rows = [self.decode(ctx, ids[i : i + chunk], i) for i in range(0, len(ids), chunk)]
        self.api.llama_free(ctx)
        return np.concatenate(rows)


def spread(runs, mean, sample_ids):
    """How far one run lies from the mean of the others, over the sampled ids; and the margin at
    which the top changes."""
    worst = {"max": 0.0, "mean": 0.0, "cosine": 1.0, "flip_margin": 0.0}
    top2 = np.sort(mean, axis=1)[:, -2:]
    margin = top2[:, 1] - top2[:, 0]
    for run in runs:
        x = run[:, sample_ids].astype(np.float64)
        y = (mean[:, sample_ids] * len(runs) - x) / (len(runs) - 1)
        worst["max"] = max(worst["max"], float(np.abs(x - y).max()))
        worst["mean"] = max(worst["mean"], float(np.abs(x - y).mean()))
        worst["cosine"] = min(
            worst["cosine"], float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))
        )
        flipped = run.argmax(axis=1) != mean.argmax(axis=1)
        worst["flip_margin"] = max(worst["flip_margin"], float(margin[flipped].max(initial=0.0)))
    return {k: round(v, 6) for k, v in worst.items()}


def library_files(api):
    """Versions as the shared libraries carry them in their names."""
    folder = Path(api.__file__).resolve().parent / "lib"
    return sorted(p.name for p in folder.glob("lib*.so.*.*"))


def record(name):
    path = find_model(name)
    if path is None:
        sys.exit(f"{name}: model file not found; run examples/fetch_model.sh {name}")
    llama = Llama(path)
    stride = llama.n_vocab // N_SAMPLED
    sample_ids = [i * stride + (i * 37) % stride for i in range(N_SAMPLED)]
    info = {
        "model": MODELS[name][0],
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "llama_cpp_python": version("llama-cpp-python"),
        "llama_cpp_libraries": library_files(llama.api),
        "system_info": llama.api.llama_print_system_info().decode().strip(),
        "build": "pip --no-binary, CMAKE_ARGS=-DGGML_NATIVE=ON, release",
        "machine": platform.machine(),
        "settings": "1 thread, no flash attention; ids: greedy, f16 KV, prompt in one batch; "
        "logits: mean of batches of 1, 4, 16 with f16 and f32 KV",
        "n_vocab": llama.n_vocab,
        "sample_ids": sample_ids,
    }
    entries, tokens = {}, []
    for key, prompt in prompts.PROMPTS.items():
        ids = llama.tokenize(prompt)
        generated = llama.greedy(ids, N_GENERATED)
        forced = ids + generated[:-1]
        runs = [llama.forced(forced, chunk, kv) for chunk in (1, 4, 16) for kv in ("f16", "f32")]
        logits = np.mean(runs, axis=0, dtype=np.float64)
        top = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        entries[key] = {
            "prompt": prompt,
            "prompt_ids": ids,
            "generated_ids": generated,
            "generated_text": llama.text(generated),
            "self": spread(runs, logits, sample_ids),
            "top_ids": top.tolist(),
            "top_logits": [rounded(logits[i, t]) for i, t in enumerate(top)],
            "sampled_logits": [rounded(row[sample_ids]) for row in logits],
        }
        print(f"{name} {key}: {len(ids)} + {len(generated)}: {entries[key]['self']}")
    ids = llama.tokenize(prompts.CAPITAL)
    generated = llama.greedy(ids, 32)
    capital = {
        "prompt": prompts.CAPITAL,
        "prompt_ids": ids,
        "generated_ids": generated,
        "generated_text": llama.text(generated),
    }
    print(f"{name} capital: {capital['generated_text']!r}")
    for text in prompts.TRICKY:
        tokens.append(
            {
                "text": text,
                "plain": llama.tokenize(text, add_special=False, parse_special=False),
                "special": llama.tokenize(text, add_special=False, parse_special=True),
            }
        )
    out = OUT / f"llama_{name}.json"
    lines = ["{", '"info": ' + json.dumps(info) + ","]
    lines.append('"capital": ' + json.dumps(capital, ensure_ascii=False) + ",")
    lines.append(
        '"tokenizations": [\n'
        + ",\n".join(json.dumps(t, separators=(",", ":")) for t in tokens)
        + "\n],"
    )
    body = ",\n".join(
        f'"{k}": ' + json.dumps(v, ensure_ascii=False, separators=(",", ":"))
        for k, v in entries.items()
    )
    lines.append('"prompts": {\n' + body + "\n}\n}")
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(out.name, out.stat().st_size, "bytes")


if __name__ == "__main__":
    for model in sys.argv[1:] or MODELS:
        record(model)
