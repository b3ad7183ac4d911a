"""The first batches of the next epoch, asked for before it begins: workers that live on are not idle from one to the other.

It is done where nothing shows it but time. Where the order draws no random numbers, the next epoch's is known when one has ended.
Where it does, it is drawn from the generators as they are, which are then put back; if they are still so when the epoch begins, it
is as if it had been drawn then, and if not, what was made is dropped. That is only for samples with random numbers of their own:
those of a worker would have been used up.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from pipefix.loader import resume
from pipefix.seams.torch_internals import in_order
from pipefix.vocabulary.random_state import same_state

FIXED, DRAWN = "fixed", "drawn"
_DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def kind_of(loader: Any) -> str | None:
    """What its order is like; None where the next epoch's is not to be foreseen. Samplers of others may count how they are used."""
    if (
        not loader.persistent_workers
        or not in_order(loader)
        or isinstance(loader.dataset, (IterableDataset, IterDataPipe, MapDataPipe))
    ):
        return None
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return None
    sampler = loader.sampler if batches is None else batches.sampler
    if type(sampler) is SequentialSampler or (type(sampler) is DistributedSampler and not sampler.shuffle):
        return FIXED
    return DRAWN if type(sampler) in _DRAWING and loader.rng == "sample" else None


class NextEpoch:
    """The beginning of the epoch after this one."""

    def __init__(self, loader: Any, kind: str, epoch: int) -> None:
        self.kind, self.epoch = kind, epoch
        self._loader = weakref.ref(loader)
        self._length = resume.length(loader)
        self._indices: Iterator[Any] | None = None
        self.sent = self.samples = 0
        self._then = self._now = resume.noted(loader, epochs=1) if kind == DRAWN else {}

    def next(self) -> Any:
        """What its next batch is asked for by. Raises StopIteration where there is none."""
        loader = self._loader()
        if loader is None:
            raise StopIteration
        if self.kind == FIXED:
            return next(self._order(loader))
        with resume.elsewhere(loader, self._now):
            try:
                return next(self._order(loader))
            finally:
                self._now = resume.noted(loader)

    def _order(self, loader: Any) -> Iterator[Any]:
        if self._indices is None:
            self._indices = iter(loader._index_sampler)
        return self._indices

    def comes_true(self, loader: Any, epoch: int) -> bool:
        """Whether the epoch that begins now is this one."""
        if epoch != self.epoch or resume.length(loader) != self._length:
            return False
        return self.kind == FIXED or same_state(resume.noted(loader), self._then)

    def go_on(self, loader: Any) -> Iterator[Any]:
        """The rest of its order; what the beginning drew is drawn."""
        if self.kind == DRAWN:
            resume.set_as_then(loader, self._now)
        return self._order(loader)
