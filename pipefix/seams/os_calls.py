"""File system calls of `os`, and through them `os.path` and `pathlib`.

While recording or replaying, regular files that are read by descriptor go by the path that they were opened by.
"""

from __future__ import annotations

import functools
import os
import pathlib
import stat
from typing import Any

from pipefix.seams.from_memory import IN_MEMORY, descriptor, remembered
from pipefix.seams.patches import Patches
from pipefix.seams.seam import cut
from pipefix.seams.tap import Tap
from pipefix.seams.taped_files import key_behind, key_of, note, remember_name
from pipefix.vocabulary.stage import Stage

LIBRARY = ""

_STORAGE = Stage.STORAGE
_STATUS, _SEEK = os.fstat, os.lseek
_HARMLESS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_NOATIME", "O_BINARY"))
"""Flags with which a file is opened for reading and nothing else."""


def install(tap: Tap, patches: Patches) -> None:
    accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps its own references
    for name in ("stat", "lstat", "listdir"):
        cut(tap, patches, os, name, _STORAGE)
        _keep_supported(patches)
        if accessor is not None and hasattr(accessor, name):
            patches.replace(accessor, name, staticmethod(getattr(os, name)))
    cut(tap, patches, os, "scandir", _STORAGE, replayable=False)
    _keep_supported(patches)
    _replace_open(tap, patches)
    for name in ("readv", "preadv"):
        if hasattr(os, name):
            _replace_vector_read(tap, patches, name)
    if hasattr(os, "pread"):
        _replace_descriptor_read(tap, patches, "pread")
    _replace_descriptor_read(tap, patches, "read")


def _keep_supported(patches: Patches) -> None:
    """What was replaced last can do what its original can: libraries look into these sets when they are imported."""
    original, replacement = patches.replaced[-1].original, patches.replaced[-1].replacement
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in able:
            able.add(replacement)
            patches.on_undo(functools.partial(able.discard, replacement))


def _replace_open(tap: Tap, patches: Patches) -> None:
    """``os.open``: a whole recorded file is opened in memory."""
    original = os.open

    @functools.wraps(original)
    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not tap.live:
            return original(path, flags, mode, dir_fd=dir_fd)
        taping = tap.recording is not None or bool(tap.replaced)
        key = key_of(path) if taping and dir_fd is None and not flags & ~_HARMLESS and not isinstance(path, int) else None
        files = remembered(tap)
        if key is not None and files is not None and files.knows(key):
            tap.pause()
            data = files.whole(key)
            made = descriptor(data) if data is not None else None
            tap.resume(_STORAGE)
            if made is not None:
                return made
        fd: int = tap.through(_STORAGE, "os.open", original, (path, flags, mode), {"dir_fd": dir_fd}, replayable=False)
        if key is not None:
            status = _STATUS(fd)
            if stat.S_ISREG(status.st_mode):
                remember_name(fd, status, key)
                note(tap, key, 0, b"", status.st_size)
        return fd

    patches.replace(os, "open", opened, everywhere=True)
    _keep_supported(patches)


def _replace_descriptor_read(tap: Tap, patches: Patches, name: str) -> None:
    """``os.read(fd, n)`` and ``os.pread(fd, n, offset)``."""
    original = getattr(os, name)

    @functools.wraps(original)
    def read(fd: int, length: int, *offset: int) -> bytes:
        if not tap.live:
            return original(fd, length, *offset)  # type: ignore[no-any-return]
        taping = tap.recording is not None or bool(tap.replaced)
        status = _STATUS(fd) if taping else None
        if status is None or not stat.S_ISREG(status.st_mode):
            data: bytes = tap.through(_STORAGE, f"os.{name}", original, (fd, length, *offset), replayable=False)
            tap.bytes_read += len(data)
            return data
        key = key_behind(fd, status)
        if key == IN_MEMORY:
            tap.pause()
            data = original(fd, length, *offset)
            tap.resume(_STORAGE)
            return data
        at = offset[0] if offset else _SEEK(fd, 0, os.SEEK_CUR)
        files = remembered(tap)
        if files is not None:
            tap.pause()
            known = files.get(key, at, length)
            if known is not None and not offset:
                _SEEK(fd, at + len(known), os.SEEK_SET)
            tap.resume(_STORAGE)
            if known is not None:
                return known
            tap.misses += 1
        data = tap.through(_STORAGE, f"os.{name}", original, (fd, length, *offset), replayable=False)
        tap.bytes_read += len(data)
        note(tap, key, at, data, status.st_size)
        return data

    patches.replace(os, name, read, everywhere=True)


def _replace_vector_read(tap: Tap, patches: Patches, name: str) -> None:
    """``os.readv(fd, buffers)`` and ``os.preadv(fd, buffers, offset)``."""
    original = getattr(os, name)

    @functools.wraps(original)
    def read(fd: int, buffers: Any, *how: int) -> int:
        if not tap.live:
            return original(fd, buffers, *how)  # type: ignore[no-any-return]
        taping = tap.recording is not None or bool(tap.replaced)
        status = _STATUS(fd) if taping else None
        if status is None or not stat.S_ISREG(status.st_mode):
            count: int = tap.through(_STORAGE, f"os.{name}", original, (fd, buffers, *how), replayable=False)
            tap.bytes_read += count
            return count
        key = key_behind(fd, status)
        at = how[0] if how else _SEEK(fd, 0, os.SEEK_CUR)
        tap.pause()
        known = original(fd, buffers, *how) if key == IN_MEMORY else _known_into(tap, key, at, buffers)
        if known is not None and not how and key != IN_MEMORY:
            _SEEK(fd, at + known, os.SEEK_SET)
        tap.resume(_STORAGE if known is not None else None)
        if known is not None:
            return known
        tap.misses += remembered(tap) is not None
        count = tap.through(_STORAGE, f"os.{name}", original, (fd, buffers, *how), replayable=False)
        tap.bytes_read += count
        if tap.recording is not None:
            note(tap, key, at, b"".join(bytes(one) for one in buffers)[:count], status.st_size)
        return count

    patches.replace(os, name, read, everywhere=True)


def _known_into(tap: Tap, key: str, at: int, buffers: Any) -> int | None:
    """Fill buffers with what was recorded at this place; None where nothing was."""
    files = remembered(tap)
    views = [memoryview(one).cast("B") for one in buffers] if files is not None else []
    data = files.get(key, at, sum(map(len, views))) if files is not None else None
    if data is None:
        return None
    left = memoryview(data)
    for view in views:
        part = left[: len(view)]
        view[: len(part)] = part
        left = left[len(part) :]
    return len(data)
