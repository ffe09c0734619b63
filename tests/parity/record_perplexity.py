#!/usr/bin/env python3
"""Records llama.cpp's perplexity of the two test models on this repository's LICENSE, chunks of 512 ids.

    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --no-binary llama-cpp-python llama-cpp-python
    python tests/parity/record_perplexity.py [smollm2|gemma3 ...]

By the definition of llama.cpp's program: ids with BOS where the model adds it, cut into whole chunks; BOS in the place of
a chunk's first id; the ids after the middle of a chunk count. Logits come from llama_decode, one batch a chunk.

Writes tests/golden/perplexity.json.
"""
import ctypes
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from models import MODELS, find_model

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "tests" / "golden" / "perplexity.json"
TEXT = ROOT / "LICENSE"
N_CTX = 512


def perplexity(path, text):
    import llama_cpp as api

    model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
    vocab = api.llama_model_get_vocab(model)
    n_vocab, add_bos = api.llama_vocab_n_tokens(vocab), api.llama_vocab_get_add_bos(vocab)
    buffer = (ctypes.c_int32 * (len(text) + 8))()
    n = api.llama_tokenize(vocab, text, len(text), buffer, len(buffer), True, False)
    ids = list(buffer[:n])
    params = api.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    context = api.llama_init_from_model(model, params)
    first, nll, scored = N_CTX // 2, 0.0, 0
    for start in range(0, len(ids) // N_CTX * N_CTX, N_CTX):
        chunk = ids[start : start + N_CTX]
        if add_bos:
            chunk[0] = api.llama_vocab_bos(vocab)
        api.llama_memory_clear(api.llama_get_memory(context), True)
        batch = api.llama_batch_init(N_CTX, 0, 1)
        batch.n_tokens = N_CTX
        for i, token in enumerate(chunk):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i >= first
        assert api.llama_decode(context, batch) == 0
        for i in range(first, N_CTX - 1):
            row = np.ctypeslib.as_array(api.llama_get_logits_ith(context, i), shape=(n_vocab,)).astype(np.float64)
            nll += np.log(np.exp(row - row.max()).sum()) + row.max() - row[chunk[i + 1]]
            scored += 1
        api.llama_batch_free(batch)
    api.llama_free(context)
    api.llama_model_free(model)
    return {"ids": len(ids), "scored": scored, "ppl": float(np.exp(nll / scored))}


def main():
    api_version = version("llama-cpp-python")
    golden = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for name in sys.argv[1:] or MODELS:
        path = find_model(name)
        assert path, f"run examples/fetch_model.sh {name}"
        golden[name] = {"llama_cpp_python": api_version, "n_ctx": N_CTX, "text": TEXT.name, **perplexity(path, TEXT.read_bytes())}
        print(name, golden[name])
    OUT.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
