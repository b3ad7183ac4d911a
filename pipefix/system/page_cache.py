"""Which pages of files are in the page cache, and how to evict them and read them in. Needs no root.

A file is put out with ``posix_fadvise(DONTNEED)``, after ``fdatasync`` where it still had unwritten pages (both work on a
descriptor opened for reading). What is left is counted with ``mincore``, which looks at the cache and never fills it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from pipefix.system.mounts import text_of

PAGE = os.sysconf("SC_PAGE_SIZE")
LOWEST_BIT = bytes(byte & 1 for byte in range(256))
CAP_FOWNER = 3
PIECE = 1 << 20
"""Bytes that are read in at a time."""

Ranges = list[tuple[int, int]]
"""Starts and lengths of what matters of a file, in bytes; empty: all of it."""


def size_of(path: str, parts: Ranges) -> int:
    """Bytes of a file, or of the parts named."""
    return sum(length for _, length in parts) if parts else os.path.getsize(path)


def forget(path: str, parts: Ranges) -> None:
    """Ask the kernel to forget the file's pages, or those of the parts named. Whether it obeyed is for `resident_share` to say.

    Nothing is opened for writing and no content is lost."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _advise(descriptor, parts)
        with suppress(OSError):  # where it is not known, it is synced to be sure
            if resident_share(descriptor, path, parts) == 0:
                return
        # Unwritten pages survive the advice. Syncing costs a disk flush, so only files that kept pages pay for it.
        with suppress(OSError):  # a read-only file system has nothing to write
            os.fdatasync(descriptor)
            _advise(descriptor, parts)
    finally:
        os.close(descriptor)


def read_in(path: str, parts: Ranges, until: float) -> bool:
    """Read the file, or the parts named, into memory. False where that was not done by this time of ``perf_counter``."""
    buffer = bytearray(PIECE)
    with open(path, "rb", buffering=0) as file:
        for start, length in parts or [(0, os.path.getsize(path))]:
            os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
            for begin in range(start, start + length, PIECE):
                if time.perf_counter() > until:
                    return False
                os.preadv(file.fileno(), [memoryview(buffer)[: start + length - begin]], begin)
    return True


def _advise(descriptor: int, parts: Ranges) -> None:
    for start, length in parts or [(0, 0)]:
        os.posix_fadvise(descriptor, start, -(-length // PAGE) * PAGE, os.POSIX_FADV_DONTNEED)


def resident_share(descriptor: int, path: str, parts: Sequence[tuple[int, int]] = ()) -> float:
    """Part of an open file's pages, or of the parts named, that is in memory, 0 to 1 (0 for an empty file). Faults nothing in.

    Raises `PermissionError` where the kernel would not tell the truth: it answers "all of it" about files
    that the asker neither owns nor may write.
    """
    status = os.fstat(descriptor)
    if status.st_size == 0:
        return 0.0
    if not _told_the_truth(status, path):
        raise PermissionError(1, "the kernel does not say which pages are in memory for files you neither own nor may write", path)
    held = looked = 0
    for start, length in parts or [(0, status.st_size)]:
        vector = _mincore(descriptor, start, length, path)
        looked += len(vector)
        held += vector.translate(LOWEST_BIT).count(1)
    return held / looked


def _told_the_truth(status: os.stat_result, path: str) -> bool:
    """The kernel's own condition for an honest mincore (since Linux 5.2, against eavesdropping on others)."""
    return status.st_uid == os.geteuid() or _may_act_as_owner() or os.access(path, os.W_OK, effective_ids=True)


def _may_act_as_owner() -> bool:
    mask = next((line.split()[1] for line in text_of("/proc/self/status").splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(mask, 16) >> CAP_FOWNER & 1)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    return libc


def _mincore(descriptor: int, start: int, length: int, path: str) -> bytes:
    """One byte a page; its lowest bit says whether the page is in memory."""
    libc = _libc()
    prot_none, map_shared = 0, 1  # without access rights nothing can be faulted in, not even by accident
    address = libc.mmap(None, length, prot_none, map_shared, descriptor, start)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"cannot be mapped ({os.strerror(ctypes.get_errno())})", path)
    try:
        vector = ctypes.create_string_buffer(-(-length // PAGE))
        if libc.mincore(address, length, vector) != 0:
            raise OSError(ctypes.get_errno(), f"mincore failed ({os.strerror(ctypes.get_errno())})", path)
        return vector.raw
    finally:
        libc.munmap(address, length)
