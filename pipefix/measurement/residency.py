"""Cold, and proven so: files put out of the page cache, and the proof read back page by page.

Needs no root. A file is put out with ``posix_fadvise(DONTNEED)``, after ``fdatasync`` where it still had unwritten pages
(both work on a descriptor opened for reading). What is left is counted with ``mincore``, which looks at the cache
and never fills it. Where either cannot be done, or does not mean what it says, the word "cold" is refused with the reason.
"""

from __future__ import annotations

import ctypes
import functools
import os
import random
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from pipefix.system.mounts import Filesystem, filesystem
from pipefix.vocabulary.quantity import percent

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
WINDOW = 4 << 20
"""Bytes looked at in one piece of a sampled file."""
WHOLE = 1 << 30
"""Files up to this size are looked at whole (a gigabyte takes about 10 ms); larger ones through ``WINDOWS`` pieces."""
WINDOWS = 64
"""Evenly spread pieces, each at a random place in its part: 256 MiB of a larger file, enough to see 1 % of it."""
COLD = 0.01
"""Largest part of the pages that may be left for the word cold to be used."""
LOWEST_BIT = bytes(byte & 1 for byte in range(256))
CAP_FOWNER = 3
SURVIVORS_NAMED = 3
HOLDER_SEARCH_S = 0.25

Name = str | os.PathLike[str]
Ranges = list[tuple[int, int]]
"""Starts and lengths of what matters of a file, in bytes; empty: all of it."""
Files = Iterable[Name] | Mapping[str, Ranges]


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the kernel. Whether it obeyed is for `resident` to say."""

    files: int = 0
    bytes: int = 0
    synced: int = 0
    """Files that had pages not yet written to disk."""
    failed: dict[str, str] = {}
    """Path -> why it could not be evicted."""
    seconds: float = 0.0
    declined: str | None = None
    """Why nothing was tried at all."""


class ColdProof(msgspec.Struct, frozen=True, kw_only=True):
    """Residency before and after an eviction, and whether the files may be called cold."""

    before: float | None = None
    """Part of the files' pages in memory before, 0 to 1; None where that cannot be known."""
    after: float | None = None
    """The same afterwards: at most `COLD` for files that are cold."""
    files: int = 0
    bytes: int = 0
    cold: bool = False
    why: str = ""
    """Why they may not be called cold; empty when they may."""
    seconds: float = 0.0
    survivors: list[str] = []
    """Some of the files that stayed in memory."""


def evict(files: Files) -> Eviction:
    """Ask the kernel to forget the pages of these files, or of the parts named of each.

    Nothing is opened for writing and no content is lost."""
    begun = time.perf_counter()
    if not hasattr(os, "posix_fadvise"):
        return Eviction(declined=f"{sys.platform} has no posix_fadvise: pages cannot be put out without root")
    count = total = synced = 0
    failed: dict[str, str] = {}
    for path, parts in _distinct(files, failed).items():
        try:
            size, had_dirty = _evict_one(path, parts)
        except OSError as error:
            failed[path] = error.strerror or str(error)
            continue
        count += 1
        total += size
        synced += had_dirty
    return Eviction(files=count, bytes=total, synced=synced, failed=failed, seconds=time.perf_counter() - begun)


def resident(path: Name) -> float:
    """Part of the file's pages that are in memory, 0 to 1 (0 for an empty file). Faults nothing in.

    Raises `PermissionError` where the kernel would not tell the truth: it answers "all of it" about files
    that the asker neither owns nor may write.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _resident(descriptor, os.fspath(path))
    finally:
        os.close(descriptor)


def cold(paths: Files, limit: float = COLD) -> ColdProof:
    """Evict the files, or the parts named of each, and prove it.

    ``cold`` is True only where at most ``limit`` of all their pages is left in memory."""
    begun = time.perf_counter()
    failed: dict[str, str] = {}
    files = _distinct(paths, failed)
    bare = ColdProof(files=len(files), bytes=sum(_bytes(path, parts) for path, parts in files.items()))
    refusal = _refusal(files, failed)
    if refusal:
        return msgspec.structs.replace(bare, why=refusal, seconds=time.perf_counter() - begun)
    client_side = _unreachable_cache(files)
    try:
        before, _ = _weighed(files)
        eviction = evict(files)
        after, survivors = _weighed(files)
    except OSError as error:
        why = f"residency cannot be read: {error}"
        return msgspec.structs.replace(bare, why=why, seconds=time.perf_counter() - begun)
    why = ""
    if eviction.declined or eviction.failed:
        why = eviction.declined or _some_failed(eviction.failed)
    elif after > limit:
        left = f"{percent(after)} of the pages is still in memory after eviction (the limit is {percent(limit)})"
        why = f"{left}: {_survival(survivors)}"
    elif client_side:
        why = client_side
    return ColdProof(
        before=before,
        after=after,
        files=len(files),
        bytes=bare.bytes,
        cold=not why,
        why=why,
        seconds=time.perf_counter() - begun,
        survivors=survivors[:SURVIVORS_NAMED],
    )


def _distinct(files: Files, failed: dict[str, str]) -> dict[str, Ranges]:
    """Regular files with whole pages of their parts, each once however many names it has. The others go to ``failed``."""
    named: dict[tuple[int, int], str] = {}
    parts: dict[str, Ranges] = {}
    whole: set[str] = set()
    ranges_of: Mapping[str, Ranges] = files if isinstance(files, Mapping) else {os.fspath(name): [] for name in files}
    for name, ranges in ranges_of.items():
        path = os.fspath(name)
        try:
            status = os.stat(path)
        except OSError as error:
            failed[path] = error.strerror or str(error)
            continue
        if not stat.S_ISREG(status.st_mode):
            failed[path] = "not a regular file"
            continue
        path = named.setdefault((status.st_dev, status.st_ino), path)
        parts.setdefault(path, []).extend(ranges)
        if not ranges:
            whole.add(path)
            if isinstance(files, Mapping) and status.st_size > WHOLE:
                failed[path] = "which parts of it were read cannot be seen, and to evict all of a large file would slow others down"
    return {path: [] if path in whole else _pages(ranges, os.path.getsize(path)) for path, ranges in parts.items()}


def _pages(ranges: Ranges, size: int) -> Ranges:
    """The whole pages around these ranges, merged and in order."""
    merged: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        begin, end = start // PAGE * PAGE, min(size, -(-(start + length) // PAGE) * PAGE)
        if merged and begin <= sum(merged[-1]):
            begin, end = merged[-1][0], max(end, sum(merged.pop()))
        if begin < end:
            merged.append((begin, end - begin))
    return merged


def _bytes(path: str, parts: Ranges) -> int:
    return sum(length for _, length in parts) if parts else os.path.getsize(path)


def _evict_one(path: str, parts: Ranges) -> tuple[int, bool]:
    """How many bytes were put out, and whether it had to be written out first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        put_out = _bytes(path, parts)
        _forget(descriptor, parts)
        if size == 0 or not _still_there(descriptor, path, parts):
            return put_out, False
        # Unwritten pages survive the advice. Syncing costs a disk flush, so only files that kept pages pay for it.
        try:
            os.fdatasync(descriptor)
        except OSError:
            return put_out, False  # a read-only file system has nothing to write
        _forget(descriptor, parts)
        return put_out, True
    finally:
        os.close(descriptor)


def _forget(descriptor: int, parts: Ranges) -> None:
    for start, length in parts or [(0, 0)]:
        os.posix_fadvise(descriptor, start, -(-length // PAGE) * PAGE, os.POSIX_FADV_DONTNEED)


def _still_there(descriptor: int, path: str, parts: Ranges) -> bool:
    try:
        return _resident(descriptor, path, parts) > 0
    except OSError:
        return True  # not known: sync to be sure


def _weighed(files: Mapping[str, Ranges]) -> tuple[float, list[str]]:
    """Resident part of all pages together, and the files with pages left, worst first."""
    pages = held = 0.0
    left: list[tuple[float, str]] = []
    for path, parts in files.items():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            count = -(-_bytes(path, parts) // PAGE)
            share = _resident(descriptor, path, parts)
        finally:
            os.close(descriptor)
        pages += count
        held += share * count
        if share > 0:
            left.append((share * count, path))
    return (held / pages if pages else 0.0), [path for _, path in sorted(left, reverse=True)]


def _resident(descriptor: int, path: str, parts: Sequence[tuple[int, int]] = ()) -> float:
    status = os.fstat(descriptor)
    if status.st_size == 0:
        return 0.0
    if not _told_the_truth(status, path):
        raise PermissionError(1, "the kernel does not say which pages are in memory for files you neither own nor may write", path)
    held = looked = 0
    for start, length in parts or _windows(status.st_size):
        vector = _mincore(descriptor, start, length, path)
        looked += len(vector)
        held += vector.translate(LOWEST_BIT).count(1)
    return held / looked


def _windows(size: int) -> list[tuple[int, int]]:
    """Which pieces of a file to look at: page-aligned starts and lengths in bytes."""
    if size <= WHOLE:
        return [(0, size)]
    part = size / WINDOWS
    draw = random.Random(size)  # its own generator: the user's is not advanced
    starts = [int(part * index + draw.random() * (part - WINDOW)) // PAGE * PAGE for index in range(WINDOWS)]
    return [(start, min(WINDOW, size - start)) for start in starts]


def _told_the_truth(status: os.stat_result, path: str) -> bool:
    """The kernel's own condition for an honest mincore (since Linux 5.2, against eavesdropping on others)."""
    return status.st_uid == os.geteuid() or _may_act_as_owner() or os.access(path, os.W_OK, effective_ids=True)


def _may_act_as_owner() -> bool:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return False
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
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


def _refusal(files: Mapping[str, Ranges], failed: dict[str, str]) -> str:
    """Why it makes no sense to try; empty when it does."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no way to put files out of memory and to prove it (Linux has)"
    if failed:
        return _some_failed(failed)
    return "" if files else "there are no files to evict"


def _some_failed(failed: dict[str, str]) -> str:
    path, reason = next(iter(failed.items()))
    others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{path}{others} cannot be evicted: {reason}"


def _unreachable_cache(files: Iterable[str]) -> str:
    """Why an empty page cache here would not mean that reads come from the disk; empty when it would."""
    folders = {os.path.dirname(os.path.realpath(path)) for path in files}
    for under in filter(None, map(filesystem, sorted(folders))):
        reason = _doubt(under)
        if reason:
            return reason
    return ""


def _doubt(under: Filesystem) -> str:
    if under.in_memory:
        return f"{under.mount} is {under.kind}: its files lie in memory and can never be cold"
    if under.own_cache:
        return f"{under.mount} is {under.kind}, which keeps files in a cache of its own that cannot be looked into"
    if under.network:
        return f"client-cold only: {under.mount} is {under.kind}, and what its server still holds in memory is out of reach"
    return ""


def _survival(survivors: Sequence[str]) -> str:
    """Why pages survived, as far as it can be found out."""
    if not survivors:
        return "no single file stands out"
    worst = survivors[0]
    under = filesystem(worst)
    if under is not None and _doubt(under):
        return _doubt(under)
    holder = _holder(worst)
    if holder:
        return f"{worst} is mapped into memory by {holder}; close that mapping (an open LMDB, Arrow or memmap file) and try again"
    return f"{worst} is in use: another process is reading, writing or holding it"


def _holder(path: str) -> str:
    """A process that maps the file, among those that may be looked at."""
    wanted = os.path.realpath(path)
    own = str(os.getpid())
    deadline = time.monotonic() + HOLDER_SEARCH_S
    try:
        others = [name for name in os.listdir("/proc") if name.isdigit() and name != own]
    except OSError:
        others = []
    for name in [own, *others]:
        try:
            if f" {wanted}\n" in Path(f"/proc/{name}/maps").read_text(errors="surrogateescape"):
                command = Path(f"/proc/{name}/comm").read_text(errors="replace").strip()
                return "this process itself" if name == own else f"process {name} ({command})"
        except OSError:
            continue  # gone, or somebody else's
        if time.monotonic() > deadline:
            break
    return ""
