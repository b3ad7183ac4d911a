"""Threads of this process that make the samples of batches, and what they have under way.

Each sample is a task of its own: a slow one does not hold up its neighbours, nor the batches behind it. That pays where samples are
made in calls that hold no lock of the interpreter, or wait. What a sample is, and how a batch is put together, the kinds of
`PendingBatch` say.
"""

from __future__ import annotations

import atexit
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from queue import SimpleQueue
from time import monotonic, perf_counter_ns, thread_time_ns
from typing import Any, TypeAlias

import torch

LEAVING_S = 2.0
"""That samples which are being made may still take when the process ends."""


class PendingBatch(ABC):
    """A batch under way: threads make its places, whichever is free, and the one that made the last of them finishes it.

    Whatever is raised in a thread is raised where the batch is taken.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self.dropped = False
        """Whether nobody waits for it any more."""
        self._broke: BaseException | None = None
        self._made = count(1)
        self._ended = threading.Event()

    @abstractmethod
    def make(self, place: int) -> None:
        """One of its samples."""

    def finish(self) -> None:  # noqa: B027 - not every kind has something to do here
        """All places are made."""

    @abstractmethod
    def together(self) -> Any:
        """The batch itself, in the caller's thread."""

    @property
    def tasks(self) -> int:
        """A batch without samples is one too: what becomes of it is seen when it is finished."""
        return max(1, self.places)

    def work(self, task: int) -> None:
        if task < self.places:
            self._try(partial(self.make, task))
        if next(self._made) == self.tasks:
            self._try(self.finish)
            self._ended.set()

    def _try(self, do: Callable[[], None]) -> None:
        if self.dropped or self._broke is not None:
            return
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - also what ends a process: the thread has to live, and the caller to know
            self._broke = error

    def wait(self, seconds: float | None) -> bool:
        return self._ended.wait(seconds)

    def take(self) -> Any:
        """The batch that has been waited for, or the error that was raised in its place."""
        broke, self._broke = self._broke, None
        if broke is None:
            return self.together()
        try:
            raise broke
        finally:
            del broke  # its traceback holds this frame


Tasks: TypeAlias = "SimpleQueue[tuple[PendingBatch, int] | None]"


class ThreadPool:
    """``threads`` threads, which end when the pool is closed; those that are at work finish their sample first."""

    def __init__(self, threads: int) -> None:
        self._tasks: Tasks = SimpleQueue()
        self.threads = threads
        self._closed = threading.Event()
        self._spent = [[0, 0] for _ in range(threads)]
        """Nanoseconds that each thread was at work, and those of them that it computed."""
        own = torch.get_num_threads()
        ready = threading.Barrier(threads + 1)
        for number in range(threads):
            PoolThread(number, self._tasks, self._closed, ready, self._spent[number]).start()
        ready.wait()
        # Each set torch's threads for itself; what threads of the user's begin with is what it was.
        torch.set_num_threads(own)

    def begin(self, batch: PendingBatch) -> None:
        for task in range(batch.tasks):
            self._tasks.put((batch, task))

    def computed(self) -> float:
        """Of the time at work, what was computed rather than waited."""
        wall, cpu = (sum(column) for column in zip(*self._spent, strict=True))
        return cpu / wall if wall else 1.0

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            for _ in range(self.threads):
                self._tasks.put(None)


class PoolThread(threading.Thread):
    """One of a pool. It holds nothing of an iterator: this is let go of while samples are still being made."""

    def __init__(self, number: int, tasks: Tasks, closed: threading.Event, ready: threading.Barrier, spent: list[int]) -> None:
        super().__init__(name=f"pipefix-{number}", daemon=True)
        self._tasks, self._closed, self._ready, self._spent = tasks, closed, ready, spent

    def run(self) -> None:
        torch.set_num_threads(1)
        self._ready.wait()
        get: Callable[[], Any] = self._tasks.get
        closed, spent = self._closed, self._spent
        while True:
            task = get()
            if task is None or closed.is_set():
                return
            wall, cpu = perf_counter_ns(), thread_time_ns()
            task[0].work(task[1])
            spent[0] += perf_counter_ns() - wall
            spent[1] += thread_time_ns() - cpu
            del task  # a batch that was handed out is not held here

    def leave(self) -> None:
        """It ends when its sample is made."""
        self._closed.set()
        self._tasks.put(None)


@atexit.register
def _leave() -> None:
    """A thread that is in the midst of a call into C++ when the interpreter goes would take the process with it, noisily."""
    hands = [thread for thread in threading.enumerate() if isinstance(thread, PoolThread)]
    for hand in hands:
        hand.leave()
    until = monotonic() + LEAVING_S
    for hand in hands:
        hand.join(max(0.0, until - monotonic()))
