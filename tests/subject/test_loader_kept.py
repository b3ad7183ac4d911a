"""A DataLoader's settings are kept exactly, its order is what it would have been, and running it leaves it alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from pipefix.loader.fast_loader import FastLoader
from pipefix.subject.load import load
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import BadUsage


class Numbers(Dataset[int]):
    def __init__(self, count: int = 20) -> None:
        self.count = count
        self.labels = list(range(count))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(20))


def collate(samples: list[int]) -> list[int]:
    return samples


def begin(worker: int) -> None: ...


class Counting(Sampler[int]):
    """With an epoch counter, a random state and a list of its own, all of which change as it is used."""

    def __init__(self, data: Numbers) -> None:
        self.data = data
        self.epoch = 0
        self.rng = random.Random(3)
        self.order = list(data.labels)

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        self.rng.shuffle(self.order)
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.data)


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(), **options)


FULL = {
    "batch_size": 3, "shuffle": True, "num_workers": 2, "collate_fn": collate, "pin_memory": True, "drop_last": True, "timeout": 7,
    "worker_init_fn": begin, "multiprocessing_context": "spawn", "generator": torch.Generator(), "prefetch_factor": 5,
    "persistent_workers": True, "in_order": False,
}  # fmt: skip


def test_a_loader_is_the_subject_itself() -> None:
    plain = loader(**FULL)
    subject = load(plain)
    assert subject.loader is plain
    assert subject.assumed == ()
    settings = subject.settings
    assert (settings.batch_size, settings.num_workers, settings.prefetch_factor, settings.start_method) == (3, 2, 5, "spawn")
    assert settings.pin_memory and settings.persistent_workers and settings.drop_last and settings.shuffle and not settings.in_order
    assert (settings.sampler, settings.collate, settings.length) == ("RandomSampler", "collate", 20)


@pytest.mark.parametrize(("batch_size", "workers"), [(5, None), (None, 1), (5, 0), (4, 1)])
def test_another_batch_size_or_worker_count_keeps_the_rest(batch_size: int | None, workers: int | None) -> None:
    plain = loader(**FULL)
    ours = load(plain, batch_size=batch_size, workers=workers).loader
    assert ours is not plain and plain.batch_size == 3 and plain.num_workers == 2
    assert ours.batch_size == (batch_size or 3)
    assert ours.num_workers == (2 if workers is None else workers)
    for name in ("dataset", "sampler", "collate_fn", "worker_init_fn", "generator", "pin_memory", "drop_last", "in_order"):
        assert getattr(ours, name) is getattr(plain, name), name
    plain.pin_memory_device = "cuda:1"
    assert load(plain, workers=1).loader.pin_memory_device == "cuda:1"
    if ours.num_workers:
        assert (ours.prefetch_factor, ours.persistent_workers, ours.timeout) == (5, True, 7)
        assert ours.multiprocessing_context is plain.multiprocessing_context


def test_a_fast_loader_stays_one_with_its_options() -> None:
    """It became a plain loader, and the step had batches that were not augmented."""
    plain = FastLoader(Numbers(), batch_size=3, augment=tuple, engine="processes")
    ours = load(plain, batch_size=5, workers=0).loader
    assert isinstance(ours, FastLoader) and (ours.batch_size, ours.engine) == (5, "processes")
    assert [len(batch) for batch in ours] == [5, 5, 5, 5] and type(next(iter(ours))) is tuple
    assert load(plain, workers=2).loader.num_workers == 2 and (plain.batch_size, plain.num_workers) == (3, 0)


def test_other_workers_keep_a_batch_sampler_and_a_stream() -> None:
    batches = [[0, 1], [5]]
    assert load(DataLoader(Numbers(), batch_sampler=batches), workers=2).loader.batch_sampler is batches
    stream = load(DataLoader(Stream(), batch_size=4, drop_last=True), workers=2, batch_size=8).loader
    assert (stream.batch_size, stream.drop_last, stream.num_workers) == (8, True, 2)


class Whole(Numbers):
    """Makes whole batches."""

    def __getitem__(self, index: Any) -> Any:
        return torch.tensor(index)


class Ragged(Sampler[Any]):
    """By length, as samplers for text do; what it draws is torch's own random numbers."""

    def __iter__(self) -> Iterator[list[int]]:
        torch.randperm(4)
        yield from ([0, 1, 2], [3], [4, 5, 6, 7], [8, 9, 10, 11])


@pytest.mark.parametrize(
    ("make", "each", "drawn"),
    [
        (lambda: DataLoader(Numbers(), batch_sampler=BatchSampler(range(12), 5, False)), 5.0, None),
        (lambda: DataLoader(Numbers(), batch_sampler=Ragged()), 3.0, None),
        (lambda: DataLoader(Numbers(), batch_sampler=[[0, 1], [2]]), 1.5, None),
        (lambda: DataLoader(Whole(), sampler=BatchSampler(range(6), 3, False), batch_size=None), 3.0, 6),
        (lambda: DataLoader(Numbers(), batch_size=None), 1.0, None),
        (lambda: DataLoader(Numbers(), batch_size=4), 4.0, None),
        (lambda: DataLoader(Numbers(), batch_size=32), 20.0, None),
        (lambda: DataLoader(Numbers(), batch_size=16), 10.0, None),
        (lambda: DataLoader(Numbers(), batch_size=16, drop_last=True), 16.0, None),
        (lambda: DataLoader(Stream(), batch_size=None), 1.0, None),
        (lambda: DataLoader(Numbers(), batch_sampler=[3]), 1.0, None),
    ],
    ids=[
        "batch sampler",
        "ragged",
        "list",
        "batches as indices",
        "samples",
        "batch size",
        "one batch",
        "two batches",
        "whole ones",
        "stream",
        "no batches",
    ],
)
def test_a_batch_holds_what_its_sampler_gives(make: Any, each: float, drawn: int | None) -> None:
    before = torch.get_rng_state()
    settings = Subject("it", make()).settings
    assert settings.samples_a_batch == each
    assert settings.drawn == drawn
    assert torch.equal(torch.get_rng_state(), before)


# -- orders ------------------------------------------------------------------------------------------------------------


def orders(subject: Subject, count: int) -> list[Any]:
    return list(itertools.islice(subject.orders(), count))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4, "shuffle": True},
        {"batch_size": 4, "sampler": SubsetRandomSampler([1, 4, 7, 9])},
        {"batch_size": 4, "sampler": WeightedRandomSampler([0.1] * 20, 8)},
        {"batch_size": 6, "drop_last": True},
        {"batch_sampler": BatchSampler(RandomSampler(Numbers()), 6, True)},
        {"batch_sampler": [[3, 1], [2]]},
        {"batch_size": None, "sampler": BatchSampler(SequentialSampler(Numbers()), 4, False)},
        {"batch_size": 4, "sampler": np.random.default_rng(1).permutation(20)},
    ],
)
def test_orders_are_the_loaders_own_epoch_after_epoch(options: dict[str, Any]) -> None:
    """Two epochs of the loader itself, against what the subject would ask for from the same random state."""
    subject = load(loader(**options))
    torch.manual_seed(1)
    expected = [order for _ in range(2) for order in (subject.loader.batch_sampler or subject.loader.sampler)]
    torch.manual_seed(1)
    assert [_plain(order) for order in orders(subject, len(expected))] == [_plain(order) for order in expected]


def _plain(order: Any) -> Any:
    return [int(index) for index in order] if isinstance(order, (list, tuple)) else int(order)


@pytest.mark.parametrize(
    "own", [lambda sampler: {"sampler": sampler}, lambda sampler: {"batch_sampler": BatchSampler(sampler, 4, True)}]
)
def test_running_it_leaves_samplers_alone(own: Any) -> None:
    sampler = Counting(Numbers())
    state, order, epochs = sampler.rng.getstate(), list(sampler.order), sampler.epoch
    subject = load(loader(**own(sampler)))
    first = orders(subject, 12)
    assert (sampler.rng.getstate(), sampler.order, sampler.epoch) == (state, order, epochs)
    assert orders(subject, 12) == first, "every pool starts where the user's sampler stands"
    for batch, _ in zip(subject.loader_to_run(), range(2), strict=False):
        assert len(batch) > 0
    assert (sampler.rng.getstate(), sampler.order, sampler.epoch) == (state, order, epochs)
    expected = [int(index) for batch in subject.loader for index in batch]
    flat = [index for group in first for index in (group if isinstance(group, list) else [group])]
    assert flat[:12] == expected[:12], "and gives the order that the user's loader gives next"


def test_samplers_share_the_dataset_with_their_copy() -> None:
    """A copy of the samples themselves would cost memory, and time."""
    from pipefix.subject.subject import own_sampler

    plain = loader(sampler=Counting(Numbers()))
    assert isinstance(plain.dataset, Numbers)
    sampler = Counting(plain.dataset)
    copied = own_sampler(sampler, plain)
    assert copied is not sampler and copied.data is plain.dataset and copied.order is not sampler.order


def test_a_sampler_that_cannot_be_copied_is_used_as_it_is() -> None:
    class Locked(Counting):
        def __deepcopy__(self, memo: object) -> None:
            raise TypeError("cannot pickle '_thread.lock' object")

    sampler = Locked(Numbers())
    assert orders(load(loader(sampler=sampler)), 1)
    assert sampler.epoch == 1


@pytest.mark.parametrize("sampler", [None, BatchSampler(range(6), 3, False)])
def test_batches_that_the_dataset_makes_are_not_put_into_batches(sampler: Any) -> None:
    """Lists of whole batches were measured, each of which counted as one sample."""
    with pytest.raises(BadUsage, match="batch_size=None") as refused:
        load(DataLoader(Whole(), sampler=sampler, batch_size=None), batch_size=16)
    assert "Leave --batch-size 16 out" in refused.value.advice


def test_another_batch_size_in_a_plain_batch_sampler() -> None:
    """Its sampler stays: the one that the loader shows is only a stand-in."""
    inner = SubsetRandomSampler([1, 4, 7, 9])
    ours = load(loader(batch_sampler=BatchSampler(inner, 2, True)), batch_size=3).loader
    assert (ours.batch_size, ours.drop_last, ours.sampler) == (3, True, inner)


def test_a_stream_is_asked_for_counts_and_an_empty_sampler_ends() -> None:
    assert orders(load(DataLoader(Stream(), batch_size=4)), 2) == [4, 4]
    assert orders(load(DataLoader(Stream(), batch_size=None)), 2) == [1, 1]
    assert orders(Subject("x", loader(sampler=[], batch_size=2)), 3) == []


def test_the_loader_to_run_is_theirs_in_all_but_its_iterator() -> None:
    plain = loader(**FULL)
    ours = load(plain).loader_to_run()
    assert type(ours) is type(plain) and ours is not plain
    for name, value in vars(plain).items():
        if name not in ("_iterator", "sampler", "batch_sampler"):
            assert vars(ours)[name] is value, name
