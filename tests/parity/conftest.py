"""Fixtures of the parity tests: toy files made once a run, the engine where its library is built,
the real models."""

import pytest

import engine_ctypes
import models
import toys


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory):
    """Function: name of a toy -> path of its GGUF file."""
    folder, made = tmp_path_factory.mktemp("toys"), {}

    def path(name):
        if name not in made:
            made[name] = toys.write_gguf(toys.TOYS[name], folder / f"toy_{name}.gguf")
        return made[name]

    return path


@pytest.fixture(scope="session")
def engine():
    if not engine_ctypes.library_path().is_file():
        pytest.skip(
            f"no {engine_ctypes.library_path()}: build the release preset or set ENGINE_LIB"
        )
    return engine_ctypes


@pytest.fixture(scope="session")
def real_model(engine):
    """Function: "smollm2" or "gemma3" -> an open model; skips where the file is not in the
    cache."""
    opened = {}

    def get(name):
        if name not in opened:
            path = models.find_model(name)
            if path is None:
                pytest.skip(f"{name}: run examples/fetch_model.sh {name}")
            opened[name] = engine.Model(path)
        return opened[name]

    yield get
    for model in opened.values():
        model.close()
