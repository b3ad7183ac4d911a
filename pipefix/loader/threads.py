"""The iterator of a fused loader: batches made by threads of this process, straight into memory that is used again.

Order, seeds, samplers, rules over bad samples, and where an epoch stands are those of every iterator here; random numbers belong to
samples, as under ``rng="sample"``.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pipefix.loader.batching import own_collate
from pipefix.loader.crew import Batch, Crew
from pipefix.loader.guard import Asked, key_of
from pipefix.loader.iterator import HELD, Own
from pipefix.loader.pace import THREADS
from pipefix.loader.portable import Portable
from pipefix.loader.resume import set_as_then
from pipefix.loader.reused import Memory

if TYPE_CHECKING:
    from pipefix.loader.fusing.source import Source

ENOUGH = 4
"""Samples under way for each thread, so that none is idle while the last ones of a batch are made."""


class _Fused(_BaseDataLoaderIter):
    """The next batch, from threads."""

    _work: Any
    begin: Any
    _user_collates: Any

    def _open(self, source: Source, threads: int, ahead: int, memory: Memory) -> None:
        self._source = source
        self._ahead_by = ahead
        """Batches that are made while the caller has one; 0: a batch is made when it is asked for."""
        self._under_way: deque[Batch | Exception] = deque()
        # The loader's, so that the next epoch finds its pages written already.
        self._memory = memory
        memory.kept = max(memory.kept, ahead + HELD + 1)
        self._crew = Crew(threads)
        self._waited = 0.0
        self._end = weakref.finalize(self, self._crew.close)

    def _top_up(self, most: int) -> None:
        while len(self._under_way) < most:
            try:
                index = self._next_index()  # type: ignore[no-untyped-call]
            except StopIteration:
                return
            self._under_way.append(self._begun(index.index if isinstance(index, Asked) else index))

    def _begun(self, indices: Any) -> Batch | Exception:
        source = self._source
        try:
            indices = list(indices)
            shape = (len(indices), 3, source.height, source.width)
            carrier = self._work.carrier
            pinned = self._pin_memory or (carrier is not None and carrier.streams)
            pictures = self._memory.batch(shape, source.kind, pinned=pinned)
            keys = [key_of(self.begin.seed, self.begin.epoch, index) for index in indices]
        except Exception as error:  # noqa: BLE001 - raised when its turn comes, as a worker's would be
            return error
        made = Batch(source, indices, keys, pictures)
        self._crew.begin(made)
        return made

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
        made = batch.together(self._work.rules, own_collate(self._user_collates))
        if self._pin_memory:
            made = pin_memory(made, self._pin_memory_device)
        return made


class Threads(Own, _Fused):
    def __init__(self, loader: Any) -> None:
        self._prepare(loader)
        super().__init__(loader)
        made = self._work.fused
        assert made is not None
        batch = loader.batch_size or 1
        workers = loader.num_workers
        # Without workers nothing is read ahead, as in DataLoader.
        ahead = max(loader.prefetch_factor or 1, math.ceil(ENOUGH * made.threads / batch)) if workers else 0
        collate = loader.collate_fn
        self._user_collates = collate.collate_fn if isinstance(collate, Portable) else collate
        self._open(made.source, made.threads, ahead, made.memory)
        if self.begin.again and not self.begin.fresh:
            set_as_then(loader, self.begin.generators)
            self._sampler_iter = iter(self._index_sampler)
        if self.begin.again or workers:
            # The sampler draws its order now, while the generators are as they were.
            self._top_up(max(1, ahead))

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        for batch in self._under_way:
            if isinstance(batch, Batch):
                batch.dropped = True
        self._under_way.clear()
        self._start(loader)
        self._waited = 0.0
        super()._reset(loader, first_iter)
        self._top_up(max(1, self._ahead_by))

    def _over(self, seconds: float) -> None:
        fused = self._work.fused
        if fused is not None and seconds > 0:
            fused.pace.ended(THREADS, self._num_yielded, seconds, self._waited / seconds, self._crew.computed())
        if not self._persistent_workers:
            self._end()

    def _waits(self) -> bool:
        first = self._under_way[0] if self._under_way else None
        return isinstance(first, Batch) and first.wait(0)
