"""Writes and reads rows in Parquet: a column a field and a column ``sample`` with its number, in small row groups.

Any program that reads Parquet reads the file. A row group is parsed once its checksum was found to fit.
"""

from __future__ import annotations

import io
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipefix.caches import rows
from pipefix.caches.manifest import Blueprint, Manifest
from pipefix.caches.record import Picture
from pipefix.hooks.snapshot import snapshot
from pipefix.vocabulary.errors import CacheDamaged
from pipefix.vocabulary.nested import members, with_members

_GROUP_ROWS = 1024
_LARGEST_GROUP = 1 << 30
"""Bytes that the rows of one group may say they unpack to."""
_KEPT_GROUPS = 8


class RowsWriter:
    """Collects rows, and writes them a row group at a time. A row group is a block, and the file's footer one without records."""

    def __init__(self, path: Path, blueprint: Blueprint) -> None:
        self._columns = blueprint.columns
        self._schema = rows.schema_of(blueprint.columns)
        self._path = path
        # Text and pictures that a dictionary repeats would have no limit to what they unpack to.
        numbers = [field.name for field in self._schema if pa.types.is_primitive(field.type)]
        self._writer = pq.ParquetWriter(
            str(path), self._schema, compression="zstd", use_dictionary=numbers, write_page_index=True, write_page_checksum=True
        )
        self._tokenizer, self._text = rows.tokenizer_of(blueprint.recipe), blueprint.recipe.text or ""
        self._samples: list[int] = []
        self._rows: list[dict[str, Any]] = []
        self._size = 0

    def add(self, sample: int, row: Any) -> int:
        """About how many bytes it takes."""
        size = rows.size_of(row)
        self._samples.append(sample)
        self._rows.append(row)
        self._size += size
        if len(self._rows) >= _GROUP_ROWS or self._size >= _LARGEST_GROUP // 8:
            self._flush()
        return size

    def _flush(self) -> None:
        if not self._rows:
            return
        arrays = [pa.array(self._samples, pa.int64())]
        arrays += [self._array(column.name, self._schema.field(column.name).type) for column in self._columns]
        self._writer.write_table(pa.table(arrays, self._schema), row_group_size=len(self._rows))
        self._samples, self._rows, self._size = [], [], 0

    def _array(self, name: str, kind: Any) -> Any:
        if self._tokenizer is not None and name == rows.TOKENS:
            texts = [row[self._text] or "" for row in self._rows]
            return pa.array([encoding.ids for encoding in self._tokenizer.encode_batch(texts)], kind)
        return pa.array([row.get(name) for row in self._rows], kind)

    def close(self) -> list[tuple[int, int, int, int]]:
        """Finish the file (not yet on the disk for certain); offset, length, checksum and records of each block."""
        self._flush()
        self._writer.close()
        return blocks_of(self._path)

    def abandon(self) -> None:
        self._writer.close()


def blocks_of(path: Path) -> list[tuple[int, int, int, int]]:
    """Row groups and the footer. They follow one another from the first byte to the last."""
    metadata = pq.read_metadata(str(path))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    ends = []
    for group in groups:
        last = max((group.column(number) for number in range(group.num_columns)), key=_begin)
        ends.append(_begin(last) + last.total_compressed_size)
    starts = [0, *ends]
    blocks = []
    with path.open("rb") as file:
        for start, end, count in zip(starts, [*ends, path.stat().st_size], [*(group.num_rows for group in groups), 0], strict=True):
            blocks.append((start, end - start, zlib.crc32(file.read(end - start)), count))
    return blocks


def _begin(column: Any) -> int:
    first = column.data_page_offset
    return int(min(first, column.dictionary_page_offset) if column.has_dictionary_page else first)


class _Block(io.BytesIO):
    """A row group, checked, at its place in its data file: all of the file that pyarrow reads for it."""

    def __init__(self, data: memoryview, begin: int, file_size: int) -> None:
        super().__init__(data)
        self._begin, self._file_size = begin, file_size

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        offset += {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._file_size}[whence]
        return super().seek(offset - self._begin) + self._begin

    def tell(self) -> int:
        return super().tell() + self._begin


class RowGroups:
    """The row groups of one data file, which each call is given: it may be closed in between, or come to lie in a tier."""

    def __init__(self, file: Any, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._starts: list[int] = file.index.blocks["offset"].tolist()
        counts: list[int] = file.index.blocks["records"].tolist()
        if not counts:
            raise CacheDamaged(f"{file.path}: its index is empty.")
        self.firsts = [0, *accumulate(counts[:-1])]
        """Position of the first row of each row group, and one past the last."""
        try:
            self._metadata = pq.read_metadata(pa.BufferReader(file.read(len(counts) - 1)))
            groups = [self._metadata.row_group(number) for number in range(self._metadata.num_row_groups)]
        except (pa.ArrowException, OSError) as error:
            raise CacheDamaged(f"{file.path} is no Parquet file: {error}.") from error
        if [0, *accumulate(group.num_rows for group in groups)] != self.firsts:
            raise CacheDamaged(f"{file.path}: its row groups are not those of its index.")
        if any(map(_fills_the_memory, groups)):
            raise CacheDamaged(f"{file.path}: a row group would fill the memory.")

    def group(self, file: Any, number: int) -> Any:
        """A row group as a table."""
        block = _Block(file.read(number), self._starts[number], file.size)
        try:
            opened = pq.ParquetFile(pa.PythonFile(block, mode="r"), metadata=self._metadata)
            return opened.read_row_group(number, columns=self._columns, use_threads=False)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise CacheDamaged(f"{file.path}: row group {number} cannot be read: {error}.") from error


def _fills_the_memory(group: Any) -> bool:
    """Whether its few bytes may unpack to more than a row group holds; text that a dictionary repeats has no limit of its own."""
    columns = [group.column(number) for number in range(group.num_columns)]
    repeated = [column for column in columns if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY"]
    unpacked = sum(column.num_values * column.total_uncompressed_size for column in repeated)
    return bool(group.total_byte_size + unpacked > _LARGEST_GROUP)


class Rows:
    """All rows of a cache. The last few row groups are kept, so that neighbours cost only a copy. Threads may share it."""

    def __init__(self, manifest: Manifest, parts: Any, starts: Sequence[int], picture: Any) -> None:
        self._parts, self._starts = parts, starts
        self._manifest, self._picture = manifest, picture
        self._groups: dict[int, RowGroups] = {}
        self._kept: dict[tuple[int, int], list[Any]] = {}
        """Samples of row groups, the last one used last, with pictures as files: those of a whole group, decoded, fill the memory.
        Another dict takes its place; it is never changed."""
        self._has_pictures = any(column.like == "image" for column in manifest.columns)

    def part(self, number: int) -> RowGroups:
        groups = self._groups.get(number)
        if groups is None:
            groups = self._groups[number] = RowGroups(self._parts[number], [column.name for column in self._manifest.columns])
        return groups

    def _place(self, index: int) -> tuple[int, int, int]:
        """Part, row group, and the row in it."""
        number = bisect_right(self._starts, index) - 1
        position, firsts = index - self._starts[number], self.part(number).firsts
        group = bisect_right(firsts, position) - 1
        if not 0 <= group < len(firsts) - 1:
            raise CacheDamaged(f"{self._parts[number].path} has no row {position}.")
        return number, group, position - firsts[group]

    def missing(self, indices: Iterable[int]) -> list[tuple[int, int]]:
        """Part and number of the row groups of these rows that are not kept."""
        return [block for block in dict.fromkeys(self._place(index)[:2] for index in indices) if block not in self._kept]

    def __getitem__(self, index: int) -> Any:
        number, group, row = self._place(index)
        groups_kept = self._kept
        samples = groups_kept.get((number, group))
        if samples is None:
            samples = self.read(number, group, lambda picture: picture)
        if next(reversed(groups_kept), None) != (number, group):
            others = [(key, held) for key, held in groups_kept.items() if key != (number, group)]
            self._kept = dict([*others[1 - _KEPT_GROUPS :], ((number, group), samples)])
        sample = snapshot(samples[row])  # whoever gets it may change it
        return self._with_pictures(sample) if self._has_pictures else sample

    def _with_pictures(self, sample: Any) -> Any:
        with _told_as_damage():
            if isinstance(sample, Picture):
                return self._picture(sample)
            decoded = [(key, self._picture(held) if isinstance(held, Picture) else held) for key, held in members(sample) or []]
            return with_members(sample, decoded)

    def read(self, number: int, group: int, picture: Callable[[Picture], Any]) -> list[Any]:
        """The samples of a part's row group; ``picture`` makes images of their files."""
        table = self.part(number).group(self._parts[number], group)
        with _told_as_damage():
            return rows.samples_of(table, self._manifest.columns, self._manifest.shape, picture)


@contextmanager
def _told_as_damage() -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise CacheDamaged(f"The rows of a cache are not what its manifest says: {error}.") from error
