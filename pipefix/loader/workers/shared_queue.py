"""One queue of batches for all workers, in place of one for each: whichever worker is free takes the next batch, so that a slow one
holds up nobody's but its own."""

from __future__ import annotations

from typing import Any

from torch import multiprocessing


class SharedQueueLoader:
    """``loader`` as torch's iterator is to see it: the queues that it makes for its workers are all the same one."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.multiprocessing_context = _Context(loader.multiprocessing_context or multiprocessing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class _Context:
    """A multiprocessing context. Torch makes a queue of results by it, then one of indices for each worker."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._made: list[Any] = []

    def Queue(self) -> Any:  # noqa: N802 - as it is called
        if len(self._made) < 2:
            self._made.append(self._context.Queue())
        return self._made[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
