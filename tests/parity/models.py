"""Where the two real test models lie, as examples/fetch_model.sh puts them."""

import os
from pathlib import Path

# name of fetch_model.sh -> (file name, size in bytes)
MODELS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", 98362432),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", 253113024),
}


def models_dir():
    if os.environ.get("ENGINE_MODELS_DIR"):
        return Path(os.environ["ENGINE_MODELS_DIR"])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "engine" / "models"


def find_model(name):
    """Path of a whole model file, or None."""
    file, size_bytes = MODELS[name]
    path = models_dir() / file
    return path if path.is_file() and path.stat().st_size == size_bytes else None
