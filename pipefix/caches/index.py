"""Reads records of a local cache (`Parts`), by the index of each data file: where its records lie, and their checksums.

Beside each data file lies an index of its blocks: place, length, checksum and how many records each holds. Blocks are what is read
at once: a value of LMDB, a row group of Parquet (and its footer). The chain of trust is manifest -> index -> block, and no byte of
a data file is looked at, or handed to a library that parses it, before the checksum of its block was found to fit. Each process
checks a block when it first reads it.
"""

from __future__ import annotations

import errno
import os
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pipefix.caches import manifest as manifests
from pipefix.caches.layout import CONTAINERS, beside
from pipefix.caches.manifest import Part
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile
from pipefix.vocabulary.files import open_regular

_HEAD = struct.Struct("<8sQQ")
_MAGIC = b"PFIXIDX1"
_BLOCK = np.dtype([("offset", "<u8"), ("length", "<u8"), ("crc", "<u4"), ("records", "<u4")])
_PLACE = struct.Struct("<QQI")
_PIECE = 1 << 20
_FEW = 1 << 16
"""Records of a cache whose index a process holds as numbers of its own, some 7 MB; of a larger one it reads each place anew."""
MOST_RECORDS = 1 << 13
"""Of a block. What a block's few bytes unpack to must not fill the memory."""

Place = tuple[int, int, int]
"""Offset, length and checksum of a block."""


class Index:
    """The blocks of one data file."""

    def __init__(self, blocks: Any, rest: int, file: BinaryIO | None = None) -> None:
        self.blocks = blocks
        self.rest = rest
        """Checksum of what lies between the blocks: LMDB's tree. Only `verify` looks at that."""
        self._file = file

    @classmethod
    def of(cls, blocks: list[tuple[int, int, int, int]], data: Path) -> Index:
        index = cls(np.array(blocks, _BLOCK), 0)
        with data.open("rb", buffering=0) as file:
            index.rest = index.rest_of(file)
        return index

    def rest_of(self, file: BinaryIO) -> int:
        """The checksum of what lies between the blocks of an open data file."""
        blocks: list[tuple[int, int]] = np.sort(self.blocks[["offset", "length"]], order="offset").tolist()
        crc = at = 0
        for begin, length in [*blocks, (os.fstat(file.fileno()).st_size, 0)]:
            file.seek(at)
            while at < begin and (piece := file.read(min(begin - at, _PIECE))):
                crc = zlib.crc32(piece, crc)
                at += len(piece)
            at = begin + length
        return crc

    def to_bytes(self) -> bytes:
        blocks: bytes = self.blocks.tobytes()
        return _HEAD.pack(_MAGIC, len(self.blocks), self.rest) + blocks

    @classmethod
    def read(cls, path: Path, part: Part, *, in_memory: bool = True) -> Index:
        """``in_memory``: whether the places of blocks stay in memory, or are read from the file again, one by one."""
        file = _open(path, part.index_bytes)
        data = file.read()
        if in_memory:
            file.close()
        return cls.parse(data, part, path, None if in_memory else file)

    @classmethod
    def parse(cls, data: bytes, part: Part, path: Path | str, file: BinaryIO | None = None) -> Index:
        if zlib.crc32(data) != part.index_crc:
            raise CacheDamaged(f"{path} was changed after it was written: its checksum does not fit.")
        magic, count, rest = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
        if magic != _MAGIC or len(data) != _HEAD.size + count * _BLOCK.itemsize:
            raise CacheDamaged(f"{path} is not the index of a cache.")
        return cls(np.frombuffer(data, _BLOCK, count, _HEAD.size), rest, file)

    def places(self) -> Callable[[int], Place]:
        """Gives the place of a block by its number; raises IndexError where there is none."""
        if self._file is None:
            places: list[Place] = self.blocks[["offset", "length", "crc"]].tolist()
            return places.__getitem__
        file = self._file

        def place(number: int) -> Place:
            held = bytearray(_PLACE.size)
            if _read_into(file, held, _HEAD.size + number * _BLOCK.itemsize) < len(held):
                raise IndexError
            return _PLACE.unpack(held)

        return place

    def check(self, part: Part, path: Path | str) -> None:
        """Every block lies inside the data file and holds no more records than a block may; together they hold the part's."""
        blocks = self.blocks
        ends = blocks["offset"] + blocks["length"]
        outside = (ends > part.bytes) | (ends < blocks["offset"]) | (blocks["records"] > MOST_RECORDS)
        if outside.any() or int(blocks["records"].sum(dtype=np.uint64)) != part.records:
            raise CacheDamaged(f"{path} does not fit its data file: blocks lie outside it, or records are missing.")


class DataFile:
    """A data file whose blocks are checked the first time they are read. Threads and forked processes may share it."""

    def __init__(self, path: Path, part: Part, index: Index, *, scattered: bool = False) -> None:
        index.check(part, path)
        self.path, self.size = path, part.bytes
        self.index: Index | None = None
        """Where it is asked for besides the places of blocks."""
        self.place = index.places()
        self.file = _open(path, part.bytes)
        if scattered and hasattr(os, "posix_fadvise"):
            # Read-ahead would fetch, for each record, neighbours that are evicted again before their turn comes.
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        self._seen = bytearray(len(index.blocks))

    def __del__(self) -> None:
        if file := getattr(self, "file", None):
            file.close()

    def read(self, number: int) -> memoryview:
        """A block, in memory of its own, which can be written to."""
        try:
            offset, length, crc = self.place(number)
            is_checked = self._seen[number]
        except IndexError:
            raise CacheDamaged(f"{self.path}: record {number} is not in its index.") from None
        held = bytearray(length)
        if _read_into(self.file, held, offset) != length:
            raise CacheDamaged(f"{self.path} was made shorter while it was read: its bytes from {offset} on are missing.")
        data = memoryview(held)
        if not is_checked:
            if zlib.crc32(data) != crc:
                raise CacheDamaged(f"{self.path} is damaged: {length} bytes at {offset} do not fit their checksum.")
            self._seen[number] = True
        return data


_preadv = os.preadv
"""The system's own, whatever a hook puts in its place later: what a cache reads is no read of a sample's."""


def _read_into(file: BinaryIO, held: bytearray, offset: int) -> int:
    """How many bytes there were at ``offset``."""
    done = _preadv(file.fileno(), [held], offset)
    while 0 < done < len(held) and (more := _preadv(file.fileno(), [memoryview(held)[done:]], offset + done)):
        done += more
    return done


def _open(path: Path, expected: int) -> BinaryIO:
    """The file, open for reading, if it is as long as it was."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        raise CacheDamaged(f"{path} is missing.") from None
    except OSError as error:
        advice = f"Check its permissions: {command('ls', '-l', path)}"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "Allow more open files, ulimit -n 65536, and start the program again."
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}.", advice=advice) from error
    size = os.fstat(file.fileno()).st_size
    if size != expected:
        file.close()
        raise CacheDamaged(f"{path} is {size} bytes long, and was {expected} when it was written.")
    return file


class Parts:
    """The data files of a cache, opened when they are first needed; pickled without them."""

    def __init__(self, folder: Path, parts: list[Part], container: str) -> None:
        import psutil

        self.folder, self.parts, self.container = folder, parts, container
        self.scattered: bool = sum(part.bytes for part in parts) > psutil.virtual_memory().available
        self.kept = sum(part.records for part in parts) <= _FEW
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most_open = sys.maxsize if soft == resource.RLIM_INFINITY else max(1, soft // 4)
        """Parts whose files, two each, are open at once: half of those that a process may open are left to others."""
        self.files: list[Any] = [None] * len(parts)
        """Those that are open; the same list for as long as this object lives."""

    def __getitem__(self, number: int) -> Any:
        file = self.files[number]
        return self._opened(number) if file is None else file

    def _opened(self, number: int) -> Any:
        part = self.parts[number]
        path = self.folder / part.data(number, self.container)
        try:
            index = Index.read(beside(path, ".idx"), part, in_memory=self.kept)
            file = DataFile(path, part, index, scattered=self.scattered)
        except CacheDamaged as error:
            raise self._replaced(part) or error from None
        return self._keeping(number, file, index)

    def _replaced(self, part: Part) -> UnreadableFile | None:
        """Where the cache itself is gone, or another by now: it is not damaged, and must not be said to be."""
        try:
            known = part in manifests.read(self.folder).parts
        except CacheDamaged:
            return None
        except UnreadableFile as error:
            return UnreadableFile(f"The cache was removed, or moved, after it was opened: {error}", advice=error.advice)
        if known:
            return None
        return UnreadableFile(
            f"The cache {self.folder} was made anew after it was opened, and what was opened is gone.",
            advice="Open it once more, CachedDataset(...), or start the program again.",
        )

    def _keeping(self, number: int, file: Any, index: Index) -> Any:
        file.index = index if CONTAINERS[self.container].has_row_groups else None
        there = [place for place, held in enumerate(self.files) if isinstance(held, DataFile)]
        if len(there) >= self.most_open:
            self.files[there[0]] = None  # closed once nobody reads it
        self.files[number] = file
        return file

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "files": [None] * len(self.parts)}
