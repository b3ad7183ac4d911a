"""Files on tape: what they are called there, and how what was read of them is kept."""

from __future__ import annotations

import os
import stat
from typing import Any

from pipefix.seams.extents import Bytes
from pipefix.seams.from_memory import behind
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

_STORAGE = Stage.STORAGE
_OS_PREAD = os.pread
_LARGEST_KEPT = 64 * 1024 * 1024
"""A larger file is a part of the data set, not of a sample."""

_named: dict[int, tuple[int, int, str]] = {}
"""By descriptor: device, inode and key of files that a sample opened."""


def key_of(path: str | bytes | os.PathLike[Any]) -> str:
    """What a path is called in `Extents`."""
    return os.path.abspath(os.fsdecode(path))


def note(tap: Tap, key: str, offset: int, data: Bytes, size: int) -> None:
    """Keep what was just read, where a recording is under way and no recorded storage operation contains it."""
    if tap.recording is None or tap.stage is _STORAGE:
        return
    tap.pause()
    if tap.recording.files is not None:
        tap.recording.files.put(key, offset, data, size)
    if tap.trail is not None and len(data):
        tap.trail.append((key, offset, len(data)))
    tap.resume()


def remember_name(fd: int, status: os.stat_result, key: str) -> None:
    """A file was opened as ``key``, which may be another name of it than the system would tell."""
    _named[fd] = (status.st_dev, status.st_ino, key)


def key_behind(fd: int, status: os.stat_result) -> str:
    """What the file behind a descriptor is called on tape: its path, `IN_MEMORY`, or its inode where it has no path."""
    known = _named.get(fd)
    if known is not None and known[:2] == (status.st_dev, status.st_ino):
        return known[2]
    return behind(fd) or f"inode:{status.st_dev}:{status.st_ino}"


def keep_whole(tap: Tap, key: str, fd: int) -> None:
    """Keep all of a file whose descriptor is given away, where the tape asks for that: what is read by it cannot be seen."""
    files = tap.recording.files if tap.recording is not None else None
    if files is None or tap.stage is _STORAGE:
        return
    status = os.fstat(fd)
    remember_name(fd, status, key)
    if not files.wants_whole(key) or not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_KEPT:
        return
    tap.pause()
    known = files.whole(key) is not None
    data = b"" if known else _all_of(fd, status.st_size)
    tap.resume()
    if not known:
        note(tap, key, 0, data, status.st_size)


def _all_of(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < size and (data := _OS_PREAD(fd, size - at, at)):
        parts.append(data)
        at += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)
