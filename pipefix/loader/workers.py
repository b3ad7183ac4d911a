"""Iterators as torch runs them, with ours beside: batches handed over through slots, samples read under rules, epochs gone on with.

Who makes which batch, seeds, order, watchdogs and the way processes end are torch's own, in subclasses of its iterators. So batches
are those of `DataLoader`, bit for bit, and its manners hold.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe
from torch.utils.data.dataloader import (
    DataLoader,
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from pipefix.loader import dying
from pipefix.loader.arena import Arena, room
from pipefix.loader.assemble import Arrival, Assembler, Opened
from pipefix.loader.guard import Asked, Flawed, Gathered, Guarded, Prepared, Rules
from pipefix.loader.limits import out_of_memory_kills
from pipefix.loader.packed import Packed, pack, preload, start_method
from pipefix.loader.portable import Portable
from pipefix.loader.prefetch import Carrier
from pipefix.loader.quarantine import Quarantine
from pipefix.loader.resume import Standing, set_as_then
from pipefix.loader.trial import SLOTS, UNDECIDED, Trial
from pipefix.vocabulary import death

HELD = 2
"""Batches that the caller is expected to hold at a time: the current one, while it asks for the next."""


def make_arena(loader: DataLoader[Any]) -> Arena:
    """Room for what ``loader`` has under way. Raises OSError or AttributeError where this system cannot give it."""
    slots = (loader.prefetch_factor or 0) + HELD
    return Arena(loader.num_workers, slots, room(loader.num_workers * slots))


@dataclass
class Work:
    """What an iterator does beside torch's own."""

    reads: Any
    """What samples are read from."""
    rules: Rules = field(default_factory=Rules)
    quarantine: Quarantine | None = None
    threads: int | None = None
    sharing: str | None = None
    arena: Arena | None = None
    trial: Trial = field(default_factory=Trial)
    carrier: Carrier | None = None
    steps: tuple[Callable[[Any], Any], ...] = ()
    """Done to each batch in this process, on its way to the caller."""
    handed: Counter[str] = field(default_factory=Counter)


class Own(_BaseDataLoaderIter):
    """Torch sets its parts one by one as attributes; some of them are given another shape here."""

    _work: Work
    standing: Standing

    def _prepare(self, loader: Any) -> None:
        self._work = loader._work()
        self._staged: deque[Any] = deque()
        self._start(loader)

    def _start(self, loader: Any) -> None:
        """An epoch begins."""
        self.begin = loader._beginning
        self.standing = Standing(self.begin, self.begin.passed)
        self._asked = self._missed = 0
        self._staged.clear()
        if self._work.quarantine is not None:
            self._work.quarantine.begin()
        for step in self._work.steps:
            if hasattr(step, "set_epoch"):
                step.set_epoch(self.begin.epoch)

    # -- parts that torch sets ---------------------------------------------------------------------------------------------

    @property
    def guarded(self) -> bool:
        return bool(self._work.rules) and self._dataset_kind == _DatasetKind.Map

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
        if self._work.rules and not isinstance(dataset, IterableDataset):
            return Guarded(self._work.reads, self._work.rules)
        return self._work.reads

    @property
    def _collate_fn(self) -> Any:
        return self._collates

    @_collate_fn.setter
    def _collate_fn(self, collate_fn: Any) -> None:
        self._collates = Gathered(collate_fn) if self.guarded else collate_fn

    @property
    def _sampler_iter(self) -> Any:
        return self._indices

    @_sampler_iter.setter
    def _sampler_iter(self, indices: Iterator[Any]) -> None:
        self._indices = islice(indices, self.begin.passed, None) if self.begin.passed else indices

    def _next_index(self) -> Any:
        index = super()._next_index()  # type: ignore[no-untyped-call]
        if self._work.quarantine is not None:
            self._asked += len(index) if self._auto_collation else 1
        return Asked(self.begin.epoch, index) if self.guarded else index

    # -- batches -----------------------------------------------------------------------------------------------------------

    def _next_data(self) -> Any:
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
            raise
        except Exception as error:
            if not (isinstance(error, dying.WorkerDied) or str(error).startswith("DataLoader timed out")):
                # Iteration goes on with the batch after it.
                self._missed += 1
                self.standing.batches += 1
            raise
        self.standing.batches = self.begin.passed + self._num_yielded + 1 + missed
        for step in self._work.steps:
            batch = step(batch)
        if carrier is not None and carrier.streams and not self._staged and self._waits():
            self._staged.append((self._ahead(carrier), self._missed))
        return batch

    def _ahead(self, carrier: Carrier) -> Any:
        """The batch that has arrived meanwhile, on its way already; an error keeps its place in the row."""
        try:
            return carrier.begin(self._good())
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
            if not isinstance(batch, Flawed):
                return batch
            assert self._work.quarantine is not None
            self._work.quarantine.add(batch.bad, epoch=self.begin.epoch, asked=self._asked)
            if not batch.empty:
                return batch.batch
            self._missed += 1

    def _opened(self, batch: Any) -> Any:
        return batch


class Single(Own, _SingleProcessDataLoaderIter):
    """Without workers."""

    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        super().__init__(loader)
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        if self.begin.again:
            if not self.begin.fresh:
                set_as_then(loader, self.begin.generators)
                self._sampler_iter = iter(self._index_sampler)
            # The sampler draws its order now, while the generators are as they were.
            first = next(self._indices, None)
            self._indices = iter(()) if first is None else _again(first, self._indices)


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


@contextmanager
def unwatched() -> Iterator[None]:
    """Workers that are forked now leave the garbage collector's marks on what exists already as they are: marking writes to every
    object, and each page that is written to is copied."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Workers(Own, _MultiProcessingDataLoaderIter):
    """With worker processes."""

    _shutdown = True
    """Until torch has begun: where that fails there is nothing to end."""

    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        self._kills = out_of_memory_kills()
        self._packed: Packed | None = None
        method = start_method(loader.multiprocessing_context)
        if method == "forkserver":
            preload(loader.dataset, loader.collate_fn)
        if method != "fork" and not isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
            self._packed = pack(self._under_rules(loader.dataset))
        with unwatched() if method == "fork" else nullcontext():
            super().__init__(loader)
        self._packed = None
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self._start(loader)
        elif self.begin.again and not self.begin.fresh:
            # A seed for workers has been drawn, which those that lived on did not need.
            set_as_then(loader, self.begin.generators)
        super()._reset(loader, first_iter)

    @property
    def _dataset(self) -> Any:
        """What workers are started with."""
        return self._read_from if self._packed is None else self._packed

    @_dataset.setter
    def _dataset(self, dataset: Any) -> None:
        self._read_from = self._under_rules(dataset)

    @property
    def _collate_fn(self) -> Any:
        """What workers are started with."""
        return self._collates

    @_collate_fn.setter
    def _collate_fn(self, collate_fn: Any) -> None:
        if isinstance(collate_fn, Portable) and self._work.arena is not None:
            collate_fn = collate_fn.collate_fn
        collates = Gathered(collate_fn) if self.guarded else collate_fn
        arena = self._work.arena
        self._collates = collates if arena is None else Assembler(collates, arena)

    @property
    def _worker_init_fn(self) -> Any:
        work = self._work
        if self.guarded or work.threads is not None or work.sharing is not None:
            return Prepared(self._users_init_fn, work.threads, work.sharing)
        return self._users_init_fn

    @_worker_init_fn.setter
    def _worker_init_fn(self, init_fn: Any) -> None:
        self._users_init_fn = init_fn

    def _good(self) -> Any:
        try:
            return super()._good()
        except RuntimeError as error:
            if death.is_told_of(error) and not isinstance(error, dying.WorkerDied):
                raise dying.told(error, self._workers, self._kills) from error
            raise

    def _opened(self, batch: Any) -> Any:
        if not isinstance(batch, (Arrival, Opened)):
            self._work.handed["torch"] += 1
            return batch
        opened = batch.open()
        self._work.handed["slots" if opened.way == SLOTS else "tried"] += 1
        trial, arena = self._work.trial, self._work.arena
        if arena is not None and trial.verdict == UNDECIDED:
            trial.add(opened.way, opened.turn, opened.seconds)
        if arena is not None and arena.verdict != trial.verdict:
            arena.verdict = trial.verdict
        return opened.batch

    def _waits(self) -> bool:
        known = self._task_info.get(self._rcvd_idx, ())
        only = self._num_workers == 1 or not self._in_order
        return len(known) == 2 or (only and not self._data_queue.empty())

    def _shutdown_workers(self) -> None:
        super()._shutdown_workers()
        work = getattr(self, "_work", None)
        if work is not None and work.arena is not None:
            work.arena.close()
