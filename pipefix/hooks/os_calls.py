"""Files that are opened and read by descriptor.

While recording or replaying, regular files that are read by descriptor go by the path that they were opened by.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from pipefix.hooks.calls import STORAGE, Patches, SampleTimer, hook
from pipefix.hooks.recorded_files import IN_MEMORY, descriptor, key_behind, key_of, note, remember_name, remembered, replayed

LIBRARY = ""

_STATUS, _SEEK = os.fstat, os.lseek
_HARMLESS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_NOATIME", "O_BINARY"))
"""Flags with which a file is opened for reading and nothing else."""


def install(timer: SampleTimer, patches: Patches) -> None:
    for name in ("read", "pread", "readv", "preadv"):
        if hasattr(os, name):
            _replace_read(timer, patches, name)
    original = os.open

    @hook(timer, patches, os, "open")
    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """A whole recorded file is opened in memory."""
        plain = dir_fd is None and not flags & ~_HARMLESS and not isinstance(path, int)
        key = key_of(path) if plain and timer.tapes(STORAGE) else None
        files = remembered(timer)
        if key is not None and files is not None and files.knows(key):
            timer.pause()
            data = files.whole(key)
            memory_fd = descriptor(data) if data is not None else None
            timer.resume(STORAGE)
            if memory_fd is not None:
                return memory_fd
        fd: int = timer.timed_call(STORAGE, "os.open", original, (path, flags, mode), {"dir_fd": dir_fd}, replayable=False)
        if key is not None:
            status = _STATUS(fd)
            if stat.S_ISREG(status.st_mode):
                remember_name(fd, status, key)
                note(timer, key, 0, b"", status.st_size)
        return fd


def _replace_read(timer: SampleTimer, patches: Patches, name: str) -> None:
    """``os.read(fd, n)``, ``os.pread(fd, n, offset)``, ``os.readv(fd, buffers)`` or ``os.preadv(fd, buffers, offset)``."""
    original = getattr(os, name)
    into = name.endswith("v")

    @hook(timer, patches, os, name)
    def read(fd: int, length_or_buffers: Any, *offset: int) -> Any:
        status, key, at, answer = None, None, 0, None
        if timer.tapes(STORAGE):
            timer.pause()
            status = _STATUS(fd)
            if stat.S_ISREG(status.st_mode):
                key = key_behind(fd, status)
                at = 0 if key == IN_MEMORY else offset[0] if offset else _SEEK(fd, 0, os.SEEK_CUR)
                count = sum(map(len, map(_bytes_of, length_or_buffers))) if into else length_or_buffers
                data = replayed(timer, key, at, count) if key != IN_MEMORY else None
                if data is not None and len(data) < min(count, status.st_size - at):  # in the middle of a file nobody reads short
                    data, timer.misses = None, timer.misses + 1
                if data is not None and not offset:
                    _SEEK(fd, at + len(data), os.SEEK_SET)
                if data is not None:
                    answer = _spread(data, length_or_buffers) if into else data
                elif key == IN_MEMORY:
                    answer = original(fd, length_or_buffers, *offset)
            timer.resume(STORAGE if answer is not None else None)
        if answer is not None:
            return answer
        got = timer.timed_call(STORAGE, f"os.{name}", original, (fd, length_or_buffers, *offset), replayable=False)
        timer.bytes_read += got if into else len(got)
        if key is not None and status is not None and timer.recording is not None:
            note(timer, key, at, b"".join(bytes(each) for each in length_or_buffers)[:got] if into else got, status.st_size)
        return got


def _bytes_of(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B")


def _spread(data: bytes, buffers: Any) -> int:
    """Into one buffer after the other, as far as it goes."""
    left = memoryview(data)
    for view in map(_bytes_of, buffers):
        part, left = left[: len(view)], left[len(view) :]
        view[: len(part)] = part
    return len(data)
