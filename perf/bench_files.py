#!/usr/bin/env python3
"""How long opening a large vocabulary and tokenizing take, and whether both stay linear. One aligned line per case.

    ENGINE_LIB=build/release/lib/libengine.so python perf/bench_files.py [--json] [VOCABULARY.gguf ...]

Opening: 262,144 tokens with scores and types, and 500,000 merges, metadata only; bar 150 ms, and twice the file takes at
most 2.3 times as long. Tokenizing: 1 MB of mixed text and of one unbroken run, in each vocabulary given (without one:
those of the model cache and of ../shared/data/vocab); bar 1 s, and 1 MB takes at most 2.6 times as long as half of it.
The best of three tries counts, in processor time: a busy machine does not change the answer. Exit status 1: a bar is missed. Nothing in tests/ measures time; this does.
"""
import argparse
import json
import struct
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples" / "python"), str(ROOT / "tests" / "parity")]
import engine  # noqa: E402
from models import models_dir  # noqa: E402

OPEN_BAR_S, OPEN_RATIO, TEXT_BAR_S, TEXT_RATIO = 0.150, 2.3, 1.0, 2.6
PROSE = ("The quick brown fox doesn't jump over 12345 lazy dogs; it's naïve, isn't it?\n    return x[i] += 0x7f; // 注釈\n"
         "Съешь ещё этих мягких французских булок. 日本語の文章です。한국어 문장 السلام عليكم 👩‍🚀\n\n")
RUNS = {"prose": PROSE, "letters": "a", "capitals": "A", "spaces": " ", "newlines": "\n", "digits": "7", "marks": "-=", "han": "中", "base64": "aGVsbG8Xz9"}


def best_of(function, tries=3):
    times = []
    for _ in range(tries):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def string(text):
    return struct.pack("<Q", len(text)) + text


def big_vocabulary(path, n_tokens, n_merges):
    def entry(key, kind, body):
        return string(key) + struct.pack("<I", kind) + body

    def array(kind, count, body):
        return struct.pack("<IQ", kind, count) + body

    tokens = b"".join(string(b"tok%06d" % i) for i in range(n_tokens))
    merges = b"".join(string(b"a%d b%d" % (i, i)) for i in range(n_merges))
    values = [
        entry(b"general.architecture", 8, string(b"llama")),
        entry(b"tokenizer.ggml.model", 8, string(b"gpt2")),
        entry(b"tokenizer.ggml.tokens", 9, array(8, n_tokens, tokens)),
        entry(b"tokenizer.ggml.scores", 9, array(6, n_tokens, bytes(4 * n_tokens))),
        entry(b"tokenizer.ggml.token_type", 9, array(5, n_tokens, struct.pack("<i", 1) * n_tokens)),
        entry(b"tokenizer.ggml.merges", 9, array(8, n_merges, merges)),
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(values))


def measure_opening():
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for factor in (1, 2):
            path = Path(folder) / f"{factor}.gguf"
            big_vocabulary(path, 262144 * factor, 500000 * factor)
            times.append(best_of(lambda: engine.Model(path, "metadata_only").close()))
    return {"case": "open", "input": "262144 tokens, 500000 merges", "s": times[0], "ratio": times[1] / times[0],
            "good": times[0] <= OPEN_BAR_S and times[1] <= OPEN_RATIO * times[0]}


def measure_text(path):
    with engine.Model(path, "vocab_only") as model:
        for name, unit in RUNS.items():
            data = unit.encode()
            texts = [(data * (n // len(data) + 1))[:n] for n in (1 << 19, 1 << 20)]
            times = [best_of(lambda text=text: model.tokenize(text)) for text in texts]
            yield {"case": path.stem, "input": name, "s": times[1], "ratio": times[1] / times[0],
                   "good": times[1] <= TEXT_BAR_S and times[1] <= TEXT_RATIO * times[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabularies", nargs="*", type=Path, metavar="VOCABULARY")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    paths = options.vocabularies or [*sorted(models_dir().glob("vocab-*.gguf")), *sorted((ROOT / "../shared/data/vocab").glob("*.gguf"))]
    good = True
    rows = iter([measure_opening()])
    for source in (rows, *map(measure_text, paths)):
        for row in source:
            good &= row["good"]
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                print(f"{row['case']:28} {row['input']:30} {row['s'] * 1e3:8.1f} ms  x{row['ratio']:.2f}  {'' if row['good'] else 'MISSED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
