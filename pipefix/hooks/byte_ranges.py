"""The bytes of recorded files by path and offset, from which reads are answered in place of storage.

Files, not results, are what storage hooks record: read once in 8 kB pieces and once in 64 kB pieces, a stream is the same stream.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator

from pipefix.hooks.result_store import ByteStore

Bytes = bytes | bytearray | memoryview


class FileRanges:
    """What of one file is held: ranges that do not overlap, sorted, no two of which touch."""

    __slots__ = ("chunks", "size", "starts")

    def __init__(self, size: int) -> None:
        self.size = size
        self.starts: list[int] = []
        self.chunks: list[bytearray | bytes] = []

    def put(self, offset: int, data: Bytes) -> int:
        """Returns by how many bytes the file's share grew."""
        end = offset + len(data)
        at = bisect_right(self.starts, offset) - 1
        if at >= 0 and offset <= self.starts[at] + len(self.chunks[at]):
            known = self.starts[at] + len(self.chunks[at])
            if end <= known:
                return 0
            grown = self._append(at, data[known - offset :])
        else:
            at += 1
            self.starts.insert(at, offset)
            self.chunks.insert(at, bytes(data))
            grown = len(data)
        while at + 1 < len(self.starts) and self.starts[at + 1] <= end:
            following = self.chunks[at + 1]
            overlap = end - self.starts[at + 1]
            rest = following[overlap:]
            grown -= len(following) - len(rest)
            self._append(at, rest)
            end += len(rest)
            del self.starts[at + 1], self.chunks[at + 1]
        return grown

    def _append(self, at: int, data: Bytes) -> int:
        chunk = self.chunks[at]
        if isinstance(chunk, bytes):
            chunk = self.chunks[at] = bytearray(chunk)
        chunk += data
        return len(data)

    def get(self, offset: int, count: int) -> bytes | None:
        if offset >= self.size:
            return b""
        at = bisect_right(self.starts, offset) - 1
        if at < 0:
            return None
        begin = offset - self.starts[at]
        part = bytes(memoryview(self.chunks[at])[begin : begin + count])
        return part or None if count else b""

    def whole(self) -> bytes | None:
        if self.size == 0:
            return b""
        if len(self.chunks) != 1 or self.starts[0] != 0 or len(self.chunks[0]) < self.size:
            return None
        chunk = self.chunks[0]
        if not isinstance(chunk, bytes):
            chunk = self.chunks[0] = bytes(chunk)
        return chunk


class ByteRanges(ByteStore):
    """Recorded bytes by path. A recording holds one as its ``files``; file hooks fill and read it. Threads may share it."""

    def __init__(self, limit: int | None = None) -> None:
        self.nbytes = 0
        self.overflowed = False
        """Whether something was not kept for the limit's sake."""
        self.limit = limit
        """Beyond this many bytes nothing more is kept; None for no limit."""
        self.reads: list[tuple[str, int, int]] = []
        """Path, offset and length of each, since the list was last emptied."""
        self._files: dict[str, FileRanges] = {}
        self._lock = threading.Lock()

    def put(self, path: str, offset: int, data: Bytes, size: int) -> None:
        if self.limit is not None and self.nbytes + len(data) > self.limit:
            self.overflowed = True
            return
        with self._lock:
            file = self._files.get(path)
            if file is None or file.size != size:
                if file is not None:
                    self.nbytes -= sum(map(len, file.chunks))
                file = self._files[path] = FileRanges(size)
            if len(data):
                self.nbytes += file.put(offset, data)
                self.reads.append((path, offset, len(data)))

    def get(self, path: str, offset: int, count: int) -> bytes | None:
        with self._lock:
            file = self._held(path)
            return None if file is None else file.get(offset, count)

    def whole(self, path: str) -> bytes | None:
        with self._lock:
            file = self._held(path)
            return None if file is None else file.whole()

    def knows(self, path: str) -> bool:
        return self._held(path) is not None

    def _held(self, path: str) -> FileRanges | None:
        """Not one that the system makes up when it is read (in /proc): it has no size, and yet holds something."""
        file = self._files.get(path)
        return None if file is None or (file.chunks and not file.size) else file

    def ranges(self, path: str) -> list[tuple[int, int]]:
        """What of a file is held: starts and lengths, in order."""
        with self._lock:
            file = self._files[path]
            return list(zip(file.starts, map(len, file.chunks), strict=True))

    def size(self, path: str) -> int:
        return self._files[path].size

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._files))
