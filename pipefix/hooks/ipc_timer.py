"""Times the hand-over of batches from worker to training process, on both sides.

A DataLoader passes batches through a ``multiprocessing.Queue``: in the worker a feeder thread pickles a batch (which copies its
tensors into shared memory) and writes it to a pipe; the training process waits until something lies there, reads it and rebuilds
it. Those four moments are timed here; what is sent and when does not change.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.queues
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import sub
from time import perf_counter_ns
from typing import Any

from pipefix.hooks.patches import Patches


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
    count: int = 0


class IpcTimer:
    """One process's counters and the patches that feed them, by ``clock`` (nanoseconds)."""

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self._sums, self._taken = Counters(), Counters()
        self._users = 0
        self._patches = Patches()

    def take(self) -> Counters:
        """What was counted since this was last asked. Threads that hand batches over go on counting meanwhile."""
        before, self._taken = self._taken, replace(self._sums)
        return Counters(*map(sub, vars(self._taken).values(), vars(before).values()))

    def attach(self) -> IpcTimer:
        """Begin timing. Loaders made from now on are seen, older ones are not. Installed once, however many use it."""
        self._users += 1
        if self._users == 1:
            self._install()
        return self

    def detach(self) -> None:
        """The last user's leaves everything as it was; without one nothing is done."""
        self._users = max(0, self._users - 1)
        if not self._users:
            self._patches.undo()

    def _install(self) -> None:
        connection = multiprocessing.connection.Connection
        pickler = multiprocessing.queues._ForkingPickler  # type: ignore[attr-defined]
        counters, clock = self._sums, self._clock

        def timed(function: Callable[..., Any], sum_name: str) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                begun = clock()
                try:
                    return function(*args, **kwargs)
                finally:
                    vars(counters)[sum_name] += clock() - begun
                    counters.count += sum_name == "send_ns"

            return call

        class TimedPickler(pickler):  # type: ignore[misc,valid-type]
            dumps = staticmethod(timed(pickler.dumps, "dumps_ns"))

            @staticmethod
            def loads(data: Any) -> Any:
                begun, received = clock(), counters.recv_ns
                try:
                    return pickler.loads(data)
                finally:
                    # Rebuilding fetches descriptors through connections of its own: those nanoseconds are counted there.
                    counters.loads_ns += clock() - begun - (counters.recv_ns - received)

        for name, sum_name in (("poll", "poll_ns"), ("recv_bytes", "recv_ns"), ("send_bytes", "send_ns")):
            self._patches.replace(connection, name, timed(getattr(connection, name), sum_name))
        self._patches.replace(multiprocessing.queues, "_ForkingPickler", TimedPickler)


attach = IpcTimer().attach
"""This process's hand-over, timed until `IpcTimer.detach`."""
