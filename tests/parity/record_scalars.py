"""Records digests of the ids of case 30's strings for the two test models.

    pip install gguf tokenizers sentencepiece protobuf jinja2
    examples/fetch_model.sh smollm2; examples/fetch_model.sh gemma3
    python tests/parity/record_scalars.py

The oracles are those of record_tokens.py. Writes tests/golden/tokens_scalars_smollm2.txt and _gemma3.txt, a line a
string.
"""

import record_tokens
import scalars
from models import find_model

for name, make_encoder in (
    ("smollm2", record_tokens.smollm2_encoder),
    ("gemma3", record_tokens.gemma3_encoder),
):
    path = find_model(name)
    assert path, f"run examples/fetch_model.sh {name}"
    encode, oracle = make_encoder(record_tokens.Vocabulary(path))
    lines = [scalars.digest(encode(text)) for text in scalars.texts()]
    out = record_tokens.OUT / f"tokens_scalars_{name}.txt"
    head = f"# {path.name}: ids by {oracle}; made by tests/parity/record_scalars.py"
    out.write_text("\n".join([head, *lines]) + "\n")
    print(f"{out.name}: {len(lines)} strings, {lines.count('!')} refused")
