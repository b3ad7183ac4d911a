"""Cold storage, proven: puts files out of the page cache, checks page by page that they are, and reads them in again.

Where either of the first two cannot be done, or does not mean what it says, the word "cold" is refused with the reason.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping

import msgspec

from pipefix.system import page_cache
from pipefix.system.mounts import filesystem
from pipefix.system.page_cache import PAGE, Ranges, resident_share, size_of
from pipefix.vocabulary.quantity import percent

COLD = 0.01
"""Largest part of the pages that may be left for the word cold to be used."""
WHOLE = 1 << 30
"""Bytes of a file beyond which it is not evicted whole."""


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


def cold(read: Mapping[str, Ranges]) -> ColdProof:
    """Evict these parts of files, and prove it.

    ``cold`` is True only where at most `COLD` of all their pages is left in memory."""
    failed: dict[str, str] = {}
    files = _distinct(read, failed)
    bare = ColdProof(files=len(files), bytes=sum(size_of(path, parts) for path, parts in files.items()))
    refusal = _some_failed(failed) if failed else "" if files else "there are no files to evict"
    if not sys.platform.startswith("linux"):
        refusal = f"{sys.platform} has no way to put files out of memory and to prove it (Linux has)"
    if refusal:
        return msgspec.structs.replace(bare, why=refusal)
    why = _unreachable_cache(files)
    try:
        before, _ = _weighed(files)
        for path, parts in files.items():
            try:
                page_cache.forget(path, parts)
            except OSError as error:
                failed[path] = error.strerror or str(error)
        after, worst = _weighed(files)
    except OSError as error:
        return msgspec.structs.replace(bare, why=f"residency cannot be read: {error}")
    if failed:
        why = _some_failed(failed)
    elif after > COLD:
        left = f"{percent(after)} of the pages is still in memory after eviction (the limit is {percent(COLD)})"
        in_use = "is in use: something maps it into memory (an open LMDB, Arrow or memmap file), or reads, writes or holds it"
        why = f"{left}: {_unreachable_cache([worst]) or f'{worst} {in_use}'}"
    return msgspec.structs.replace(bare, before=before, after=after, cold=not why, why=why)


def warm(read: Mapping[str, Ranges], seconds: float) -> bool:
    """Read these parts of files into the page cache, for so many seconds at most. False where some were not read."""
    until = time.perf_counter() + seconds
    files = _distinct(read, failed := {})
    for path, parts in files.items():
        try:
            if not page_cache.read_in(path, parts, until):
                return False
        except OSError as error:
            failed[path] = error.strerror or str(error)
    return not failed


def _distinct(read: Mapping[str, Ranges], failed: dict[str, str]) -> dict[str, Ranges]:
    """Regular files with whole pages of their parts, each once however many names it has. The others go to ``failed``."""
    named: dict[tuple[int, int], str] = {}
    parts: dict[str, Ranges] = {}
    whole: set[str] = set()
    for name, ranges in read.items():
        try:
            status = os.stat(name)
        except OSError as error:
            failed[name] = error.strerror or str(error)
            continue
        if not stat.S_ISREG(status.st_mode):
            failed[name] = "not a regular file"
            continue
        path = named.setdefault((status.st_dev, status.st_ino), name)
        parts.setdefault(path, []).extend(ranges)
        if not ranges:
            whole.add(path)
            if status.st_size > WHOLE:
                failed[path] = "which parts of it were read cannot be seen, and to evict all of a large file would slow others down"
    return {path: [] if path in whole else _pages(ranges, os.path.getsize(path)) for path, ranges in parts.items()}


def _pages(ranges: Ranges, size: int) -> Ranges:
    """The whole pages around these ranges, merged and in order."""
    ends = ((start // PAGE * PAGE, min(size, -(-(start + length) // PAGE) * PAGE)) for start, length in ranges)
    return merged((begin, end - begin) for begin, end in ends)


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same bytes in order, each of them in one range."""
    joined: list[tuple[int, int]] = []
    for begin, length in sorted(ranges):
        end = begin + length
        if joined and begin <= sum(joined[-1]):
            begin, end = joined[-1][0], max(end, sum(joined.pop()))
        if begin < end:
            joined.append((begin, end - begin))
    return joined


def _weighed(files: Mapping[str, Ranges]) -> tuple[float, str]:
    """Resident part of all pages together, and the file with most pages left; no name where none has any."""
    pages = held = 0.0
    left = [(0.0, "")]
    for path, parts in files.items():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            count = -(-size_of(path, parts) // PAGE)
            share = resident_share(descriptor, path, parts)
        finally:
            os.close(descriptor)
        pages += count
        held += share * count
        if share > 0:
            left.append((share * count, path))
    return (held / pages if pages else 0.0), max(left)[1]


def _some_failed(failed: dict[str, str]) -> str:
    path, reason = next(iter(failed.items()))
    others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"{path}{others} cannot be evicted: {reason}"


def _unreachable_cache(files: Iterable[str]) -> str:
    """Why an empty page cache here would not mean that reads come from the disk; empty when it would."""
    folders = {os.path.dirname(os.path.realpath(path)) for path in files}
    for under in filter(None, map(filesystem, sorted(folders))):
        if under.in_memory:
            return f"{under.mount} is {under.kind}: its files lie in memory and can never be cold"
        if under.own_cache:
            return f"{under.mount} is {under.kind}, which keeps files in a cache of its own that cannot be looked into"
        if under.network:
            return f"client-cold only: {under.mount} is {under.kind}, and what its server still holds in memory is out of reach"
    return ""
