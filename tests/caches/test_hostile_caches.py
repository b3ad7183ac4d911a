"""Caches of strangers, whose checksums were made to fit: told as damaged, without taking memory that they do not need."""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipefix.caches import manifest as manifests
from pipefix.caches import parquet, record
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.index import Index
from pipefix.caches.layout import CONTAINERS, beside
from pipefix.caches.pictures import decoder_to
from pipefix.caches.record import Picture, RecordDecoder
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import CacheDamaged, UnreadableFile
from pipefix.vocabulary.files import write_whole
from tests.caches.sources import Files, Numbers, Texts
from tests.kernels.jpegs import with_filling


def sealed_again(folder: Path, blocks: list[tuple[int, int, int, int]] | None = None, records: int | None = None) -> None:
    """Checksums, lengths and counts of the only part are made to fit its data."""
    manifest = manifests.read(folder)
    (part,) = manifest.parts
    data = folder / "parts" / f"00000{CONTAINERS[manifest.recipe.container].suffix}"
    if blocks is None:
        held = Index.read(beside(data, ".idx"), part).blocks.tolist()
        text = data.read_bytes()
        blocks = [(offset, length, zlib.crc32(text[offset : offset + length]), count) for offset, length, _, count in held]
    index = Index.of(blocks, data).to_bytes()
    beside(data, ".idx").write_bytes(index)
    count = part.records if records is None else records
    part = msgspec.structs.replace(
        part, bytes=data.stat().st_size, index_bytes=len(index), index_crc=zlib.crc32(index), records=count, stop=count
    )
    text = manifests.sealed_text(msgspec.structs.replace(manifest, parts=[part], length=count, samples=count))
    write_whole(folder / "manifest.json", text)


def sealed_with(folder: Path, described: Any) -> None:
    """The first record of a cache of files describes itself so, and all checksums are made to fit."""
    manifest = manifests.read(folder)
    (data,) = (folder / "parts").iterdir()
    index = Index.read(beside(data, ".idx"), manifest.parts[0])
    offset, length = (int(index.blocks[0][name]) for name in ("offset", "length"))
    try:
        text = record.closed([], described)
    except record.Unstorable:
        text = record.closed([], ["S", ["XXXX", 1, []]]).replace(b"XXXX", b"\xff\xfe\xff\xfe")
    held = bytearray(data.read_bytes())
    held[offset : offset + length] = bytes(length - len(text)) + text
    data.write_bytes(held)
    sealed_again(folder)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("manifest.json", "endless"), ("parts/00000.mdb", "pipe"), ("index/00000.idx", "endless"), ("index/00000.facts", "pipe")],
)
def test_what_is_no_file_is_told_at_once(make: Any, name: str, kind: str) -> None:
    folder = make(Numbers(), "sample").folder
    (folder / name).unlink()
    os.mkfifo(folder / name) if kind == "pipe" else (folder / name).symlink_to("/dev/zero")
    if name.endswith("facts"):
        assert not verify(folder).sound and len(CachedDataset(folder)) == 100
        return
    with pytest.raises(UnreadableFile, match="not a regular file"):
        CachedDataset(folder)[0]
    if name != "manifest.json":
        assert not verify(folder).sound


@pytest.fixture
def rows(make: Any) -> Path:
    return make(Texts(10), "rows", "parquet").folder


def forged(folder: Path, count: int, text: Any, **how: Any) -> None:
    """Its rows are replaced by so many others, in one row group, and all checksums made to fit."""
    (data,) = (folder / "parts").iterdir()
    schema = pq.read_schema(data)
    columns = [text if field.name == "text" else pa.nulls(count, field.type) for field in schema]
    pq.write_table(pa.table(columns, schema), str(data), row_group_size=count, **how)
    sealed_again(folder, parquet.blocks_of(data), count)


def test_millions_of_rows_in_a_few_kilobytes(rows: Path) -> None:
    few = pa.array(["x" * 20], pa.string())
    forged(
        rows, 3_000_000, pa.DictionaryArray.from_arrays(np.zeros(3_000_000, np.int32), few).cast(pa.string()), compression="zstd"
    )
    with pytest.raises(CacheDamaged):
        CachedDataset(rows)[0]
    assert not verify(rows).sound


def test_a_dictionary_that_fills_the_memory(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_LARGEST_GROUP", 1 << 23)
    forged(rows, 100, pa.array(["x" * (1 << 17)] * 100, pa.string()), compression="zstd")
    with pytest.raises(CacheDamaged, match="would fill the memory"):
        CachedDataset(rows)[0]


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint32", "quint4x2", "bits8", "complex64", "strided", "Tensor"])
def test_tensor_types_that_are_no_plain_numbers(name: str) -> None:
    decode = RecordDecoder(lambda picture: None, lambda pixels: None)
    taken = record.closed([bytes(16)], ["T", name, [2], 0, 2])
    with pytest.raises(CacheDamaged):
        decode(memoryview(taken))


@pytest.mark.parametrize("shape", [[0, 2**62], [2**62, 0, 2**62], [0] * 31])
@pytest.mark.parametrize("tag", ["T", "a"])
def test_shapes_of_nothing_take_nothing(shape: list[int], tag: str) -> None:
    taken = record.closed([b""], [tag, "int64" if tag == "T" else "<i8", shape, 0, 0])
    try:
        value = RecordDecoder(lambda picture: None, lambda pixels: None)(memoryview(taken))
    except CacheDamaged:
        return
    assert 0 in value.shape


class Named(Numbers):
    """Reads a file that the records above name."""

    def __init__(self, root: str | None) -> None:
        super().__init__(12)
        self.root = root

    def __getitem__(self, index: int) -> Any:
        try:
            return Path(self.root or "", "a").read_bytes()
        except OSError:
            return None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "described",
    [
        ["S", ["\udcff", 1, []]], ["S", ["a", 5, [[0, 5, 0, 99]]]], ["S", ["a", 5, [[0, 5, 10**9, -1]]]],
        ["S", ["\0\u1234", 1, []]], ["S", ["../../etc/passwd", 1, []]], ["S", 5], 5, ["p"], None,
    ],
)  # fmt: skip
def test_records_that_were_sealed_again(files: Files, make: Any, described: Any) -> None:
    folder = make(files, "source").folder
    manifest = manifests.read(folder)
    sealed_with(folder, described)
    refusals = 0
    for read in (lambda: CachedDataset(folder)[0], lambda: CachedDataset(folder, dataset=Named(manifest.source.root))[0]):
        try:
            read()
        except CacheDamaged:
            refusals += 1
    assert refusals
    verify(folder)  # tells it, and raises nothing


def test_a_record_of_which_only_the_checksum_is_right_is_damage(files: Files, make: Any) -> None:
    folder = make(files, "resized").folder
    (data,) = (folder / "parts").iterdir()
    index = Index.read(folder / "index" / "00000.idx", verify(folder).manifest.parts[0])
    offset = int(index.blocks[3]["offset"])
    held = bytearray(data.read_bytes())
    held[offset : offset + 4] = b"none"
    data.write_bytes(held)
    sealed_again(folder)
    assert "cannot be decoded" in verify(folder).damage[0][0]


# -- pictures: their size is compared with what the record says before memory is taken for their pixels ------------------------


def jpeg(width: int, height: int, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (9, 90, 200)).save(file, "JPEG", **options)
    return file.getvalue()


def test_a_fill_byte_does_not_hide_how_large_a_picture_is() -> None:
    """The record says what a false frame says; the decoder would go by the real one, whose tensor could be of gigabytes."""
    data = with_filling(jpeg(640, 480), 20, 10)
    with pytest.raises(CacheDamaged, match="says it is 640x480, and its record says 20x10"):
        decoder_to("tensor").picture(Picture(data, "jpeg", 20, 10, "tensor"))
    assert decoder_to("tensor").picture(Picture(data, "jpeg", 640, 480, "tensor")).shape == (3, 480, 640)


def test_other_frames_are_checked_too() -> None:
    data = jpeg(64, 48).replace(b"\xff\xc0", b"\xff\xc9", 1)
    with pytest.raises(CacheDamaged):
        decoder_to("tensor").picture(Picture(data, "jpeg", 20, 10, "tensor"))
