#!/usr/bin/env python3
"""Records ids of small vocabularies of the tokenizer models that no test model has: bert, t5, gemma4.

    pip install tokenizers sentencepiece protobuf
    python tests/parity/record_tokenizer_models.py

bert: `tokenizers` WordPiece with BERT's normaliser and splitter. t5: a unigram model that `sentencepiece` trains on the
strings, with a normalisation table of its own. gemma4: `tokenizers` BPE with byte fallback, trained on the strings with
spaces as U+2581. The vocabularies are written as the GGUF converter writes them.

Writes tests/golden/tokens_models.json: for each model its vocabulary and `cases`, [text, ids].
"""
import json
import random
import tempfile
from pathlib import Path

from prompts import TRICKY
from record_tokens import CONTROL, NORMAL, UNKNOWN, BYTE, USER_DEFINED, WORDS, random_string

OUT = Path(__file__).resolve().parent.parent / "golden" / "tokens_models.json"
SPACE = "\u2581"


def texts(seed):
    rng = random.Random(seed)
    mixed = ["naïve Straße É È İSTANBUL ΑΣ", "a\u0301b \u0000c\ufffdd\u200be", "漢字kana かな", "x" * 101 + " y", "don't (stop)!", "a\tb\nc\r\nd",
             "  two  spaces  ", " lead", "trail ", "½ ﬁ ① Å", "\n\n\na\n\nb"]
    return mixed + [t for t in TRICKY if t] + [random_string(rng) for _ in range(60)]


def corpus():
    rng = random.Random(5)
    return [" ".join(rng.choices(WORDS, k=12)) for _ in range(300)] + ["\n".join(rng.choices(WORDS, k=6)) for _ in range(50)]


def bert(lowercase):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
    pieces = [p for p, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    types = [UNKNOWN if p == "[UNK]" else CONTROL if p in special else NORMAL for p in pieces]
    written = [p if t != NORMAL else p[2:] if p.startswith("##") else SPACE + p for p, t in zip(pieces, types)]
    cases = [[t, tokenizer.encode(t, add_special_tokens=False).ids] for t in texts(6)]
    keys = {"cls_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1}
    return {"model": "bert", "pieces": written, "types": types, "ids": keys, "lowercase": lowercase, "cases": cases}


def t5(remove_extra):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb

    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        pairs = {"ﬁ": "fi", "½": "1/2", "①": "1", "\t": " ", "\n": " ", "\r": " ", "\u3000": " ", "e\u0301": "é", "\u200b": ""}
        rules.write_text("".join(
            " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in pairs.items()))
        prefix = str(Path(folder) / "m")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_prefix=prefix, vocab_size=240, model_type="unigram",
            normalization_rule_tsv=str(rules), remove_extra_whitespaces=remove_extra, add_dummy_prefix=True, bos_id=-1,
            eos_id=1, unk_id=2, pad_id=0, minloglevel=2)
        model = pb.ModelProto.FromString(Path(prefix + ".model").read_bytes())
        processor = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    cases = [[t, processor.encode(t)] for t in texts(7)]
    return {
        "model": "t5",
        "pieces": [p.piece for p in model.pieces],
        "types": [p.type for p in model.pieces],
        "scores": [p.score for p in model.pieces],
        "charsmap": list(model.normalizer_spec.precompiled_charsmap),
        "remove_extra_whitespaces": remove_extra,
        "add_space_prefix": True,
        "ids": {"eos_token_id": 1, "unknown_token_id": 2},
        "cases": cases,
    }


def gemma4():
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("\n+"), "isolated")
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=800, special_tokens=special + bytes_))
    # As trained, but only the first four are special; newline runs are user-defined, like Gemma's.
    state = json.loads(tokenizer.to_str())
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    runs = ["\n" * n for n in range(2, 5)]
    for run in runs:
        vocab.setdefault(run, len(vocab))
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in runs])
    tokenizer.encode_special_tokens = True  # special tokens in a text are text
    pieces = [p for p, _ in sorted(vocab.items(), key=lambda item: item[1])]
    kinds = {"<unk>": UNKNOWN, **{p: CONTROL for p in special[:3]}, **{b: BYTE for b in bytes_}, **{r: USER_DEFINED for r in runs}}
    return {
        "model": "gemma4",
        "pieces": pieces,
        "types": [kinds.get(p, NORMAL) for p in pieces],
        "merges": [m if isinstance(m, str) else " ".join(m) for m in merges],
        "ids": {"bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3},
        "cases": [[t, tokenizer.encode(t, add_special_tokens=False).ids] for t in texts(8)],
    }


def main():
    models = [bert(True), bert(False), t5(True), t5(False), gemma4()]
    OUT.write_text(json.dumps(models, ensure_ascii=True, separators=(",", ":")).replace('{"model"', '\n{"model"') + "\n")
    print([(m["model"], len(m["pieces"]), len(m["cases"])) for m in models], OUT.stat().st_size)


if __name__ == "__main__":
    main()
