"""Threads of one worker process make the samples: one copy of the dataset and one start, and the training process keeps its
interpreter to itself.

To torch's iterator this is a loader with one worker, whose queue of indices (`Ahead`) hands every batch that is asked for to the
threads at once. So a slow sample holds up neither its neighbours nor the batches behind it; they leave in order.
"""

from __future__ import annotations

import queue
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from pipefix.kernels.reused import Memory
from pipefix.loader.fusing.batches import FusedBatches
from pipefix.loader.policy.read_policy import PolicedDataset, ReadPolicy
from pipefix.loader.threads.pool import PendingBatch, ThreadPool
from pipefix.loader.threads.sample_batches import PlainBatches
from pipefix.seams.torch_internals import ResumeIteration

if TYPE_CHECKING:
    from pipefix.loader.fusing.source import FusedSource


KEPT = 4
"""Batches' worth of reusable memory."""
BETWEEN_LOOKS_S = 0.002
"""Seconds between two looks into the queue while a batch is waited for: so much later than asked for may another one begin."""


class Ahead:
    """The worker's queue of indices, as torch uses it. Batches are begun when they come out of it, which is before their turn."""

    def __init__(self, made: Any) -> None:
        self._queue = made
        self.reader: Any = None
        """The worker's `ThreadedDataset`."""
        self._next: deque[Any] = deque()

    # -- in the training process -------------------------------------------------------------------------------------------

    def put(self, message: Any) -> None:
        self._queue.put(message)

    def cancel_join_thread(self) -> None:
        self._queue.cancel_join_thread()

    def close(self) -> None:
        self._queue.close()

    # -- in the worker -----------------------------------------------------------------------------------------------------

    def get(self, timeout: float) -> Any:
        """The next message, once its batch is made or ``timeout`` seconds have passed; what comes in meanwhile is begun."""
        if not self._next:
            self._next.append(self._begun(self._queue.get(timeout=timeout)))
        until = monotonic() + timeout
        while True:
            try:
                while True:
                    self._next.append(self._begun(self._queue.get_nowait()))
            except queue.Empty:
                pass
            if _is_made(self._next[0]) or monotonic() > until:
                return self._next.popleft()

    def _begun(self, message: Any) -> Any:
        if message is None or isinstance(message, ResumeIteration):
            return message
        number, asked = message
        return number, self.reader.begin(asked)


def _is_made(message: Any) -> bool:
    """Whether a batch is made, or is made while this waits a moment for it. What is no batch waits for nothing."""
    batch = message[1] if isinstance(message, tuple) else message
    return not isinstance(batch, PendingBatch) or batch.wait(BETWEEN_LOOKS_S)


class ThreadedDataset(PolicedDataset):
    """Stands for the dataset in the worker: threads make its samples, and who asks for a batch that was begun waits for it."""

    def __init__(self, dataset: Any, rules: ReadPolicy, threads: int, *, batched: bool) -> None:
        super().__init__(dataset, rules)
        self.threads, self.batched = threads, batched
        self._pool: ThreadPool | None = None
        self._kind: Any = None

    def begin(self, asked: Any) -> PendingBatch | Exception:
        """Called in the worker's main thread: the batch is handed to the threads."""
        if self._pool is None:
            self._pool, self._kind = ThreadPool(self.threads), self._kinds()
        try:
            batch: PendingBatch = self._kind(asked)
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            return error
        self._pool.begin(batch)
        return batch

    def _kinds(self) -> Any:
        """Makes batches that threads are to fill. Torch has them collated, in the worker's main thread."""
        dataset = PolicedDataset(self.dataset, self.rules) if self.rules else self.dataset
        return PlainBatches(dataset, as_they_are, batched=self.batched, pin=False)

    def __getitem__(self, begun: Any) -> Any:
        if isinstance(begun, Exception):
            raise begun
        begun.wait(None)
        return begun.take()

    def __getitems__(self, begun: Any) -> Any:
        return self[begun]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_kind": None}


class ThreadedFusedDataset(ThreadedDataset):
    """The same for fused calls, which write into the batch: it is collated when it comes."""

    def __init__(self, source: FusedSource, rules: ReadPolicy, threads: int, collate: Any) -> None:
        super().__init__(source.dataset, rules, threads, batched=True)
        self.source, self.collate = source, collate

    def _kinds(self) -> Any:
        return FusedBatches(self.source, Memory(kept=KEPT), self.rules, self.collate, pin=False, pinned=False)


def as_they_are(samples: Any) -> Any:
    return samples
