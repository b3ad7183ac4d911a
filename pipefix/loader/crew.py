"""Threads of this process that make pictures of a batch, and the batches that they have under way.

A fused call holds no lock of the interpreter, so threads are enough, and batches need not travel. Each sample is a task of its own:
a slow one does not hold up its neighbours, nor the batches behind it. What the fused call does not make is left to the caller's
thread, which makes it as the dataset does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from queue import SimpleQueue
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

import torch

from pipefix.loader.batching import Parts

if TYPE_CHECKING:
    from pipefix.loader.fusing.source import Source


class Batch(Parts):
    """A batch under way."""

    def __init__(self, source: Source, indices: Sequence[Any], keys: Sequence[int], pictures: torch.Tensor) -> None:
        super().__init__(source, indices, keys, pictures)
        self.dropped = False
        self._finished = count(1)
        self._ended = threading.Event()
        if not indices:
            self._ended.set()

    def work(self, place: int) -> None:
        if not self.dropped:
            self.make(place)
        if next(self._finished) == len(self.indices):
            self._ended.set()

    def wait(self, seconds: float | None) -> bool:
        return self._ended.wait(seconds)


class Crew:
    """``threads`` threads, which end when the crew is closed; those that are at work finish their picture first."""

    def __init__(self, threads: int) -> None:
        self._tasks: SimpleQueue[tuple[Batch, int] | None] = SimpleQueue()
        self.threads = threads
        self._closed = threading.Event()
        self._spent = [[0, 0] for _ in range(threads)]
        """Nanoseconds that each thread was at work, and those of them that it computed."""
        own = torch.get_num_threads()
        ready = threading.Barrier(threads + 1)
        for number in range(threads):
            threading.Thread(
                target=_work, args=(self._tasks, self._closed, ready, self._spent[number]), name=f"pipefix-{number}", daemon=True
            ).start()
        ready.wait()
        # Each set torch's threads for itself; what threads of the user's begin with is what it was.
        torch.set_num_threads(own)

    def begin(self, batch: Batch) -> None:
        for place in range(len(batch.indices)):
            self._tasks.put((batch, place))

    def computed(self) -> float:
        """Of the time at work, what was computed rather than waited."""
        wall, cpu = (sum(column) for column in zip(*self._spent, strict=True))
        return cpu / wall if wall else 1.0

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            for _ in range(self.threads):
                self._tasks.put(None)


def _work(
    tasks: SimpleQueue[tuple[Batch, int] | None], closed: threading.Event, ready: threading.Barrier, spent: list[int]
) -> None:
    torch.set_num_threads(1)
    ready.wait()
    get: Callable[[], Any] = tasks.get
    while True:
        task = get()
        if task is None or closed.is_set():
            return
        wall, cpu = perf_counter_ns(), thread_time_ns()
        task[0].work(task[1])
        spent[0] += perf_counter_ns() - wall
        spent[1] += thread_time_ns() - cpu
        del task  # a batch that was handed out is not held here
