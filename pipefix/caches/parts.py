"""The data files of a cache, each with the reader of its container, opened as they are needed."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from pipefix.caches.format import DataFile, Index
from pipefix.caches.manifest import SUFFIXES, Part, beside

_FEW = 1 << 16
"""Records of a cache whose index a process may hold as numbers of its own: 7 MB."""


def larger_than_memory(total: int) -> bool:
    import psutil

    return bool(total > psutil.virtual_memory().available)


class Parts:
    """The data files of a cache, opened when they are first needed; forgotten in forked children and when pickled."""

    def __init__(self, folder: Path, parts: list[Part], container: str, *, check: str = "first") -> None:
        self.folder = folder
        self.parts = parts
        self.container = container
        self.check = check
        self.scattered = larger_than_memory(sum(part.bytes for part in parts))
        self.few = sum(part.records for part in parts) <= _FEW
        self.options: dict[str, Any] = {}
        """What the container's reader is told besides: columns of Parquet."""
        self.readers: list[Any] = [None] * len(parts)
        """Of the parts that are open; the same list for as long as this object lives."""
        _all.add(self)

    def file(self, number: int) -> Path:
        return self.folder / "parts" / (self.parts[number].name(number) + SUFFIXES[self.container])

    def __getitem__(self, number: int) -> Any:
        reader = self.readers[number]
        return self._opened(number) if reader is None else reader

    def _opened(self, number: int) -> Any:
        part, file = self.parts[number], self.file(number)
        index = Index.read(beside(file, ".idx"), part, few=self.few)
        mapped = DataFile(file, part, index, check=self.check, scattered=self.scattered, few=self.few)
        reader = self.readers[number] = reader_of(self.container)(mapped, index, **self.options)
        return reader

    def forget(self) -> None:
        self.readers[:] = [None] * len(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "readers": [None] * len(self.parts)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _all.add(self)


_all: weakref.WeakSet[Parts] = weakref.WeakSet()


def _forget_all() -> None:
    """In a forked child: what libraries opened in the parent is the parent's."""
    for parts in list(_all):
        parts.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def reader_of(container: str) -> Any:
    if container == "lmdb":
        from pipefix.caches.lmdb import LmdbReader

        return LmdbReader
    from pipefix.caches.parquet import ParquetReader

    return ParquetReader
