"""What a container of records is: the protocol that LMDB and Parquet implement, and the index that guards both.

Beside each data file lies an index of its blocks: place, length, checksum and how many records each holds. Blocks are what is read
at once: a value of LMDB, a row group of Parquet (and its footer). The chain of trust is manifest -> index -> block, and no byte of
a data file is looked at, or handed to a library that parses it, before the checksum of its block was found to fit. Each process
checks a block when it first reads it.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pipefix.caches.manifest import Part
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile

_HEAD = struct.Struct("<8sQQ")
_MAGIC = b"PFIXIDX1"
_BLOCK = np.dtype([("offset", "<u8"), ("length", "<u8"), ("crc", "<u4"), ("records", "<u4")])


class PartWriter(Protocol):
    """Writes the records of one part, in order, and tells its blocks once it is closed."""

    def add(self, sample: int, record: Any) -> None: ...

    def close(self) -> list[tuple[int, int, int, int]]:
        """Finish the file (not yet on the disk for certain); offset, length, checksum and records of each block."""

    def abandon(self) -> None:
        """Let go of the file, which will be removed."""


class PartReader(Protocol):
    """Reads the records of one part by their position in it."""

    def get(self, position: int) -> Any: ...

    def get_many(self, positions: Iterable[int]) -> list[Any]: ...

    def samples(self) -> list[int]:
        """The number of the source's sample for each position, as the data file itself says."""


class Index:
    """The blocks of one data file. Read from a file it stays mapped, so that all processes share its memory."""

    def __init__(self, blocks: Any, rest: int) -> None:
        self.blocks = blocks
        self.rest = rest
        """Checksum of what lies between the blocks: LMDB's tree. Only `verify` looks at that."""

    @classmethod
    def of(cls, blocks: list[tuple[int, int, int, int]], data: Path) -> Index:
        index = cls(np.array(blocks, _BLOCK), 0)
        with data.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            index.rest = index.rest_of(view)
        return index

    def rest_of(self, data: memoryview) -> int:
        order = np.argsort(self.blocks["offset"], kind="stable")
        starts: list[int] = self.blocks["offset"][order].tolist()
        ends: list[int] = (self.blocks["offset"] + self.blocks["length"])[order].tolist()
        crc = 0
        for gap, following in zip([0, *ends], [*starts, len(data)], strict=True):
            if following > gap:
                crc = zlib.crc32(data[gap:following], crc)
        return crc

    def to_bytes(self) -> bytes:
        blocks: bytes = self.blocks.tobytes()
        return _HEAD.pack(_MAGIC, len(self.blocks), self.rest) + blocks

    @classmethod
    def read(cls, path: Path, part: Part) -> Index:
        data = _map(path, part.index_bytes, scattered=False)
        if zlib.crc32(data) != part.index_crc:
            raise CacheDamaged(f"{path} was changed after it was written: its checksum does not fit.")
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: Any, path: Path) -> Index:
        try:
            magic, count, rest = _HEAD.unpack_from(data)
        except struct.error:
            raise CacheDamaged(f"{path} is too short to be an index.") from None
        if magic != _MAGIC or len(data) != _HEAD.size + count * _BLOCK.itemsize:
            raise CacheDamaged(f"{path} is not the index of a cache.")
        return cls(np.frombuffer(data, _BLOCK, count, _HEAD.size), rest)

    def words(self) -> memoryview:
        """The blocks as whole numbers, three a block: offset, length, and the checksum in the lower half of the third."""
        if not len(self.blocks):
            return memoryview(array("Q"))
        held = self.blocks if sys.byteorder == "little" else self.blocks.view("<u8").astype("=u8")
        return memoryview(held.view(np.uint8)).cast("B").cast("Q")

    def check(self, part: Part, path: Path) -> None:
        """Every block lies inside the data file, and together they hold the part's records."""
        blocks = self.blocks
        ends = blocks["offset"] + blocks["length"]
        outside = (ends > part.bytes) | (ends < blocks["offset"])
        if outside.any() or int(blocks["records"].sum(dtype=np.uint64)) != part.records:
            raise CacheDamaged(f"{path} does not fit its data file: blocks lie outside it, or records are missing.")


class Mapped:
    """A data file mapped into memory, whose blocks are checked the first time they are read. Threads may share it."""

    def __init__(
        self, path: Path, part: Part, index: Index, *, check: str = "first", scattered: bool = False, few: bool = False
    ) -> None:
        index.check(part, path)
        self.path = path
        self.words: Sequence[int] = index.words().tolist() if few else index.words()
        """Of ``few`` blocks a list, which is quicker and a hundred bytes a block; else a view of the file, which costs nothing."""
        self.view = memoryview(_map(path, part.bytes, scattered=scattered))
        self.always = check == "always"
        self.seen = bytearray(len(self)) if check != "never" else bytearray(b"\1") * len(self)

    def __len__(self) -> int:
        return len(self.words) // 3

    def block(self, number: int) -> memoryview:
        words, at = self.words, 3 * number
        offset = words[at]
        data = self.view[offset : offset + words[at + 1]]
        if not self.seen[number]:
            self._check(number, data)
        return data

    def _check(self, number: int, data: memoryview) -> None:
        if zlib.crc32(data) != self.words[3 * number + 2] & 0xFFFFFFFF:
            raise CacheDamaged(f"{self.path} is damaged: {len(data)} bytes at {self.words[3 * number]} do not fit their checksum.")
        self.seen[number] = not self.always


def _map(path: Path, expected: int, *, scattered: bool) -> Any:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != expected:
                # A map that is longer than its file ends the process when it is read.
                raise CacheDamaged(f"{path} is {size} bytes long, and was {expected} when it was written.")
            if size == 0:
                return b""
            found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise CacheDamaged(f"{path} is missing.") from None
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}.", advice=f"Check its permissions: ls -l {path}") from error
    if scattered and hasattr(mmap, "MADV_RANDOM"):
        # Read-ahead would fetch, for each record, neighbours that are evicted again before their turn comes.
        found.madvise(mmap.MADV_RANDOM)
    return found
