"""Shared memory that workers write batches into and the caller reads from: slots of one anonymous file, used again and again.

A slot belongs to one worker. The worker marks it as lent when it has put a batch there; the receiving process marks it as free
when the caller has dropped every view of that batch, and not before: each view keeps its `SlotBytes` alive. One byte a slot is
all that the processes tell each other, so that no lock can be left behind by a process that was killed.

The file has no name, and its size is room that may be used, not memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import secrets
import threading
import weakref
from itertools import count
from multiprocessing import reduction
from typing import Any, TypeAlias

from pipefix.system.resources import memory_left

SlotBytes: TypeAlias = "ctypes.Array[ctypes.c_ubyte]"
"""The bytes of one slot."""
FREE, LENT = 0, 1
SPARE = 16
"""Slots a worker has beyond those it needs: used in the place of those that a forked child may still look at."""
REMOVE: int = getattr(mmap, "MADV_REMOVE", -1)
"""Gives pages of a file in memory back to the kernel; where that is missing or refused, no arena is made."""
LARGEST = 1 << 28
"""Bytes of a slot. A larger batch goes torch's way."""
SMALLEST = 1 << 16
_numbers = count()
_forking = threading.local()
_arenas: weakref.WeakValueDictionary[str, Arena] = weakref.WeakValueDictionary()
"""By key, in the process that receives."""


class Fork:
    """A child that was forked while batches were lent, and the processes that it forks: they share a pipe's other end."""

    def __init__(self) -> None:
        self.child_ended = False
        self._ours: int | None = None
        self.childs: int | None = None
        with contextlib.suppress(OSError):  # too many files are open: it is taken to live for ever
            self._ours, self.childs = os.pipe()
            os.set_blocking(self._ours, False)
            weakref.finalize(self, os.close, self._ours)

    def over(self) -> bool:
        """Whether nobody of them is left."""
        if not self.child_ended and self._ours is not None:
            with contextlib.suppress(BlockingIOError):
                self.child_ended = os.read(self._ours, 1) == b""
        return self.child_ended


class Arena:
    """``workers`` x ``slots`` slots of ``capacity`` bytes. Raises OSError or AttributeError where this system has no such memory.

    It counts towards memory and not towards ``/dev/shm``, and the kernel takes it back with the last process. Pages come when they
    are first written.
    """

    def __init__(self, workers: int, slots: int, capacity: int, *, receives: bool = True) -> None:
        """``receives``: batches arrive in this process, and not in another."""
        self.workers, self.slots, self.capacity = workers, slots + SPARE, capacity
        self.key = f"{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        self.receiver: int | None = None
        self._open(os.memfd_create(f"pipefix-{self.key}", os.MFD_CLOEXEC), self._start(self.workers * self.slots))
        self._forget(0)  # nothing lies there yet: a system that refuses it (gVisor) would do so at the end of an epoch
        if receives:
            self.receive()

    def _open(self, fd: int, size: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)
        os.ftruncate(fd, size)
        self._map = mmap.mmap(fd, size)
        self._closed = False
        self._lent: dict[int, list[Fork]] = {}
        """Slots that the caller looks at, and the children that may do so: none is written as long as one of them lives."""
        self._retired: dict[int, list[Fork]] = {}
        """Those that the caller has dropped."""

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned: the file travels as a descriptor."""
        known = {name: getattr(self, name) for name in ("workers", "slots", "capacity", "key")}
        return {**known, "receiver": None, "fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fd = state.pop("fd").detach()
        self.__dict__.update(state)
        self._open(fd, self._start(self.workers * self.slots))

    def _start(self, slot: int) -> int:
        header = -(-(self.workers * self.slots + 2) // mmap.PAGESIZE) * mmap.PAGESIZE
        return header + slot * self.capacity

    @property
    def arrived(self) -> bool:
        """Whether the receiving process has this arena, where its worker made it."""
        return bool(self._map[self.workers * self.slots])

    # -- in a worker ---------------------------------------------------------------------------------------------------------

    def is_free(self, slot: int) -> bool:
        return self._map[slot] == FREE

    def lend(self, slot: int) -> None:
        self._map[slot] = LENT

    def window(self, slot: int) -> SlotBytes:
        """The memory of a slot, to write into."""
        return (ctypes.c_ubyte * self.capacity).from_buffer(self._map, self._start(slot))

    def writer_ends(self) -> None:
        """Nobody writes any more: memory that is not lent goes back, the rest with its batch."""
        self._map[self.workers * self.slots + 1] = 1
        for slot in range(self.workers * self.slots):
            if self.is_free(slot):
                self._forget(slot)

    # -- where batches arrive --------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Batches arrive in this process."""
        self._map[self.workers * self.slots] = True
        self.receiver = os.getpid()
        _arenas[self.key] = self

    def lease(self, slot: int) -> SlotBytes:
        """The memory of a slot; the slot is free again when this, and all that was made of it, is gone."""
        self._reclaim()
        window = self.window(slot)
        weakref.finalize(window, self._dropped, slot).atexit = False
        return window

    def _dropped(self, slot: int) -> None:
        if self.receiver != os.getpid():
            return  # a forked child has copies of the receiver's windows: they are not its own to give back
        self._retired[slot] = self._lent.pop(slot, [])
        self._reclaim()

    def _reclaim(self) -> None:
        """Slots that nobody looks at any more are free again; for its worker one that a child may look at is still lent."""
        for slot, forks in list(self._retired.items()):
            # Once: another thread may be at it, and the worker have taken it meanwhile.
            if all(fork.over() for fork in forks) and self._retired.pop(slot, None) is not None:
                if not self._closed:
                    self._map[slot] = FREE
                if self._closed or self._map[self.workers * self.slots + 1]:  # its only worker has ended
                    self._forget(slot)

    def opened(self, slot: int) -> None:
        """The caller sees it from now on."""
        self._lent[slot] = []

    def close(self) -> None:
        """Nobody writes any more: memory that the caller does not hold goes back at once, the rest with its batch."""
        if self._closed:
            return
        self._closed = True
        self._reclaim()
        for slot in range(self.workers * self.slots):
            if slot not in self._lent and slot not in self._retired:
                self._forget(slot)

    def _forget(self, slot: int) -> None:
        self._map.madvise(REMOVE, self._start(slot), self.capacity)


def arena_of(key: str) -> Arena | None:
    """None where nobody waits for its batches any more."""
    known = _arenas.get(key)
    return None if known is None or known._closed else known


def _before_fork() -> None:
    held = [forks for arena in list(_arenas.values()) if arena.receiver == os.getpid() for forks in list(arena._lent.values())]
    _forking.fork = Fork() if held else None
    for forks in held:
        forks[:] = [*(fork for fork in forks if not fork.over()), _forking.fork]


def _forked() -> None:
    fork, _forking.fork = getattr(_forking, "fork", None), None
    if fork is not None and fork.childs is not None:
        os.close(fork.childs)


os.register_at_fork(before=_before_fork, after_in_parent=_forked)


def room(batches: int) -> int:
    """Bytes that a slot may have so that ``batches`` of them take at most a quarter of the memory that is free now."""
    allowed = max(memory_left() // 4 // max(1, int(batches)), SMALLEST)
    return min(LARGEST, 1 << (allowed.bit_length() - 1))
