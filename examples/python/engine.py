"""The engine in Python: one file, ctypes and NumPy, no compiler.

    import engine
    with engine.Model("model.gguf") as model, model.session() as s:
        for text in s.stream("The capital of France is", 16):
            print(text, end="", flush=True)

        s.truncate(0)
        with s.hooks():                                    # all hooks of the block go at its end
            residual = s.capture("resid_post", layers="all")
            s.add("resid_post", layer=5, values=v, alpha=4.0)
            logits = s.decode(model.tokenize("The capital of France is"))   # float32 [V]
        residual.values                                    # float32 [rows, E], residual.records says which

SHAPES      V = model.n_vocab, E = model.n_embd, T = tokens of a call; all arrays are dense, row-major.
OWNERSHIP   Arrays that you get belong to NumPy: the engine writes into them, and they stay valid after the hook,
            the session and the model are gone. Arrays that you pass are copied or read during the call.
THREADS     A Model may be used from any thread; a Session, its hooks and a Sampler from one thread at a time.
            decode() releases the interpreter lock; callbacks run on the thread that is inside decode().
            Only Session.cancel() may be called from another thread meanwhile.
ERRORS      EngineError with .code, .status ("FILE_FORMAT"), .message, .name (key or tensor) and .offset.
LIBRARY     Model(library=PATH), else $ENGINE_LIB, else build/release/lib of this checkout.

The manual is include/engine.h; the structs below follow it (tests/parity/test_python_binding.py compares them).
"""

import contextlib
import ctypes as C
import json
import os
import warnings
import weakref
from collections import namedtuple
from pathlib import Path

import numpy as np

API_VERSION = 0x00000001
OK, ARGUMENT, BUFFER_TOO_SMALL, HOOK_FAILED = 0, 10, 12, 80
BOS = {"default": 0, "none": 1, "force": 2}
SPECIAL = {"plain": 0, "user_defined": 1, "all": 2}
KV = {"f16": 0, "f32": 1, "q8_0": 2}
MODES = {"default": 0, "reference": 1, "planned": 2, "planned-fused": 3}
WEIGHTS = {"packed": 0, "stored": 1}
TOKENS = {"auto": 0, "prompt": 1, "prompt_part": 2, "generated": 3}
END_REASONS = (None, "eos", "eot", "eom", "fim", "name")
FUSIONS = {"F1": 1, "F2": 2, "F3": 4, "F4": 8, "F5": 16, "F6": 32}
ACTIONS = {
    "capture": 1, "read": 2, "write": 3, "add": 10, "scale": 11, "set": 12, "zero": 13, "interpolate": 14,
    "project_out": 15, "clamp": 16, "replace": 17, "low_rank": 18,
}  # fmt: skip
OPEN_FLAGS = {"vocab_only": 1, "metadata_only": 2, "pretokenizer_fallback": 4}
CAPTURE_POST, CAPTURE_RING = 1, 2
# engine_capture_record as a NumPy type: the elements of Capture.records.
RECORD = np.dtype(
    [("position", "<i8"), ("sequence", "<i4"), ("token_id", "<i4"), ("site", "<i4"), ("layer", "<i4")]
)

# ---- structs of engine.h -----------------------------------------------------------------------------

_TYPES = {
    "u32": C.c_uint32, "i32": C.c_int32, "u64": C.c_uint64, "i64": C.c_int64, "f32": C.c_float, "ptr": C.c_void_p,
    "str": C.c_char_p,
}  # fmt: skip


def _fields(text):
    """Fields from "u32 struct_size, char[32] name, u64[4] dims": types as in engine.h."""
    fields = []
    for declaration in text.split(","):
        kind, name = declaration.split()
        base, _, count = kind.partition("[")
        ctype = C.c_char if base == "char" else _TYPES[base]
        fields.append((name, ctype * int(count[:-1]) if count else ctype))
    return fields


class _Struct(C.Structure):
    """Begins with its size, as every struct of engine.h that has a struct_size."""

    def __init__(self, **fields):
        super().__init__(**fields)
        if self._fields_[0][0] == "struct_size":
            self.struct_size = C.sizeof(type(self))


class engine_error(_Struct):
    _fields_ = _fields("u32 struct_size, i32 code, u64 offset, char[128] name, char[512] message")


class engine_model_params(_Struct):
    _fields_ = _fields(
        "u32 struct_size, u32 flags, str path, ptr data, u64 length, u64 offset, ptr release_data, ptr release_user, "
        "ptr host, i32 fd, u32 reserved, ptr read, ptr read_user, ptr paths, u64 n_paths"
    )


class engine_model_info(_Struct):
    _fields_ = _fields(
        "u32 struct_size, i32 n_vocab, i32 n_tokens, i32 n_embd, i32 n_layer, i32 n_head, i32 n_head_kv, "
        "i32 head_dim_k, i32 head_dim_v, i32 n_ff, i32 n_ctx_train, i32 sliding_window, i32 bos_id, i32 eos_id, "
        "i32 adds_bos, i32 head_is_tied, i32 has_weights, i32 has_tokenizer, i32 pretokenizer_fallback, "
        "i32 n_unused_tensors, u64 n_params, u64 file_bytes, u64 bytes_per_token, char[32] architecture, "
        "char[96] name, char[32] tokenizer, char[32] pretokenizer, char[32] chat_family"
    )


class engine_tensor_info(_Struct):
    _fields_ = _fields(
        "u32 struct_size, u32 n_dims, u64[4] dims, u64 n_bytes, u64 file_offset, ptr name, u64 name_bytes, u32 type, "
        "char[12] format"
    )


class engine_chat_message(_Struct):
    _fields_ = _fields("str role, ptr content, u64 content_bytes")


class engine_session_params(_Struct):
    _fields_ = _fields(
        "u32 struct_size, u32 n_ctx, u32 n_threads, u32 prefill_chunk, i32 kv_type, i32 mode, str target, "
        "str kernels, u32 without_fusions, i32 sequence, i32 weights, u32 reserved"
    )


class engine_session_stats(_Struct):
    _fields_ = _fields(
        "u32 struct_size, i32 mode, u32 n_threads, u32 n_ctx, u64 decoded_tokens, u64 kv_bytes, u64 bytes_per_token, "
        "char[16] target, u64 packed_bytes, u64 kv_own_bytes, u64 prefix_bytes"
    )


class engine_profile_entry(_Struct):
    _fields_ = _fields(
        "u32 struct_size, i32 layer, i32 prefill, u32 fusions, u64 calls, u64 total_ns, u64 median_ns, u64 p95_ns, "
        "u64 bytes, char[64] op, char[96] tensor, char[64] kernel"
    )


class engine_hook_site_info(_Struct):
    _fields_ = _fields(
        "u32 struct_size, i32 site, i32 per_layer, i32 writable, u32 width, u32 n_heads, u32 n_layers, u32 reserved, "
        "char[32] name, char[32] alias, char[16] route"
    )


class engine_capture_record(_Struct):
    _fields_ = _fields("i64 position, i32 sequence, i32 token_id, i32 site, i32 layer")


class engine_hook_event(_Struct):
    _fields_ = _fields(
        "u32 struct_size, i32 site, i32 layer, i32 sequence, i32 generated, u32 n_rows, u64 width, ptr token_ids, "
        "ptr positions"
    )


class engine_hook_params(_Struct):
    _fields_ = _fields(
        "u32 struct_size, i32 action, str site, ptr layers, u64 n_layers, i32 layer_begin, i32 layer_end, "
        "ptr positions, u64 n_positions, i64 position_begin, i64 position_end, i64 position_step, ptr heads, "
        "u64 n_heads, ptr sequences, u64 n_sequences, i32 position_select, u32 capture_flags, ptr values, "
        "u64 n_values, ptr records, u64 n_records, f32 alpha, f32 low, f32 high, u32 rank, ptr capture, "
        "ptr capture_records, u64 capture_rows, ptr callback, ptr user, u64 scope"
    )


class engine_hook_stats(_Struct):
    _fields_ = _fields(
        "u32 struct_size, u32 reserved, u64 calls, u64 positions, u64 prefill_positions, u64 decode_positions, "
        "u64 writes, u64 rows_captured, u64 rows_dropped"
    )


class engine_sampler_params(_Struct):
    _fields_ = _fields(
        "u32 struct_size, u32 has_seed, u64 seed, f32 temperature, i32 top_k, f32 top_p, f32 min_p, "
        "f32 repeat_penalty, f32 frequency_penalty, f32 presence_penalty, i32 penalty_last_n"
    )


STRUCTS = {cls.__name__: cls for cls in _Struct.__subclasses__()}
_CALLBACK = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.POINTER(engine_hook_event), C.c_void_p)

# result name arguments; every pointer is "ptr".
_FUNCTIONS = """
u32 engine_api_version
str engine_version_string
str engine_status_name i32
i32 engine_model_open ptr ptr ptr
- engine_model_close ptr
i32 engine_model_info_get ptr ptr
u64 engine_model_tensor_count ptr
i32 engine_model_tensor_at ptr u64 ptr
str engine_model_target_at ptr u32
i32 engine_tokenize ptr ptr u64 i32 i32 ptr u64 ptr ptr ptr
i32 engine_token_bytes ptr i32 i32 ptr u64 ptr
i32 engine_detokenize ptr ptr u64 i32 ptr u64 ptr ptr
i32 engine_text_decoder_create ptr i32 i32 ptr
i32 engine_text_decoder_push ptr i32 ptr ptr
i32 engine_text_decoder_flush ptr ptr ptr
- engine_text_decoder_destroy ptr
i32 engine_token_end_reason ptr i32
i32 engine_chat_tokenize ptr ptr u64 i32 ptr u64 ptr ptr
i32 engine_session_create ptr ptr ptr ptr
- engine_session_destroy ptr
i32 engine_session_decode ptr ptr u64 ptr ptr
i32 engine_session_decode_all ptr ptr u64 ptr ptr
u64 engine_session_position ptr
i32 engine_session_truncate ptr u64
i32 engine_session_fork ptr u32 ptr ptr
i32 engine_session_save ptr ptr u64 ptr ptr
i32 engine_session_restore ptr ptr u64 ptr
i32 engine_session_kv_export ptr ptr u64 ptr ptr
i32 engine_session_kv_import ptr ptr u64 ptr
i32 engine_session_take_prefix ptr ptr u64 ptr ptr
i32 engine_model_prefix_cache ptr u64
- engine_session_cancel ptr
i32 engine_session_stats_get ptr ptr
i32 engine_session_kernel_at ptr u32 ptr ptr
i32 engine_session_fusion_at ptr u32 ptr ptr
i32 engine_session_profile ptr i32 ptr
i32 engine_session_profile_at ptr u32 ptr
i32 engine_hook_site_at ptr u32 ptr
i32 engine_hook_register ptr ptr ptr ptr
i32 engine_hook_remove ptr u64 ptr
i32 engine_hook_scope_open ptr ptr ptr
i32 engine_hook_scope_close ptr u64 ptr
i32 engine_hook_stats_get ptr u64 ptr
i32 engine_session_tokens_are ptr i32
i32 engine_unembed ptr ptr u64 ptr ptr
i32 engine_plan_create ptr ptr ptr u64 ptr ptr
i32 engine_session_plan ptr ptr ptr
- engine_plan_destroy ptr
i32 engine_plan_json ptr u32 ptr u64 ptr ptr
i32 engine_plan_verify ptr ptr u64 ptr
i32 engine_plan_diff ptr u64 ptr u64 ptr u64 ptr ptr
i32 engine_sampler_create ptr ptr ptr
- engine_sampler_destroy ptr
u64 engine_sampler_seed ptr
i32 engine_sampler_accept ptr i32
i32 engine_sampler_sample ptr ptr u64 ptr ptr
"""


class EngineError(Exception):
    """A call failed. code: number; status: its name; message: a sentence; name: metadata key, tensor or "";
    offset: place in the file, None = none."""

    def __init__(self, code, status, error=None):
        self.code, self.status, self.message, self.name, self.offset = code, status, "", "", None
        if error is not None and error.code == code:
            self.message = error.message.decode("utf-8", "replace")
            self.name = error.name.decode("utf-8", "replace")
            self.offset = None if error.offset == 2**64 - 1 else error.offset
        text = f"{status}: {self.message}" if self.message else status
        text += f" [name {self.name}]" if self.name else ""
        super().__init__(text + (f" [file offset {self.offset}]" if self.offset is not None else ""))


def library_path(library=None):
    """Where the library is looked for: the argument, $ENGINE_LIB, build/release/lib of this checkout."""
    build = Path(__file__).resolve().parent.parent.parent / "build" / "release" / "lib" / "libengine.so"
    return Path(library or os.environ.get("ENGINE_LIB") or build)


class Library:
    """The loaded library: its functions as attributes, without the prefix engine_."""

    _loaded = {}

    def __new__(cls, library=None):
        path = str(library_path(library))
        if path not in cls._loaded:
            self = super().__new__(cls)
            try:
                self._load(path)
            except OSError as reason:
                raise OSError(f"no engine library at {path}: build it, or set ENGINE_LIB ({reason})") from None
            cls._loaded[path] = self
        return cls._loaded[path]

    def _load(self, path):
        self.path, dll = path, C.CDLL(path)
        for result, name, *arguments in (line.split() for line in _FUNCTIONS.split("\n") if line):
            function = getattr(dll, name, None)
            if function is None:
                raise OSError(f"it has no {name}")
            function.restype = None if result == "-" else _TYPES[result]
            function.argtypes = [_TYPES[a] for a in arguments]
            setattr(self, name.removeprefix("engine_"), function)
        if self.api_version() >> 16 != API_VERSION >> 16:
            raise OSError(f"its API version is {self.api_version():#x}, this file is for {API_VERSION:#x}")

    def check(self, code, error=None):
        if code != OK:
            raise EngineError(code, self.status_name(code).decode(), error)

    def call(self, name, *arguments):
        """Calls a function that ends with an engine_error and raises what it reports."""
        error = engine_error()
        self.check(getattr(self, name)(*arguments, C.byref(error)), error)

    def sized(self, name, *arguments, ctype=C.c_char, error=True):
        """The two-call form: asks for the size, then for the elements, as a ctypes array."""
        n, report = C.c_uint64(), engine_error()
        buffer, code = (ctype * 0)(), BUFFER_TOO_SMALL
        while code == BUFFER_TOO_SMALL:
            tail = [C.byref(report)] if error else []
            code = getattr(self, name)(*arguments, buffer, len(buffer), C.byref(n), *tail)
            if code == BUFFER_TOO_SMALL:
                buffer = (ctype * n.value)()
        self.check(code, report)
        return buffer[: n.value] if ctype is not C.c_char else buffer.raw[: n.value]


def _ids(ids):
    return np.ascontiguousarray(np.atleast_1d(np.asarray(ids)), dtype=np.int32)


def _values(struct):
    """A struct as a dict, texts decoded."""
    out = {n: getattr(struct, n) for n, _ in struct._fields_ if n not in ("struct_size", "reserved")}
    return {k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in out.items()}


def _release(lib, function, handle):
    if handle:
        value, handle.value = handle.value, None  # in place: whoever shares it sees that it is gone
        getattr(lib, function)(value)


class _Handle:
    """Something of the library's that must be released; a context manager."""

    def __init__(self, lib, release):
        self.lib, self._release, self._handle = lib, release, C.c_void_p()

    @property
    def handle(self):
        if not self._handle:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self):
        """Releases it; a second call does nothing."""
        _release(self.lib, self._release, self._handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):  # a failed __init__ has none
            self.close()


# ---- model -------------------------------------------------------------------------------------------

Site = namedtuple("Site", "site per_layer writable width n_heads n_layers name alias route")
Site.__doc__ = "A hook site: fields as engine_hook_site_info. width 0 = heads * n_ctx (attention sites)."


class Model(_Handle):
    """An open model file. The fields of engine_model_info are attributes: n_vocab, n_embd, n_layer, name, ..."""

    def __init__(self, path, *flags, library=None):
        """path: a GGUF file; flags: "vocab_only", "metadata_only", "pretokenizer_fallback"."""
        super().__init__(Library(library), "model_close")
        self._dependents = []  # (release function, handle), which must go before the model
        self._sessions = weakref.WeakSet()
        params = engine_model_params(path=os.fsencode(path), fd=-1, flags=sum(OPEN_FLAGS[f] for f in flags))
        self.lib.call("model_open", C.byref(params), C.byref(self._handle))
        info = engine_model_info()
        self.lib.check(self.lib.model_info_get(self.handle, C.byref(info)))
        self.info = _values(info)
        for name, value in self.info.items():
            setattr(self, name, value)

    def close(self):
        """Closes its sessions, then the file."""
        for session in list(self._sessions):
            session.close()
        for function, handle in self._dependents:
            _release(self.lib, function, handle)
        super().close()

    def _depends(self, thing):
        """The model's own note of what must be released before it, whatever order the interpreter ends things in."""
        self._dependents = [d for d in self._dependents if d[1]] + [(thing._release, thing._handle)]

    def targets(self):
        """CPU targets of this machine, best first, for session(target=...)."""
        names = []
        while name := self.lib.model_target_at(self.handle, len(names)):
            names.append(name.decode())
        return names

    def tensors(self):
        """Tensors of the file: list of dict with name, dims, format, n_bytes, file_offset."""
        out, info = [], engine_tensor_info()
        for i in range(self.lib.model_tensor_count(self.handle)):
            self.lib.check(self.lib.model_tensor_at(self.handle, i, C.byref(info)))
            entry = _values(info)
            entry["name"] = C.string_at(info.name, info.name_bytes).decode("utf-8", "replace")
            entry["dims"] = tuple(info.dims[: info.n_dims])
            out.append(entry)
        return out

    def sites(self):
        """Hook sites by name: dict of Site, in the order of their numbers."""
        out, info = {}, engine_hook_site_info()
        while True:
            code = self.lib.hook_site_at(self.handle, len(out), C.byref(info))
            if code == ARGUMENT:
                return out
            self.lib.check(code)
            entry = _values(info)
            out[entry["name"]] = Site(**entry)

    def site(self, name):
        """A site by name or alias. KeyError: no such site."""
        for site in self.sites().values():
            if name in (site.name, site.alias):
                return site
        raise KeyError(name)

    def tokenize(self, text, bos="default", special="plain"):
        """Ids of a text (str or bytes), int32 [n]. bos: default, none, force. special: plain, user_defined, all:
        which special tokens are recognised inside the text."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        flags = C.c_uint32()
        n, error = C.c_uint64(), engine_error()
        ids, code = np.empty(len(data) + 16, np.int32), BUFFER_TOO_SMALL
        while code == BUFFER_TOO_SMALL:
            if n.value > len(ids):
                ids = np.empty(n.value, np.int32)
            code = self.lib.tokenize(
                self.handle, data, len(data), BOS[bos], SPECIAL[special], ids.ctypes.data, len(ids),
                C.byref(n), C.byref(flags), C.byref(error),
            )  # fmt: skip
        self.lib.check(code, error)
        return ids[: n.value].copy()

    def chat(self, messages, generate=True):
        """Ids of a conversation, int32 [n]. messages: [(role, content), ...], or one str of the user's.
        generate: end with the header of an assistant turn."""
        messages = [("user", messages)] if isinstance(messages, str) else list(messages)
        keep = [(role.encode(), C.create_string_buffer(text.encode())) for role, text in messages]
        array = (engine_chat_message * len(keep))(
            *[engine_chat_message(role=r, content=C.addressof(t), content_bytes=len(t) - 1) for r, t in keep]
        )
        ids = self.lib.sized("chat_tokenize", self.handle, array, len(array), int(generate), ctype=C.c_int32)
        return np.array(ids, np.int32)

    def detokenize(self, ids, special=False):
        """Text of ids; bytes that are no UTF-8 become U+FFFD. special: control tokens give their text."""
        array = _ids(ids)
        text = self.lib.sized("detokenize", self.handle, array.ctypes.data, len(array), int(special))
        return text.decode("utf-8", "replace")

    def token_text(self, id):
        """The text of one token, as the vocabulary has it (with its leading space)."""
        return self.lib.sized("token_bytes", self.handle, int(id), 1, error=False).decode("utf-8", "replace")

    def end_reason(self, id):
        """Why this token ends a generation: "eos", "eot", "eom", "fim", "name"; None = it does not."""
        return END_REASONS[self.lib.token_end_reason(self.handle, int(id))]

    def session(self, **options):
        """A new Session; options as Session.__init__."""
        return Session(self, **options)

    def prefix_cache(self, max_bytes):
        """Keeps up to that many bytes of what sessions have computed, for Session.take_prefix(); 0 = nothing."""
        self.lib.check(self.lib.model_prefix_cache(self.handle, max_bytes))

    def plan(self, hooks=(), **options):
        """The Plan that a session with these options would obey with these hooks: [(site, layers), ...]."""
        params, keep = _session_params(**options)
        built = [_selectors(self, *((h, "all") if isinstance(h, str) else h)) for h in hooks]
        array = (engine_hook_params * len(built))(*[p for p, _ in built])
        plan = Plan(self)
        self.lib.call("plan_create", self.handle, C.byref(params), array, len(array), C.byref(plan._handle))
        self._depends(plan)
        return plan

    def verify_plan(self, text):
        """Compiles a stored plan anew. EngineError (PLAN, ARGUMENT) says the first difference."""
        data = text.encode()
        self.lib.call("plan_verify", self.handle, data, len(data))


class Plan(_Handle):
    """What was decided, and why. Immutable; from Model.plan or Session.plan."""

    def __init__(self, model):
        super().__init__(model.lib, "plan_destroy")
        self.model = model

    def json(self, full_file_hash=False):
        """Canonical JSON, schema engine.plan/1: str."""
        return self.lib.sized("plan_json", self.handle, int(full_file_hash)).decode()

    def to_dict(self):
        """The same, parsed."""
        return json.loads(self.json())

    @staticmethod
    def diff(a, b, library=None):
        """What differs between two stored plans (str): a line for each difference, [] = equal."""
        a, b = a.encode(), b.encode()
        return Library(library).sized("plan_diff", a, len(a), b, len(b)).decode().splitlines()


class Sampler(_Handle):
    """Chooses tokens from logits. The default is greedy.

    temperature (0 = greedy), top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty,
    penalty_last_n as engine_sampler_params; seed: None = drawn, .seed tells it."""

    def __init__(self, seed=None, library=None, **params):
        super().__init__(Library(library), "sampler_destroy")
        defaults = {"top_p": 1.0, "repeat_penalty": 1.0, "penalty_last_n": 64}
        struct = engine_sampler_params(has_seed=int(seed is not None), seed=seed or 0, **{**defaults, **params})
        self.lib.call("sampler_create", C.byref(struct), C.byref(self._handle))

    @property
    def seed(self):
        return self.lib.sampler_seed(self.handle)

    def accept(self, ids):
        """Tells the penalties about tokens of the prompt."""
        for id in _ids(ids):
            self.lib.check(self.lib.sampler_accept(self.handle, int(id)))

    def sample(self, logits):
        """The next token, from float32 [V]; it is accepted."""
        logits = np.ascontiguousarray(logits, np.float32)
        id = C.c_int32()
        self.lib.call("sampler_sample", self.handle, logits.ctypes.data, logits.size, C.byref(id))
        return id.value


# ---- hooks -------------------------------------------------------------------------------------------

Event = namedtuple("Event", "site layer sequence generated token_ids positions")
Event.__doc__ = """What a callback is told. site: name; layer: -1 outside the layers; generated: these tokens were
generated, not read from a prompt; token_ids: int32 [n]; positions: int64 [n], absolute, ascending."""


def generated(begin=0, end=None):
    """Positions selector: generated tokens number begin <= k < end since the prompt; end None = all later."""
    return ("generated", begin, 2**62 if end is None else end)


def every(step):
    """Positions selector: absolute positions that step divides."""
    return ("every", step)


def _selectors(model, site, layers="all", positions="all", heads=None):
    """engine_hook_params with site and selectors, and the arrays that it points to."""
    params, keep = engine_hook_params(alpha=1.0), []

    def put(field, values, dtype):
        array = np.ascontiguousarray(np.atleast_1d(np.asarray(values, dtype)))
        keep.append(array)
        setattr(params, field, array.ctypes.data)
        setattr(params, "n_" + field, len(array))

    params.site = site.encode()
    if isinstance(layers, range):
        layers = list(layers)
    if isinstance(layers, slice):
        layers = list(range(model.n_layer))[layers]
    if layers is not None and not (isinstance(layers, str) and layers == "all"):
        if isinstance(layers, str):
            raise ValueError(f"layers={layers!r}: \"all\", a number, a list, a range or a slice")
        put("layers", layers, np.int32)
    if heads is not None:
        put("heads", heads, np.int32)
    if isinstance(positions, str):
        select = {"all": 0, "last": 3, "last_of_prompt": 3, "generated": 4}
        if positions not in select:
            raise ValueError(f"positions={positions!r}: one of {', '.join(select)}, or numbers")
        params.position_select = select[positions]
    elif isinstance(positions, tuple) and positions and positions[0] == "generated":
        params.position_select, params.position_begin, params.position_end = 4, positions[1], positions[2]
    elif isinstance(positions, tuple) and positions and positions[0] == "every":
        params.position_select, params.position_step = 5, positions[1]
    elif isinstance(positions, range) and positions.step == 1:
        params.position_select, params.position_begin, params.position_end = 2, positions.start, positions.stop
    else:
        params.position_select = 1
        put("positions", list(positions) if isinstance(positions, range) else positions, np.int64)
    return params, keep


class _Registered:
    """What a session knows of a hook: enough to keep its memory, and not the Hook, so that no cycle forms."""

    def __init__(self, hook, scope, keep):
        self.hook, self.scope, self.keep = weakref.ref(hook), scope, keep

    def end(self):
        """The hook is about to go with its scope or session: its last counters."""
        if hook := self.hook():
            hook._last_stats = hook.stats()


class Hook:
    """A registered hook; also a context manager that removes it. .site, .id, .stats() say what it is and did."""

    def __init__(self, session, action, params, keep, callback=None):
        self.session, self.action, self.site = session, action, params.site.decode()
        self._last_stats, number = None, C.c_uint64()
        params.action = ACTIONS[action]
        params.scope = session._scopes[-1] if session._scopes else 0
        if callback:
            keep.append(callback)
            params.callback = C.cast(callback, C.c_void_p)
        session.lib.call("hook_register", session.handle, C.byref(params), C.byref(number))
        self.id = number.value
        session._hooks[self.id] = _Registered(self, params.scope, keep)

    @property
    def active(self):
        """False once it, its scope or its session is gone."""
        return self._last_stats is None

    def stats(self):
        """dict: calls, positions, prefill_positions, decode_positions, writes, rows_captured, rows_dropped.
        Counts completed decodes; after removal, the last state."""
        if self._last_stats is not None:
            return dict(self._last_stats)
        stats = engine_hook_stats()
        self.session.lib.check(
            self.session.lib.hook_stats_get(self.session.handle, self.id, C.byref(stats))
        )
        return _values(stats)

    def remove(self):
        """Removes this hook and no other; a second call does nothing."""
        if self.active:
            stats = self.stats()
            self.session.lib.call("hook_remove", self.session.handle, self.id)
            self._last_stats = stats
            del self.session._hooks[self.id]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


class Capture(Hook):
    """A hook that copies rows into NumPy memory.

    values    float32 [n, width], in the order of capture: a view, or a copy once a ring has wrapped
    records   RECORD [n]: position, sequence, token_id, site, layer of every row
    dropped   rows that found no room (never with ring=True)
    Read them between decodes. They stay valid after the hook is removed."""

    def __init__(self, session, params, keep, rows, width, flags):
        self._values = np.empty((rows, width), np.float32)  # committed by the system as rows are written
        self._records = np.zeros(rows, RECORD)
        params.capture, params.capture_records = self._values.ctypes.data, self._records.ctypes.data
        params.capture_rows, params.capture_flags = rows, flags
        keep += [self._values, self._records]
        super().__init__(session, "capture", params, keep)

    def _in_order(self, array):
        stats, capacity = self.stats(), len(array)
        if stats["rows_dropped"]:
            warnings.warn(f"{self.site}: {stats['rows_dropped']} rows were dropped; capture with more rows=", stacklevel=3)
        n = stats["rows_captured"]
        return array[:n] if n <= capacity else np.roll(array, -(n % capacity), axis=0)

    @property
    def values(self):
        return self._in_order(self._values)

    @property
    def records(self):
        return self._in_order(self._records)

    @property
    def dropped(self):
        return self.stats()["rows_dropped"]

    def grid(self):
        """(values [L, T, width], layers [L], positions [T]): a copy, by layer and position, ascending. The last row
        wins where a position was captured twice; NaN where a layer has no row."""
        values, records = self.values, self.records
        layers, at_layer = np.unique(records["layer"], return_inverse=True)
        positions, at_position = np.unique(records["position"], return_inverse=True)
        out = np.full((len(layers), len(positions), values.shape[1]), np.nan, np.float32)
        out[at_layer, at_position] = values
        return out, layers, positions


# ---- session -----------------------------------------------------------------------------------------


def _session_params(n_ctx=0, threads=0, chunk=0, kv="f16", mode="default", target=None, kernels=None, without_fusions=(),
                    sequence=0, weights="packed"):  # fmt: skip
    keep = [x.encode() if x else None for x in (target, kernels)]
    params = engine_session_params(
        n_ctx=n_ctx, n_threads=threads, prefill_chunk=chunk, kv_type=KV[kv], mode=MODES[mode], target=keep[0],
        kernels=keep[1], without_fusions=sum(FUSIONS[f] for f in without_fusions), sequence=sequence,
        weights=WEIGHTS[weights],
    )  # fmt: skip
    return params, keep


class KvSnapshot:
    """Keys and values of a session ("engine.kv/1"): manifest, a dict; k[layer], v[layer], arrays [G, T, D] in float16 or
    float32, keys after rope, to read and to edit in place; to_bytes() for a file and for Session.set_kv()."""

    def __init__(self, data):
        self._bytes = bytearray(data)
        if bytes(self._bytes[:12]) != b"engine.kv/1\0":
            raise ValueError("this is no engine.kv/1")
        begin = 16 + int.from_bytes(self._bytes[12:16], "little")
        self.manifest = json.loads(self._bytes[16:begin])
        self.k = [self._array(layer, "k", begin) for layer in self.manifest["layers"]]
        self.v = [self._array(layer, "v", begin) for layer in self.manifest["layers"]]

    def _array(self, layer, part, begin):
        shape = (layer["n_kv_heads"], self.manifest["n_positions"], layer[f"head_dim_{part}"])
        return np.frombuffer(
            self._bytes, self.manifest["dtype"], int(np.prod(shape)), begin + layer[f"{part}_offset"]
        ).reshape(shape)

    def to_bytes(self):
        return bytes(self._bytes)


class Session(_Handle):
    """One sequence of tokens with its KV cache; serial: one call at a time."""

    def __init__(self, model, **options):
        """n_ctx: positions (0 = up to 4096); threads (0 = all); chunk: tokens through the layers at once; kv: f16,
        f32, q8_0; mode: default, reference, planned, planned-fused; target: CPU target; kernels: pattern; without_fusions:
        ["F1", ...]; sequence: your number of it; weights: packed (once per model, faster), stored (as in the file)."""
        super().__init__(model.lib, "session_destroy")
        self.model, self._hooks, self._scopes, self._failure = model, {}, [], None
        params, _ = _session_params(**options)
        self.lib.call("session_create", model.handle, C.byref(params), C.byref(self._handle))
        model._depends(self)
        model._sessions.add(self)
        self.n_ctx = self.stats()["n_ctx"]

    def close(self):
        """Removes its hooks (captured arrays stay), frees the KV cache."""
        if self._handle:
            for entry in list(self._hooks.values()):
                entry.end()
        super().close()

    # -- decode
    def decode(self, ids, logits=True, out=None):
        """Appends ids (one or many). Returns the logits after the last, float32 [V], in `out` if given; logits=False:
        None, and not computed. EngineError leaves the session as before."""
        ids = _ids(ids)
        if out is None and logits:
            out = np.empty(self.model.n_vocab, np.float32)
        self._decode("session_decode", ids, out, self.model.n_vocab)
        return out

    def decode_all(self, ids):
        """Appends ids. Returns the logits after each of them, float32 [T, V]."""
        ids = _ids(ids)
        out = np.empty((len(ids), self.model.n_vocab), np.float32)
        self._decode("session_decode_all", ids, out, out.size)
        return out

    def _decode(self, name, ids, out, size):
        if out is not None and not (out.dtype == np.float32 and out.size == size and out.flags.c_contiguous):
            raise ValueError(f"out must be a contiguous float32 array of {size} values")
        self._failure = None
        try:
            self.lib.call(name, self.handle, ids.ctypes.data, len(ids), None if out is None else out.ctypes.data)
        except EngineError as error:
            failure, self._failure = self._failure, None
            if error.code == HOOK_FAILED and failure is not None:
                if not isinstance(failure, Exception):
                    raise failure  # KeyboardInterrupt and the like
                raise error from failure
            raise

    def generate(self, prompt, max_tokens=128, sampler=None, ignore_end=False):
        """Generator of ids: decodes the prompt (str or ids; empty ids are refused), then yields tokens until the model
        ends or max_tokens. A token enters the session when the next one is asked for."""
        ids = self.model.tokenize(prompt) if isinstance(prompt, (str, bytes)) else _ids(prompt)
        sampler = sampler or Sampler(library=self.lib.path)
        sampler.accept(ids)
        logits = self.decode(ids)
        for step in range(max_tokens):
            id = sampler.sample(logits)
            if self.model.end_reason(id) and not ignore_end:
                return
            yield id
            if step + 1 < max_tokens:
                self.decode(id, out=logits)

    def stream(self, prompt, max_tokens=128, sampler=None, ignore_end=False):
        """Generator of text: generate() as whole characters, as they come."""
        decoder, text, n = C.c_void_p(), C.c_void_p(), C.c_uint64()
        self.lib.check(self.lib.text_decoder_create(self.model.handle, 0, 0, C.byref(decoder)))
        try:
            for id in self.generate(prompt, max_tokens, sampler, ignore_end):
                self.lib.check(self.lib.text_decoder_push(decoder, id, C.byref(text), C.byref(n)))
                if n.value:
                    yield C.string_at(text, n.value).decode()
            self.lib.check(self.lib.text_decoder_flush(decoder, C.byref(text), C.byref(n)))
            if n.value:
                yield "\ufffd"
        finally:
            self.lib.text_decoder_destroy(decoder)

    @property
    def position(self):
        """How many tokens the session holds."""
        return self.lib.session_position(self.handle)

    def truncate(self, n):
        """Forgets all tokens from position n on."""
        self.lib.check(self.lib.session_truncate(self.handle, n))

    # -- share, keep
    def fork(self):
        """A second Session that goes on from here, without hooks. Cheap: memory is shared until one of the two writes."""
        fork = object.__new__(Session)
        _Handle.__init__(fork, self.lib, "session_destroy")
        fork.model, fork._hooks, fork._scopes, fork._failure = self.model, {}, [], None
        fork.n_ctx = self.n_ctx
        self.lib.call("session_fork", self.handle, 1, C.byref(fork._handle))
        self.model._depends(fork)
        self.model._sessions.add(fork)
        return fork

    def save(self):
        """The session as bytes, for restore() of a session of the same model and KV type."""
        return self.lib.sized("session_save", self.handle)

    def restore(self, data):
        """What was saved, in place of what the session holds; its hooks stay."""
        self.lib.call("session_restore", self.handle, data, len(data))

    def kv(self):
        """A KvSnapshot of what the session holds."""
        return KvSnapshot(self.lib.sized("session_kv_export", self.handle))

    def set_kv(self, snapshot):
        """A KvSnapshot, edited or not, in place of what the session holds."""
        data = snapshot.to_bytes()
        self.lib.call("session_kv_import", self.handle, data, len(data))

    def take_prefix(self, ids):
        """Of an empty session: takes what Model.prefix_cache() has of the beginning of ids; how many tokens that were."""
        ids, n = _ids(ids), C.c_uint64()
        self.lib.call("session_take_prefix", self.handle, ids.ctypes.data, len(ids), C.byref(n))
        return n.value

    def cancel(self):
        """Stops the running decode, from any thread: it raises CANCELLED, undone."""
        self.lib.session_cancel(self.handle)

    def tokens_are(self, kind):
        """What the next decodes append, for the selectors "last" and "generated": auto, prompt, prompt_part, generated."""
        self.lib.check(self.lib.session_tokens_are(self.handle, TOKENS[kind]))

    # -- look
    def stats(self):
        """dict: mode, n_threads, n_ctx, decoded_tokens, kv_bytes, bytes_per_token, target."""
        stats = engine_session_stats()
        self.lib.check(self.lib.session_stats_get(self.handle, C.byref(stats)))
        return _values(stats)

    def kernels(self):
        """dict: kernel -> executions so far."""
        return self._counters("session_kernel_at")

    def fusions(self):
        """dict: fusion -> executions so far."""
        return self._counters("session_fusion_at")

    def _counters(self, function):
        out, name, calls = {}, C.c_char_p(), C.c_uint64()
        while getattr(self.lib, function)(self.handle, len(out), C.byref(name), C.byref(calls)) == OK:
            out[name.value.decode()] = calls.value
        return out

    @contextlib.contextmanager
    def profile(self):
        """with s.profile() as entries: measures; entries (list of dict, times in ns) is filled at the end."""
        entries, entry = [], engine_profile_entry()
        self.lib.call("session_profile", self.handle, 1)
        try:
            yield entries
        finally:
            self.lib.call("session_profile", self.handle, 0)
            while self.lib.session_profile_at(self.handle, len(entries), C.byref(entry)) == OK:
                entries.append(_values(entry))

    def plan(self):
        """The Plan that this session obeys now."""
        plan = Plan(self.model)
        self.lib.call("session_plan", self.handle, C.byref(plan._handle))
        self.model._depends(plan)
        return plan

    def unembed(self, rows):
        """Final norm and head on rows [n, E] or [E], such as captured resid_post: logits float32 [n, V] or [V]. The
        last layer's resid_post gives the bits of the logits."""
        rows = np.ascontiguousarray(rows, np.float32)
        flat = rows.reshape(-1, rows.shape[-1])
        if flat.shape[1] != self.model.n_embd:
            raise ValueError(f"rows of {flat.shape[1]} values; the model's residual has {self.model.n_embd}")
        out = np.empty((len(flat), self.model.n_vocab), np.float32)
        self.lib.call("unembed", self.handle, flat.ctypes.data, len(flat), out.ctypes.data)
        return out.reshape(*rows.shape[:-1], self.model.n_vocab)

    # -- hooks. Common arguments:
    #   site       name or alias (Model.sites)
    #   layer(s)   "all", a number, a list, a range, a slice
    #   positions  "all", "last" (of the prompt), "generated", numbers, a range, generated(a, b), every(k)
    #   heads      None = all, or numbers, for sites with heads
    @contextlib.contextmanager
    def hooks(self):
        """with s.hooks(): every hook registered inside is removed at the end. May be nested."""
        scope = C.c_uint64()
        self.lib.call("hook_scope_open", self.handle, C.byref(scope))
        self._scopes.append(scope.value)
        try:
            yield self
        finally:
            self._scopes.remove(scope.value)
            if self._handle:
                for number, entry in list(self._hooks.items()):
                    if entry.scope == scope.value:
                        entry.end()
                        del self._hooks[number]
                self.lib.call("hook_scope_close", self.handle, scope.value)

    def capture(self, site, layers="all", positions="all", heads=None, rows=None, ring=False, post=False, layer=None):
        """Copies rows: a Capture. rows: room, default one for each position of the context and selected layer (memory
        is committed as it is written); ring: when full, overwrite the oldest; post: after the writers, not before."""
        layers = layers if layer is None else layer
        params, keep = _selectors(self.model, site, layers, positions, heads)
        try:
            info = self.model.site(site)
        except KeyError:  # let the engine answer: it names what is near
            params.action = ACTIONS["capture"]
            self.lib.call("hook_register", self.handle, C.byref(params), C.byref(C.c_uint64()))
            raise
        n_heads = params.n_heads or info.n_heads
        width = info.width or n_heads * self.n_ctx
        n_layers = params.n_layers or info.n_layers
        rows = rows or n_layers * self.n_ctx
        return Capture(self, params, keep, rows, width, CAPTURE_POST * post | CAPTURE_RING * ring)

    def read(self, site, fn, layers="all", positions="all", layer=None):
        """Calls fn(event, values) with an Event and float32 [n, width], a copy of yours. An exception in fn undoes the
        decode and is the cause of the EngineError (HOOK_FAILED)."""
        return self._callback("read", site, fn, layers, positions, layer)

    def write(self, site, fn, layers="all", positions="all", layer=None):
        """As read, and what is in values afterwards (or what fn returns, if not None) becomes the value."""
        return self._callback("write", site, fn, layers, positions, layer)

    def _callback(self, action, site, fn, layers, positions, layer):
        params, keep = _selectors(self.model, site, layers if layer is None else layer, positions)
        names = {s.site: s.name for s in self.model.sites().values()}
        session = weakref.proxy(self)

        def call(_user, event, address):
            try:
                e = event.contents
                shape = (e.n_rows, e.width)
                engine_rows = np.ctypeslib.as_array((C.c_float * (shape[0] * shape[1])).from_address(address)).reshape(shape)
                values = engine_rows.copy()
                told = Event(
                    names[e.site], e.layer, e.sequence, bool(e.generated),
                    np.ctypeslib.as_array((C.c_int32 * e.n_rows).from_address(e.token_ids)).copy(),
                    np.ctypeslib.as_array((C.c_int64 * e.n_rows).from_address(e.positions)).copy(),
                )  # fmt: skip
                result = fn(told, values)
                if action == "write":
                    engine_rows[...] = values if result is None else result
                return 0
            except BaseException as failure:  # told to the caller of decode
                session._failure = failure
                return 1

        return Hook(self, action, params, keep, _CALLBACK(call))

    def _writer(self, action, site, layers, positions, heads, values=None, records=None, **fields):
        params, keep = _selectors(self.model, site, layers, positions, heads)
        if values is not None:
            values = np.ascontiguousarray(values, np.float32)
            keep.append(values)
            params.values, params.n_values = values.ctypes.data, values.size
        if records is not None:
            keep.append(records)
            params.records, params.n_records = records.ctypes.data, len(records)
        for name, value in fields.items():
            setattr(params, name, value)
        return Hook(self, action, params, keep)

    def add(self, site, values, layer="all", alpha=1.0, positions="all", heads=None):
        """x += alpha * values; values float32 [width]."""
        return self._writer("add", site, layer, positions, heads, values, alpha=alpha)

    def scale(self, site, alpha, layer="all", positions="all", heads=None):
        """x *= alpha."""
        return self._writer("scale", site, layer, positions, heads, alpha=alpha)

    def set(self, site, values, layer="all", positions="all", heads=None):
        """x = values; values float32 [width]."""
        return self._writer("set", site, layer, positions, heads, values)

    def zero(self, site, layer="all", positions="all", heads=None):
        """x = 0."""
        return self._writer("zero", site, layer, positions, heads)

    def interpolate(self, site, values, alpha, layer="all", positions="all", heads=None):
        """x += alpha * (values - x); values float32 [width]."""
        return self._writer("interpolate", site, layer, positions, heads, values, alpha=alpha)

    def project_out(self, site, values, layer="all", alpha=1.0, positions="all", heads=None):
        """x -= alpha * (x . v) / (v . v) * v; v = values, float32 [width]."""
        return self._writer("project_out", site, layer, positions, heads, values, alpha=alpha)

    def clamp(self, site, low, high, layer="all", positions="all", heads=None):
        """x = min(max(x, low), high)."""
        return self._writer("clamp", site, layer, positions, heads, low=low, high=high)

    def low_rank(self, site, a, b, layer="all", alpha=1.0, positions="all", heads=None):
        """x += alpha * A (B x); a float32 [width, rank], b float32 [rank, width]."""
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        if a.ndim != 2 or b.shape != a.shape[::-1]:
            raise ValueError(f"a is {a.shape}, b is {b.shape}; they must be [width, rank] and [rank, width]")
        both = np.concatenate([a.ravel(), b.ravel()])
        return self._writer("low_rank", site, layer, positions, heads, both, alpha=alpha, rank=a.shape[1])

    def replace(self, site, values, records=None, positions=None, layer=-1, heads=None):
        """x = the row of values for this position and layer. values float32 [n, width] with either records (RECORD [n],
        as Capture.records) or positions (n numbers) and one layer (-1 = each layer)."""
        values = np.atleast_2d(np.asarray(values, np.float32))
        if records is None:
            records = np.zeros(len(values), RECORD)
            records["position"], records["layer"] = np.atleast_1d(positions), layer
        records = np.ascontiguousarray(records, RECORD)
        layers = np.unique(records["layer"])
        layers = "all" if (layers == -1).any() else layers
        return self._writer("replace", site, layers, np.unique(records["position"]), heads, values, records)
