"""The base of the loader's iterators, and the one without workers: torch's own, with bad samples, resume, meter and device added.

Who makes which batch, seeds and order are torch's own, in subclasses of its iterators. So batches are those of `DataLoader`,
bit for bit, and its manners hold.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pipefix.hooks.torch_internals import AnyIterator, DatasetKind, SingleIterator, named_block, processes_of, profiled
from pipefix.loader.device import Carrier
from pipefix.loader.fusing.batches import FusedCollate, FusedOrders
from pipefix.loader.fusing.fusion import Fusion
from pipefix.loader.metering.meter import Course, Meter
from pipefix.loader.overlaid import Overlaid
from pipefix.loader.policy.quarantine import Quarantine
from pipefix.loader.policy.read_policy import Asked, FlawedBatch, PolicedCollate, PolicedDataset, ReadPolicy, told_apart
from pipefix.loader.ranks import RemainingOrder, may_repeat
from pipefix.loader.resume import EpochPosition, begin_augmenting, restore_generators
from pipefix.loader.slots.arena import Arena
from pipefix.loader.slots.portable import Portable
from pipefix.loader.workers.deaths import lies_behind

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
    recorded: bool = False
    """Samples come with what is to be done to them on the batch."""
    fused: Fusion | None = None
    """Batches are made by fused calls."""


class LoaderIterator(AnyIterator):
    """The base of all of them."""

    _pins_apart = False
    """Batches are pinned by a thread beside the caller's."""
    _asks_twice = False
    """The sampler is asked for an iterator once more when there are workers."""

    def _prepare(self, loader: Any) -> None:
        self._owner = os.getpid()
        self._work: EpochWork = loader._work()
        self.guarded = bool(self._work.rules) and loader._dataset_kind == DatasetKind.Map
        """Whether samples are read under rules."""
        self._staged: deque[Any] = deque()
        self._start(loader)

    @property
    def usable(self) -> bool:
        """For another epoch: no worker has died, of Ctrl-C perhaps, and this process was not forked since."""
        return self._owner == os.getpid() and all(worker.is_alive() for worker in processes_of(self))

    def _start(self, loader: Any) -> None:
        """An epoch begins."""
        begin = loader._beginning
        self.begin = begin if begin.again else replace(begin, twice=self._asks_twice)
        self._indices: Any = None
        self.standing = EpochPosition(self.begin, self.begin.passed)
        self.meter: Meter = loader.meter
        self._rest_of_order = RemainingOrder(loader, self.begin.dealt_from) if self.begin.dealt_from else None
        self.course = Course(self.meter, self.begin.epoch, loader, self._rest_of_order)
        self._may_repeat = self.guarded and self._work.rules.keyed and may_repeat(loader)
        self._asked = 0
        self._staged.clear()
        if self._work.quarantine is not None:
            self._work.quarantine.found.clear()
        begin_augmenting(self._work.steps, self.begin)

    # -- what torch's iterator is given ------------------------------------------------------------------------------------

    def _seen_by_torch(self, loader: Any, **others: Any) -> Any:
        """``loader``, with what samples are read from and batches are made by under the loader's rules."""
        carrier = self._work.carrier
        # What goes to a device is copied from pinned memory, which the caller's thread is not to wait for.
        pins = bool(loader.pin_memory) or (self._pins_apart and carrier is not None and carrier.streams)
        parts = {"dataset": self._under_rules(), "collate_fn": self._made_by(loader.collate_fn), "pin_memory": pins}
        return Overlaid(loader, **(parts | others))

    def _under_rules(self) -> Any:
        """What samples are read from."""
        if self._work.fused is not None:
            return FusedOrders(self._work.fused.source, self._work.rules)
        return PolicedDataset(self._work.reads, self._work.rules) if self.guarded else self._work.reads

    def _made_by(self, collate_fn: Any) -> Any:
        """What makes a batch of what was read: the user's collate function, under the loader's rules."""
        if self._work.recorded:
            from pipefix.augment.swap import with_calls_apart

            collate_fn = with_calls_apart(collate_fn)
        if self._work.fused is not None:
            return FusedCollate(collate_fn.collate_fn if isinstance(collate_fn, Portable) else collate_fn)
        return PolicedCollate(collate_fn) if self.guarded else collate_fn

    @property
    def _sampler_iter(self) -> Any:
        return self._indices

    @_sampler_iter.setter
    def _sampler_iter(self, indices: Iterator[Any]) -> None:
        if self._indices is not None and self.begin.again and self.begin.fresh and not self.begin.twice:
            return  # an order that is gone on with is the first one
        if self._rest_of_order is not None:
            indices = iter(self._rest_of_order)
        if self._may_repeat:
            told = partial(told_apart, Counter(), self.begin.epoch)
            indices = map(partial(told, self._auto_collation), indices)
            if self._rest_of_order is not None:
                self._rest_of_order.passed_over = partial(told, True)
        self._order = indices
        self._indices = itertools.islice(indices, self.begin.passed, None) if self.begin.passed else indices

    def _go_on(self, loader: Any) -> None:
        """An epoch that is gone on with: without the seed that was just drawn for workers, where none were started then."""
        if self.begin.again and not self.begin.fresh:
            restore_generators(loader, self.begin.generators)
        if self.begin.twice or (self.begin.again and not self.begin.fresh):
            self._sampler_iter = iter(self._index_sampler)
        if self.begin.again and not loader.num_workers:
            # The sampler draws its order now, while the generators are as they were. One that draws index by index does so for what
            # lies behind, and goes on with the process's own.
            deque(itertools.islice(self._order, self.begin.passed), maxlen=0)
            first = [] if self.begin.passed else list(itertools.islice(self._order, 1))
            self._indices = itertools.chain(first, self._order)

    def _next_index(self) -> Any:
        index = super()._next_index()  # type: ignore[no-untyped-call]
        asked = index if isinstance(index, Asked) else Asked(self.begin.epoch, index)
        if self._work.rules.keyed:
            asked = asked._replace(seed=self.begin.seed)
        if self._work.quarantine is not None:
            self._asked += len(asked.index) if self._auto_collation else 1
        return asked if self.guarded else index

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
        if not self.course.metered:
            return self._next_on_its_way()
        meter = self.meter
        meter.asked()
        try:
            batch = self._next_on_its_way()
        except BaseException:
            meter.ended()
            raise
        self.course.got(batch, self.standing.batches)
        return batch

    def _next_on_its_way(self) -> Any:
        carrier, standing = self._work.carrier, self.standing
        try:
            if carrier is None:
                batch, missed = self._next_usable(), standing.missed
            else:
                begun, missed = self._staged.popleft() if self._staged else (carrier.begin(self._next_usable()), standing.missed)
                if isinstance(begun, Exception):
                    raise begun
                batch = carrier.end(begun)
        except StopIteration:
            self._over()
            raise
        except Exception as error:
            if lies_behind(error):
                standing.missed += 1
                standing.batches += 1
            raise
        standing.batches = self.begin.passed + self._num_yielded + 1 + missed
        try:
            for step in self._work.steps:
                batch = step(batch)
        except Exception as error:
            standing.missed += 1  # it lies behind all the same
            if isinstance(error, StopIteration):  # whoever iterates would take it for the end of the epoch
                raise RuntimeError("augment raised StopIteration. Does it read an iterator that has ended?") from error
            raise
        if carrier is not None and carrier.streams and not self._staged:
            # The batch that has arrived meanwhile is on its way already. An error keeps its place in the row.
            try:
                if self._has_arrived():
                    self._staged.append((carrier.begin(self._next_usable()), standing.missed))
            except Exception as error:  # noqa: BLE001 - raised when its turn comes
                self._staged.append((error, standing.missed))
        return batch

    def _over(self) -> None:
        """The epoch has ended."""
        self.standing.ended = True
        log.info("%s", self.course.stats())

    def _has_arrived(self) -> bool:
        """Whether the next batch is here, so that taking it holds nobody up."""
        return False

    def _next_usable(self) -> Any:
        """The next batch that has samples in it."""
        while True:
            batch = self._next_made()
            if not isinstance(batch, FlawedBatch):
                return batch
            assert self._work.quarantine is not None
            self._work.quarantine.add(batch.bad, epoch=self.begin.epoch, samples_asked=self._asked)
            if not batch.empty:
                return batch.batch
            self.standing.missed += 1

    def _next_made(self) -> Any:
        """The next batch as it was made; `FlawedBatch` where samples could not be read."""
        return super()._next_data()


class InProcessLoaderIterator(LoaderIterator, SingleIterator):
    """Without workers."""

    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        if self._work.rules.seconds and threading.current_thread() is not threading.main_thread():
            why = "its signal reaches the main thread alone, and this loader is iterated in another"
            told = f"sample_timeout={loader.sample_timeout!r} times no sample: {why}. num_workers=1 has a worker time them."
            warnings.warn(told, RuntimeWarning, stacklevel=6)
        self.course.may_stop = True
        super().__init__(self._seen_by_torch(loader))
        work = self._work
        self._plain = not (work.steps or work.quarantine or work.carrier or self.guarded or self._pin_memory)
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        self._go_on(loader)

    def _next_on_its_way(self) -> Any:
        if not self._plain:
            return super()._next_on_its_way()
        # With nothing beside torch's own to be done, nothing of it is asked for each batch.
        try:
            batch = self._dataset_fetcher.fetch(next(self._indices))
        except StopIteration:
            self._over()
            raise
        except Exception:
            self.standing.missed += 1
            self.standing.batches += 1
            raise
        self.standing.batches += 1
        return batch
