"""The protocols that hooks record to and replay from: `ResultStore` (results of calls) and `ByteStore` (bytes of files)."""

from __future__ import annotations

from typing import Any

from pipefix.vocabulary.stage import Stage

MISSING: Any = object()
"""In the place of a recorded value, where there is none."""


class ByteStore:
    """The bytes of files that were read, by path. This one keeps none and answers with none."""

    def put(self, path: str, offset: int, data: bytes | bytearray | memoryview, size: int) -> None:
        """``data`` was read at ``offset`` of a file of ``size`` bytes. Empty data only makes the file known."""

    def get(self, path: str, offset: int, count: int) -> bytes | None:
        """Up to ``count`` bytes from ``offset``: at least one, none at the end of the file, None where nothing was recorded."""
        return None

    def whole(self, path: str) -> bytes | None:
        """The file from end to end, or None where a part of it was never read."""
        return None

    def knows(self, path: str) -> bool:
        return False

    def size(self, path: str) -> int:
        """How long the file was when it was read."""
        raise KeyError(path)

    def wants_whole(self, path: str) -> bool:
        """Whether to keep all of a file that is mapped into memory or whose descriptor is asked for: what is read of it that way
        cannot be seen."""
        return False


class ResultStore:
    """Where recorded results are kept and found again. ``unit`` is a sample (or the batch a ``__getitems__`` asked for). This one
    keeps files alone: hooks of files replay bytes, not results."""

    files: ByteStore | None = None

    def keep(self, unit: object, op: str, ordinal: int, stage: Stage, value: Any) -> None:
        """May refuse a value; must not raise."""

    def find(self, unit: object, op: str, ordinal: int) -> Any:
        """A fresh copy of the recorded value, or `MISSING`."""
        return MISSING


READS = ":reads"
"""Suffix of the label under which a recorded decode keeps which file ranges were read inside it."""
Reads = list[tuple[str, int, int]]
"""(path, offset, count)"""
