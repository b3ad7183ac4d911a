"""What libraries unpack for a sample is counted by the shapes of what is selected."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.hooks.chunk_reads import ChunkReads, chunks_of


def numbers(length: int) -> st.SearchStrategy[Any]:
    place = st.integers(-length, length - 1)
    return st.one_of(
        place, st.lists(place, min_size=1, max_size=4), st.slices(length).filter(lambda part: len(range(*part.indices(length))) > 0)
    )


@st.composite
def selections(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    chunk = tuple(draw(st.integers(1, length)) for length in shape)
    lists = draw(st.integers(0, len(shape) - 1))
    parts = []
    for place, length in enumerate(shape):
        part = draw(numbers(length))
        parts.append(part if place == lists or not isinstance(part, list) else part[0])
    return tuple(parts), shape, chunk


@given(selections())
def test_the_chunks_of_a_selection_are_those_that_its_elements_lie_in(drawn: tuple[Any, tuple[int, ...], tuple[int, ...]]) -> None:
    index, shape, chunk = drawn
    axes = chunks_of(index, shape, chunk)
    assert axes is not None
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    selected = places[index].reshape(-1, len(shape)) // chunk
    needed = {tuple(map(int, row)) for row in selected}
    counted = set(itertools.product(*axes))
    assert needed <= counted
    if not any(isinstance(part, slice) and abs(part.step or 1) > 1 for part in index):  # steps may pass chunks over
        assert needed == counted


@pytest.mark.parametrize(
    ("index", "count"),
    [(..., 6), ((..., 0), 3), (slice(0, 2), 2), ((slice(None), [True] + [False] * 5), 3), (np.int64(3), 2), (slice(2, 2), 0)],
)
def test_ways_to_select(index: Any, count: int) -> None:
    axes = chunks_of(index, (6, 6), (2, 3))
    assert axes is not None and math.prod(map(len, axes)) == count


@pytest.mark.parametrize("index", ["field", (0, 0, 0), (..., 0, ...), np.ones((6, 6), bool)])
def test_what_is_not_followed(index: Any) -> None:
    reads = ChunkReads()
    reads.select(index, (6, 6), (2, 3), 4, 100)
    assert (reads.asked, reads.unpacked) == (0, 0)


def test_chunks_that_the_library_keeps_are_not_unpacked_again() -> None:
    for keeps, unpacked in ((0, 12), (72, 12), (144, 2)):
        reads = ChunkReads()
        for index in (0, 1, 2, 3, 0, 1):
            reads.select(index, (6, 6), (6, 3), 4, 24, keeps=keeps)
        assert reads.unpacked == unpacked * 72, keeps
    assert reads.chunk == "6 x 3"


def test_what_other_threads_unpack_is_not_counted(hooks: Any, tmp_path: Path) -> None:
    """They would count into each other's figures, and forget each other's chunks."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((64, 8), "i2"), chunks=(1, 8), compression="gzip")

        def beside(sample: int) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: file["x"][sample]).result()

        assert unpacked_by(hooks, "h5py", beside) == {}


def unpacked_by(hooks: Any, library: str, make: Any) -> dict[str, ChunkReads]:
    hooks.install(library)
    for sample in range(4):
        hooks.run(lambda sample=sample: make(sample), unit=sample, record=True)
    return hooks.timer.chunk_reads  # type: ignore[no-any-return]


def test_compressed_arrays_of_hdf5(hooks: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((64, 128, 128), "i2"), chunks=(32, 128, 128), compression="gzip")
        file.create_dataset("whole", data=np.zeros((64, 8), "i2"))
    with h5py.File(tmp_path / "a.h5") as file:
        reads = unpacked_by(hooks, "h5py", lambda sample: (file["x"][16 * sample], file["whole"][sample]))
    assert list(reads) == ["/x in a.h5"]
    x = reads["/x in a.h5"]
    # A chunk has 1 MiB: HDF5 keeps one, and two samples in a row lie in the same.
    assert (x.chunk, x.asked, x.unpacked) == ("32 x 128 x 128", 4 * 128 * 128 * 2, 2 * 32 * 128 * 128 * 2)


def test_row_groups_of_parquet(hooks: Any, tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(1000, dtype="i8")})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    reads = unpacked_by(hooks, "pyarrow", lambda sample: file.read_row_group(sample % 2)["x"][3])
    assert list(reads) == ["row groups of Parquet"]
    rows = reads["row groups of Parquet"]
    assert (rows.chunk, rows.asked, rows.unpacked) == ("", 0, pytest.approx(4 * 500 * 8, rel=0.05))
