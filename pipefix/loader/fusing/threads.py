"""The iterator whose batches threads of this process make by fused calls: no worker starts, and no batch is sent.

Order, seeds, samplers, rules over bad samples, and where an epoch stands are those of every iterator here.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from concurrent.futures import wait
from typing import Any

from pipefix.hooks.torch_internals import pin_memory
from pipefix.loader.fusing.batches import UnfinishedBatch, own_collate
from pipefix.loader.iterator import HELD, LoaderIterator
from pipefix.loader.policy.sample_threads import DaemonPool

ENOUGH = 4
"""Samples under way for each thread, so that none is idle while the last ones of a batch are made."""


class PendingBatch:
    """A batch under way. Whichever thread is free makes its next sample, so that a slow one does not hold up its neighbours."""

    def __init__(self, parts: UnfinishedBatch, pool: DaemonPool) -> None:
        self.parts, self.dropped = parts, False
        self._places = iter(range(len(parts.indices)))
        self.tasks = [pool.submit(self._make) for _ in range(min(pool.threads, len(parts.indices)))]

    def _make(self) -> None:
        for place in self._places:
            if self.dropped:
                return  # nobody waits for it any more
            self.parts.make(place)

    def wait(self, seconds: float | None) -> bool:
        """Whether all samples are made, after so many seconds at most."""
        return not wait(self.tasks, seconds).not_done


class ThreadsLoaderIterator(LoaderIterator):
    _pins_apart = True

    @property
    def usable(self) -> bool:
        """Also: its threads were not told to end."""
        return self._end.alive and super().usable

    def __init__(self, loader: Any) -> None:
        self._asks_twice = loader.num_workers > 0  # as torch does then: the order is that of a loader with workers
        self._prepare(loader)
        super().__init__(self._seen_by_torch(loader))
        workers, fusion = loader.num_workers, self._work.fused
        assert fusion is not None
        collate: Any = self._collate_fn  # a `FusedCollate`
        self._own_collate = own_collate(collate.collate)
        self._source, self._memory = fusion.source, fusion.memory
        # Without workers nothing is read ahead, as in DataLoader.
        size, factor = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None), loader.prefetch_factor or 1
        # Where it is not known how large they are, as many batches as in DataLoader.
        enough = math.ceil(ENOUGH * fusion.threads / size) if isinstance(size, int) and size > 0 else factor * workers
        self._ahead_by = ahead = max(factor, enough) if workers else 0
        """Batches that are made while the caller has one; 0: a batch is made when it is asked for."""
        # The loader's, so that the next epoch finds its pages written already.
        self._memory.kept = max(self._memory.kept, ahead + HELD + 1)
        self._under_way: deque[PendingBatch | Exception] = deque()
        self._pool = DaemonPool(fusion.threads, "pipefix-fused")
        self._end = weakref.finalize(self, _close, self._pool, self._under_way)
        self._go_on(loader)
        self._top_up(ahead)

    def _top_up(self, most: int) -> None:
        source, carrier = self._source, self._work.carrier
        pinned = self._pin_memory or (carrier is not None and carrier.streams)
        while len(self._under_way) < most:
            try:
                index = self._next_index()
            except StopIteration:
                return
            try:
                if not self._end.alive:
                    raise RuntimeError("This iterator was shut down (_shutdown_workers): begin another one, iter(loader).")
                pictures = self._memory.batch((len(index.index), 3, source.height, source.width), source.kind, pinned=pinned)
                parts = UnfinishedBatch(source, index, pictures)
                self._under_way.append(PendingBatch(parts, self._pool))
            except Exception as error:  # noqa: BLE001 - raised when its turn comes, as a worker's would be
                self._under_way.append(error)

    def _next_made(self) -> Any:
        self._top_up(self._ahead_by + 1)
        if not self._under_way:
            raise StopIteration
        batch = self._under_way[0]  # it stays the next one where the wait for it is broken off, by Ctrl-C or a signal's handler
        if isinstance(batch, PendingBatch) and not batch.wait(self._timeout or None):
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        self._under_way.popleft()
        if isinstance(batch, Exception):
            raise batch
        for task in batch.tasks:
            task.result()  # raises what ended one of the threads
        batch_made = batch.parts.together(self._work.rules, self._own_collate)
        return pin_memory(batch_made) if self._pin_memory else batch_made

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        _drop(self._under_way)
        self._start(loader)
        super()._reset(loader, first_iter)
        self._top_up(max(1, self._ahead_by))

    def _over(self) -> None:
        super()._over()
        # Also where a sample raised StopIteration: nothing comes after it.
        _drop(self._under_way)
        self._indices = iter(())  # setting `_sampler_iter` would begin an order that was dealt anew once more
        if not self._persistent_workers:
            self._shutdown_workers()

    def _shutdown_workers(self) -> None:
        """As programs call it on the iterator that a loader keeps."""
        self._end()

    def _has_arrived(self) -> bool:
        first = self._under_way[0] if self._under_way else None
        return isinstance(first, PendingBatch) and first.wait(0)


def _drop(under_way: deque[PendingBatch | Exception]) -> None:
    """What is under way is not waited for."""
    for batch in under_way:
        if isinstance(batch, PendingBatch):
            batch.dropped = True
    under_way.clear()


def _close(pool: DaemonPool, under_way: deque[PendingBatch | Exception]) -> None:
    _drop(under_way)
    pool.close()
