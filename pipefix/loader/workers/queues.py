"""A loader as torch's iterator is to see it: with queues of indices of another kind, and another number of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import multiprocessing


class LoaderWithQueues:
    """``loader``, but each worker's indices come by ``queue``, called with its number; and with attributes of ``others``."""

    def __init__(self, loader: Any, queue: Callable[[int], Any], **others: Any) -> None:
        self.loader = loader
        self.multiprocessing_context = _Context(loader.multiprocessing_context or multiprocessing, queue)
        self.__dict__.update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class _Context:
    """A multiprocessing context. Torch makes a queue of results by it, then one of indices for each worker."""

    def __init__(self, context: Any, queue: Callable[[int], Any]) -> None:
        self._context, self._queue = context, queue
        self._next = -1

    def Queue(self) -> Any:  # noqa: N802 - as it is called
        worker, self._next = self._next, self._next + 1
        return self._context.Queue() if worker < 0 else self._queue(worker)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
