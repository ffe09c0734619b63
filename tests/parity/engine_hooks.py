"""Hooks through ctypes: sites, captures, declared actions, callbacks, scopes, and plans for a hook set.

    hooks = engine_hooks.Hooks(session)
    at = hooks.capture("resid_post", n_rows=30, layers=[1])     at.values(), at.records()
    steer = hooks.add("add", "ffn_out", values=v, alpha=0.5)    hooks.stats(steer).positions
    hooks.read("attn_z", lambda event, rows: ...)               rows: a copy [n_rows, width]
    hooks.write("attn_z", lambda event, rows: ...)              changes rows in place

Whatever the engine borrows (buffers, callbacks) lives as long as the Hooks object.
"""

import ctypes as C
import itertools

import numpy as np

from engine_ctypes import EngineError, Error, Sized, load, plan_json, session_params

ACTION = {
    "capture": 1,
    "read": 2,
    "write": 3,
    "add": 10,
    "scale": 11,
    "set": 12,
    "zero": 13,
    "interpolate": 14,
    "project_out": 15,
    "clamp": 16,
    "replace": 17,
    "low_rank": 18,
}
POSITIONS = {"all": 0, "list": 1, "range": 2, "last_of_prompt": 3, "generated": 4, "every": 5}
POST, RING = 1, 2
HOOK_FAILED = 80


class SiteInfo(Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("site", C.c_int32),
        ("per_layer", C.c_int32),
        ("writable", C.c_int32),
        ("width", C.c_uint32),
        ("n_heads", C.c_uint32),
        ("n_layers", C.c_uint32),
        ("reserved", C.c_uint32),
        ("name", C.c_char * 32),
        ("alias", C.c_char * 32),
        ("route", C.c_char * 16),
    ]


class CaptureRecord(C.Structure):
    _fields_ = [
        ("position", C.c_int64),
        ("sequence", C.c_int32),
        ("token_id", C.c_int32),
        ("site", C.c_int32),
        ("layer", C.c_int32),
    ]


class HookEvent(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("site", C.c_int32),
        ("layer", C.c_int32),
        ("sequence", C.c_int32),
        ("generated", C.c_int32),
        ("n_rows", C.c_uint32),
        ("width", C.c_uint64),
        ("token_ids", C.POINTER(C.c_int32)),
        ("positions", C.POINTER(C.c_int64)),
    ]


Callback = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.POINTER(HookEvent), C.POINTER(C.c_float))


class HookParams(Sized):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("action", C.c_int32),
        ("site", C.c_char_p),
        ("layers", C.POINTER(C.c_int32)),
        ("n_layers", C.c_uint64),
        ("layer_begin", C.c_int32),
        ("layer_end", C.c_int32),
        ("positions", C.POINTER(C.c_int64)),
        ("n_positions", C.c_uint64),
        ("position_begin", C.c_int64),
        ("position_end", C.c_int64),
        ("position_step", C.c_int64),
        ("heads", C.POINTER(C.c_int32)),
        ("n_heads", C.c_uint64),
        ("sequences", C.POINTER(C.c_int32)),
        ("n_sequences", C.c_uint64),
        ("position_select", C.c_int32),
        ("capture_flags", C.c_uint32),
        ("values", C.POINTER(C.c_float)),
        ("n_values", C.c_uint64),
        ("records", C.POINTER(CaptureRecord)),
        ("n_records", C.c_uint64),
        ("alpha", C.c_float),
        ("low", C.c_float),
        ("high", C.c_float),
        ("rank", C.c_uint32),
        ("capture", C.POINTER(C.c_float)),
        ("capture_records", C.POINTER(CaptureRecord)),
        ("capture_rows", C.c_uint64),
        ("callback", Callback),
        ("user", C.c_void_p),
        ("scope", C.c_uint64),
    ]


class HookStats(Sized):
    _fields_ = [("struct_size", C.c_uint32), ("reserved", C.c_uint32)] + [
        (n, C.c_uint64)
        for n in (
            "calls positions prefill_positions decode_positions writes rows_captured rows_dropped"
        ).split()
    ]


def _functions(lib):
    p, i32, u64 = C.c_void_p, C.c_int32, C.c_uint64
    error = C.POINTER(Error)
    for name, args in [
        ("engine_hook_site_at", [p, C.c_uint32, C.POINTER(SiteInfo)]),
        ("engine_hook_register", [p, C.POINTER(HookParams), C.POINTER(u64), error]),
        ("engine_hook_remove", [p, u64, error]),
        ("engine_hook_scope_open", [p, C.POINTER(u64), error]),
        ("engine_hook_scope_close", [p, u64, error]),
        ("engine_hook_stats_get", [p, u64, C.POINTER(HookStats)]),
        ("engine_plan_create", [p, p, p, u64, C.POINTER(p), error]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = i32, args
    return lib


def _check(code, error):
    if code:
        raise EngineError(code, error)


def sites(model):
    """Name -> SiteInfo of the sites that the model has."""
    lib, out = _functions(load()), {}
    for index in itertools.count():
        info = SiteInfo()
        if lib.engine_hook_site_at(model.handle, index, C.byref(info)) != 0:
            return out
        if info.n_layers:
            out[info.name.decode()] = info


def _array(kind, values, keep):
    if values is None:
        return None, 0
    array = (kind * len(values))(*values)
    keep.append(array)
    return array, len(values)


def _floats(values, keep):
    if values is None:
        return None, 0
    array = np.ascontiguousarray(values, np.float32)
    keep.append(array)
    return array.ctypes.data_as(C.POINTER(C.c_float)), array.size


def hook_params(
    action,
    site,
    keep,
    layers=None,
    layer_range=(0, 0),
    select="all",
    positions=None,
    position_range=(0, 0),
    step=0,
    heads=None,
    sequences=None,
    flags=0,
    values=None,
    records=None,
    alpha=1.0,
    low=0.0,
    high=0.0,
    rank=0,
    scope=0,
):
    params = HookParams(action=ACTION[action], site=site.encode(), position_select=POSITIONS[select])
    params.layers, params.n_layers = _array(C.c_int32, layers, keep)
    params.layer_begin, params.layer_end = layer_range
    params.positions, params.n_positions = _array(C.c_int64, positions, keep)
    params.position_begin, params.position_end = position_range
    params.position_step = step
    params.heads, params.n_heads = _array(C.c_int32, heads, keep)
    params.sequences, params.n_sequences = _array(C.c_int32, sequences, keep)
    params.capture_flags = flags
    params.values, params.n_values = _floats(values, keep)
    if records is not None:
        array = (CaptureRecord * len(records))(*records)
        keep.append(array)
        params.records, params.n_records = array, len(records)
    params.alpha, params.low, params.high, params.rank = alpha, low, high, rank
    params.scope = scope
    return params


def plan(model, hooks=(), **options):
    """The plan of a session with these options and hooks [(action, site, layers)], as a dict."""
    lib, keep, handle, error = _functions(load()), [], C.c_void_p(), Error()
    array = (HookParams * max(1, len(hooks)))()
    for i, (action, site, layers) in enumerate(hooks):
        array[i] = hook_params(action, site, keep, layers=layers)
    params = session_params(**options)
    _check(
        lib.engine_plan_create(
            model.handle, C.byref(params), array, len(hooks), C.byref(handle), C.byref(error)
        ),
        error,
    )
    return plan_json(lib, handle)


class Capture:
    def __init__(self, hooks, hook, rows, records):
        self.hooks, self.hook, self._rows, self._records = hooks, hook, rows, records

    def n_rows(self):
        return int(self.hooks.stats(self.hook).rows_captured)

    def values(self):
        return self._rows[: self.n_rows()]

    def records(self):
        """(position, sequence, token id, site, layer) of each row."""
        return [
            (r.position, r.sequence, r.token_id, r.site, r.layer)
            for r in self._records[: self.n_rows()]
        ]

    def raw_records(self):
        return list(self._records[: self.n_rows()])


class Hooks:
    def __init__(self, session):
        self.session, self.lib, self.keep = session, _functions(session.lib), []
        self.sites = sites(session.model)
        self.n_ctx = session.stats().n_ctx
        self.raised = None  # the exception of a callback, which the engine sees as a failure

    def width(self, site):
        info = self.sites[site]
        return info.width or info.n_heads * self.n_ctx

    def _register(self, params):
        hook, error = C.c_uint64(), Error()
        _check(
            self.lib.engine_hook_register(
                self.session.handle, C.byref(params), C.byref(hook), C.byref(error)
            ),
            error,
        )
        return hook.value

    def add(self, action, site, **options):
        return self._register(hook_params(action, site, self.keep, **options))

    def capture(self, site, n_rows, width=None, **options):
        params = hook_params("capture", site, self.keep, **options)
        rows = np.full((n_rows, width or self.width(site)), np.nan, np.float32)
        records = (CaptureRecord * n_rows)()
        self.keep += [rows, records]
        params.capture = rows.ctypes.data_as(C.POINTER(C.c_float))
        params.capture_records, params.capture_rows = records, n_rows
        return Capture(self, self._register(params), rows, records)

    def _callback(self, action, site, function, options):
        """function(event, rows): what it returns is the callback's result, None = 0."""

        def call(_, event, values):
            event = event.contents
            shape = (event.n_rows, event.width)
            try:
                return function(event, np.ctypeslib.as_array(values, shape)) or 0
            except Exception as exception:  # must not pass through C
                self.raised = exception
                return 1

        params = hook_params(action, site, self.keep, **options)
        params.callback = Callback(call)
        self.keep.append(params.callback)
        return self._register(params)

    def read(self, site, function, **options):
        return self._callback("read", site, function, options)

    def write(self, site, function, **options):
        return self._callback("write", site, function, options)

    def remove(self, hook):
        error = Error()
        _check(self.lib.engine_hook_remove(self.session.handle, hook, C.byref(error)), error)

    def open_scope(self):
        scope, error = C.c_uint64(), Error()
        _check(
            self.lib.engine_hook_scope_open(self.session.handle, C.byref(scope), C.byref(error)),
            error,
        )
        return scope.value

    def close_scope(self, scope):
        error = Error()
        _check(
            self.lib.engine_hook_scope_close(self.session.handle, scope, C.byref(error)), error
        )

    def stats(self, hook):
        stats, error = HookStats(), Error()
        _check(
            self.lib.engine_hook_stats_get(self.session.handle, hook, C.byref(stats)), error
        )
        return stats
