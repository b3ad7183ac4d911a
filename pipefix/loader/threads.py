"""The iterator of a fused loader: batches made by threads of this process, straight into memory that is used again.

Order, seeds, samplers, rules over bad samples, and where an epoch stands are those of every iterator here; random numbers belong to
samples, as under ``rng="sample"``.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from pipefix.loader.crew import Batch, Crew
from pipefix.loader.fusing.source import Source
from pipefix.loader.fusing.stand_in import collated
from pipefix.loader.guard import Asked, Bad, Flawed, bad, key_of
from pipefix.loader.resume import set_as_then
from pipefix.loader.reused import Memory
from pipefix.loader.workers import HELD, Own

ENOUGH = 4
"""Samples under way for each thread, so that none is idle while the last ones of a batch are made."""


class _Fused(_BaseDataLoaderIter):
    """The next batch, from threads."""

    _work: Any
    begin: Any

    def _open(self, source: Source, threads: int, ahead: int) -> None:
        self._source = source
        self._ahead_by = ahead
        """Batches that are made while the caller has one; 0: a batch is made when it is asked for."""
        self._under_way: deque[Batch | Exception] = deque()
        self._memory = Memory(ahead + HELD + 1)
        self._crew = Crew(threads)
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
            pictures = self._memory.batch(shape, source.kind, pinned=self._pin_memory)
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
        if not batch.wait(self._timeout or None):
            self._under_way.appendleft(batch)
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        self._top_up(self._ahead_by)
        return self._assembled(batch)

    def _assembled(self, batch: Batch) -> Any:
        flaws: list[Bad] = []
        holes: list[int] = []
        for place in sorted(batch.left):
            try:
                batch.rests[place] = batch.source.finish(
                    batch.indices[place], batch.keys[place], batch.target, place, batch.left[place]
                )
            except Exception as error:  # noqa: BLE001 - raised, or written down as the loader's rules say
                found = bad(batch.source.dataset, batch.indices[place], error)
                if self._work.rules.on_bad == "raise":
                    raise named(error, found) from None
                flaws.append(found)
                holes.append(place)
        pictures, rests = batch.target.tensor, batch.rests
        if flaws:
            good = [place for place in range(len(rests)) if place not in set(holes)]
            if not good:
                return Flawed(None, tuple(flaws), empty=True)
            if self._work.rules.on_bad == "refill":
                # The batch's other samples, in their order: a rank meets only what is its own.
                for number, hole in enumerate(holes):
                    other = good[number % len(good)]
                    pictures[hole].copy_(pictures[other])
                    rests[hole] = rests[other]
            else:
                pictures, rests = pictures[good], [rests[place] for place in good]
        made = collated(rests, pictures)
        if self._pin_memory:
            made = pin_memory(made, self._pin_memory_device)
        return Flawed(made, tuple(flaws), empty=False) if flaws else made


def named(error: Exception, found: Bad) -> Exception:
    """The user's error, which says of which sample it is where it does not."""
    where = f"sample {found.index}" + (f", {found.source}" if found.source else "")
    if found.source and found.source in str(error):
        return error
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({where})",)
    elif hasattr(error, "add_note"):
        error.add_note(f"It is {where}.")
    return error


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
        self._open(made.source, made.threads, ahead)
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
        super()._reset(loader, first_iter)
        self._top_up(max(1, self._ahead_by))

    def _waits(self) -> bool:
        first = self._under_way[0] if self._under_way else None
        return isinstance(first, Batch) and first.wait(0)
