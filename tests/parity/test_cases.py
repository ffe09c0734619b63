"""Cases that need two files of the same weights (the other cases are tests named after them, here and in tests/unit)."""

import dataclasses

import numpy as np

import engine_ctypes as ec
import toys
from toy_list import FAMILIES, Family

IDS = [int(i) for i in toys.token_ids(toys.TOYS["llama_untied"])]


def test_case_17_which_pairs_rotate(engine, tmp_path, monkeypatch):
    """One set of weights as `llama`, q and k rows in the converter's order, and as `qwen2`, as they are: the same logits at
    every position, with unequal head counts. With the wrong order they differ after position 0."""
    toy = toys.TOYS["llama_untied"]
    assert toy.n_head != toy.n_head_kv and len(IDS) >= 100

    def logits(name, arch, family):
        monkeypatch.setitem(FAMILIES, arch, family)
        path = toys.write_gguf(dataclasses.replace(toy, arch=arch), tmp_path / name)
        with ec.Model(path) as model, model.session(kv="f32", n_ctx=len(IDS)) as session:
            return session.decode_all(IDS)

    rows = logits("llama", "llama", Family(adjacent=True)), logits("qwen2", "qwen2", Family()), logits("wrong", "llama", Family())
    llama, qwen2, wrong_rows = rows
    # The sums of a dot product are of other orders: the same numbers, rounded differently.
    assert np.abs(llama - qwen2).max() <= 1e-4 * np.abs(llama).max()
    assert np.abs(llama[0] - wrong_rows[0]).max() <= 1e-4 * np.abs(llama[0]).max()
    assert np.abs(llama - wrong_rows).max() > 1e-2 * np.abs(llama).max()
