"""Cold, and proven so: files put out of the page cache, and the proof read back page by page.

Where either cannot be done, or does not mean what it says, the word "cold" is refused with the reason.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from pipefix.system import page_cache
from pipefix.system.mounts import Filesystem, filesystem
from pipefix.system.page_cache import PAGE, WHOLE, Ranges, resident_share, size_of
from pipefix.vocabulary.quantity import percent

COLD = 0.01
"""Largest part of the pages that may be left for the word cold to be used."""
HOLDER_SEARCH_S = 0.25

Name = str | os.PathLike[str]
Files = Iterable[Name] | Mapping[str, Ranges]


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


def cold(paths: Files, limit: float = COLD) -> ColdProof:
    """Evict the files, or the parts named of each, and prove it.

    ``cold`` is True only where at most ``limit`` of all their pages is left in memory."""
    failed: dict[str, str] = {}
    files = _distinct(paths, failed)
    bare = ColdProof(files=len(files), bytes=sum(size_of(path, parts) for path, parts in files.items()))
    refusal = _refusal(files, failed)
    if refusal:
        return msgspec.structs.replace(bare, why=refusal)
    client_side = _unreachable_cache(files)
    try:
        before, _ = _weighed(files)
        for path, parts in files.items():
            try:
                page_cache.forget(path, parts)
            except OSError as error:
                failed[path] = error.strerror or str(error)
        after, survivors = _weighed(files)
    except OSError as error:
        return msgspec.structs.replace(bare, why=f"residency cannot be read: {error}")
    why = ""
    if failed:
        why = _some_failed(failed)
    elif after > limit:
        left = f"{percent(after)} of the pages is still in memory after eviction (the limit is {percent(limit)})"
        why = f"{left}: {_survival(survivors)}"
    elif client_side:
        why = client_side
    return msgspec.structs.replace(bare, before=before, after=after, cold=not why, why=why)


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


def _weighed(files: Mapping[str, Ranges]) -> tuple[float, list[str]]:
    """Resident part of all pages together, and the files with pages left, worst first."""
    pages = held = 0.0
    left: list[tuple[float, str]] = []
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
    return (held / pages if pages else 0.0), [path for _, path in sorted(left, reverse=True)]


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
