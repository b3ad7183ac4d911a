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
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from pipefix.caches.manifest import Part
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile
from pipefix.vocabulary.files import open_regular

_HEAD = struct.Struct("<8sQQ")
_MAGIC = b"PFIXIDX1"
_BLOCK = np.dtype([("offset", "<u8"), ("length", "<u8"), ("crc", "<u4"), ("records", "<u4")])


MOST_RECORDS = 1 << 13
"""Of a block. What a block's few bytes unpack to must not fill the memory."""


class PartWriter(Protocol):
    """Writes the records of one part, in order, and tells its blocks once it is closed."""

    def add(self, sample: int, record: Any) -> None: ...

    def close(self) -> list[tuple[int, int, int, int]]:
        """Finish the file (not yet on the disk for certain); offset, length, checksum and records of each block."""

    def abandon(self) -> None:
        """Let go of the file, which will be removed."""


class PartReader(Protocol):
    """Reads the records of one part by their position in it."""

    def get(self, position: int) -> Any:
        """The record, in memory of its own."""

    def view(self, position: int) -> Any:
        """The record where it lies in the file in memory: see `DataFile`."""

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
    def read(cls, path: Path, part: Part, *, few: bool = False) -> Index:
        """Of ``few`` records in memory of its own; otherwise mapped."""
        if few:
            with _open(path, part.index_bytes) as file:
                data: Any = file.read()
        else:
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
        """Every block lies inside the data file and holds no more records than a block may; together they hold the part's."""
        blocks = self.blocks
        ends = blocks["offset"] + blocks["length"]
        outside = (ends > part.bytes) | (ends < blocks["offset"]) | (blocks["records"] > MOST_RECORDS)
        if outside.any() or int(blocks["records"].sum(dtype=np.uint64)) != part.records:
            raise CacheDamaged(f"{path} does not fit its data file: blocks lie outside it, or records are missing.")


class DataFile:
    """A data file whose blocks are checked the first time they are read. Threads may share it.

    Samples are made of blocks that were `read` into memory of their own. A `block` is a view of the file in memory: it costs
    nothing, but who looks at it is ended by the system (SIGBUS) if the file was meanwhile made shorter.
    """

    def __init__(
        self, path: Path, part: Part, index: Index, *, check: str = "first", scattered: bool = False, few: bool = False
    ) -> None:
        index.check(part, path)
        self.path = path
        self._bytes = part.bytes
        self._scattered = scattered
        self.words: Sequence[int] = index.words().tolist() if few else index.words()
        """Of ``few`` blocks a list, which is quicker and a hundred bytes a block; else a view of the file, which costs nothing."""
        self._file = _open(path, part.bytes)
        if scattered and hasattr(os, "posix_fadvise"):
            # Read-ahead would fetch, for each record, neighbours that are evicted again before their turn comes.
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        self._descriptor = self._file.fileno()
        self.always = check == "always"
        self.seen = bytearray(len(self)) if check != "never" else bytearray(b"\1") * len(self)

    def __len__(self) -> int:
        return len(self.words) // 3

    def source(self) -> Any:
        """What pyarrow reads the file from."""
        import pyarrow as pa

        return pa.OSFile(str(self.path))

    @cached_property
    def view(self) -> memoryview:
        """The whole file."""
        return memoryview(_map(self.path, self._bytes, scattered=self._scattered))

    def block(self, number: int) -> memoryview:
        words, at = self.words, 3 * number
        try:
            offset = words[at]
            data = self.view[offset : offset + words[at + 1]]
        except IndexError:
            raise self._missing(number) from None
        if not self.seen[number]:
            self._check(number, data)
        return data

    def read(self, number: int) -> memoryview:
        """A copy of a block, which can be written to."""
        if _preadv is None:
            return memoryview(bytearray(self.block(number)))
        words, at = self.words, 3 * number
        try:
            offset, length = words[at], words[at + 1]
        except IndexError:
            raise self._missing(number) from None
        held = bytearray(length)
        if _preadv(self._descriptor, [held], offset) != length:
            raise CacheDamaged(f"{self.path} was made shorter while it was read: its bytes from {offset} on are missing.")
        data = memoryview(held)
        if not self.seen[number]:
            self._check(number, data)
        return data

    def _missing(self, number: int) -> CacheDamaged:
        return CacheDamaged(f"{self.path}: a record refers to record {number}, which is not there.")

    def _check(self, number: int, data: memoryview) -> None:
        if zlib.crc32(data) != self.words[3 * number + 2] & 0xFFFFFFFF:
            raise CacheDamaged(f"{self.path} is damaged: {len(data)} bytes at {self.words[3 * number]} do not fit their checksum.")
        self.seen[number] = not self.always


_preadv = getattr(os, "preadv", None)
"""The system's own, whatever a seam puts in its place later: what a cache reads is no read of a sample's."""


def _open(path: Path, expected: int) -> BinaryIO:
    """The file, open for reading, if it is as long as it was."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise CacheDamaged(f"{path} is missing.") from None
    except OSError as error:
        raise UnreadableFile(
            f"{path} cannot be read: {error.strerror}.", advice=f"Check its permissions: {command('ls', '-l', path)}"
        ) from error
    size = os.fstat(file.fileno()).st_size
    if size != expected:
        file.close()
        raise CacheDamaged(f"{path} is {size} bytes long, and was {expected} when it was written.")
    return file


def _map(path: Path, expected: int, *, scattered: bool) -> Any:
    with _open(path, expected) as file:
        found: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if expected else b""
    if scattered and expected and hasattr(mmap, "MADV_RANDOM"):
        found.madvise(mmap.MADV_RANDOM)
    return found
