"""The engine through ctypes, as the parity tests use it: open, tokenize, sessions, logits of every
position, counters, plans. Hooks are in engine_hooks.py.

The library is $ENGINE_LIB, else build/release/lib/libengine.so. Structs follow include/engine.h;
each begins with its size.
"""

import ctypes as C
import json
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
KV = {"f16": 0, "f32": 1, "q8_0": 2}
MODE = {"default": 0, "reference": 1, "planned": 2, "planned-fused": 3}
WEIGHTS = {"packed": 0, "stored": 1}
MODES = ["reference", "planned", "planned-fused"]
FUSION = {f"F{i + 1}": 1 << i for i in range(6)}
BOS = {"default": 0, "none": 1, "force": 2}
SPECIAL = {"plain": 0, "user_defined": 1, "all": 2}
BUFFER_TOO_SMALL = 12


class Sized(C.Structure):
    def __init__(self, **fields):
        super().__init__(struct_size=C.sizeof(type(self)), **fields)


class Error(Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("code", C.c_int32),
        ("offset", C.c_uint64),
        ("name", C.c_char * 128),
        ("message", C.c_char * 512),
    ]


class ModelParams(Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("flags", C.c_uint32),
        ("path", C.c_char_p),
        ("data", C.c_void_p),
        ("length", C.c_uint64),
        ("offset", C.c_uint64),
        ("release_data", C.c_void_p),
        ("release_user", C.c_void_p),
        ("host", C.c_void_p),
        ("fd", C.c_int32),
        ("reserved", C.c_uint32),
        ("read", C.c_void_p),
        ("read_user", C.c_void_p),
        ("paths", C.POINTER(C.c_char_p)),
        ("n_paths", C.c_uint64),
    ]


class ModelInfo(Sized):
    _fields_ = (
        [("struct_size", C.c_uint32)]
        + [
            (n, C.c_int32)
            for n in (
                "n_vocab n_tokens n_embd n_layer n_head n_head_kv head_dim_k head_dim_v n_ff "
                "n_ctx_train sliding_window bos_id "
                "eos_id adds_bos head_is_tied has_weights has_tokenizer pretokenizer_fallback "
                "n_unused_tensors"
            ).split()
        ]
        + [
            ("n_params", C.c_uint64),
            ("file_bytes", C.c_uint64),
            ("bytes_per_token", C.c_uint64),
            ("architecture", C.c_char * 32),
            ("name", C.c_char * 96),
            ("tokenizer", C.c_char * 32),
            ("pretokenizer", C.c_char * 32),
            ("chat_family", C.c_char * 32),
        ]
    )


class SessionParams(Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("n_ctx", C.c_uint32),
        ("n_threads", C.c_uint32),
        ("prefill_chunk", C.c_uint32),
        ("kv_type", C.c_int32),
        ("mode", C.c_int32),
        ("target", C.c_char_p),
        ("kernels", C.c_char_p),
        ("without_fusions", C.c_uint32),
        ("sequence", C.c_int32),
        ("weights", C.c_int32),
        ("reserved", C.c_uint32),
    ]


class SessionStats(Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("mode", C.c_int32),
        ("n_threads", C.c_uint32),
        ("n_ctx", C.c_uint32),
        ("decoded_tokens", C.c_uint64),
        ("kv_bytes", C.c_uint64),
        ("bytes_per_token", C.c_uint64),
        ("target", C.c_char * 16),
        ("packed_bytes", C.c_uint64),
        ("kv_own_bytes", C.c_uint64),
        ("prefix_bytes", C.c_uint64),
    ]


class ProfileEntry(Sized):
    _fields_ = (
        [
            ("struct_size", C.c_uint32),
            ("layer", C.c_int32),
            ("prefill", C.c_int32),
            ("fusions", C.c_uint32),
        ]
        + [(n, C.c_uint64) for n in "calls total_ns median_ns p95_ns bytes".split()]
        + [("op", C.c_char * 64), ("tensor", C.c_char * 96), ("kernel", C.c_char * 64)]
    )


class EngineError(Exception):
    def __init__(self, code, error):
        self.code, self.name, self.message = code, error.name.decode(), error.message.decode()
        super().__init__(f"{code} {self.message} [{self.name}]")


def library_path():
    return Path(os.environ.get("ENGINE_LIB") or ROOT / "build" / "release" / "lib" / "libengine.so")


def load():
    lib = C.CDLL(str(library_path()))
    p, i32, u64 = C.c_void_p, C.c_int32, C.c_uint64
    floats, ids = C.POINTER(C.c_float), C.POINTER(C.c_int32)
    for name, result, args in [
        ("engine_model_open", i32, [C.POINTER(ModelParams), C.POINTER(p), C.POINTER(Error)]),
        ("engine_model_close", None, [p]),
        ("engine_model_info_get", i32, [p, C.POINTER(ModelInfo)]),
        ("engine_model_target_at", C.c_char_p, [p, C.c_uint32]),
        (
            "engine_tokenize",
            i32,
            [
                p,
                C.c_char_p,
                u64,
                i32,
                i32,
                ids,
                u64,
                C.POINTER(u64),
                C.POINTER(C.c_uint32),
                C.POINTER(Error),
            ],
        ),
        (
            "engine_detokenize",
            i32,
            [p, ids, u64, i32, C.c_char_p, u64, C.POINTER(u64), C.POINTER(Error)],
        ),
        (
            "engine_session_create",
            i32,
            [p, C.POINTER(SessionParams), C.POINTER(p), C.POINTER(Error)],
        ),
        ("engine_session_destroy", None, [p]),
        ("engine_session_decode", i32, [p, ids, u64, floats, C.POINTER(Error)]),
        ("engine_session_decode_all", i32, [p, ids, u64, floats, C.POINTER(Error)]),
        ("engine_session_position", u64, [p]),
        ("engine_session_truncate", i32, [p, u64]),
        ("engine_session_stats_get", i32, [p, C.POINTER(SessionStats)]),
        ("engine_session_kernel_at", i32, [p, C.c_uint32, C.POINTER(C.c_char_p), C.POINTER(u64)]),
        ("engine_session_fusion_at", i32, [p, C.c_uint32, C.POINTER(C.c_char_p), C.POINTER(u64)]),
        ("engine_session_profile", i32, [p, i32, C.POINTER(Error)]),
        ("engine_session_profile_at", i32, [p, C.c_uint32, C.POINTER(ProfileEntry)]),
        ("engine_session_plan", i32, [p, C.POINTER(p), C.POINTER(Error)]),
        ("engine_session_tokens_are", i32, [p, i32]),
        ("engine_unembed", i32, [p, floats, u64, floats, C.POINTER(Error)]),
        ("engine_plan_destroy", None, [p]),
        (
            "engine_plan_json",
            i32,
            [p, C.c_uint32, C.c_char_p, u64, C.POINTER(u64), C.POINTER(Error)],
        ),
    ]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, args
    return lib


def _check(code, error):
    if code:
        raise EngineError(code, error)


def plan_json(lib, plan):
    """The plan as a dict; destroys it."""
    n, error = C.c_uint64(), Error()
    lib.engine_plan_json(plan, 0, None, 0, C.byref(n), C.byref(error))
    text = C.create_string_buffer(n.value)
    code = lib.engine_plan_json(plan, 0, text, n.value, C.byref(n), C.byref(error))
    lib.engine_plan_destroy(plan)
    _check(code, error)
    return json.loads(text.raw[: n.value])


def session_params(
    kv="f16",
    n_ctx=0,
    threads=1,
    chunk=0,
    target=None,
    mode="default",
    without=(),
    kernels=None,
    sequence=0,
    weights="packed",
):
    return SessionParams(
        n_ctx=n_ctx,
        n_threads=threads,
        prefill_chunk=chunk,
        kv_type=KV[kv],
        mode=MODE[mode],
        target=target.encode() if target else None,
        kernels=kernels.encode() if kernels else None,
        without_fusions=sum(FUSION[f] for f in without),
        sequence=sequence,
        weights=WEIGHTS[weights],
    )


def _ids(values):
    return (C.c_int32 * len(values))(*[int(v) for v in values])


class Model:
    def __init__(self, path, flags=0):
        self.lib, self.handle, error = load(), C.c_void_p(), Error()
        params = ModelParams(path=str(path).encode(), fd=-1, flags=flags)
        _check(
            self.lib.engine_model_open(C.byref(params), C.byref(self.handle), C.byref(error)), error
        )
        self.info = ModelInfo()
        _check(self.lib.engine_model_info_get(self.handle, C.byref(self.info)), error)

    def close(self):
        self.lib.engine_model_close(self.handle)
        self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def targets(self):
        out = []
        while name := self.lib.engine_model_target_at(self.handle, len(out)):
            out.append(name.decode())
        return out

    def tokenize(self, text, bos="default", special="plain"):
        data = text.encode() if isinstance(text, str) else text
        capacity, n, error = len(data) + 8, C.c_uint64(), Error()
        out = (C.c_int32 * capacity)()
        _check(
            self.lib.engine_tokenize(
                self.handle,
                data,
                len(data),
                BOS[bos],
                SPECIAL[special],
                out,
                capacity,
                C.byref(n),
                None,
                C.byref(error),
            ),
            error,
        )
        return list(out[: n.value])

    def detokenize(self, ids, special=False):
        n, error, array = C.c_uint64(), Error(), _ids(ids)
        code = self.lib.engine_detokenize(
            self.handle, array, len(ids), special, None, 0, C.byref(n), C.byref(error)
        )
        if code != BUFFER_TOO_SMALL:
            _check(code, error)
        out = C.create_string_buffer(max(1, n.value))
        _check(
            self.lib.engine_detokenize(
                self.handle, array, len(ids), special, out, n.value, C.byref(n), C.byref(error)
            ),
            error,
        )
        return out.raw[: n.value]

    def session(self, **options):
        return Session(self, **options)


class Session:
    """Options: those of session_params."""

    def __init__(self, model, **options):
        self.model, self.lib, self.handle, error = model, model.lib, C.c_void_p(), Error()
        params = session_params(**options)
        _check(
            self.lib.engine_session_create(
                model.handle, C.byref(params), C.byref(self.handle), C.byref(error)
            ),
            error,
        )

    def close(self):
        self.lib.engine_session_destroy(self.handle)
        self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def decode(self, ids):
        """Logits [V] after the last id."""
        out, error = np.empty(self.model.info.n_vocab, np.float32), Error()
        _check(
            self.lib.engine_session_decode(
                self.handle,
                _ids(ids),
                len(ids),
                out.ctypes.data_as(C.POINTER(C.c_float)),
                C.byref(error),
            ),
            error,
        )
        return out

    def decode_all(self, ids, step=None):
        """Logits [T, V] after every id, handed over `step` ids a call (all at once by default)."""
        out, error, step = (
            np.empty((len(ids), self.model.info.n_vocab), np.float32),
            Error(),
            step or len(ids),
        )
        for i in range(0, len(ids), step):
            part = ids[i : i + step]
            rows = out[i : i + step].ctypes.data_as(C.POINTER(C.c_float))
            _check(
                self.lib.engine_session_decode_all(
                    self.handle, _ids(part), len(part), rows, C.byref(error)
                ),
                error,
            )
        return out

    def position(self):
        return self.lib.engine_session_position(self.handle)

    def truncate(self, n):
        assert self.lib.engine_session_truncate(self.handle, n) == 0

    def stats(self):
        stats = SessionStats()
        assert self.lib.engine_session_stats_get(self.handle, C.byref(stats)) == 0
        return stats

    def kernels(self):
        """Name -> executions."""
        out, name, calls = {}, C.c_char_p(), C.c_uint64()
        while (
            self.lib.engine_session_kernel_at(self.handle, len(out), C.byref(name), C.byref(calls))
            == 0
        ):
            out[name.value.decode()] = calls.value
        return out

    def fusions(self):
        """"F1" .. "F6" -> executions."""
        out, name, calls = {}, C.c_char_p(), C.c_uint64()
        for i in range(6):
            assert (
                self.lib.engine_session_fusion_at(self.handle, i, C.byref(name), C.byref(calls))
                == 0
            )
            out[name.value.decode().split()[0]] = calls.value
        return out

    def plan(self):
        plan, error = C.c_void_p(), Error()
        _check(
            self.lib.engine_session_plan(self.handle, C.byref(plan), C.byref(error)),
            error,
        )
        return plan_json(self.lib, plan)

    def profile(self, enable):
        error = Error()
        _check(self.lib.engine_session_profile(self.handle, enable, C.byref(error)), error)

    def profile_lines(self):
        out, entry = [], ProfileEntry()
        while (
            self.lib.engine_session_profile_at(self.handle, len(out), C.byref(entry)) == 0
        ):
            out.append(entry)
            entry = ProfileEntry()
        return out

    def tokens_are(self, kind):
        """0 auto, 1 prompt, 2 part of a prompt, 3 generated."""
        assert self.lib.engine_session_tokens_are(self.handle, kind) == 0

    def unembed(self, rows):
        rows = np.ascontiguousarray(rows, np.float32)
        out, error = np.empty((len(rows), self.model.info.n_vocab), np.float32), Error()
        pointer = C.POINTER(C.c_float)
        _check(
            self.lib.engine_unembed(
                self.handle,
                rows.ctypes.data_as(pointer),
                len(rows),
                out.ctypes.data_as(pointer),
                C.byref(error),
            ),
            error,
        )
        return out
