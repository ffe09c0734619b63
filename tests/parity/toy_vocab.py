"""The two 320-token vocabularies of the toy models: SentencePiece with byte fallback, and
byte-level BPE."""

from gguf_fixture import BOOL, F32, I32, STR, U32

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
N_VOCAB = 320

# 61 pieces after <unk> <s> </s> and the 256 byte tokens; a merge can reach every longer one.
_SPM_PIECES = (
    ["\u2581"]
    + list("etaoinshrdlucmfwygpbvk")
    + ["\u2581t", "he", "\u2581the", "in", "er", "an", "re", "on", "\u2581a", "\u2581s"]
    + [
        "at",
        "en",
        "nd",
        "\u2581w",
        "or",
        "ing",
        "\u2581and",
        "ed",
        "is",
        "\u2581o",
        "\u2581of",
        "\u2581to",
        "es",
        "ll",
        "\u2581in",
    ]
    + [
        "\u0627",
        "\u0644",
        "\u0627\u0644",
        "\u2581\u0627\u0644",
        "\u0645",
        "\u0646",
        "\u064a",
        "\u00e9",
        "\u0648",
        "\u0631",
    ]
    + ["\u2581\u2581", "\u2581\u2581\u2581\u2581", "."]
)
# left, right of each merge, best first; "\u0120" is the byte-level space
_BPE_MERGES = [
    "\u0120 t",
    "h e",
    "\u0120 a",
    "i n",
    "r e",
    "o n",
    "\u0120t he",
    "e r",
    "a t",
    "\u0120 s",
    "n d",
    "\u0120 w",
    "e n",
    "i s",
    "o r",
    "\u0120a nd",
    "e s",
    "in g",
    "\u0120 o",
    "\u0120o f",
    "\u0120 in",
    "\u0120t o",
    "a n",
    "e d",
    "l l",
    "\u0120 c",
    "\u0120 b",
    "\u0120 \u0120",
    "\u0120\u0120 \u0120\u0120",
    "- >",
    ") :",
    "' s",
    "' t",
    "1 2",
    "12 3",
    "\u010a \u010a",
    "\u00d8 \u00a7",
    "\u00d9 \u0126",
    "\u00d8\u00a7 \u00d9\u0126",
    "\u0120 \u00d8\u00a7\u00d9\u0126",
    "\u00d9 \u0127",
    "\u00d9 \u0128",
    "\u00d9 \u012c",
    "\u00c3 \u00a9",
    "\u0120 m",
    "\u0120 f",
    "o u",
    "\u0120 h",
    "a s",
    "i t",
    "\u0120 p",
    "\u0120 d",
    "a r",
    "s t",
    "l e",
    "i c",
    "r o",
    "v e",
    "\u0120 he",
]
_BPE_SPECIAL = [
    ("<|bos|>", CONTROL),
    ("<|eos|>", CONTROL),
    ("<|im_start|>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<|channel|>", USER_DEFINED),
]


def byte_symbols():
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0x100
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(extra)
            extra += 1
    return table


def spm_tokens():
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(_SPM_PIECES)
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(_SPM_PIECES)
    tokens += [f"<unused{i}>" for i in range(N_VOCAB - len(tokens))]
    types += [CONTROL] * (N_VOCAB - len(types))
    # longer pieces merge later unless listed earlier: the score is minus the place in the list
    scores = [0.0] * 259 + [-float(i) for i in range(N_VOCAB - 259)]
    return tokens, scores, types


def bpe_tokens():
    tokens = list(byte_symbols().values()) + [m.replace(" ", "") for m in _BPE_MERGES]
    types = [NORMAL] * len(tokens)
    for text, kind in _BPE_SPECIAL:
        tokens.append(text)
        types.append(kind)
    assert len(tokens) == N_VOCAB and len(set(tokens)) == N_VOCAB
    return tokens, types, list(_BPE_MERGES)


def put_spm(g, add_bos=True):
    tokens, scores, types = spm_tokens()
    assert len(tokens) == N_VOCAB and len(set(tokens)) == N_VOCAB
    g.kv("tokenizer.ggml.model", STR, "llama")
    g.kv("tokenizer.ggml.pre", STR, "default")
    g.array("tokenizer.ggml.tokens", STR, tokens)
    g.array("tokenizer.ggml.scores", F32, scores)
    g.array("tokenizer.ggml.token_type", I32, types)
    g.kv("tokenizer.ggml.bos_token_id", U32, 1)
    g.kv("tokenizer.ggml.eos_token_id", U32, 2)
    g.kv("tokenizer.ggml.unknown_token_id", U32, 0)
    g.kv("tokenizer.ggml.add_bos_token", BOOL, add_bos)


def put_bpe(g, pre="gpt-2"):
    tokens, types, merges = bpe_tokens()
    g.kv("tokenizer.ggml.model", STR, "gpt2")
    g.kv("tokenizer.ggml.pre", STR, pre)
    g.array("tokenizer.ggml.tokens", STR, tokens)
    g.array("tokenizer.ggml.token_type", I32, types)
    g.array("tokenizer.ggml.merges", STR, merges)
    g.kv("tokenizer.ggml.bos_token_id", U32, tokens.index("<|bos|>"))
    g.kv("tokenizer.ggml.eos_token_id", U32, tokens.index("<|eos|>"))
    g.kv("tokenizer.ggml.add_bos_token", BOOL, False)
