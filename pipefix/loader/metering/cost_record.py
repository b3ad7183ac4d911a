"""Shared memory through which the processes that make batches tell the training process what that cost.

Each maker has a page of its own: running totals, and a ring of the batches that were looked at closely. It alone writes there, so
nothing is locked: a slot is void while it is written, and the reader passes over it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property, partial
from struct import Struct, pack_into, unpack_from
from typing import Any, NamedTuple

LENGTH = 64
"""Looked-at batches that a page holds; at most a few come each second."""


class TimedBatch(NamedTuple):
    """One batch whose making was timed stage by stage. Nanoseconds of the whole batch."""

    number: int
    """The how-many-th look this is on its page; 0 while it is written."""
    at: int
    """When it was made (perf_counter_ns: one clock for all processes)."""
    samples: int
    storage: int
    decode: int
    augment: int
    own: int
    """The user's code that belongs to no stage."""
    collate: int
    bytes: int
    """Read from storage."""
    cpu: int
    """Processor time of the making thread."""
    made: int
    """From being asked for the batch to having it."""
    handed: int
    """Processor time spent on packing and sending batches since the look before; `sent` says how many."""
    sent: int


class Totals(NamedTuple):
    batches: int = 0
    samples: int = 0
    made_ns: int = 0
    cost_ns: int = 0
    """What looking itself took."""
    state: int = 0
    """`READY`, `BLIND` (it was asked not to look), `FAILED` (looking failed there) or 0: the process has not begun."""

    @classmethod
    def of_all(cls, each: Sequence[Totals]) -> Totals:
        """Of several makers together; the state is the worst of theirs."""
        *sums, _ = (sum(column) for column in zip(cls(), *each, strict=True))
        return cls._make([*sums, max((totals.state for totals in each), default=0)])


READY, BLIND, FAILED = 1, 2, 3

_LOOK = Struct(f"{len(TimedBatch._fields)}q")
_HEAD = Struct(f"{len(Totals._fields)}q")
_PAGE = _HEAD.size + LENGTH * _LOOK.size


class CostRecord:
    """The pages of one loader's makers. It travels to them as an argument of their process."""

    def __init__(self, pages: int, start_method: str | None = None, *, memory: Callable[[int], Any] | None = None) -> None:
        """``memory``: makes so many bytes of zeros; by default such that travel to any process. Of a `bytearray` nobody else sees
        what is written."""
        self.pages = max(1, pages)
        self._memory = (memory or partial(multiprocessing.get_context(start_method).RawArray, "b"))(self.pages * _PAGE)
        self._read = [0] * self.pages

    @cached_property
    def beside(self) -> CostRecord:
        """The same pages for a second reader, from whom the first one takes nothing."""
        other = copy(self)
        other._read = [0] * self.pages
        return other

    def page(self, number: int) -> CostPage:
        return CostPage(self._memory, (number % self.pages) * _PAGE)

    def totals(self) -> Totals:
        return Totals.of_all([Totals(*_HEAD.unpack_from(self._memory, page * _PAGE)) for page in range(self.pages)])

    def looks(self) -> Iterator[TimedBatch]:
        """Every look that was written since this was last asked and still lies there."""
        for page in range(self.pages):
            base = page * _PAGE + _HEAD.size
            entries = (TimedBatch(*_LOOK.unpack_from(self._memory, base + slot * _LOOK.size)) for slot in range(LENGTH))
            new = sorted(look for look in entries if look.number > self._read[page])
            if new:
                self._read[page] = new[-1].number
            yield from new


class CostPage:
    """Where one maker writes."""

    def __init__(self, memory: Any, base: int) -> None:
        self._memory, self._base = memory, base
        self.totals = Totals(*_HEAD.unpack_from(memory, base))
        self._looks = max(unpack_from("q", memory, base + _HEAD.size + slot * _LOOK.size)[0] for slot in range(LENGTH))

    def count(self, batches: int, samples: int, made_ns: int, cost_ns: int, state: int) -> None:
        _HEAD.pack_into(self._memory, self._base, batches, samples, made_ns, cost_ns, state)

    def write(self, look: TimedBatch) -> None:
        self._looks += 1
        place = self._base + _HEAD.size + (self._looks - 1) % LENGTH * _LOOK.size
        pack_into("q", self._memory, place, 0)
        _LOOK.pack_into(self._memory, place, 0, *look[1:])
        pack_into("q", self._memory, place, self._looks)


def samples_in(batch: Any, usual: int | None = None) -> int:
    """Samples of a batch, by the first thing in it that has as many of something as there are samples. ``usual``: of most batches,
    by which a list of pictures is known for one."""
    with suppress(Exception):  # a type of the user's, or a nested tensor, whose shape is an error
        for _ in range(4):
            shape = getattr(batch, "shape", None)
            if shape is not None:
                return int(shape[0]) if len(shape) else 1
            if isinstance(batch, Mapping) and batch:
                batch = next(iter(batch.values()))
            elif isinstance(batch, (list, tuple)) and batch:
                if len(batch) == usual or isinstance(batch[0], (str, bytes, int, float)):
                    return len(batch)
                batch = batch[0]
            else:
                break
    return 1
