"""Deals what is left of an epoch to ranks when it is resumed, for any number of ranks and any batch size.

A `DistributedSampler` gives sample ``k`` of the epoch's order to rank ``k % world_size``. After the same number of batches on every
rank, the samples consumed by the whole job are therefore a prefix of that order. To go on, the samples after the prefix are dealt
anew to the ranks there are. Nothing is lost or doubled but for what torch itself adds or drops to make ranks equally long.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    SequentialSampler,
)

from pipefix.vocabulary.quantity import counted

_WORLD_SIZES = ("num_replicas", "num_processes", "world_size")
"""Attributes in which samplers of torch and of frameworks keep how many ranks they deal to."""
MOST_SAMPLERS = 8
"""One inside the other: an object may have an answer to every attribute."""


@dataclass(frozen=True)
class Batching:
    """How a loader makes batches of indices, where that is torch's own way."""

    sampler: Any
    batch_size: int
    drop_last: bool
    batched: bool = True
    """Whether batches of indices are made, and not single ones."""

    @property
    def ranked(self) -> bool:
        """Whether the sampler deals to ranks, as torch's does."""
        return isinstance(self.sampler, DistributedSampler) and type(self.sampler).__iter__ is DistributedSampler.__iter__

    @property
    def ranks(self) -> int:
        """That share the order; 1 where it is not dealt."""
        return int(self.sampler.num_replicas) if self.ranked else 1


def batching(loader: Any) -> Batching | None:
    """None where positions in the order cannot be counted: a stream, a batch sampler or a rank sampler of the user's own."""
    if isinstance(loader.dataset, (IterableDataset, IterDataPipe, MapDataPipe)):
        return None
    batches = loader.sampler if loader.batch_sampler is None else loader.batch_sampler  # the former as torch documents it
    if type(batches) is BatchSampler:
        known = Batching(batches.sampler, batches.batch_size, batches.drop_last)
    elif loader.batch_sampler is None:
        known = Batching(batches, 1, False, batched=False)
    else:
        return None
    return known if known.ranked or world_size(loader) is None else None


def may_repeat(loader: Any) -> bool:
    """Whether an epoch may hold a sample more than once: where its order is none of torch's that hold each once."""
    how = batching(loader)
    sampler = None if how is None else how.sampler
    if type(sampler) is RandomSampler:
        return bool(sampler.replacement) or len(sampler) > len(sampler.data_source)
    return type(sampler) not in (SequentialSampler, DistributedSampler)


def samplers(loader: Any) -> dict[str, Any]:
    """The loader's samplers and those that they go through, by the attributes that lead there."""
    found = {name: getattr(loader, name) for name in ("sampler", "batch_sampler")}
    for path in (waiting := list(found)):
        for name in ("sampler", "batch_sampler"):
            inner = getattr(found[path], name, None)
            if inner is not None and len(found) < MOST_SAMPLERS and all(inner is not known for known in found.values()):
                found[f"{path}.{name}"] = inner
                waiting.append(f"{path}.{name}")
    return found


def world_size(loader: Any) -> int | None:
    """How many ranks the loader's sampler deals to; for a stream, how many there are. None where there is one process only."""
    sizes = (getattr(sampler, name, None) for sampler in samplers(loader).values() for name in _WORLD_SIZES)
    known = next((size for size in sizes if isinstance(size, int)), None)
    if known is None and isinstance(loader.dataset, (IterableDataset, IterDataPipe)):
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_world_size()
    return known


class RemainingOrder:
    """What this rank takes of an epoch after its first ``behind`` samples: batches of indices; indices for ``batch_size=None``."""

    def __init__(self, loader: Any, behind: int) -> None:
        how = batching(loader)
        assert how is not None, "positions in the order were counted when the state was taken over"
        self._how, self._behind = how, behind
        self.passed_over: Callable[[Iterator[Any]], object] = deque[Any](maxlen=0).extend
        """Takes the indices that lie behind, where the order is not dealt to ranks."""

    @property
    def _left(self) -> int:
        """Asked for when it is needed: a sampler without a length is gone on with, too."""
        return max(0, len(self._how.sampler.dataset if self._how.ranked else self._how.sampler) - self._behind)

    @property
    def samples(self) -> int:
        """That this rank takes."""
        dropped = self._how.ranked and self._how.sampler.drop_last
        return self._left // self._how.ranks if dropped else -(-self._left // self._how.ranks)

    @property
    def doubled(self) -> int:
        """Samples that are given once more, so that ranks are equally long; negative: so many are dropped."""
        return self.samples * self._how.ranks - self._left

    def __iter__(self) -> Iterator[Any]:
        indices = self._dealt() if self._how.ranked else self._undealt()
        return iter(BatchSampler(indices, self._how.batch_size, self._how.drop_last)) if self._how.batched else indices

    def __len__(self) -> int:
        size = self._how.batch_size
        return self.samples // size if self._how.drop_last else -(-self.samples // size)

    def _undealt(self) -> Iterator[Any]:
        # Begun with the first batch, as torch begins its own: a sampler may draw its order where it is asked for an iterator.
        order = iter(self._how.sampler)
        self.passed_over(itertools.islice(order, self._behind))
        yield from order

    def _dealt(self) -> Iterator[Any]:
        sampler = self._how.sampler
        undivided: DistributedSampler[Any] = DistributedSampler(sampler.dataset, 1, 0, sampler.shuffle, sampler.seed)
        undivided.set_epoch(sampler.epoch)
        order = list(undivided)
        rest = order[self._behind :]
        if self.doubled < 0:
            rest = rest[: self.doubled]
        # As torch does: from the beginning of the order, more than once where there are fewer samples than ranks.
        rest += itertools.islice(itertools.cycle(order), max(0, self.doubled))
        return iter(rest[sampler.rank :: sampler.num_replicas])


def sentence(loader: Any, behind: int) -> str:
    """How an epoch that was gone on with is dealt; empty where nothing was dealt anew."""
    how = batching(loader)
    if not behind or how is None:
        return ""
    rest = RemainingOrder(loader, behind)
    if not how.ranked:
        return f"The epoch goes on after {counted(behind, 'sample')}."
    words = f"The epoch goes on after {counted(behind, 'sample')} of all ranks, dealt anew to {how.sampler.num_replicas}"
    if rest.doubled > 0:
        words += f", with {counted(rest.doubled, 'sample')} of the epoch once more, so that ranks are equally long"
    elif rest.doubled < 0:
        words += f", without {counted(-rest.doubled, 'sample')}, so that ranks are equally long"
    return words + "."
