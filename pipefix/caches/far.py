"""A cache in a store: the manifest and indices are read when it is opened, records by ranges as they are asked for.

The chain of trust is that of a cache on a disk: manifest -> index -> block. No byte is used before its checksum was found to fit,
every time that it crossed the network. A part that lies in a local tier is read there instead.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from pipefix.caches import manifest as manifests
from pipefix.caches.format import DataFile, Index
from pipefix.caches.layout import MANIFEST
from pipefix.caches.manifest import SUFFIXES, Manifest, Part
from pipefix.caches.parts import Parts, reader_of
from pipefix.stores.store import NoSuchObject, Span, Store
from pipefix.tier.client import Tier, Wanted
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile

_KEPT_BLOCKS = 3
"""Of a Parquet file, whose reader checks a block and then has pyarrow read it."""
_PIECE = 32 << 20
_AGAIN = 2
"""Times that a block whose checksum does not fit is fetched once more: networks flip bytes as well."""


def data_name(part: Part, number: int, container: str) -> str:
    return f"parts/{part.name(number)}{SUFFIXES[container]}"


def beside_name(part: Part, number: int, suffix: str) -> str:
    return f"index/{part.name(number)}{suffix}"


def read_manifest(store: Store) -> Manifest:
    try:
        text = store.get(MANIFEST)
    except NoSuchObject:
        raise UnreadableFile(
            f"{store.url} is not a pipefix cache: it has no {MANIFEST}.",
            advice="Make one, or go on with one that was begun: "
            + command("pipefix", "convert", "TARGET", "--to", "lmdb", "--out", store.url),
        ) from None
    return manifests.of_text(text, f"{store.url}/{MANIFEST}")


def read_index(store: Store, part: Part, number: int) -> Index:
    name = beside_name(part, number, ".idx")
    where = Path(f"{store.url}/{name}")
    try:
        data = store.get(name)
    except NoSuchObject:
        raise CacheDamaged(f"{store.url}/{name} is missing.") from None
    if len(data) != part.index_bytes or zlib.crc32(data) != part.index_crc:
        raise CacheDamaged(f"{store.url}/{name} was changed after it was written: its checksum does not fit.")
    return Index.parse(data, where)


class FarFile:
    """A data file in a store: what `DataFile` is on a disk."""

    def __init__(self, store: Store, name: str, part: Part, index: Index, *, keep: bool) -> None:
        self.path = Path(f"{store.url}/{name}")
        index.check(part, self.path)
        self._store, self._name, self._bytes = store, name, part.bytes
        self._blocks: list[tuple[int, int, int]] = index.blocks[["offset", "length", "crc"]].tolist()
        self._ahead: dict[int, memoryview] = {}
        """Blocks that were fetched and are yet to be read."""
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._most = _KEPT_BLOCKS if keep else 0

    def __len__(self) -> int:
        return len(self._blocks)

    def span(self, number: int) -> Span:
        try:
            offset, length, _ = self._blocks[number]
        except IndexError:
            raise CacheDamaged(f"{self.path}: a record refers to record {number}, which is not there.") from None
        return Span(self._name, offset, length)

    def wanted(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in dict.fromkeys(numbers) if number not in self._ahead]

    def forget_ahead(self) -> None:
        """What was fetched for the last batch, and not read after all."""
        self._ahead.clear()

    def arrived(self, number: int, data: bytes) -> None:
        """A block that was fetched; whether it is what was written is looked at when it is read."""
        self._ahead[number] = memoryview(bytearray(data))

    def read(self, number: int) -> memoryview:
        if number in self._kept:
            return self._kept[number]
        span = self.span(number)
        data = self._ahead.pop(number, None)
        for attempt in range(_AGAIN + 1):
            if data is not None and len(data) == span.length and zlib.crc32(data) == self._blocks[number][2]:
                return self._keeping(number, data)
            if attempt < _AGAIN:
                data = memoryview(bytearray(self._fetched(span)))
        raise CacheDamaged(f"{self.path} is damaged: {span.length} bytes at {span.begin} do not fit their checksum.")

    block = read

    def _keeping(self, number: int, data: memoryview) -> memoryview:
        if self._most:
            self._kept[number] = data
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return data

    def _fetched(self, span: Span) -> bytes:
        try:
            return self._store.ranges([span])[0]
        except NoSuchObject:
            raise CacheDamaged(f"{self.path} is missing.") from None

    def source(self) -> Any:
        """What pyarrow reads the file from."""
        import pyarrow as pa

        return pa.PythonFile(_Checked(self, self._bytes), mode="r")

    @property
    def starts(self) -> list[int]:
        return [offset for offset, _, _ in self._blocks]


class _Checked(io.RawIOBase):
    """A file whose blocks follow one another without gaps (Parquet's do), read block by block."""

    def __init__(self, file: FarFile, size: int) -> None:
        self._file, self._size, self._at = file, size, 0
        self._starts = file.starts

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0 if whence == 0 else self._at if whence == 1 else self._size)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        parts = []
        while self._at < end:
            number = bisect_right(self._starts, self._at) - 1
            block = self._file.read(number)
            skipped = self._at - self._starts[number]
            part = bytes(block[skipped : skipped + end - self._at])
            if not part:
                raise CacheDamaged(f"{self._file.path}: its blocks do not cover it.")
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def readall(self) -> bytes:
        return self.read()


class FarParts(Parts):
    """The data files of a cache in a store, each read in the tier once it lies there."""

    def __init__(self, store: Store, manifest: Manifest, check: str, tier: Tier | None) -> None:
        self._ahead: list[FarFile] = []
        super().__init__(Path(store.url), manifest.parts, manifest.recipe.container, check=check)
        self.store = store
        self.tier = tier.of_cache(store.url, manifest.digest) if tier is not None else None

    def _opened(self, number: int) -> Any:
        part, name = self.parts[number], data_name(self.parts[number], number, self.container)
        index = read_index(self.store, part, number)
        blocks = index.blocks[["offset", "length", "crc"]].tolist()
        local = self.tier.part(Wanted(name, part.bytes, blocks)) if self.tier is not None else None
        mapped: Any
        if local is not None:
            mapped = DataFile(local, part, index, check=self.check, scattered=self.scattered, few=self.few)
        else:
            mapped = FarFile(self.store, name, part, index, keep=self.container == "parquet")
        reader = reader_of(self.container)(mapped, index, **self.options)
        reader.far = mapped if local is None else None
        self.readers[number] = reader
        return reader

    def __getitem__(self, number: int) -> Any:
        reader = self.readers[number]
        if reader is not None and reader.far is not None and self.tier is not None and self.tier.arrived(self._name(number)):
            reader = None
        return self._opened(number) if reader is None else reader

    def _name(self, number: int) -> str:
        return data_name(self.parts[number], number, self.container)

    def fetch(self, positions: Iterable[tuple[int, int]], held: Container[tuple[int, int]] = ()) -> None:
        """Blocks of records, by part and position, all at the same time; those that lie in the tier, or are ``held``, are not."""
        by_part: dict[int, list[int]] = defaultdict(list)
        for number, position in positions:
            by_part[number].append(position)
        for file in self._ahead:
            file.forget_ahead()
        wanted: list[tuple[FarFile, int]] = []
        for number, places in by_part.items():
            reader = self[number]
            if reader.far is not None:
                blocks = [reader.group_of(at)[0] for at in places] if self.container == "parquet" else places
                absent = [one for one in reader.far.wanted(blocks) if (number, one) not in held and not _is_kept(reader, one)]
                wanted += [(reader.far, one) for one in absent]
        try:
            found = self.store.ranges([file.span(number) for file, number in wanted]) if wanted else []
        except NoSuchObject as error:
            raise CacheDamaged(f"{self.store.url}/{error} is missing.") from None
        for (file, number), data in zip(wanted, found, strict=True):
            file.arrived(number, data)
        self._ahead = list({id(file): file for file, _ in wanted}.values())

    def forget(self) -> None:
        super().forget()
        self._ahead = []

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ahead": []}


def _is_kept(reader: Any, block: int) -> bool:
    """Whether a Parquet reader has this row group as a table."""
    return block in getattr(reader, "_kept", ())


def bring(store: Store, manifest: Manifest, number: int, folder: Path) -> None:
    """Fetch a part's files into the directory of a cache; one that is missing in the store stays missing."""
    part = manifest.parts[number]
    name = data_name(part, number, manifest.recipe.container)
    with (folder / name).open("wb") as file:
        for at in range(0, part.bytes, _PIECE):
            try:
                file.write(store.ranges([Span(name, at, min(_PIECE, part.bytes - at))])[0])
            except NoSuchObject:
                break
    for suffix in (".idx", ".facts"):
        with contextlib.suppress(NoSuchObject):
            (folder / beside_name(part, number, suffix)).write_bytes(store.get(beside_name(part, number, suffix)))
