"""The hand-over of batches between a worker process and the training process, timed on both sides.

A DataLoader passes batches through a ``multiprocessing.Queue``: in the worker a feeder thread pickles a batch (which copies its
tensors into shared memory) and writes it to a pipe; the training process waits until something lies there, reads it and rebuilds
it. Those four moments are timed here; what is sent and when does not change.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.queues
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any

LIBRARY = "torch"


@dataclass
class Counters:
    """Sums since they were last taken; nanoseconds."""

    dumps_ns: int = 0
    """Worker: pickling, tensors copied into shared memory included."""
    send_ns: int = 0
    """Worker: writing to the pipe, waiting for the reader included."""
    poll_ns: int = 0
    """Training process: waiting until a batch lies in the pipe."""
    recv_ns: int = 0
    """Training process: reading it."""
    loads_ns: int = 0
    """Training process: rebuilding it."""
    bytes: int = 0
    """Through the pipe; tensors in shared memory are not among them."""
    count: int = 0


class HandOver:
    """One process's counters and the patches that feed them. Installed once a process, however many loaders use it."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._users = 0
        self._originals: list[tuple[Any, str, Any]] = []

    def take(self) -> Counters:
        """The sums so far; they begin anew."""
        taken = replace(self.counters)
        self.counters.__init__()  # type: ignore[misc]
        return taken

    def attach(self) -> HandOver:
        """Begin timing. Loaders made from now on are seen, older ones are not."""
        self._users += 1
        if self._users == 1:
            self._install()
        return self

    def detach(self) -> None:
        self._users -= 1
        if self._users == 0:
            for owner, name, original in reversed(self._originals):
                setattr(owner, name, original)
            self._originals.clear()

    def _install(self) -> None:
        connection = multiprocessing.connection.Connection
        poll, receive, send = connection.poll, connection.recv_bytes, connection.send_bytes
        pickler = multiprocessing.queues._ForkingPickler  # type: ignore[attr-defined]
        counters = self.counters

        def timed_poll(self: Any, timeout: float | None = 0.0) -> bool:
            begun = perf_counter_ns()
            try:
                return poll(self, timeout)
            finally:
                counters.poll_ns += perf_counter_ns() - begun

        def timed_receive(self: Any, maxlength: int | None = None) -> bytes:
            begun = perf_counter_ns()
            data = receive(self, maxlength)
            counters.recv_ns += perf_counter_ns() - begun
            counters.bytes += len(data)
            return data

        def timed_send(self: Any, buf: Any, offset: int = 0, size: int | None = None) -> None:
            begun = perf_counter_ns()
            send(self, buf, offset, size)
            counters.send_ns += perf_counter_ns() - begun
            counters.bytes += len(buf)
            counters.count += 1

        class TimedPickler(pickler):  # type: ignore[misc,valid-type]
            @classmethod
            def dumps(cls, obj: Any, protocol: int | None = None) -> Any:
                begun = perf_counter_ns()
                try:
                    return pickler.dumps(obj, protocol)
                finally:
                    counters.dumps_ns += perf_counter_ns() - begun

            @staticmethod
            def loads(data: Any) -> Any:
                begun = perf_counter_ns()
                try:
                    return pickler.loads(data)
                finally:
                    counters.loads_ns += perf_counter_ns() - begun

        self._replace(connection, "poll", timed_poll)
        self._replace(connection, "recv_bytes", timed_receive)
        self._replace(connection, "send_bytes", timed_send)
        self._replace(multiprocessing.queues, "_ForkingPickler", TimedPickler)

    def _replace(self, owner: Any, name: str, replacement: Any) -> None:
        self._originals.append((owner, name, vars(owner)[name] if name in vars(owner) else getattr(owner, name)))
        setattr(owner, name, replacement)


_here = HandOver()


def attach() -> HandOver:
    """This process's hand-over, timed until `HandOver.detach`."""
    return _here.attach()


def install(tap: Any, patches: Any) -> None:
    """Nothing for a sample's own path: the loader attaches the hand-over where batches cross."""


@contextmanager
def plain_memory() -> Iterator[None]:
    """Inside a worker, let ``default_collate`` allocate ordinary memory, as it does in the training process."""
    from torch.utils.data._utils import worker

    info = worker._worker_info
    worker._worker_info = None
    try:
        yield
    finally:
        worker._worker_info = info
