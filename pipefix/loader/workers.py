"""Worker processes as torch runs them, with batches handed over through slots.

Everything but the hand-over is torch's own: who makes which batch, seeds, order, errors, watchdogs, the way processes end. So
batches are those of `DataLoader`, bit for bit, and its manners hold.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils.data.dataloader import DataLoader, _MultiProcessingDataLoaderIter

from pipefix.loader.arena import Arena, room
from pipefix.loader.assemble import Arrival, Assembler

HELD = 2
"""Batches that the caller is expected to hold at a time: the current one, while it asks for the next."""


def make_arena(loader: DataLoader[Any]) -> Arena:
    """Room for what ``loader`` has under way. Raises OSError or AttributeError where this system cannot give it."""
    slots = (loader.prefetch_factor or 0) + HELD
    return Arena(loader.num_workers, slots, room(loader.num_workers * slots))


class SlotIterator(_MultiProcessingDataLoaderIter):
    def __init__(self, loader: DataLoader[Any], arena: Arena, handed: Counter[str]) -> None:
        self._arena = arena
        self._handed = handed
        super().__init__(loader)
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    @property
    def _collate_fn(self) -> Assembler:
        """What workers are started with."""
        return self._assembler

    @_collate_fn.setter
    def _collate_fn(self, collate_fn: Any) -> None:
        self._assembler = Assembler(collate_fn, self._arena)

    def _process_data(self, data: Any, *worker: Any) -> Any:
        data = super()._process_data(data, *worker)  # type: ignore[no-untyped-call]
        if not isinstance(data, Arrival):
            self._handed["torch"] += 1
            return data
        self._handed["slots"] += 1
        return data.open()

    def _shutdown_workers(self) -> None:
        super()._shutdown_workers()
        self._arena.close()
