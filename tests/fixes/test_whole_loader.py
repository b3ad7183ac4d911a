"""A loader run as it is, block by block."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pipefix.fixes import whole_loader
from pipefix.fixes.whole_loader import WholeLoader, suits
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import PLAIN
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError


class Numbers(Dataset[int]):
    def __init__(self, count: int = 10, seconds: float = 0.0) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        yield from range(10)


class Counts(Consumer):
    present = True
    name = "counts"

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, batch: Any) -> None:
        self.seen += batch


class Sleeps(Consumer):
    present = True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, batch: Any) -> None:
        time.sleep(self.seconds)


@pytest.fixture
def running() -> Any:
    begun: list[WholeLoader] = []

    def run(loader: DataLoader[Any], consumer: Consumer | None = None) -> WholeLoader:
        begun.append(WholeLoader(load(loader), consumer or Consumer()))
        return begun[-1]

    yield run
    for one in begun:
        one.close()


@pytest.fixture
def looks_take_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of blocks, and nothing else takes any time: on a machine that stands still they hold as many batches."""
    looks = itertools.count(1)
    monkeypatch.setattr(whole_loader, "perf_counter", lambda: next(looks) * 0.001)


def test_workers_that_are_too_slow_have_no_stock_to_hide_behind(running: Any) -> None:
    """Two workers give a batch every 40 ms, the step takes 20."""
    slow = DataLoader(Numbers(40, 0.02), batch_size=4, collate_fn=list, num_workers=2, prefetch_factor=4)
    whole = running(slow, Sleeps(0.02))
    rates = []
    for _ in range(3):
        rates.append(whole.block(PLAIN, 0.1).rate)
        whole.rest()
    # While the machine holds this process up, workers do make a stock: so one block of the three may be anything.
    assert statistics.median(rates) == pytest.approx(100, rel=0.5), f"200 with a stock: {rates}"


@pytest.mark.usefixtures("looks_take_a_millisecond")
@pytest.mark.parametrize(("workers", "first"), [(0, 0), (2, 4)])
def test_epochs_follow_each_other_in_the_users_order(running: Any, workers: int, first: int) -> None:
    """What may lie ready of earlier batches is consumed by nobody."""
    consumer = Counts()
    whole = running(DataLoader(Numbers(), batch_size=4, collate_fn=list, num_workers=workers), consumer)
    found = whole.block(PLAIN, 0.05)
    assert consumer.seen[:20] == [(first + place) % 10 for place in range(20)]
    assert found.samples <= len(consumer.seen)
    assert found.rate == found.samples / found.seconds


def test_the_users_own_loader_is_left_as_it_is(running: Any) -> None:
    theirs: DataLoader[Any] = DataLoader(Numbers(), batch_size=4, collate_fn=list, num_workers=1, persistent_workers=True)
    sampler = theirs.batch_sampler
    whole = running(theirs)
    whole.block(PLAIN, 0.05)
    assert theirs.batch_sampler is sampler and theirs._iterator is None
    assert len(whole.processes) == 1


def test_a_block_is_whole_rounds_of_all_workers(running: Any) -> None:
    whole = running(DataLoader(Numbers(seconds=0.002), batch_size=2, collate_fn=list, num_workers=3))
    for _ in range(2):
        found = whole.block(PLAIN, 0.03)
        assert found.samples % (3 * 2) == 0 and found.samples >= 2 * 3 * 2


@pytest.mark.timing
def test_a_block_tells_the_rate_of_all_workers(running: Any) -> None:
    whole = running(DataLoader(Numbers(seconds=0.002), batch_size=2, collate_fn=list, num_workers=3))
    for _ in range(2):
        assert whole.block(PLAIN, 0.03).rate == pytest.approx(3 / 0.002, rel=0.6)


@pytest.mark.timing
def test_what_was_asked_for_ahead_is_made_before_another_is_measured(running: Any) -> None:
    whole = running(DataLoader(Numbers(10, 0.01), batch_size=5, collate_fn=list, num_workers=1, prefetch_factor=4))
    whole.block(PLAIN, 0.05)
    begun = time.perf_counter()
    whole.rest()
    assert 0.1 < time.perf_counter() - begun < 1.1
    begun = time.perf_counter()
    for _ in range(4):
        whole._next()
    assert time.perf_counter() - begun < 0.04, "these were ready"


def test_a_loader_whose_iterator_gives_nothing_is_told(running: Any) -> None:
    class Silent(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(TargetError, match="names no sample"):
        running(Silent(Numbers(), batch_size=2)).block(PLAIN, 0.05)


@pytest.mark.usefixtures("looks_take_a_millisecond")
def test_an_iterator_of_their_own_that_ends_is_begun_anew(running: Any) -> None:
    class Short(DataLoader[Any]):
        def __iter__(self) -> Any:
            return itertools.islice(super().__iter__(), 3)

    consumer = Counts()
    running(Short(Numbers(), batch_size=4, collate_fn=list), consumer).block(PLAIN, 0.02)
    assert consumer.seen[:20] == [*range(10), *range(10)]


def test_workers_that_cannot_be_started_are_told(running: Any) -> None:
    unsendable = Numbers()
    unsendable.made_by = lambda: None  # type: ignore[attr-defined]
    loader: DataLoader[Any] = DataLoader(unsendable, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(TargetError, match=r"The worker processes \(spawn\) could not be started"):
        running(loader).block(PLAIN, 0.05)


def test_streams_and_single_samples_do_not_suit() -> None:
    assert suits(load(DataLoader(Numbers(), batch_size=2)))
    assert not suits(load(DataLoader(Numbers(), batch_size=None)))
    assert not suits(load(DataLoader(Stream(), batch_size=2)))


class Leaves(Numbers):
    def __getitem__(self, index: int) -> int:
        raise SystemExit(0)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_ends_the_program_is_told(workers: int) -> None:
    """Otherwise `fix` would end with it, and with its exit code, and say nothing."""
    whole = WholeLoader(load(DataLoader(Leaves(), batch_size=5, num_workers=workers)), Consumer())
    try:
        with pytest.raises(TargetError):
            whole.block(PLAIN, 0.05)
    finally:
        whole.close(at_once=True)
