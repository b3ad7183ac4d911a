"""Records in Parquet: a column ``sample`` with the sample's number and a column ``record``; or, for rows, a column a field.

Row groups are small, so that one record does not cost the reading of thousands; pages carry an index, statistics and checksums.
Any program that reads Parquet reads the file. Our reader parses a row group once its checksum was found to fit, and keeps the last
few.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipefix.caches.format import DataFile, Index
from pipefix.vocabulary.errors import CacheDamaged

SAMPLE, RECORD = "sample", "record"
_GROUP_BYTES = 512 << 10
_GROUP_RECORDS = 2048
_KEPT_GROUPS = 4
_LARGEST_GROUP = 1 << 30
"""Bytes that the rows of one group may say they unpack to."""
_BLOBS = pa.schema([(SAMPLE, pa.int64()), (RECORD, pa.binary())])


class ParquetWriter:
    """Row groups of about half a megabyte."""

    def __init__(self, path: Path, schema: Any = _BLOBS) -> None:
        self._path = path
        self._schema = schema
        blobs = schema is _BLOBS
        self._writer = pq.ParquetWriter(
            str(path),
            schema,
            # Pictures and the like are compressed already; columns of numbers and text are not.
            compression="none" if blobs else "zstd",
            use_dictionary=not blobs,
            write_statistics=[SAMPLE] if blobs else True,
            write_page_index=True,
            write_page_checksum=True,
        )
        self._samples: list[int] = []
        self._records: list[Any] = []
        self._bytes = 0
        self._groups: list[int] = []

    def add(self, sample: int, record: Any) -> None:
        self._samples.append(sample)
        self._records.append(record)
        self._bytes += len(record)
        if self._bytes >= _GROUP_BYTES or len(self._samples) >= _GROUP_RECORDS:
            self._flush()

    def _flush(self) -> None:
        if self._samples:
            self.add_table(pa.table([pa.array(self._samples, pa.int64()), pa.array(self._records, pa.binary())], self._schema))
            self._samples, self._records, self._bytes = [], [], 0

    def add_table(self, table: Any) -> None:
        """One row group."""
        self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._groups.append(len(table))

    def close(self) -> list[tuple[int, int, int, int]]:
        self._flush()
        self._writer.close()
        data = self._path.read_bytes() if self._path.stat().st_size < (1 << 20) else None
        return _blocks(self._path, data, self._groups)

    def abandon(self) -> None:
        self._writer.close()


def _blocks(path: Path, data: bytes | None, groups: list[int]) -> list[tuple[int, int, int, int]]:
    """Row groups, and the footer as a block without records. They follow one another from the first byte to the last."""
    size = path.stat().st_size
    found = pq.read_metadata(str(path))
    starts = [0]
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        last = max(range(group.num_columns), key=lambda at: _begin(group.column(at)))
        starts.append(_begin(group.column(last)) + group.column(last).total_compressed_size)
    ends = [*starts[1:], size]
    blocks = []
    with path.open("rb") as file:
        for start, end, records in zip(starts, ends, [*groups, 0], strict=True):
            part = data[start:end] if data is not None else file.read(end - start)
            blocks.append((start, end - start, zlib.crc32(part), records))
    return blocks


def _begin(column: Any) -> int:
    first = column.data_page_offset
    return int(min(first, column.dictionary_page_offset) if column.has_dictionary_page else first)


def _unpacks_too_far(group: Any, *, blobs: bool) -> bool:
    """Records are written as they are; columns of rows are packed, and need not fill the memory for it."""
    if not blobs:
        return bool(group.total_byte_size > _LARGEST_GROUP)
    records = next(group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == RECORD)
    return bool(records.compression != "UNCOMPRESSED" or records.has_dictionary_page)


class ParquetReader:
    """Keeps the row groups it read last, so that neighbours come for nothing."""

    def __init__(self, mapped: DataFile, index: Index, *, columns: Sequence[str] | None = None) -> None:
        self._mapped = mapped
        self._columns = list(columns) if columns is not None else None
        records: list[int] = index.blocks["records"].tolist()
        if not records:
            raise CacheDamaged(f"{mapped.path}: its index is empty.")
        self._footer = len(records) - 1
        self.firsts = [0, *accumulate(records[:-1])]
        """Position of the first record of each row group, and one past the last."""
        self._file: Any = None
        self._kept: OrderedDict[int, Any] = OrderedDict()

    @property
    def file(self) -> Any:
        if self._file is None:
            self._mapped.read(self._footer)
            try:
                self._file = pq.ParquetFile(self._mapped.source())
                groups = [self._file.metadata.row_group(number) for number in range(self._file.metadata.num_row_groups)]
                counts = [group.num_rows for group in groups]
            except (pa.ArrowException, OSError) as error:
                raise CacheDamaged(f"{self._mapped.path} is no Parquet file: {error}.") from error
            if [0, *accumulate(counts)] != self.firsts:
                raise CacheDamaged(f"{self._mapped.path}: its row groups are not those of its index.")
            if any(_unpacks_too_far(group, blobs=RECORD in self._file.schema_arrow.names) for group in groups):
                raise CacheDamaged(f"{self._mapped.path}: a row group would fill the memory.")
        return self._file

    def group(self, number: int, columns: Sequence[str] | None = None) -> Any:
        """A row group as a table."""
        found = self._kept.get(number)
        if found is None or columns is not None:
            file = self.file
            self._mapped.read(number)
            try:
                found = file.read_row_group(number, columns=columns or self._columns, use_threads=False)
            except (pa.ArrowException, OSError, KeyError) as error:
                raise CacheDamaged(f"{self._mapped.path}: row group {number} cannot be read: {error}.") from error
            if columns is not None:
                return found
            self._kept[number] = found
            if len(self._kept) > _KEPT_GROUPS:
                self._kept.popitem(last=False)
        return found

    def group_of(self, position: int) -> tuple[int, int]:
        """The row group of a position, and the row in it."""
        number = bisect_right(self.firsts, position) - 1
        if not 0 <= number < self._footer:
            raise CacheDamaged(f"{self._mapped.path}: a record refers to record {position}, which is not there.")
        return number, position - self.firsts[number]

    def get(self, position: int) -> memoryview:
        number, row = self.group_of(position)
        return memoryview(self.group(number).column(RECORD)[row].as_buffer())

    view = get

    def get_many(self, positions: Iterable[int]) -> list[Any]:
        """In the order asked for; each row group is read once."""
        positions = list(positions)
        found: list[Any] = [None] * len(positions)
        for place in sorted(range(len(positions)), key=positions.__getitem__):
            found[place] = self.get(positions[place])
        return found

    def samples(self) -> list[int]:
        return [one for number in range(self._footer) for one in self.group(number, [SAMPLE]).column(SAMPLE).to_pylist()]
