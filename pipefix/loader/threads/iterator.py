"""The iterator whose batches threads of this process make by fused calls: nothing has to start, and nothing travels.

Order, seeds, samplers, rules over bad samples, and where an epoch stands are those of every iterator here.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipefix.hooks.torch_internals import AnyIterator
from pipefix.loader.fusing.batches import FusedBatches
from pipefix.loader.fusing.epoch_rates import THREADS
from pipefix.loader.iterator import HELD, LoaderIterator
from pipefix.loader.resume import set_as_then
from pipefix.loader.threads.pool import PendingBatch, ThreadPool

ENOUGH = 4
"""Samples under way for each thread, so that none is idle while the last ones of a batch are made."""


class _ByPool(AnyIterator):
    """The next batch, from threads."""

    _kind: Callable[[Any], PendingBatch]
    """Makes a batch that threads are to fill, of what the sampler says."""

    def _open(self, threads: int, ahead: int) -> None:
        self._ahead_by = ahead
        """Batches that are made while the caller has one; 0: a batch is made when it is asked for."""
        self._under_way: deque[PendingBatch | Exception] = deque()
        self._pool = ThreadPool(threads)
        self._waited = 0.0
        self._end = weakref.finalize(self, self._pool.close)

    def _top_up(self, most: int) -> None:
        while len(self._under_way) < most:
            try:
                index = self._next_index()  # type: ignore[no-untyped-call]
            except StopIteration:
                return
            self._under_way.append(self._begun(index))

    def _begun(self, index: Any) -> PendingBatch | Exception:
        try:
            batch = self._kind(index)
        except Exception as error:  # noqa: BLE001 - raised when its turn comes, as a worker's would be
            return error
        self._pool.begin(batch)
        return batch

    def _next_data(self) -> Any:
        self._top_up(self._ahead_by + 1)
        if not self._under_way:
            raise StopIteration
        batch = self._under_way.popleft()
        if isinstance(batch, Exception):
            raise batch
        begun = time.perf_counter()
        ready = batch.wait(self._timeout or None)
        self._waited += time.perf_counter() - begun
        if not ready:
            self._under_way.appendleft(batch)
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        self._top_up(self._ahead_by)
        return batch.take()

    def _drop(self) -> None:
        """What is under way is not waited for."""
        for batch in self._under_way:
            if isinstance(batch, PendingBatch):
                batch.dropped = True
        self._under_way.clear()


class ThreadsLoaderIterator(LoaderIterator, _ByPool):
    _pins_apart = True

    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        super().__init__(loader)
        workers, made = loader.num_workers, self._work.fused
        assert made is not None
        # Without workers nothing is read ahead, as in DataLoader.
        enough = math.ceil(ENOUGH * made.threads / (loader.batch_size or 1))
        ahead = max(loader.prefetch_factor or 1, enough) if workers else 0
        # The loader's, so that the next epoch finds its pages written already.
        made.memory.kept = max(made.memory.kept, ahead + HELD + 1)
        self._kind = self._kind_now(loader)
        self._open(made.threads, ahead)
        if self.begin.again and not self.begin.fresh:
            set_as_then(loader, self.begin.generators)
            self._sampler_iter = iter(self._index_sampler)
        if self.begin.again or workers:
            # The sampler draws its order now, while the generators are as they were.
            self._top_up(max(1, ahead))

    def _kind_now(self, loader: Any) -> FusedBatches:
        """Of this epoch's batches."""
        work = self._work
        assert work.fused is not None
        rules = replace(work.rules, seed=self.begin.seed)
        pinned = self._pin_memory or (work.carrier is not None and work.carrier.streams)
        return FusedBatches(work.fused.source, work.fused.memory, rules, loader.collate_fn, pin=self._pin_memory, pinned=pinned)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._drop()
        self._start(loader)
        self._waited = 0.0
        super()._reset(loader, first_iter)
        self._kind = self._kind_now(loader)
        self._top_up(max(1, self._ahead_by))

    def _over(self, seconds: float) -> None:
        # Also where a sample raised StopIteration: nothing comes after it.
        self._drop()
        self._sampler_iter = iter(())
        fused = self._work.fused
        if fused is not None and seconds > 0:
            fused.pace.ended(THREADS, self._num_yielded, seconds, self._waited / seconds, self._pool.computed())
        if not self._persistent_workers:
            self._end()

    def _waits(self) -> bool:
        first = self._under_way[0] if self._under_way else None
        return isinstance(first, PendingBatch) and first.wait(0)
