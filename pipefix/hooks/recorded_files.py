"""Files while a recording is made or replayed: their keys, how reads are kept, and file objects that answer from memory."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

from pipefix.hooks.byte_ranges import Bytes
from pipefix.hooks.result_store import ByteStore
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import STORAGE

_READ, _SEEK = io.FileIO.read, io.FileIO.seek
_READLINK, _LSEEK, _WRITE, _CLOSE, _PREAD = os.readlink, os.lseek, os.write, os.close, os.pread
_NAME = "pipefix"
IN_MEMORY = "memory:"
"""What `key_behind` says of a descriptor that `descriptor` made."""
_LARGEST_KEPT = 64 * 1024 * 1024
"""A larger file is a part of the data set, not of a sample."""

_named: dict[int, tuple[int, int, str]] = {}
"""By descriptor: device, inode and key of files that a sample opened."""


def key_of(path: str | bytes | os.PathLike[Any]) -> str:
    """What a path is called in `ByteRanges`."""
    return os.path.abspath(os.fsdecode(path))


def note(timer: SampleTimer, key: str, offset: int, data: Bytes, size: int) -> None:
    """Keep what was just read, where a recording is under way and no recorded storage operation contains it."""
    if timer.recording is None or timer.stage is STORAGE:
        return
    timer.pause()
    if timer.recording.files is not None:
        timer.recording.files.put(key, offset, data, size)
    if timer.trail is not None and len(data):
        timer.trail.append((key, offset, len(data)))
    timer.resume()


def remember_name(fd: int, status: os.stat_result, key: str) -> None:
    """A file was opened as ``key``, which may be another name of it than the system would tell."""
    _named[fd] = (status.st_dev, status.st_ino, key)


def key_behind(fd: int, status: os.stat_result) -> str:
    """What the file behind a descriptor is called in a recording: its path, `IN_MEMORY`, or its inode where it has no path."""
    known = _named.get(fd)
    if known is not None and known[:2] == (status.st_dev, status.st_ino):
        return known[2]
    try:
        link = _READLINK(f"/proc/self/fd/{fd}")
    except OSError:
        link = ""
    if link.startswith(f"/memfd:{_NAME}"):
        return IN_MEMORY
    return link if link.startswith("/") and not link.endswith(" (deleted)") else f"inode:{status.st_dev}:{status.st_ino}"


def keep_whole(timer: SampleTimer, key: str, fd: int) -> None:
    """Keep all of a file whose descriptor is given away, where the recording asks for that: what is read by it cannot be seen."""
    files = timer.recording.files if timer.recording is not None else None
    if files is None or timer.stage is STORAGE:
        return
    status = os.fstat(fd)
    remember_name(fd, status, key)
    if not files.wants_whole(key) or not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_KEPT:
        return
    timer.pause()
    known = files.whole(key) is not None
    data = b"" if known else _all_of(fd, status.st_size)
    timer.resume()
    if not known:
        note(timer, key, 0, data, status.st_size)


def _all_of(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < size and (data := _PREAD(fd, size - at, at)):
        parts.append(data)
        at += len(data)
    return b"".join(parts)


def descriptor(data: Any) -> int | None:
    """A file in memory that holds these bytes, open at its beginning; None where the system has no such files.

    What is handed a descriptor instead of a file (``os.read``, ``mmap``, libraries in C) reads recorded bytes from it.
    """
    try:
        fd = os.memfd_create(_NAME)
    except (AttributeError, OSError):  # this system has it not, or refuses it
        return None
    try:
        left = memoryview(data)
        while left:
            left = left[_WRITE(fd, left) :]
        _LSEEK(fd, 0, os.SEEK_SET)
    except BaseException:
        _CLOSE(fd)
        raise
    return fd


def remembered(timer: SampleTimer) -> ByteStore | None:
    """The recorded files, where storage is to be answered from them."""
    return timer.playing.files if timer.playing is not None and STORAGE in timer.replaced else None


def replayed(timer: SampleTimer, key: str, offset: int = 0, count: int | None = None) -> bytes | None:
    """Recorded bytes in the place of a read: ``count`` from ``offset``, or the whole file. None where the file is to be read."""
    files = remembered(timer)
    if files is None:
        return None
    timer.pause()
    if count is None:
        data = files.whole(key) if files.knows(key) else None
    else:
        data = files.get(key, offset, count)
    timer.resume(None if data is None else STORAGE)
    timer.misses += data is None
    return data


class MemoryFile(io.BytesIO):
    """The raw file of a whole recorded file. Its `fileno()` is that of a file in memory, or of the real one where there is none."""

    _blksize = io.DEFAULT_BUFFER_SIZE

    def __init__(self, data: bytes, path: str | bytes, timer: SampleTimer) -> None:
        super().__init__(data)
        self.name = path
        self.mode = "rb"  # type: ignore[misc]
        self._timer = timer
        self._real: io.FileIO | None = None

    def readall(self) -> bytes:
        return self.read()

    def writable(self) -> bool:
        return False

    def fileno(self) -> int:
        if self._real is None:
            with self.getbuffer() as data:
                fd = descriptor(data)
            self._real = io.FileIO(fd) if fd is not None else _open_real(self._timer, self.name)
        _SEEK(self._real, self.tell())
        return self._real.fileno()

    def close(self) -> None:
        if self._real is not None:
            self._real.close()
        super().close()


class PartialFile(io.RawIOBase):
    """The raw file of a file of which some ranges were recorded (a shard read by one worker). The rest comes from the real one."""

    alone = False
    _blksize = io.DEFAULT_BUFFER_SIZE

    def __init__(self, files: ByteStore, key: str, path: str | bytes, timer: SampleTimer) -> None:
        self.name = path
        self.mode = "rb"
        self._files, self._key, self._timer = files, key, timer
        self._at = 0
        self._real: io.FileIO | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        base = 0 if whence == 0 else self._at if whence == 1 else self._files.size(self._key)
        if whence not in (0, 1, 2) or base + offset < 0:
            raise OSError(22, os.strerror(22))
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")

        def some(at: int) -> int:
            data = self._next(len(view) - at)
            view[at : at + len(data)] = data
            return len(data)

        return fill(len(view), some, self.alone)

    def readall(self) -> bytes:
        parts = []
        while part := self._next(sys.maxsize):
            parts.append(part)
        return b"".join(parts)

    def _next(self, count: int) -> bytes:
        timer = self._timer
        timer.pause()
        data = self._files.get(self._key, self._at, count)
        timer.resume(STORAGE)
        if data is None:
            real, limit = self._opened(), min(count, io.DEFAULT_BUFFER_SIZE * 8)
            timer.misses += 1
            data = timer.timed_call(STORAGE, "read", _READ, (real, limit), replayable=False) or b""
            timer.bytes_read += len(data)
        self._at += len(data)
        return data

    def fileno(self) -> int:
        return self._opened().fileno()

    def close(self) -> None:
        if self._real is not None:
            self._real.close()
        super().close()

    def _opened(self) -> io.FileIO:
        """The real file, at the same place."""
        if self._real is None:
            self._real = _open_real(self._timer, self.name)
        _SEEK(self._real, self._at)
        return self._real


def _open_real(timer: SampleTimer, path: str | bytes) -> io.FileIO:
    timer.misses += 1
    return timer.timed_call(STORAGE, "open", io.FileIO, (path,), replayable=False)


def fill(count: int, read: Callable[[int], int], alone: bool) -> int:
    """One read; without a buffer on top, as many as it takes: nobody expects a short read from the middle of a file."""
    done = read(0)
    while alone and 0 < done < count and (got := read(done)):
        done += got
    return done


def is_recorded(file: Any) -> bool:
    """Whether a file object stands for a recorded file (so that its descriptor had better not be asked for)."""
    raw = getattr(file, "raw", getattr(getattr(file, "buffer", None), "raw", file))
    return isinstance(raw, (MemoryFile, PartialFile))
