"""A batch of any map-style dataset's samples, by threads of this process: whoever reads its last sample collates it, so that the
caller finds it ready.

What `DataLoader` asks the dataset for at once (``__getitems__``, and samples without batches) is one task here too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import Subset

from pipefix.loader.policy.read_policy import Asked, Outcome, PolicedDataset, ReadPolicy
from pipefix.loader.threads.pool import PendingBatch
from pipefix.seams.torch_internals import MapFetcher, pin_memory


class PlainBatches:
    """Makes an epoch's batches, as threads are to fill them."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], *, batched: bool, pin: bool) -> None:
        """``dataset``: under rules, or the user's own. ``batched``: whether samples are put into batches."""
        self.collate = Pinned(collate) if pin else collate
        self.reader = dataset if isinstance(dataset, PolicedDataset) else PolicedDataset(dataset, ReadPolicy())
        self._fetcher = None
        if not batched or asks_at_once(self.reader.dataset):
            self._fetcher = MapFetcher(dataset, batched, self.collate, drop_last=False)

    def __call__(self, asked: Any) -> PendingBatch:
        if self._fetcher is not None:
            return Fetched(partial(self._fetcher.fetch, asked))
        return PlainBatch(self, *asked[:2]) if isinstance(asked, Asked) else PlainBatch(self, 0, asked)


def asks_at_once(dataset: Any) -> bool:
    """Whether it reads a batch by a call of its own. A part of a dataset (torch's `Subset`) only passes the question on."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))


class Fetched(PendingBatch):
    """A batch or a sample that the dataset is asked for at once."""

    def __init__(self, fetch: Callable[[], Any]) -> None:
        super().__init__(1)
        self._fetch = fetch
        self._fetched: Any = None

    def make(self, place: int) -> None:
        self._fetched = self._fetch()

    def together(self) -> Any:
        return self._fetched


class PlainBatch(PendingBatch):
    """A batch sample by sample."""

    def __init__(self, kind: PlainBatches, epoch: int, indices: Any) -> None:
        self._kind, self._epoch, self._indices = kind, epoch, list(indices)
        super().__init__(len(self._indices))
        self._outcomes = [Outcome(None)] * self.places
        self._collated: Any = None

    def make(self, place: int) -> None:
        self._outcomes[place] = Outcome.of(partial(self._kind.reader.one, self._epoch), self._indices[place])

    def finish(self) -> None:
        # Taken one by one: the traceback of an error holds frames, and these should not hold the error.
        outcomes, self._outcomes = deque(self._outcomes), []
        each = (outcomes.popleft() for _ in self._indices)
        self._collated = self._kind.collate(self._kind.reader.together(self._epoch, self._indices, each))

    def together(self) -> Any:
        return self._collated


class Pinned:
    """A collate function whose batches are pinned by the thread that makes them."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def __call__(self, samples: Any) -> Any:
        made = self._collate(samples)
        if self._device is not None:
            # A thread begins with the first device, whichever is the process's.
            torch.cuda.set_device(self._device)
        return pin_memory(made)
