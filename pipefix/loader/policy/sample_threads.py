"""``threads_per_worker``: threads in the process that makes a batch, which read its samples where these wait for a network.

Generators are the process's own, so that threads whose samples draw would share them, and differ from run to run. The first batch
is read sample after sample; where it draws, all others are, too.
"""

from __future__ import annotations

import atexit
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any

import torch

from pipefix.vocabulary.generators import generators
from pipefix.vocabulary.held_transforms import datasets_in
from pipefix.vocabulary.random_state import RandomState

LEAVING_S = 2.0
"""Longest wait, at the end of the process, for samples that are being made."""


class SampleThreads:
    """In one process."""

    def __init__(self, threads: int, dataset: Any) -> None:
        self.threads, self._dataset = threads, dataset
        self._pool: DaemonPool | None = None
        self._draws: bool | None = None
        """Whether samples draw random numbers; None: nothing was read yet."""

    def map(self, read: Callable[[Any], Any], indices: list[Any]) -> Iterable[Any]:
        """What ``read`` gives for each index, in their order."""
        if self._draws or self.threads <= 1:
            return map(read, indices)
        # Of the dataset, of those that it is made of, and of the modules that their classes are written in.
        held = {id(generator): generator for _, part in datasets_in(self._dataset) for generator in generators(part)}
        before = RandomState(*held.values())
        if self._draws is None:
            results = list(map(read, indices))
            self._draws = before.changed()
            return results
        if self._pool is None:
            self._pool = DaemonPool(self.threads, "pipefix-sample")
            weakref.finalize(self, self._pool.close)
        tasks = [self._pool.submit(partial(read, index)) for index in indices]
        results = [task.result() for task in tasks]
        if before.changed():
            self._draws = True
            warnings.warn(
                f"threads_per_worker={self.threads}: samples of a later batch drew random numbers, which threads share: that batch "
                "may differ from run to run. From now on samples are read one after the other. Leave threads_per_worker out for "
                "this dataset.",
                UserWarning,
                stacklevel=2,
            )
        return results


class DaemonPool:
    """Threads that run tasks, each with one thread of torch's. Those of the standard library's pool are no daemons: a sample that
    hangs (a FIFO, a mount that is gone) would keep the training process from ending."""

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        ready = threading.Barrier(threads + 1)
        own = torch.get_num_threads()
        for number in range(threads):
            thread = threading.Thread(target=_work, args=(self._tasks, ready), name=f"{name}_{number}", daemon=True)
            thread.start()
            _threads[thread] = self._tasks
        ready.wait()
        torch.set_num_threads(own)  # what threads of the user's begin with is what it was

    def submit(self, make: Callable[[], Any]) -> Future[Any]:
        task: Future[Any] = Future()
        self._tasks.put((make, task))
        return task

    def close(self) -> None:
        """Each thread ends after the task it is at; tasks that were not begun find their batch dropped."""
        for _ in range(self.threads):
            self._tasks.put(None)


_threads: weakref.WeakKeyDictionary[threading.Thread, SimpleQueue[Any]] = weakref.WeakKeyDictionary()


def _work(tasks: SimpleQueue[Any], ready: threading.Barrier) -> None:
    torch.set_num_threads(1)
    ready.wait()
    while (task := tasks.get()) is not None:
        make, future = task
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - also what ends a process: raised where the batch is taken
            future.set_exception(error)
        del make, future, task  # a batch that was handed out is not held here


@atexit.register
def _leave() -> None:
    """A thread that is in the midst of a call into C++ when the interpreter goes would take the process with it, noisily."""
    threads = dict(_threads)
    for tasks in threads.values():
        tasks.put(None)
    until = monotonic() + LEAVING_S
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))
