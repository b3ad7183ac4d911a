"""File system calls of `os`, and through them `os.path` and `pathlib`."""

from __future__ import annotations

import functools
import os
import pathlib
import stat

from pipefix.seams.files import note
from pipefix.seams.from_memory import remembered
from pipefix.seams.seam import Patches, cut
from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

LIBRARY = ""

_STORAGE = Stage.STORAGE


def install(tap: Tap, patches: Patches) -> None:
    accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps its own references
    for name in ("stat", "lstat", "listdir"):
        cut(tap, patches, os, name, _STORAGE)
        if accessor is not None and hasattr(accessor, name):
            patches.replace(accessor, name, staticmethod(getattr(os, name)))
    for name in ("open", "scandir"):
        cut(tap, patches, os, name, _STORAGE, replayable=False)
    for name in ("readv", "preadv"):
        cut(tap, patches, os, name, _STORAGE, replayable=False, counts=int)
    if hasattr(os, "pread"):
        _replace_descriptor_read(tap, patches, "pread")
    _replace_descriptor_read(tap, patches, "read")


def _replace_descriptor_read(tap: Tap, patches: Patches, name: str) -> None:
    """``os.read(fd, n)`` and ``os.pread(fd, n, offset)``; regular files are recorded under their inode."""
    original = getattr(os, name)
    seek, status_of = os.lseek, os.fstat

    @functools.wraps(original)
    def read(fd: int, length: int, *offset: int) -> bytes:
        if not tap.live:
            return original(fd, length, *offset)  # type: ignore[no-any-return]
        taping = tap.recording is not None or bool(tap.replaced)
        status = status_of(fd) if taping else None
        if status is None or not stat.S_ISREG(status.st_mode):
            data: bytes = tap.through(_STORAGE, f"os.{name}", original, (fd, length, *offset), replayable=False)
            tap.bytes_read += len(data)
            return data
        key = f"inode:{status.st_dev}:{status.st_ino}"
        at = offset[0] if offset else seek(fd, 0, os.SEEK_CUR)
        files = remembered(tap)
        if files is not None:
            tap.pause()
            known = files.get(key, at, length)
            if known is not None and not offset:
                seek(fd, at + len(known), os.SEEK_SET)
            tap.resume(_STORAGE)
            if known is not None:
                return known
            tap.misses += 1
        data = tap.through(_STORAGE, f"os.{name}", original, (fd, length, *offset), replayable=False)
        tap.bytes_read += len(data)
        note(tap, key, at, data, status.st_size)
        return data

    patches.replace(os, name, read, everywhere=True)
