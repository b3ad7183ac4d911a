"""The loader of a pool: the user's own settings, around the dataset that stands in for theirs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from pipefix.hooks import torch_internals
from pipefix.measurement.stand_in import Deferred, StandInDataset, StreamStandIn, WorkerInit
from pipefix.measurement.stand_in_options import StandInOptions
from pipefix.subject.subject import Subject


def stand_in_loader(subject: Subject, switch: torch.Tensor, options: StandInOptions, known: list[Any] | None) -> DataLoader[Any]:
    theirs = subject.loader
    workers = options.workers
    generator = None
    if theirs.generator is not None:
        generator = torch.Generator()
        generator.set_state(theirs.generator.get_state())
    of_batches = {"batch_size", "drop_last", "sampler", "batch_sampler", "persistent_workers"}
    given = torch_internals.loader_arguments(theirs, num_workers=workers)
    settings = {name: value for name, value in given.items() if name not in of_batches} | {
        "batch_size": None,
        "collate_fn": as_is,
        "pin_memory": theirs.pin_memory and torch.cuda.is_available(),
        "generator": generator,
        "worker_init_fn": WorkerInit(theirs.worker_init_fn),
    }
    # A loader that hands batches over in a way of its own brings what makes another that does.
    make = getattr(theirs, "another", DataLoader)
    if subject.iterable:
        stream = StreamStandIn(theirs.dataset, theirs.collate_fn, switch, options, theirs.batch_size, theirs.drop_last)
        return make(stream, **settings)
    kind = "batched" if subject.batched_fetch else "map" if subject.auto_collation else "single"
    if make is not DataLoader:
        settings["collate_fn"] = called
    stand_in = (StandInDataset if make is DataLoader else Deferred)(
        theirs.dataset, theirs.collate_fn, switch, options, kind, whole_batches=subject.groups_samples
    )
    return make(stand_in, sampler=SampleOrders(subject, known), **settings)


class SampleOrders(Sampler[Any]):
    """The user's own sampler order, epoch after epoch; or samples that were read before, in batches of the user's size (or, where
    a batch sampler of theirs chooses which samples go together, in its own batches)."""

    def __init__(self, subject: Subject, known: list[Any] | None = None) -> None:
        self._subject = subject
        self._known = known or []
        self.spent_ns = 0
        """Nanoseconds that the user's sampler took so far. It runs where the batches are taken, in the training process."""

    def __iter__(self) -> Iterator[Any]:
        orders = iter(self._orders())
        while True:
            begun = perf_counter_ns()
            try:
                order = next(orders)
            except StopIteration:
                return
            finally:
                self.spent_ns += perf_counter_ns() - begun
            yield order

    def _orders(self) -> Iterator[Any]:
        if not self._known:
            return self._subject.orders()
        if self._subject.batched_fetch or self._subject.groups_samples or not self._subject.auto_collation:
            return itertools.cycle(self._known)
        return self._batches()

    def _batches(self) -> Iterator[list[Any]]:
        known = itertools.cycle(self._known)
        for order in self._subject.orders():
            yield list(itertools.islice(known, len(order)))


def as_is(value: Any) -> Any:
    """The collate function of a loader whose dataset makes whole batches."""
    return value


def called(make: Any) -> Any:
    """The same, where the dataset gives what makes them."""
    return make()
