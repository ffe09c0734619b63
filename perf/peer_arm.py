"""The peer: llama.cpp through llama-cpp-python's low-level API, in this process, with a fresh context for each run."""

import ctypes
import itertools
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import honesty

N_BATCH = 512  # llama.cpp's own default micro-batch
_serials = itertools.count(1)
_log_lines = []


class Unusable(Exception):
    """The peer cannot run this file; the text says why."""


class Api:
    """llama_cpp, loaded once, silent; raises Unusable where it is not installed."""

    _loaded = None

    def __new__(cls):
        if cls._loaded is None:
            try:
                import llama_cpp
            except ImportError as reason:
                raise Unusable(f"llama-cpp-python is not installed: {reason}") from None

            @llama_cpp.llama_log_callback
            def log(_level, text, _user):
                _log_lines.append(text.decode("utf-8", "replace"))
                del _log_lines[:-200]

            llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
            llama_cpp.llama_backend_init()
            llama_cpp._quiet = log  # keeps the callback alive
            cls._loaded = llama_cpp
        return cls._loaded


def describe():
    """Version, build flags and libraries of the peer, as they are reported by itself."""
    api = Api()
    try:
        package = version("llama-cpp-python")
    except PackageNotFoundError:
        package = "unknown"
    return {
        "name": "llama.cpp",
        "package": f"llama-cpp-python {package}",
        "build_flags": api.llama_print_system_info().decode().strip(),
        "libraries": sorted(p.name for p in library_folder(api).glob("lib*.so*")),
    }


def library_folder(api):
    return Path(api.__file__).resolve().parent / "lib"


def library(api):
    """The file that holds llama_decode."""
    return str(sorted(library_folder(api).glob("libllama.so*"))[0].resolve())


class PeerModel:
    """An open model file."""

    def __init__(self, path):
        self.api = Api()
        params = self.api.llama_model_default_params()
        params.n_gpu_layers = 0
        del _log_lines[:]
        self.handle = self.api.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            lines = "".join(_log_lines).strip().splitlines() or ["no reason given"]
            reasons = [line for line in lines if "error" in line.lower()] or lines
            raise Unusable(f"llama.cpp cannot load it: {reasons[0]}")
        self.load_log = [line for line in _log_lines if "buffer size" in line or "repack" in line.lower()]
        self.n_vocab = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.handle))

    def close(self):
        if self.handle:
            self.api.llama_model_free(self.handle)
            self.handle = None


class PeerRun:
    """One context."""

    def __init__(self, arm, n_ctx):
        self.identity = ("llama.cpp", next(_serials))
        self.api, self.n_vocab = arm.model.api, arm.model.n_vocab
        params = self.api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, N_BATCH, N_BATCH
        params.n_threads = params.n_threads_batch = arm.threads
        params.no_perf = False  # its counters prove how much was evaluated
        self.context = self.api.llama_init_from_model(arm.model.handle, params)
        if not self.context:
            raise Unusable(f"llama.cpp gives no context of {n_ctx} positions")
        self.memory = self.api.llama_get_memory(self.context)
        self.batch = self.api.llama_batch_init(N_BATCH, 0, 1)
        self._calls = [0, 0]  # of several tokens, of one

    def _decode(self, ids, first, all_logits):
        n, batch = len(ids), self.batch
        batch.n_tokens = n
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), first + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, int(all_logits or i + 1 == n)
        code = self.api.llama_decode(self.context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode failed: {code}")
        self._calls[n == 1] += 1

    def _row(self, i):
        return np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, i), (self.n_vocab,))

    def evaluate(self, ids):
        """Logits after the last id, float32 [V]; llama.cpp's memory, valid until the next call."""
        first = self.position()
        for i in range(0, len(ids), N_BATCH):
            part = ids[i : i + N_BATCH]
            self._decode(part, first + i, False)
            row = self._row(len(part) - 1)  # waits for the end of the work
        return row

    def evaluate_all(self, ids):
        """Logits after every id, float32 [T, V]."""
        self._decode(ids, self.position(), True)
        rows = np.ctypeslib.as_array(self.api.llama_get_logits(self.context), (len(ids), self.n_vocab))
        return rows

    def position(self):
        return self.api.llama_memory_seq_pos_max(self.memory, 0) + 1

    def evaluations(self):
        """By llama.cpp's own counters. They say 1 where they are 0; then our calls tell."""
        data = self.api.llama_perf_context(self.context)
        several = 0 if data.n_p_eval == 1 and not self._calls[0] else data.n_p_eval
        single = 0 if data.n_eval == 1 and not self._calls[1] else data.n_eval
        return several + single

    def truncate(self, n):
        assert self.api.llama_memory_seq_rm(self.memory, 0, n, -1)

    def counters(self):
        return {}

    def close(self):
        if self.context:
            self.api.llama_batch_free(self.batch)
            self.api.llama_free(self.context)
            self.context = None


class PeerArm:
    """llama.cpp on an open PeerModel."""

    kind = "peer"
    name = "llama.cpp"

    def __init__(self, model, threads, bytes_per_token):
        self.model, self.threads, self._bytes = model, threads, bytes_per_token

    def start(self, n_ctx):
        return PeerRun(self, n_ctx)

    def working_threads(self, _tokens_per_call):
        return self.threads

    def planned_per_token(self, _run):
        return None

    def prove(self, run):
        import engine_arm

        path = library(self.model.api)
        why = honesty.is_peer(path, engine_arm.own_library(), honesty.mapped_files())
        return why, {
            "mode": "llama.cpp",
            "target": "native build",
            "kernels": {},
            "library": path,
            "n_ctx": self.model.api.llama_n_ctx(run.context),
            "load_log": [line.strip() for line in self.model.load_log],
        }

    def bytes_per_token(self, _run):
        return self._bytes
