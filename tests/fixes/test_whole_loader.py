"""A loader run as it is, block by block."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from pipefix.fixes import speedup
from pipefix.fixes.speedup import WholeLoader, suits
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import PLAIN
from pipefix.measurement.time_limit import BatchTimeLimit
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from tests.doubles.endless import Endless


class Numbers(Dataset[int]):
    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        yield from range(10)


class Short(DataLoader[Any]):
    """Its iterators end after three batches."""

    def __iter__(self) -> Any:
        return itertools.islice(super().__iter__(), 3)


class Counts(Consumer):
    present = True
    name = "counts"

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, batch: Any) -> None:
        self.seen += batch


@pytest.fixture
def running() -> Any:
    begun: list[WholeLoader] = []

    def run(loader: DataLoader[Any], consumer: Consumer | None = None) -> WholeLoader:
        begun.append(WholeLoader(load(loader), consumer or Consumer()))
        return begun[-1]

    yield run
    for one in begun:
        one.close()


@pytest.fixture(autouse=True)
def looks_after_workers_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not every five, in which torch sees that one has ended."""
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter._try_get_data, "__defaults__", (1.0,))


@pytest.fixture
def looks_take_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of blocks, and nothing else takes any time: on a machine that stands still they hold as many batches."""
    looks = itertools.count(1)
    monkeypatch.setattr(speedup, "perf_counter", lambda: next(looks) * 0.001)


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


@pytest.mark.usefixtures("looks_take_a_millisecond")
def test_the_users_own_loader_is_left_as_it_is(running: Any) -> None:
    theirs: DataLoader[Any] = DataLoader(Numbers(), batch_size=4, collate_fn=list, num_workers=1, persistent_workers=True)
    sampler = theirs.batch_sampler
    whole = running(theirs)
    whole.block(PLAIN, 0.05)
    assert theirs.batch_sampler is sampler and theirs._iterator is None
    assert len(whole.processes) == 1


@pytest.mark.usefixtures("looks_take_a_millisecond")
def test_a_block_is_whole_rounds_of_all_workers(running: Any) -> None:
    whole = running(DataLoader(Numbers(), batch_size=2, collate_fn=list, num_workers=3))
    for _ in range(2):
        found = whole.block(PLAIN, 0.03)
        assert found.samples % (3 * 2) == 0 and found.samples >= 2 * 3 * 2


@pytest.mark.usefixtures("looks_take_a_millisecond")
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_made_again_and_again(running: Any, workers: int) -> None:
    consumer = Counts()
    whole = running(DataLoader(Numbers(4000), batch_size=4, collate_fn=list, num_workers=workers), consumer)
    whole.repeat(0.02, most=1.0)
    asked_first = 1 + max(consumer.seen) + 4 * whole._ahead()
    consumer.seen.clear()
    block = whole.block(PLAIN, 0.2)  # fake clock
    assert block.samples > asked_first > max(consumer.seen) and 0 in consumer.seen
    turns = [number for number in consumer.seen if number % 4 == 0]
    assert all(then == now + 4 or then == 0 for now, then in itertools.pairwise(turns)), "in the same order"


@pytest.mark.usefixtures("looks_take_a_millisecond")
def test_an_iterator_that_ends_begins_these_batches_anew(running: Any) -> None:
    consumer = Counts()
    whole = running(Short(Numbers(4000), batch_size=4, collate_fn=list), consumer)
    whole.repeat(0.001, most=1.0)
    whole.block(PLAIN, 0.1)  # fake clock
    assert {*consumer.seen} == {*range(12)}


def test_a_loader_whose_iterator_gives_nothing_is_told(running: Any) -> None:
    class Silent(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(TargetError, match="names no sample"):
        running(Silent(Numbers(), batch_size=2)).block(PLAIN, 0.05)


@pytest.mark.usefixtures("looks_take_a_millisecond")
def test_an_iterator_of_their_own_that_ends_is_begun_anew(running: Any) -> None:
    consumer = Counts()
    running(Short(Numbers(), batch_size=4, collate_fn=list), consumer).block(PLAIN, 0.02)
    assert consumer.seen[:20] == [*range(10), *range(10)]


class Waits(Numbers):
    def __getitem__(self, index: int) -> int:
        threading.Event().wait()
        raise AssertionError


def test_workers_that_hand_over_nothing_are_told(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedup, "BatchTimeLimit", lambda: BatchTimeLimit(0.2))
    with pytest.raises(TargetError, match="No worker handed over a batch"):
        running(DataLoader(Waits(), batch_size=2, num_workers=1)).block(PLAIN, 60)


def test_streams_and_single_samples_do_not_suit() -> None:
    assert suits(load(DataLoader(Numbers(), batch_size=2)))
    assert not suits(load(DataLoader(Numbers(), batch_size=None)))
    assert not suits(load(DataLoader(Stream(), batch_size=2)))


class Leaves(Numbers):
    def __getitem__(self, index: int) -> int:
        raise SystemExit(0)


def test_a_sample_that_ends_the_program_is_told(running: Any) -> None:
    """Otherwise `fix` would end with it, and with its exit code, and say nothing."""
    with pytest.raises(TargetError):
        running(DataLoader(Leaves(), batch_size=5)).block(PLAIN, 0.05)


@pytest.mark.usefixtures("looks_take_a_millisecond")
def test_a_loader_of_one_iterator_for_all_epochs_is_run_and_keeps_its_place(running: Any) -> None:
    """fix ended with an IndexError: batches came from the user's own iterator, which nobody here had told what to make."""
    theirs = Endless(Numbers(12), batch_size=4, collate_fn=list)
    assert running(theirs).block(PLAIN, 0.05).samples >= 8  # fake clock
    assert speedup.epoch_starts(load(theirs)) == [0.0] * speedup.STARTS, "its epochs begin at once"
    assert next(iter(theirs)) == [0, 1, 2, 3]
