"""What every iterator of the loader does beside torch's own: samples read under rules, epochs gone on with, batches metered and
brought on their way. And the iterator that needs nothing else: the one without workers.

Who makes which batch, seeds and order are torch's own, in subclasses of its iterators. So batches are those of `DataLoader`,
bit for bit, and its manners hold.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe

from pipefix.hooks.torch_internals import AnyIterator, DatasetKind, SingleIterator, named_block, profiled
from pipefix.loader.device import Carrier
from pipefix.loader.fusing.batches import FusedCollate, FusedOrders
from pipefix.loader.fusing.fusion import Fusion
from pipefix.loader.metering.meter import Meter, samples_in, size_of
from pipefix.loader.metering.stats import FEW, Course
from pipefix.loader.planning import planned
from pipefix.loader.policy.quarantine import Quarantine
from pipefix.loader.policy.read_policy import Asked, FlawedBatch, PolicedCollate, PolicedDataset, ReadPolicy
from pipefix.loader.ranks import RemainingOrder
from pipefix.loader.resume import Standing, begin_augmenting, set_as_then
from pipefix.loader.slots.arena import Arena
from pipefix.loader.slots.portable import Portable
from pipefix.loader.workers import deaths

log = logging.getLogger("pipefix.loader")
HELD = 2
"""Batches that the caller is expected to hold at a time: the current one, while it asks for the next."""


@dataclass
class EpochWork:
    """What an iterator does beside torch's own."""

    reads: Any
    """What samples are read from."""
    rules: ReadPolicy = field(default_factory=ReadPolicy)
    quarantine: Quarantine | None = None
    threads: int | None = None
    arena: Arena | None = None
    shared_queue: bool = False
    """Whether workers take their batches from one queue, whichever is free, rather than in turn."""
    carrier: Carrier | None = None
    steps: tuple[Callable[[Any], Any], ...] = ()
    """Done to each batch in this process, on its way to the caller."""
    handed: Counter[str] = field(default_factory=Counter)
    recorded: planned.OnBatch | None = None
    """Samples come with what is to be done to them on the batch."""
    fused: Fusion | None = None
    """Batches are made by fused calls."""


class LoaderIterator(AnyIterator):
    """Torch sets its parts one by one as attributes; some of them are given another shape here."""

    _work: EpochWork
    standing: Standing
    meter: Meter
    """The loader's."""
    _metered: Meter | None
    """Where batches are written down."""
    course: Course
    _pins_apart = False
    """Batches are pinned by a thread beside the caller's."""

    def _prepare(self, loader: Any) -> None:
        self._work = loader._work()
        self._staged: deque[Any] = deque()
        self._start(loader)

    def _start(self, loader: Any) -> None:
        """An epoch begins."""
        self.begin = loader._beginning
        self.standing = Standing(self.begin, self.begin.passed)
        self.meter = self._metered = loader.meter
        self.course = Course(self.meter, self.begin.epoch)
        self._size = size_of(loader)
        self._rest_of_order = RemainingOrder(loader, self.begin.dealt_from) if self.begin.dealt_from else None
        self._last, self._rest = _last_of(loader, self._rest_of_order)
        self._few = FEW
        self._asked = self._missed = 0
        self._staged.clear()
        if self._work.quarantine is not None:
            self._work.quarantine.begin()
        begin_augmenting(self._work.steps, self.begin, loader.batch_size)

    # -- parts that torch sets ---------------------------------------------------------------------------------------------

    @property
    def guarded(self) -> bool:
        return bool(self._work.rules) and self._dataset_kind == DatasetKind.Map

    @property
    def _dataset(self) -> Any:
        return self._read_from

    @_dataset.setter
    def _dataset(self, dataset: Any) -> None:
        self._read_from = self._under_rules(dataset)

    def _under_rules(self, dataset: Any) -> Any:
        """What samples are read from."""
        if isinstance(dataset, (IterDataPipe, MapDataPipe)):
            return dataset
        if self._work.fused is not None:
            return FusedOrders(self._work.fused.source, self._work.rules)
        if self._work.rules and not isinstance(dataset, IterableDataset):
            return PolicedDataset(self._work.reads, self._work.rules)
        return self._work.reads

    @property
    def _collate_fn(self) -> Any:
        return self._collates

    @_collate_fn.setter
    def _collate_fn(self, collate_fn: Any) -> None:
        self._collates = self._made_by(collate_fn)

    def _made_by(self, collate_fn: Any) -> Any:
        """What makes a batch of what was read: the user's collate function, under the loader's rules."""
        if self._work.recorded is not None:
            collate_fn = self._work.recorded.collate(collate_fn)
        if self._work.fused is not None:
            return FusedCollate(collate_fn.collate_fn if isinstance(collate_fn, Portable) else collate_fn)
        return PolicedCollate(collate_fn) if self.guarded else collate_fn

    @property
    def _sampler_iter(self) -> Any:
        return self._indices

    @_sampler_iter.setter
    def _sampler_iter(self, indices: Iterator[Any]) -> None:
        if self._rest_of_order is not None:
            indices = iter(self._rest_of_order)
        self._indices = itertools.islice(indices, self.begin.passed, None) if self.begin.passed else indices

    @property
    def _pin_memory(self) -> bool:
        return self._pins

    @_pin_memory.setter
    def _pin_memory(self, pins: bool) -> None:
        # What goes to a device is copied from pinned memory, which the caller's thread is not to wait for.
        carrier = self._work.carrier
        self._pins = bool(pins) or (self._pins_apart and carrier is not None and carrier.streams)

    def _next_index(self) -> Any:
        index = super()._next_index()  # type: ignore[no-untyped-call]
        if self._work.quarantine is not None:
            self._asked += len(index) if self._auto_collation else 1
        return Asked(self.begin.epoch, index) if self.guarded else index

    # -- batches -----------------------------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        # Torch's own iterator names the block in Python, which takes microseconds also where nobody records.
        if named_block is None or profiled is None or self._IterableDataset_len_called is not None or profiled():
            return super().__next__()
        with named_block(self._profile_name):
            batch = self._next_data()
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        meter = self._metered
        if meter is None:
            return self._following()
        meter.asked()
        try:
            batch = self._following()
        except StopIteration:
            meter.ended()
            if log.isEnabledFor(logging.INFO):
                log.info("%s", self.course.stats())
            raise
        except BaseException:
            meter.ended()
            raise
        meter.got((self._size if self.standing.batches != self._last else self._rest) or samples_in(batch))
        self._few -= 1
        if not self._few:
            self._felt()
        return batch

    def _felt(self) -> None:
        """Here it is seen whether metering every batch would be."""

    def _following(self) -> Any:
        carrier = self._work.carrier
        try:
            if carrier is None:
                batch, missed = self._good(), self._missed
            else:
                begun, missed = self._staged.popleft() if self._staged else (carrier.begin(self._good()), self._missed)
                if isinstance(begun, Exception):
                    raise begun
                batch = carrier.end(begun)
        except StopIteration:
            self.standing.ended = True
            self._over()
            raise
        except Exception as error:
            if not (isinstance(error, deaths.WorkerDied) or str(error).startswith("DataLoader timed out")):
                # Iteration goes on with the batch after it.
                self._missed += 1
                self.standing.batches += 1
            raise
        self.standing.batches = self.begin.passed + self._num_yielded + 1 + missed
        for step in self._work.steps:
            batch = step(batch)
        if carrier is not None and carrier.streams and not self._staged:
            ahead = self._ahead(carrier)
            if ahead is not None:
                self._staged.append((ahead, self._missed))
        return batch

    def _over(self) -> None:
        """The epoch has ended."""

    def _ahead(self, carrier: Carrier) -> Any:
        """The batch that has arrived meanwhile, on its way already; None where none has. An error keeps its place in the row."""
        try:
            return carrier.begin(self._good()) if self._waits() else None
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            return error

    def _waits(self) -> bool:
        """Whether the next batch is here, so that taking it holds nobody up."""
        return False

    def _good(self) -> Any:
        """The next batch that has samples in it."""
        following: Callable[[], Any] = super()._next_data
        while True:
            batch = self._opened(following())
            if not isinstance(batch, FlawedBatch):
                return batch
            assert self._work.quarantine is not None
            self._work.quarantine.add(batch.bad, epoch=self.begin.epoch, asked=self._asked)
            if not batch.empty:
                return batch.batch
            self._missed += 1

    def _opened(self, batch: Any) -> Any:
        return batch


def _last_of(loader: Any, rest: RemainingOrder | None) -> tuple[int, int]:
    """The number of an epoch's last batch, from 1, and its samples, where it may have fewer than others; else no batch's number."""
    try:
        batches, left = divmod(len(loader.sampler) if rest is None else rest.samples, loader.batch_size)
    except Exception:  # noqa: BLE001 - a sampler of the user's, which nobody else asks for its length
        return 0, 0
    streams = isinstance(loader.dataset, (IterableDataset, IterDataPipe))
    return (batches + 1, left) if left and not (loader.drop_last or streams) else (0, 0)


class InProcessLoaderIterator(LoaderIterator, SingleIterator):
    """Without workers."""

    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        super().__init__(loader)
        work = self._work
        self._plain = not (work.steps or work.quarantine or work.carrier or self.guarded or self._pin_memory)
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        if self.begin.again:
            if not self.begin.fresh:
                set_as_then(loader, self.begin.generators)
                self._sampler_iter = iter(self._index_sampler)
            # The sampler draws its order now, while the generators are as they were.
            first = next(self._indices, None)
            self._indices = iter(()) if first is None else _again(first, self._indices)

    def _following(self) -> Any:
        if not self._plain:
            return super()._following()
        # With nothing beside torch's own to be done, nothing of it is asked for each batch.
        try:
            batch = self._dataset_fetcher.fetch(next(self._indices))
        except StopIteration:
            self.standing.ended = True
            raise
        except Exception:
            self._missed += 1
            self.standing.batches += 1
            raise
        self.standing.batches += 1
        return batch

    def _felt(self) -> None:
        if not self.meter.read and self.course.quick():
            self.course.metered = False
            self._metered = None


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
