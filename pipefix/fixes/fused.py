"""A fused pipeline verified: its samples held against those of the dataset's own code, and the loader run as it is.

The stand-in that other pipelines run with is asked for whole batches, so that nothing is fused behind it. Here the loader runs.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import DataLoader

from pipefix.fixes.compare import differences
from pipefix.fixes.outcome import Sameness
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing import look
from pipefix.loader.fusing.apart import apart
from pipefix.loader.fusing.recipe import Declined
from pipefix.loader.fusing.trial import Difference, difference
from pipefix.measurement import failing
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Block
from pipefix.subject.subject import Subject, length_of

SAMPLES = 24
"""Compared, from all over the dataset."""


def mode_of(loader: DataLoader[Any]) -> str | None:
    """How close the pixels of a loader's fused calls are to be; None where it fuses nothing."""
    return loader.fuse if isinstance(loader, FastLoader) else None


# -- the same? ---------------------------------------------------------------------------------------------------------------


def same(before: Subject, after: Subject, *, alters: str | None = None, untouched: bool = False) -> Sameness:
    """Samples that ``after`` makes by fused calls against those of ``before``, under the same random numbers. ``untouched``: both
    read from the same place.

    In a process of its own: the user's code may remember what it was given in a picture's place.
    """
    length = length_of(before.dataset)
    if length is None or length_of(after.dataset) != length:
        return Sameness(kind="unlike", sentence=f"{length_of(after.dataset)} samples instead of {length}")
    found = apart(partial(_held, before, after, look.spread(length, SAMPLES)))
    if isinstance(found, Declined):
        return Sameness(kind="unchecked", sentence=found.why)
    elsewhere = after.dataset is not before.dataset and not untouched
    return judged(*found, exact=mode_of(after.loader) == "exact", elsewhere=elsewhere, alters=alters)


def _held(before: Subject, after: Subject, places: list[int]) -> tuple[int, str | None, bool, Difference] | Declined:
    """How many were compared, what is another thing altogether, whether all is equal, and how far pictures lie apart."""
    mode = mode_of(after.loader)
    assert mode is not None
    found = look.source_of(after.loader, mode)
    if isinstance(found, Declined):
        return found
    source, _ = found
    made, own, equal = [], [], True
    for place in places:
        one = look.both(source, after.dataset, place)
        if isinstance(one, Declined):
            return one
        theirs, picture = one.own, one.picture
        if after.dataset is not before.dataset:
            theirs, picture = look.other_own(before.dataset, source, place)
        for where in differences(theirs, one.fused):
            equal = False
            if where.mean is None:
                return len(places), where.what, False, Difference(0.0, 0.0, 0.0)
        made.append(one.made)
        own.append(picture)
    return len(places), None, equal, difference(made, own, source.fused.level())


def judged(
    count: int, odd: str | None, equal: bool, difference: Difference, *, exact: bool, elsewhere: bool, alters: str | None
) -> Sameness:
    """What the comparison says. Pixels are held to what the mode allows, but where ``after`` reads from elsewhere: a cache."""
    said = f"{alters}: " if alters else ""
    if odd is not None:
        return Sameness(kind="unlike", sentence=odd, samples=count)
    if equal:
        told = f"{said}{count} samples compared, equal to the last bit with random numbers fixed"
        return Sameness(kind="different" if alters else "equal", sentence=told, samples=count)
    told = f"in {count} samples compared, {difference.sentence()}"
    if not elsewhere and (exact or not difference.close):
        return Sameness(kind="unlike", sentence=told, samples=count)
    return Sameness(kind="different", sentence=said + told, samples=count)


# -- how fast? ---------------------------------------------------------------------------------------------------------------


class WholeLoader:
    """A loader run as it is, epoch after epoch, block by block; in the place of a pool."""

    def __init__(self, subject: Subject, consumer: Consumer) -> None:
        self.consumer = consumer
        self._loader = subject.loader_to_run()
        self._asked: deque[int] = deque()
        vars(self._loader)["batch_sampler"] = _Endless(subject, self._asked)
        self._iterator: Any = None

    @property
    def processes(self) -> list[Any]:
        return list(getattr(self._iterator, "_workers", []))

    def block(self, experiment: Experiment, seconds: float, *, most: float = 30.0) -> Block:
        """Batches for about ``seconds``, those left out that were made before."""
        for _ in range(self._ahead()):
            self._next()
        self.consumer.settle()
        begun, batches, samples = perf_counter(), 0, 0
        while batches < 2 or perf_counter() - begun < min(seconds, most):
            samples += self._next()
            batches += 1
        self.consumer.settle()
        return Block(experiment.name, (), perf_counter() - begun, samples)

    def _ahead(self) -> int:
        """Batches that may lie ready: those that were made while something else ran."""
        self._start()
        fallback = self._loader.num_workers * (self._loader.prefetch_factor or 1)
        return 1 + int(getattr(self._iterator, "_ahead_by", fallback))

    def _start(self) -> None:
        if self._iterator is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._iterator = iter(self._loader)

    def _next(self) -> int:
        try:
            batch = next(self._iterator)
        except Exception as error:
            raise failing.raised("The loader", error, self.processes) from error
        if self.consumer.present:
            self.consumer(batch)
        return self._asked.popleft()

    def close(self, *, at_once: bool = False) -> None:
        """End its threads, or its workers."""
        iterator, self._iterator = self._iterator, None
        stop = getattr(iterator, "_end", None) or getattr(iterator, "_shutdown_workers", None)
        if stop is not None:
            stop()


class _Endless(torch.utils.data.Sampler[Any]):
    """The user's own order, epoch after epoch, and how many samples were asked for with each batch."""

    def __init__(self, subject: Subject, asked: deque[int]) -> None:
        self._subject, self._asked = subject, asked

    def __iter__(self) -> Iterator[Any]:
        for order in self._subject.orders():
            self._asked.append(len(order))
            yield order
