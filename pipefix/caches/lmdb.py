"""Writes records into LMDB: key, the sample's number as 8 bytes, big-endian, so that keys sort as numbers; value, the record.

Any program that uses the ``lmdb`` package can read the file. Our own reader does not go through LMDB: the index knows where each
value lies in the file, so a record is one `pread`. That is quicker than a walk through the tree, needs no environment a process,
survives forks, and neither a damaged page nor a file that is cut meanwhile ends the process. Here alone a file is mapped: the
writer's own draft.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from pipefix.vocabulary.errors import CacheDamaged

_FIRST_MAP = 1 << 24
_COMMIT_BYTES = 1 << 20
"""What was written waits in memory until a transaction ends: no more than a core's cache holds, or all is fetched again."""


class LmdbWriter:
    """One environment, in one file, that grows as it fills."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._environment = _opened(path, map_size=_FIRST_MAP, sync=False, metasync=False, readahead=False, max_readers=1)
        self._waiting: list[tuple[bytes, Any]] = []
        self._waiting_bytes = 0
        self._crcs: list[int] = []

    def add(self, sample: int, record: Any) -> int:
        self._crcs.append(zlib.crc32(record))
        self._waiting.append((sample.to_bytes(8, "big"), record))
        self._waiting_bytes += len(record)
        if self._waiting_bytes >= _COMMIT_BYTES:
            self._commit()
        return len(record)

    def _commit(self) -> None:
        """Put what waits. A map that turns out too small is enlarged, and the transaction done again."""
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, record in self._waiting:
                        transaction.put(key, record, append=True)
                break
            except lmdb.MapFullError:
                self._environment.set_mapsize(self._environment.info()["map_size"] * 2)
            except lmdb.Error as error:
                # Where a disk is full, LMDB writes less than it wanted and calls that an input/output error.
                full = shutil.disk_usage(self._path.parent).free < self._waiting_bytes + _COMMIT_BYTES
                number = errno.ENOSPC if full or isinstance(error, lmdb.DiskError) else errno.EIO
                raise OSError(number, os.strerror(number), str(self._path)) from error
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> list[tuple[int, int, int, int]]:
        self._commit()
        self._environment.close()
        if not self._crcs:
            return []
        with (
            _opened(self._path, readonly=True, create=False) as environment,
            self._path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            environment.begin(buffers=True) as transaction,
        ):
            places = _places(mapped, transaction)
        return [(offset, length, crc, 1) for (offset, length), crc in zip(places, self._crcs, strict=True)]

    def abandon(self) -> None:
        self._environment.close()


def _opened(path: Path, **how: Any) -> Any:
    """The environment in this file. What the system refuses is told as of any other file."""
    try:
        return lmdb.open(str(path), subdir=False, lock=False, **how)
    except lmdb.Error as error:
        number = next((number for number in errno.errorcode if os.strerror(number) in str(error)), errno.EIO)
        raise OSError(number, os.strerror(number), str(path)) from error


def _places(mapped: mmap.mmap, transaction: Any) -> list[tuple[int, int]]:
    """Offset and length of each value: they lie as far apart as in LMDB's map, whose beginning is found by looking for the first.

    The file may hold stale copies of a value, on pages that were split; only one place of the first fits all values.
    """
    values = [
        (np.frombuffer(value, np.uint8).ctypes.data, len(value), bytes(value[:16]), bytes(value[-8:]))
        for _, value in transaction.cursor()
    ]
    first, found = bytes(next(iter(transaction.cursor()))[1]), -1
    while (found := mapped.find(first, found + 1)) >= 0:
        begin = found - values[0][0]
        if all(_is_at(mapped, begin, value) for value in values):
            return [(begin + address, length) for address, length, *_ in values]
    raise CacheDamaged("The records are not in the file that they were written to.")


def _is_at(mapped: mmap.mmap, begin: int, value: tuple[int, int, bytes, bytes]) -> bool:
    address, length, head, tail = value
    at, end = begin + address, begin + address + length
    return at >= 0 and mapped[at : at + len(head)] == head and mapped[end - len(tail) : end] == tail
