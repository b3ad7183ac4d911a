"""Unmodified dataset code reads from a ``source`` cache: its seams for files answer with what the sample read when it was recorded.

The cache is asked by sample: its record names the files that it read, and a file is looked for among those. What is not there is
read from the file system as ever, and counted. One set of seams serves every cache that a process replays.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from pipefix.caches import record
from pipefix.caches.maker import path_of
from pipefix.seams.seam import Patches, install_all
from pipefix.seams.tap import MISSING, Tap
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.stage import Stage

_STORAGE_ONLY = frozenset({Stage.STORAGE})
_INSTALL_AGAIN = 64
"""Samples between two looks for libraries that were imported meanwhile: the first few samples bring most."""
_NO_READS = ("os.stat", "os.lstat", "os.listdir")
"""Names, sizes and times are the file system's to tell: no source cache holds them."""

Piece = tuple[int, int, int, int]
"""Offset in the file, length, place in the record, and the position in the part of the record that holds it (-1: this one)."""


class Shelf:
    """The files of one sample at a time: the seams' `FileTape`."""

    def __init__(self, root: str | None, get: Callable[[int], memoryview]) -> None:
        self._root = root
        self._base = os.path.join(root, "") if root is not None else None
        self._get = get
        """The record at a position of the part that the sample is in."""
        self._record: memoryview | None = None
        self._known: dict[str, tuple[int, list[Piece]]] = {}

    def turn_to(self, taken: memoryview, get: Callable[[int], memoryview]) -> None:
        self._record, self._get = taken, get
        known = {}
        for name, size, pieces in entries(taken):
            if self._base is not None and name[:1] not in ("/", "\0") and ".." not in name:
                known[self._base + name] = (size, pieces)
            else:
                known[path_of(name, self._root)] = (size, pieces)
        self._known = known

    def put(self, path: str, offset: int, data: Any, size: int) -> None:
        """Nothing is recorded while replaying."""

    def knows(self, path: str) -> bool:
        return path in self._known

    def wants_whole(self, path: str) -> bool:
        return False

    def size(self, path: str) -> int:
        return self._known[path][0]

    def whole(self, path: str) -> bytes | None:
        found = self._known.get(path)
        if found is None:
            return None
        size, pieces = found
        if not pieces:
            return b"" if size == 0 else None
        offset, length, place, holder = pieces[0]
        if offset or length != size or len(pieces) > 1:
            return None
        return bytes(self._data(place, length, holder))

    def get(self, path: str, offset: int, count: int) -> bytes | None:
        found = self._known.get(path)
        if found is None:
            return None
        size, pieces = found
        if offset >= size or count == 0:
            return b""
        for begin, length, place, holder in pieces:
            if begin <= offset < begin + length:
                skipped = offset - begin
                return bytes(self._data(place + skipped, min(count, length - skipped), holder))
        return None

    def _data(self, place: int, length: int, holder: int) -> memoryview:
        held = self._record if holder < 0 else self._get(holder)
        assert held is not None
        return held[place : place + length]


def entries(taken: memoryview) -> list[tuple[str, int, list[Piece]]]:
    """The files that a record of the ``source`` store names."""
    told = record.description(taken)
    if not isinstance(told, list) or not told or told[0] != "S":
        raise CacheDamaged("A record of the source store does not say which files it holds.")
    for entry in told[1:]:
        if not _is_entry(entry):
            raise CacheDamaged("A record of the source store names a file in a way that makes no sense.")
    return told[1:]


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 3
        and type(entry[0]) is str
        and type(entry[1]) is int
        and isinstance(entry[2], list)
        and all(map(_is_piece, entry[2]))
    )


def _is_piece(piece: Any) -> bool:
    return isinstance(piece, list) and len(piece) == 4 and all(type(one) is int for one in piece) and min(piece[:3]) >= 0


class Replayer:
    """The process's one tap for replaying."""

    def __init__(self) -> None:
        self.tap = Tap()
        self.tap.active = True
        self._patches = Patches()
        self._samples = 0
        self._shelf: Shelf | None = None
        self._told = False
        install_all(self.tap, self._patches)

    # The seams' `Tape`: only files are answered.

    @property
    def files(self) -> Shelf | None:
        return self._shelf

    def keep(self, unit: object, op: str, ordinal: int, stage: Stage, value: Any) -> None:
        """Nothing is recorded while replaying."""

    def find(self, unit: object, op: str, ordinal: int) -> Any:
        self.tap.misses -= op in _NO_READS  # the tap counts what is not found
        return MISSING

    def run(self, shelf: Shelf, make: Callable[[int], Any], index: int) -> Any:
        """The sample, its files answered by ``shelf``."""
        self._samples += 1
        if self._samples <= 4 or self._samples % _INSTALL_AGAIN == 0:
            install_all(self.tap, self._patches)
        tap = self.tap
        before = tap.misses
        self._shelf = shelf
        tap.playing = self
        tap.replaced = _STORAGE_ONLY
        tap.begin(index)
        try:
            return make(index)
        finally:
            tap.end()
            tap.replaced, tap.playing = frozenset(), None
            if tap.misses != before and not self._told:
                self._told = True
                warnings.warn(
                    f"Sample {index} read what the cache does not hold; it came from the files themselves (see `misses`).",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def close(self) -> None:
        self.tap.active = False
        self._patches.undo()


_replayer: Replayer | None = None


def replayer() -> Replayer:
    """Installed when the first sample is replayed, and left in place: seams that no sample is under pass straight through."""
    global _replayer
    if _replayer is None:
        _replayer = Replayer()
    return _replayer


def stop() -> None:
    """Take the seams out again."""
    global _replayer
    if _replayer is not None:
        _replayer.close()
        _replayer = None
