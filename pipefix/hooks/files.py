"""Files opened by path: opening, real reads and closing are timed, and what is read can be recorded and answered from memory.

`open` gives the very types it always gives (a BufferedReader, a TextIOWrapper over one); only the raw file at the bottom is ours.
So a read that the buffer can answer costs nothing extra, a read that reaches the operating system is timed, and `fileno()` is real.
Seeking is not timed: it moves no data, and a clock reading would cost more than it.

Opening for writing, by descriptor or with unusual arguments goes straight to the original; so does Python's importer.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import pathlib
import stat
import sys
import weakref
from contextlib import suppress
from typing import Any

from pipefix.hooks.byte_ranges import Bytes
from pipefix.hooks.patches import Patches
from pipefix.hooks.recorded_files import MemoryFile, PartialFile, fill, keep_whole, key_of, note, remembered, replayed
from pipefix.hooks.result_store import Reads
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.stage import DECODE, STORAGE

LIBRARY = ""

_READING = frozenset({"r", "rb", "br", "rt", "tr"})
_INTO, _READ, _ALL, _TELL, _SEEK = io.FileIO.readinto, io.FileIO.read, io.FileIO.readall, io.FileIO.tell, io.FileIO.seek
_FILENO, _CLOSE = io.FileIO.fileno, io.FileIO.close
ORIGINAL_OPEN = io.open
_OS_PREAD = os.pread
_IMPORTER = "<frozen importlib"
_LARGEST_BUFFER = 8 * 1024 * 1024

_by_path: weakref.WeakValueDictionary[str, TimedFileIO] = weakref.WeakValueDictionary()
"""Files open now, while recording or replaying: reading a range again needs no second open."""


class TimedFileIO(io.FileIO):
    """A raw file whose reads go through the timer."""

    timer: SampleTimer
    key: str | None = None
    alone = False
    """Opened without a buffer."""

    def fileno(self) -> int:
        descriptor = _FILENO(self)
        if self.timer.live and self.timer.recording is not None:
            keep_whole(self.timer, self._key(), descriptor)
        return descriptor

    def readinto(self, buffer: Any, /) -> int:
        timer = self.timer
        if not timer.live:
            return _INTO(self, buffer)
        if timer.tapes(STORAGE):
            view = memoryview(buffer).cast("B")
            return fill(len(view), lambda at: self._taped(len(view) - at, view[at:]), self.alone)
        count = timer.timed_call(STORAGE, "read", _INTO, (self, buffer), replayable=False)
        timer.bytes_read += count or 0
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        timer = self.timer
        if not timer.live:
            return _READ(self, -1 if size is None else size)
        if size is None or size < 0:
            return self.readall()
        if timer.tapes(STORAGE):
            into = bytearray(size)
            return bytes(memoryview(into)[: self.readinto(into)])
        data = timer.timed_call(STORAGE, "read", _READ, (self, size), replayable=False)
        timer.bytes_read += len(data or b"")
        return data

    def readall(self) -> bytes:
        timer = self.timer
        if not timer.live:
            return _ALL(self)
        if timer.tapes(STORAGE):
            return self._taped_all()
        data = timer.timed_call(STORAGE, "read", _ALL, (self,), replayable=False)
        timer.bytes_read += len(data or b"")
        return data

    def close(self) -> None:
        if self.timer.live and not self.closed:
            self.timer.aside(STORAGE, "open", _CLOSE, self)  # one operation: every file that is opened is closed
        else:
            _CLOSE(self)

    def _taped(self, count: int, view: memoryview) -> int:
        """One read into ``view`` while recording or replaying."""
        timer = self.timer
        offset = self._offset()
        data = self._remembered(offset, count)
        if data is not None:
            view[: len(data)] = data
            return len(data)
        read = timer.timed_call(STORAGE, "read", _INTO, (self, view), replayable=False) or 0
        self._note(offset, view[:read])
        return read

    def _taped_all(self) -> bytes:
        parts: list[bytes] = []
        while data := self._remembered(self._offset(), sys.maxsize):
            parts.append(data)
        if data is None:
            offset = self._offset()
            parts.append(self.timer.timed_call(STORAGE, "read", _ALL, (self,), replayable=False) or b"")
            self._note(offset, parts[-1])
        return b"".join(parts)

    def _remembered(self, offset: int | None, count: int) -> bytes | None:
        """What was recorded at the current position, which moves on; None where nothing was."""
        if offset is None:
            return None
        self.timer.pause()
        data = replayed(self.timer, self._key(), offset, count)
        if data is not None:
            _SEEK(self, offset + len(data))
        self.timer.resume()
        return data

    def _note(self, offset: int | None, data: Bytes) -> None:
        timer = self.timer
        timer.bytes_read += len(data)
        if len(data) and offset is not None and timer.recording is not None:
            note(timer, self._key(), offset, data, os.fstat(_FILENO(self)).st_size)

    def _offset(self) -> int | None:
        try:
            return _TELL(self)
        except OSError:  # a pipe or a terminal: nothing to keep
            return None

    def _key(self) -> str:
        if self.key is None:
            self.key = key_of(self.name)
        return self.key


def _timed_by(timer: SampleTimer) -> type[TimedFileIO]:
    """A class for this timer: its files need no attribute of their own, which opening thousands of them would pay for."""
    return type("TimedFileIO", (TimedFileIO,), {"timer": timer})


def install(timer: SampleTimer, patches: Patches) -> None:
    original = ORIGINAL_OPEN
    kind = _timed_by(timer)

    def find_raw(path: str | bytes) -> Any:
        """The raw file under a new file object, while recording or replaying."""
        if (files := remembered(timer)) is not None:
            timer.pause()
            key, from_memory = key_of(path), None
            if files.knows(key):
                data = files.whole(key)
                from_memory = MemoryFile(data, path, timer) if data is not None else PartialFile(files, key, path, timer)
            timer.resume(STORAGE if from_memory is not None else None)
            if from_memory is not None:
                return from_memory
            timer.misses += 1
        raw = timer.timed_call(STORAGE, "open", kind, (path,), replayable=False)
        timer.pause()
        raw.key = key_of(path)
        _by_path[raw.key] = raw
        status = os.fstat(_FILENO(raw)) if timer.recording is not None else None
        timer.resume()
        if status is not None and stat.S_ISREG(status.st_mode):
            note(timer, raw.key, 0, b"", status.st_size)
        return raw

    @functools.wraps(original)
    def timed_open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        binary = "b" in mode
        plain = mode in _READING and closefd and opener is None and not isinstance(file, int) and buffering != 1
        if not plain or (binary and not encoding is errors is newline is None) or (not binary and buffering == 0):
            return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
        path = file if type(file) is str else os.fspath(file)
        how = (binary, mode, buffering, encoding, errors, newline)
        if not timer.live:
            return _layered(kind, path, *how)
        if sys._getframe(1).f_code.co_filename.startswith(_IMPORTER):  # a module's file is none of the samples'
            return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if not timer.tapes(STORAGE) and DECODE not in timer.replaced:
            return timer.timed_call(STORAGE, "open", _layered, (kind, path, *how), replayable=False)
        return _layered(find_raw, path, *how)

    def in_place_of(user_open: Any) -> Any:
        """What somebody put in the place of ``open`` is part of the pipeline: it is called, and what it gives is timed."""

        @functools.wraps(user_open)
        def timed_by_user_open(file: Any, *args: Any, **kwargs: Any) -> Any:
            mode = args[0] if args else kwargs.get("mode", "r")
            if not timer.live or mode not in _READING or not isinstance(file, (str, bytes, os.PathLike)):
                return user_open(file, *args, **kwargs)
            key, files = key_of(file), remembered(timer)
            if files is not None and files.knows(key):
                return timed_open(file, *args, **kwargs)
            timer.misses += files is not None
            opened = timer.timed_call(STORAGE, "open", user_open, (file, *args), kwargs, replayable=False)
            timer.pause()
            try:
                return _adopted(opened, kind, key, args[4] if len(args) > 4 else kwargs.get("newline"))
            finally:
                timer.resume()

        return timed_open if user_open is original else timed_by_user_open

    current_open = builtins.open
    patches.replace(builtins, "open", in_place_of(current_open), everywhere=True)
    patches.replace(io, "open", in_place_of(io.open))
    accessor: Any = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 keeps its own references
    if accessor is not None:
        patches.replace(accessor, "open", staticmethod(in_place_of(accessor.open)))
    opener = functools.partial(original, buffering=0) if current_open is original else current_open
    timer.reread = functools.partial(_reread, timer, opener)


def _layered(
    raw_of: Any, path: Any, binary: bool, mode: str, buffering: int, encoding: str | None, errors: str | None, newline: str | None
) -> Any:
    """The file object that ``open`` gives, over the raw file that ``raw_of`` opens."""
    raw = raw_of(path)
    try:
        if buffering == 0:
            raw.alone = True
            return raw
        buffer = io.BufferedReader(raw, buffering if buffering > 1 else _buffer_size(raw._blksize))
        if binary:
            return buffer
        text = io.TextIOWrapper(buffer, encoding, errors, newline, buffering < 0 and raw.isatty())
        text.mode = mode  # type: ignore[misc]
        return text
    except BaseException:
        raw.close()
        raise


def _adopted(opened: Any, kind: type[TimedFileIO], key: str, newline: str | None) -> Any:
    """A file that somebody else opened, with a timed raw file at its bottom; as it is where it is no plain file."""
    buffer = opened.buffer if type(opened) is io.TextIOWrapper else opened
    bottom = buffer.raw if type(buffer) is io.BufferedReader else buffer
    if type(bottom) is not io.FileIO or not bottom.seekable():
        return opened
    at = buffer.tell()
    raw = kind(os.dup(bottom.fileno()))
    raw.name = bottom.name
    raw.key = key
    if raw.timer.recording is not None:
        _by_path[key] = raw
        note(raw.timer, key, 0, b"", os.fstat(raw.fileno()).st_size)
    raw.alone = bottom is opened
    again: Any = raw if raw.alone else io.BufferedReader(raw, _buffer_size(raw._blksize))  # type: ignore[attr-defined]
    again.seek(at)
    if opened is not buffer:
        again = io.TextIOWrapper(again, opened.encoding, opened.errors, newline, opened.line_buffering)
        again.mode = opened.mode
    opened.close()
    return again


def stand_in(timer: SampleTimer, value: Any) -> Any:
    """A second, timed handle on a file that was opened for reading before, at the same place; None for anything else."""
    if type(value) is not io.BufferedReader or type(value.raw) is not io.FileIO or value.closed or not value.seekable():
        return None
    name = value.name
    if not isinstance(name, (str, bytes)) or not os.path.isfile(name):
        return None
    raw = _timed_by(timer)(name)
    again = io.BufferedReader(raw, _buffer_size(raw._blksize))  # type: ignore[attr-defined]
    again.seek(value.tell())
    return again


def _buffer_size(block: int) -> int:
    if sys.version_info >= (3, 14):
        return max(min(block, _LARGEST_BUFFER), io.DEFAULT_BUFFER_SIZE)
    return block


def _reread(timer: SampleTimer, opener: Any, ranges: Reads) -> None:
    """Read file ranges again, and drop the bytes: a replaced decode still costs what its storage cost.

    ``opener`` is ``open``, or what somebody put in its place.
    """
    by_key: dict[str, list[tuple[int, int]]] = {}
    for key, offset, count in ranges:
        by_key.setdefault(key, []).append((offset, count))
    for key, pieces in by_key.items():
        with suppress(OSError):  # the sample itself made the file, and removed it
            timer.bytes_read += timer.timed_call(STORAGE, "read", _read_ranges, (key, pieces, opener), replayable=False)


def _read_ranges(key: str, pieces: list[tuple[int, int]], opener: Any) -> int:
    known = _by_path.get(key)
    if known is not None and not known.closed:
        return sum(len(_OS_PREAD(_FILENO(known), count, offset)) for offset, count in pieces)
    with opener(key, "rb") as file:
        return sum(len(file.read(count)) for offset, count in pieces if file.seek(offset) == offset)
