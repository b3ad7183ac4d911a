"""Reads a map-style dataset by ``on_bad``, ``sample_timeout`` and the seed of each sample: `PolicedDataset`.

`PolicedDataset` stands between torch's fetcher and the user's dataset, in the process that reads. What went wrong travels with the
batch as `FlawedBatch`.
"""

from __future__ import annotations

import itertools
import operator
import random
import signal
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Subset, get_worker_info

from pipefix.hooks.torch_internals import pin_memory
from pipefix.loader.fusing.sample_random import sample_key, seeded
from pipefix.loader.policy.sample_threads import SampleThreads

LONGEST_TEXT = 1000
"""Characters of an error, a path or an index that are kept."""
SOONEST = 1e-6
"""Seconds: the shortest time that a timer takes; 0 would stop it."""


class SampleTimeout(TimeoutError):
    """A sample took longer than ``sample_timeout``."""


class NotSamples(TypeError):
    """A dataset that makes whole batches is asked for one sample: to leave it out, to time it, or for its random numbers."""


@dataclass(frozen=True)
class ReadPolicy:
    on_bad: str = "raise"
    seconds: float = 0.0
    """That a sample may take; 0: as long as it likes."""
    keyed: bool = False
    """Samples draw random numbers of their own, by the seed that is sent with each batch; else torch's, as ever."""
    threads: int = 1
    """That read the samples of a batch, in each process that makes batches."""

    def __bool__(self) -> bool:
        return self.on_bad != "raise" or self.seconds > 0 or self.keyed or self.threads > 1


class Asked(NamedTuple):
    """What the fetcher is given in the place of an index, or of a batch of them."""

    epoch: int
    index: Any
    draws: tuple[int, ...] = ()
    """By the numbers of which epochs its samples draw, where one may come again in this one; empty: of this one."""
    seed: int | None = None
    """Of random numbers that belong to samples, as the epoch began with it; None: they are torch's."""

    def each(self, indices: list[Any]) -> list[tuple[int, Any]]:
        """These indices, each after the epoch by whose numbers its sample draws."""
        return list(zip(self.draws or itertools.repeat(self.epoch), indices, strict=False))


class Outcome(NamedTuple):
    """A sample, or what was raised in its place."""

    sample: Any
    error: Exception | None = None

    @classmethod
    def of(cls, make: Callable[[Any], Any], index: Any) -> Outcome:
        try:
            return cls(make(index))
        except Exception as error:  # noqa: BLE001 - the user's code; whoever gets the outcome raises it or notes it
            return cls(None, error)


class QuarantinedSample(NamedTuple):
    """A sample that could not be read."""

    index: Any
    source: str | None
    """The file it was read from, where the dataset lists them."""
    error: str
    where: str


class Samples(list[Any]):
    """Those of a batch that could be read, and what became of the rest.

    ``key``: of the random numbers that the batch itself draws, where samples have their own.
    """

    def __init__(self, good: Sequence[Any], bad: Sequence[QuarantinedSample], key: int | None = None) -> None:
        super().__init__(good)
        self.bad, self.key = tuple(bad), key


class FlawedBatch:
    """A batch without, or with others in the place of, samples that could not be read. Empty where none could."""

    def __init__(self, batch: Any, bad: tuple[QuarantinedSample, ...], *, empty: bool) -> None:
        self.batch, self.bad, self.empty = batch, bad, empty

    def pin_memory(self) -> FlawedBatch:
        return FlawedBatch(pin_memory(self.batch), self.bad, empty=self.empty)


class StandsForDataset:
    """What samples are read from in the place of the user's own ``dataset``."""

    dataset: Any


class PolicedDataset(StandsForDataset):
    def __init__(self, dataset: Any, rules: ReadPolicy) -> None:
        self.dataset, self.rules = dataset, rules
        self._threads = SampleThreads(rules.threads, dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, request: Asked) -> Any:
        try:
            return self._one(self.dataset.__getitem__, request.seed, request.each([request.index])[0])
        except Exception as error:
            if self.rules.on_bad == "raise":
                raise
            return Samples([], [bad(self.dataset, request.index, error)])

    def __getitems__(self, request: Asked) -> Any:
        batched = self._batched
        if batched is not None and not self.rules.seconds and request.seed is None:
            # Where one of them cannot be read, which one is seen when they are read one after the other.
            with nullcontext() if self.rules.on_bad == "raise" else suppress(Exception):
                return batched(request.index)
        asked = request.each(list(request.index))
        read_one = partial(Outcome.of, partial(self._one, self._read, request.seed))
        return self._together(request, asked, self._threads.map(read_one, asked))

    @property
    def _batched(self) -> Callable[[list[Any]], Any] | None:
        """The dataset's own way to read a batch. Threads ask for samples one by one where that is only passed on."""
        passed_on = self.rules.threads > 1 and not reads_batches(self.dataset)
        return None if passed_on else getattr(self.dataset, "__getitems__", None)

    @property
    def _read(self) -> Callable[[Any], Any]:
        batched = self._batched
        return self.dataset.__getitem__ if batched is None else partial(_single, batched)

    def _together(self, request: Asked, asked: list[tuple[int, Any]], outcomes: Iterable[Outcome]) -> list[Any]:
        """A batch's samples, as the rules have it where some could not be read."""
        strict = self.rules.on_bad == "raise"
        samples: list[Any] = []
        flaws, good, holes = [], [], []
        for one, (sample, error) in zip(asked, outcomes, strict=False):
            if error is None:
                samples.append(sample)
                good.append(one)
            elif strict or isinstance(error, NotSamples):
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame
            else:
                flaws.append(bad(self.dataset, one[1], error))
                holes.append(len(samples))
        if flaws and self.rules.on_bad == "refill" and good:
            # The batch's other samples, in their order, read once more: a rank meets only what is its own.
            read, filled = self._read, 0
            for number, hole in enumerate(holes):
                # It could be read before; where it cannot now, the batch is a little smaller.
                with suppress(Exception):
                    samples.insert(hole + filled, self._one(read, request.seed, good[number % len(good)]))
                    filled += 1
        if not flaws and request.seed is None:
            return samples
        indices = [index for _, index in asked]
        return Samples(samples, flaws, None if request.seed is None else batch_key(request.seed, request.epoch, indices))

    def _one(self, read: Callable[[Any], Any], seed: int | None, asked: tuple[int, Any]) -> Any:
        epoch, index = asked
        with nullcontext() if seed is None else drawing(key_of(seed, epoch, index)), limited(self.rules.seconds, index):
            return read(index)


def reads_batches(dataset: Any) -> bool:
    """Whether a dataset has a way of its own to read a batch. A `Subset` only passes the question on."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))  # None is how a class takes it back


def _single(batched: Callable[[list[Any]], Any], index: Any) -> Any:
    """One sample of a dataset that is asked for lists of them."""
    samples = batched([index])
    if not isinstance(samples, (list, tuple)) or len(samples) != 1:
        raise NotSamples(
            f"The dataset's __getitems__ makes whole batches: for one index it gave a {type(samples).__name__}, not a list of one "
            "sample. So no sample can be left out, timed, or have random numbers of its own. Have it give a list of samples, or "
            "leave out on_bad, sample_timeout and rng='sample'."
        )
    return samples[0]


def key_of(seed: int, epoch: int, index: Any) -> int:
    """Of a sample's random numbers."""
    number = _number(index)
    return sample_key(seed, epoch, zlib.crc32(repr(index).encode()) if number is None else number)


def told_apart(known: Counter[Any], epoch: int, batched: bool, order: Any) -> Asked:
    """An order of an epoch in which a sample may come again: each time it draws other numbers, those of an epoch that never comes.

    ``known``: how often each sample came before.
    """
    indices = list(order) if batched else [order]
    draws = []
    for index in indices:
        number = _number(index)
        name = repr(index) if number is None else number
        draws.append(epoch + (known[name] << 32))
        known[name] += 1
    return Asked(epoch, indices if batched else order, tuple(draws))


def _number(index: Any) -> int | None:
    """An index of any type that is a whole number; None for a text, a tuple, or an array of several numbers."""
    with suppress(TypeError):
        return operator.index(index)
    return None


def batch_key(seed: int, epoch: int, indices: list[Any]) -> int:
    """Of a collate function's random numbers, by the batch's samples: below zero, where no sample's is."""
    return sample_key(seed, epoch, -1 - zlib.crc32(repr(indices).encode()))


def drawing(key: int) -> Any:
    """The block draws a key's numbers. In a worker nothing is put back afterwards: whatever draws there has a key of its own."""
    if get_worker_info() is None:
        return seeded(key)
    torch.default_generator.manual_seed(key)
    np.random.seed(key)
    random.seed(key)
    return nullcontext()


class PolicedCollate:
    """The collate function, given the samples that there are; its random numbers are the batch's own where samples have theirs."""

    def __init__(self, collate_fn: Callable[[Any], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: Any) -> Any:
        if not isinstance(samples, Samples):
            return self.collate_fn(samples)
        with nullcontext() if samples.key is None else drawing(samples.key):
            batch = self.collate_fn(list(samples)) if samples or not samples.bad else None
        return FlawedBatch(batch, samples.bad, empty=not samples) if samples.bad else batch


@contextmanager
def limited(seconds: float, index: Any) -> Iterator[None]:
    """`SampleTimeout` where the block takes longer. Only in a main thread, where signals arrive, and not within native code.

    A timer of the user's own goes on afterwards with what is left of it, and rings at once where that is nothing."""
    if seconds <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise SampleTimeout(f"sample {index!r} took longer than sample_timeout={seconds:g} s")

    left, every = signal.setitimer(signal.ITIMER_REAL, 0)
    begun = time.monotonic() if left else 0.0
    handler = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), SOONEST), every)


def bad(dataset: Any, index: Any, error: Exception) -> QuarantinedSample:
    number = _number(index)
    known = number if number is not None else index if isinstance(index, str) else repr(index)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    where = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return QuarantinedSample(*map(_bounded, (known, source_of(dataset, index, error), _text_of(error), where)))


def _text_of(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as unwritten:  # noqa: BLE001 - the user's own class may raise anything
        return f"{type(error).__name__}, whose text raises {type(unwritten).__name__}"


def _bounded(value: Any) -> Any:
    """A text is kept for each bad sample, sent, written down and printed: an error may hold a whole file."""
    long = isinstance(value, str) and len(value) > LONGEST_TEXT
    return f"{value[:LONGEST_TEXT]}… ({len(value):,} characters)" if long else value


_LISTS = ("samples", "imgs", "paths", "files", "filenames", "image_paths", "img_files", "im_files", "images")


def source_of(dataset: Any, index: Any, error: Exception | None = None) -> str | None:
    """The file that a sample is in, as the error or the dataset's own list says it."""
    named = getattr(error, "filename", None)
    if isinstance(named, str):
        return named
    with suppress(Exception):  # the lists are the user's, and the index may be what is wrong; none may wrap another
        for _ in range(8):
            if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
                dataset, index = dataset.dataset, dataset.indices[index]
                continue
            for name in _LISTS:
                listed = getattr(dataset, name, None)
                if isinstance(listed, Sequence) and not isinstance(listed, str):
                    entry = listed[index]
                    first = entry[0] if isinstance(entry, (tuple, list)) and entry else entry
                    return str(first) if isinstance(first, str) or hasattr(first, "__fspath__") else None
            dataset = dataset.dataset
    return None
