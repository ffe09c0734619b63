"""Opens the files that a list names, through the C ABI alone, with the address space capped; run by
test_malformed.py.

    python malformed_worker.py LIBRARY LIST REPORT

LIST is JSON [good file, bad files...]. REPORT becomes JSON: the status, name, offset and message of
each bad file; of the good one before, between and after; and of the good one without memory.
"""

import ctypes as C
import json
import os
import resource
import sys

CAP = 512 << 20
ALLOWANCE = 16 << 20  # beside four times the size of the file


class Error(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32),
        ("code", C.c_int32),
        ("offset", C.c_uint64),
        ("name", C.c_char * 128),
        ("message", C.c_char * 512),
    ]


class ModelParams(C.Structure):
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
    ]


def limit(n_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, resource.RLIM_INFINITY))


def address_space():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def open_model(lib, path, allowance):
    """Status and error of an open that may map the file and take `allowance` bytes more."""
    handle, error = C.c_void_p(), Error(struct_size=C.sizeof(Error))
    params = ModelParams(struct_size=C.sizeof(ModelParams), path=path.encode(), fd=-1)
    mapped = os.path.getsize(path) + resource.getpagesize()
    limit(min(CAP, address_space() + mapped + allowance))
    code = lib.engine_model_open(C.byref(params), C.byref(handle), C.byref(error))
    limit(CAP)
    lib.engine_model_close(handle)
    return {
        "code": code,
        "offset": error.offset,
        "name": error.name.decode(),
        "message": error.message.decode(),
    }


def main():
    library, list_path, report_path = sys.argv[1:]
    with open(list_path) as f:
        good, *bad = json.load(f)
    lib = C.CDLL(library)
    lib.engine_model_open.argtypes = [C.POINTER(ModelParams), C.POINTER(C.c_void_p), C.POINTER(Error)]
    lib.engine_model_close.argtypes = [C.c_void_p]
    lib.engine_model_close.restype = None
    limit(CAP)
    report = {"bad": {}, "good": [open_model(lib, good, CAP)]}
    for path in bad:
        report["bad"][os.path.basename(path)] = open_model(lib, path, 4 * os.path.getsize(path) + ALLOWANCE)
        report["good"].append(open_model(lib, good, CAP))
    no_room = -os.path.getsize(good) - resource.getpagesize()  # not even for the mapping
    report["starved"] = open_model(lib, good, no_room)
    with open(report_path, "w") as f:
        json.dump(report, f)


main()
