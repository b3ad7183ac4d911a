"""The protocols that hooks record to and replay from: `ResultStore` (results of calls) and `ByteStore` (bytes of files)."""

from __future__ import annotations

from typing import Any, Protocol

from pipefix.vocabulary.stage import Stage


class ByteStore(Protocol):
    """The bytes of files that were read, by path (`pipefix.hooks.byte_ranges.ByteRanges`)."""

    def put(self, path: str, offset: int, data: bytes | bytearray | memoryview, size: int) -> None: ...
    def get(self, path: str, offset: int, count: int) -> bytes | None: ...
    def whole(self, path: str) -> bytes | None: ...
    def knows(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def wants_whole(self, path: str) -> bool:
        """Whether to keep all of a file that is mapped into memory or whose descriptor is asked for: what is read of it that way
        cannot be seen."""
        ...


class ResultStore(Protocol):
    """Where recorded results are kept and found again. ``unit`` is a sample (or the batch a ``__getitems__`` asked for).

    ``keep`` may refuse a value; it must not raise. ``files`` holds what file hooks read: they replay bytes, not results.
    """

    @property
    def files(self) -> ByteStore | None: ...

    def keep(self, unit: object, op: str, ordinal: int, stage: Stage, value: Any) -> None: ...
    def find(self, unit: object, op: str, ordinal: int) -> Any:
        """A fresh copy of the recorded value, or `MISSING`."""
        ...


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
READS = ":reads"
"""Suffix of the label under which a recorded decode keeps which file ranges were read inside it."""
Reads = list[tuple[str, int, int]]
"""(path, offset, count)"""
