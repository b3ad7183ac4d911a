"""Memory that workers write batches into and the caller reads them from: slots of one anonymous file, used again and again.

A slot belongs to one worker. The worker marks it as lent when it has put a batch there; the receiving process marks it as free
when the caller has dropped every view of that batch, and not before: each view keeps a `Lease` alive. One byte a slot is all that
the processes tell each other, so that no lock can be left behind by a process that was killed.

The file has no name, and its size is room that may be used, not memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import sys
import weakref
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

from pipefix.loader.limits import memory_left
from pipefix.loader.slots.anonymous_memory import AnonymousMemory

FREE, LENT, RETIRED = 0, 1, 2
SPARE = 16
"""Slots a worker has beyond those it needs: used in the place of those that a fork retired."""
REMOVE: int = getattr(mmap, "MADV_REMOVE", 0)
"""Gives pages of a file in memory back to the kernel; where it is missing, no arena is made."""
LARGEST = 1 << 28
"""Bytes of a slot. A larger batch goes torch's way."""
SMALLEST = 1 << 16
_numbers = count()
_arenas: weakref.WeakValueDictionary[str, Arena] = weakref.WeakValueDictionary()
"""By key, in the process that receives."""


class Arena(AnonymousMemory):
    """``workers`` x ``slots`` slots of ``capacity`` bytes."""

    fields = ("workers", "slots", "capacity", "key")

    def __init__(self, workers: int, slots: int, capacity: int) -> None:
        self.workers, self.slots, self.capacity = workers, slots + SPARE, capacity
        self.key = f"{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        self.receiver: int | None = os.getpid()
        if not REMOVE:
            raise OSError("memory of a file cannot be given back")
        self._make(f"pipefix-{self.key}", self._start(self.workers * self.slots))
        self._closed = False
        self._lent: dict[int, weakref.ref[Lease]] = {}
        _arenas[self.key] = self

    def _start(self, slot: int) -> int:
        header = -(-(self.workers * self.slots + 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        return header + slot * self.capacity

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "receiver": None, "_closed": False, "_lent": {}})

    @property
    def verdict(self) -> int:
        """What the trial has shown, for the workers to read: a number of `pipefix.loader.slots.comparison`."""
        return self._map[self.workers * self.slots]

    @verdict.setter
    def verdict(self, number: int) -> None:
        self._map[self.workers * self.slots] = number

    # -- in a worker ---------------------------------------------------------------------------------------------------------

    def slots_of(self, worker: int) -> range:
        return range(worker * self.slots, (worker + 1) * self.slots)

    def is_free(self, slot: int) -> bool:
        return self._map[slot] == FREE

    def lend(self, slot: int) -> None:
        self._map[slot] = LENT

    def window(self, slot: int) -> Lease:
        """The memory of a slot, to write into."""
        return _lease_type(self.capacity).from_buffer(self._map, self._start(slot))

    def given_away(self) -> None:
        """It is another process that receives."""
        self.receiver = None
        _arenas.pop(self.key, None)

    # -- where batches arrive --------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Batches arrive in this process."""
        self.receiver = os.getpid()
        _arenas[self.key] = self

    def lease(self, slot: int) -> Lease:
        """The memory of a slot; the slot is free again when this, and all that was made of it, is gone."""
        lease = self.window(slot)
        lease.slot, lease.arena, lease.retired = slot, self, False
        return lease

    def dropped(self, lease: Lease) -> None:
        self._lent.pop(lease.slot, None)
        if self._closed:
            self._forget(lease.slot)
        else:
            self._map[lease.slot] = RETIRED if lease.retired else FREE

    def opened(self, lease: Lease) -> None:
        """The caller sees it from now on."""
        self._lent[lease.slot] = weakref.ref(lease)

    def retire(self) -> None:
        """A child may have views of what the caller holds now: those slots are not written again."""
        for known in list(self._lent.values()):
            lease = known()
            if lease is not None:
                lease.retired = True

    def close(self) -> None:
        """Nobody writes any more: memory that the caller does not hold goes back at once, the rest with its batch."""
        if self._closed:
            return
        self._closed = True
        _arenas.pop(self.key, None)
        for slot in range(self.workers * self.slots):
            if slot not in self._lent:
                self._forget(slot)

    def _forget(self, slot: int) -> None:
        # A child that was forked may still read a slot that was retired.
        if self._map[slot] != RETIRED:
            self._map.madvise(REMOVE, self._start(slot), self.capacity)


class Lease(ctypes.Array):  # type: ignore[type-arg]
    """One slot's bytes, for as long as somebody looks at them."""

    _type_ = ctypes.c_ubyte
    _length_ = 0
    slot: int
    arena: Arena
    retired: bool

    def __del__(self, getpid: Callable[[], int] = os.getpid, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        arena = self.__dict__.get("arena")
        # A forked child has copies of the receiver's leases: they are not its own to give back.
        if arena is not None and arena.receiver == getpid() and not ending():
            arena.dropped(self)


@cache
def _lease_type(capacity: int) -> type[Lease]:
    return type("Lease", (Lease,), {"_length_": capacity, "_type_": ctypes.c_ubyte})


def arena_of(key: str) -> Arena | None:
    return _arenas.get(key)


def _retire_all() -> None:
    for arena in list(_arenas.values()):
        if arena.receiver == os.getpid():
            arena.retire()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_retire_all)


def room(batches: int) -> int:
    """Bytes that a slot may have so that ``batches`` of them take at most a quarter of the memory that is free now."""
    allowed = memory_left() // 4 // max(1, batches)
    capacity = LARGEST
    while capacity > max(allowed, SMALLEST):
        capacity //= 2
    return capacity
