"""What of a file is in the page cache, and how to drop or fill it without rights."""

import ctypes
import mmap
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def cached_share(path):
    """Part of the file's pages that are in the page cache, 0 .. 1."""
    size = os.path.getsize(path)
    n_pages = -(-size // mmap.PAGESIZE)
    with open(path, "rb") as file:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"cannot map {path}")
    pages = ctypes.create_string_buffer(n_pages)
    code = _libc.mincore(address, size, pages)
    _libc.munmap(address, size)
    if code != 0:
        raise OSError(ctypes.get_errno(), f"mincore failed on {path}")
    return sum(b & 1 for b in pages.raw) / n_pages


def drop(path):
    """Clean pages that nobody maps leave the cache; returns the share that stayed."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(path)


def fill(path):
    """Reads the whole file; returns the share that is in the cache then."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(4 << 20)
        while file.readinto(buffer):
            pass
    return cached_share(path)
