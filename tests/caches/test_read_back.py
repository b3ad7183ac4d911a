"""A few samples stored and read again: what a probe believes of reading a cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchvision.transforms import v2

from pipefix.api import try_remedies
from pipefix.api.try_remedies import begin_cache, sample_record
from pipefix.caches import estimate
from pipefix.caches.estimate import read_back
from pipefix.caches.lmdb import LmdbWriter
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import DistinctReads, KeptRecord, TriedCache
from pipefix.plan import cache_disk
from pipefix.plan.cache_disk import different
from pipefix.plan.plan import Declined, Proposed
from pipefix.plan.remedies.caches import DESCRIBED_BYTES
from pipefix.subject.load import load
from pipefix.subject.subject import Subject
from tests.plan.builders import JPEGS, World


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: nothing here judges how long a trial takes."""
    monkeypatch.setattr(try_remedies, "PATIENCE", 600.0)


def vector(index: int) -> Any:
    return np.full((64,), float(index), dtype=np.float32), index


def test_each_copy_is_read_so_many_times(tmp_path: Path) -> None:
    figures = read_back([vector(index) for index in range(9)], [0, 4, 8], tmp_path)
    assert len(figures.seconds) == estimate.MOST_RECORDS * estimate.TIMES
    assert 256 < figures.bytes < 512
    assert all(spent > 0 for spent in figures.seconds)


def test_larger_samples_are_copied_less_often(tmp_path: Path) -> None:
    image = Image.new("RGB", (640, 480))
    figures = read_back([image] * 4, [0, 2], tmp_path)
    assert len(figures.seconds) == estimate.TIMES * int(estimate.MOST_BYTES // figures.bytes)
    assert figures.bytes == pytest.approx(640 * 480 * 3, rel=0.01)


def test_samples_so_large_that_only_copying_counts_are_left(tmp_path: Path) -> None:
    assert read_back([torch.zeros(4_000_000)], [0], tmp_path) == estimate.ReadBack()
    assert not list(tmp_path.iterdir())


def test_what_no_record_can_hold_is_told(tmp_path: Path) -> None:
    figures = read_back([(object(), 1)], [0], tmp_path)
    assert figures.seconds == ()
    assert figures.why_not == "a builtins.object: records hold numbers, text, bytes, arrays, tensors and images"


# -- beside a probe ----------------------------------------------------------------------------------------------------------


class Samples(Dataset[Any]):
    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Named(list[float]):
    """A list that knows more than its values."""

    name = "mine"


class Slow(Samples):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return super().__getitem__(index)


class Together(Slow):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from map(vector, range(40))


def tried(
    dataset: Any,
    world: World = JPEGS,
    collate: Any = list,
    first_batch: float | None = 0.1,
    seconds: float = 0.2,
    **settings: Any,
) -> KeptRecord | None:
    subject = load(DataLoader(dataset, batch_size=4, collate_fn=collate, **settings))
    return sample_record(subject, Consumer(), world.but(fields={**world.fields, "first_batch": first_batch}).case(), seconds)


def test_samples_of_a_loader_are_tried_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trial = tried(Samples(vector(3)))
    assert trial is not None
    assert 0 < trial.seconds.low <= trial.seconds.value <= trial.seconds.high
    assert 256 < trial.bytes < 512
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("late", [None, 1.0])
def test_a_loader_that_begins_late_is_not_run_for_it(late: float | None) -> None:
    trial = tried(Slow(vector(3)), first_batch=late)
    assert trial is not None and trial.gain is None and trial.seconds.value > 0


def test_what_the_loader_cannot_be_run_over_is_left() -> None:
    """Whole batches are not what single records show; and a collate function may want more than a record brings back."""
    assert (whole := tried(Together(vector(3)))) is not None and whole.gain is None
    assert (picky := tried(Samples(Named([1.0])), collate=lambda samples: [sample.name for sample in samples])) is not None
    assert picky.gain is None


def test_samples_that_no_record_can_hold_are_known() -> None:
    trial = tried(Samples(object()))
    assert trial is not None and trial.why_not.startswith("a builtins.object: records hold")


def test_what_raises_or_has_no_index_or_gains_nothing_is_not_tried() -> None:
    assert tried(Samples(ValueError("torn"))) is None
    assert tried(Stream()) is None
    assert tried(Samples(vector(3)), World(collate=0.01)) is None


# -- what convert would refuse -------------------------------------------------------------------------------------------------


class Drawing(Samples):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(8)


class Transformed(Samples):
    def __init__(self, transform: Any) -> None:
        super().__init__(Image.linear_gradient("L"))
        self.transform = transform

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.value)


def test_a_conversion_that_would_be_refused_is_known_before_it_is_proposed() -> None:
    drawing, still = (load(DataLoader(dataset, batch_size=2)) for dataset in (Drawing(None), Samples(torch.ones(8))))
    why = begun(drawing, "decoded").refused
    assert why.startswith("convert would refuse it: Sample ") and "draws random numbers" in why
    assert begun(still, "decoded").refused == ""
    marked = load(DataLoader(Transformed(v2.Compose([v2.ToImage(), v2.RandomCrop(4)])), batch_size=2))
    assert "the same as cache-decoded" in begun(marked, "sample").refused and begun(marked, "decoded").refused == ""
    assert "no image" in begun(still, "resized").refused
    assert begun(still, "decoded").whole and not begun(marked, "decoded").whole
    fixed = load(DataLoader(Transformed(v2.Compose([v2.PILToTensor(), v2.Resize(4)])), batch_size=2))
    kept, cut_before = begun(fixed, "sample"), begun(fixed, "decoded")
    assert (kept.whole, kept.uncut, cut_before.whole) == (True, False, False), "all of its transforms' results are kept"
    assert begun(still, "sample").uncut
    assert (kept.kept, cut_before.kept) == (("PILToTensor", "Resize([4])"), ())
    assert begin_cache(still, "decoded", 0.0, 0.0) is None


def begun(subject: Subject, store: str) -> TriedCache:
    tried_cache = begin_cache(subject, store, 60.0, 1e-4)
    assert tried_cache is not None
    return tried_cache


@pytest.mark.parametrize(("sample_s", "made"), [(1e-6, 14), (0.2, 6), (100.0, 3)])
def test_the_slower_samples_are_the_fewer_are_begun(sample_s: float, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(try_remedies, "in_child_process", lambda begin, _: begin())
    counting = Counting(torch.ones(8))
    assert begin_cache(load(DataLoader(counting, batch_size=2)), "decoded", 2.0, sample_s) is not None
    assert counting.made == made


class Counting(Samples):
    made = 0

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        return super().__getitem__(index)


def test_a_cache_that_could_not_be_begun_in_time_says_so() -> None:
    step = JPEGS.but(fields={"tried_caches": {"resized": TriedCache(late=True)}}).step_called("cache-resized-256")
    assert isinstance(step, Proposed) and step.risk is not None and "--dry-run" in step.risk
    assert step.disk_bytes is None, "decoded 721 times over, a sample was told to take 1,000 times what it does"


@pytest.mark.parametrize(("seen", "drawn", "length", "kept"), [(24, 200, 5000, 24), (64, 64, 5000, 5000), (50, 64, 64, 50)])
def test_what_samples_share_is_kept_once(seen: int, drawn: int, length: int, kept: float) -> None:
    assert different(seen, drawn, length) == pytest.approx(kept, rel=0.05)
    read = [DistinctReads(times * JPEGS.source_bytes, count * JPEGS.source_bytes, count) for times, count in ((23, 100), (24, 200))]
    shared = {"read_once": read, "tried_caches": {"source": TriedCache(part_samples=2500)}}
    mapped = shared | {"tried_caches": {"source": TriedCache(record_bytes=1e7, part_samples=2500)}}
    worlds = [JPEGS.but(fields=fields) for fields in ({}, shared, mapped)]
    plain, some, whole = (
        world.step_called("cache-source").disk_bytes - cache_disk.of_parts(50_000, samples, 0.0)
        for world, samples in zip(worlds, (50_000, 2500, 2500), strict=True)
    )
    described = 50_000 * cache_disk.of_record(DESCRIBED_BYTES)
    assert some - described == pytest.approx(plain * 24 / 2500, rel=0.05), "of all other samples only what tells where theirs is"
    assert whole == pytest.approx(20 * 1e7 + described, rel=0.005), "a file that samples map is kept whole in each of 20 parts"


@pytest.mark.parametrize("fewer", [0, 4], ids=["all recorded", "the first few only looked at"])
@pytest.mark.parametrize("shared", [0, 140_000])
def test_a_directory_that_all_samples_read_is_kept_once_in_a_part_and_their_own_bytes_each(shared: int, fewer: int) -> None:
    """Of an archive with a directory of 140 kB, 17 % of what a cache really took was told."""
    sizes = np.random.default_rng(0).lognormal(9.9, 0.8, 80)  # files of very different size, of which a few are seen
    reads = [
        DistinctReads(shared + sizes[fewer:count].sum(), shared * (count - fewer) + sizes[fewer:count].sum(), count - fewer)
        for count in (40, 80)
    ]
    each = float(sizes.mean())
    assert cache_disk.of_part(shared + each, 40.0, reads, 2500) == pytest.approx(shared + 2500 * each, rel=0.2)


def test_what_convert_refuses_is_declined_with_that_reason() -> None:
    world = JPEGS.but(fields={"tried_caches": {"decoded": TriedCache("convert would refuse it: samples differ")}})
    step = world.step_called("cache-decoded")
    assert isinstance(step, Declined) and step.why == "convert would refuse it: samples differ"
    assert isinstance(JPEGS.but(fields={"tried_caches": {"resized": TriedCache()}}).step_called("cache-resized-256"), Proposed)


@pytest.mark.parametrize("elements", [30, 120, 230, 400, 512, 1000, 5000])
def test_what_records_take_is_what_lmdb_takes_for_them(elements: int, tmp_path: Path) -> None:
    """Records that share a page take their part of a page that cannot be split: three of a kilobyte fill one."""
    record_bytes, records = 4.0 * elements, 3000
    writer = LmdbWriter(tmp_path / "part.mdb")
    for number in range(records):
        writer.add(number, bytes(int(record_bytes)))
    writer.close()
    taken = (tmp_path / "part.mdb").stat().st_size - 3 * cache_disk.PAGE  # in which LMDB keeps account of itself
    assert cache_disk.of_record(record_bytes) * records == pytest.approx(taken, rel=0.03)


def test_the_disk_that_a_cache_takes_is_told_by_the_records_that_were_tried() -> None:
    small, large = ({"tried_caches": {"decoded": TriedCache(record_bytes=size)}} for size in (100.0, 20_000.0))
    samples = 50_000
    kept, whole = (JPEGS.but(fields=fields).step_called("cache-decoded").disk_bytes / samples for fields in (small, large))
    assert kept == pytest.approx(100 + cache_disk.ENTRY + cache_disk.INDEX, rel=0.05)
    assert whole == pytest.approx(5 * 4096, rel=0.01)
    made = begun(load(DataLoader(Samples(torch.ones(5000)), batch_size=2)), "decoded")
    assert made.record_bytes == pytest.approx(20_000, rel=0.02)
