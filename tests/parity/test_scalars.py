"""Case 30: 1,000 strings of 200 random scalars have the recorded ids, and their bytes come back."""

from pathlib import Path

import pytest

import scalars
from engine_ctypes import EngineError

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
TOKENIZER = 33


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_random_scalars(name, real_model):
    model = real_model(name)
    golden = (GOLDEN / f"tokens_scalars_{name}.txt").read_text().splitlines()[1:]
    assert len(golden) == scalars.N_STRINGS
    wrong, refused = [], 0
    for n, (text, expected) in enumerate(zip(scalars.texts(), golden, strict=True)):
        try:
            ids = model.tokenize(text, bos="none", special="user_defined")
        except EngineError as error:
            assert error.code == TOKENIZER, error
            ids, refused = None, refused + 1
        if scalars.digest(ids) != expected:
            wrong.append((n, scalars.digest(ids), expected))
        # U+2581 is how a SentencePiece vocabulary writes a space
        elif ids is not None and (name == "smollm2" or "\u2581" not in text):
            assert model.detokenize(ids, special=True) == text.encode(), n
    assert not wrong, (len(wrong), wrong[:3])
    assert refused <= scalars.N_STRINGS // 2, "most strings must be judged by their ids"


def test_digests_tell_ids_apart():
    assert len({scalars.digest(ids) for ids in ([], [1, 2], [2, 1], [1], [1, 2, 0])}) == 5
