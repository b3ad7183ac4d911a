"""What a planted pipeline really spent: per stage, wall and CPU seconds, from every process that ran a part of it.

The figures lie in one memory-mapped file that workers share with the process that built the pipeline. Each process writes to
a row of its own, so no lock is needed. The ledger is the ruler that verdicts are checked against: no dataset holds it, and it
passes through no library call that a probe might cut.
"""

from __future__ import annotations

import atexit
import mmap
import os
import tempfile
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np

STAGES = ("storage", "decode", "augment", "collate", "ipc", "step")
"""The stages that can be planted. Without a device nothing is transferred."""
IN_SAMPLE = STAGES[:3]
_ROWS = 2048
_FIELDS = 3  # wall ns, CPU ns, samples
_VARIABLE = "PIPEFIX_PLANTED_LEDGER"


@dataclass(frozen=True)
class Spent:
    """Means since the ledger was cleared."""

    wall_s: float
    """Wall seconds a sample."""
    cpu_s: float
    """CPU seconds a sample, of the thread that did the work."""
    samples: int


class _Book:
    """The counters of this process and of all its children."""

    def __init__(self) -> None:
        path = os.environ.get(_VARIABLE)
        if path is None or not os.path.exists(path):
            handle, path = tempfile.mkstemp(prefix="planted-ledger-")
            os.truncate(handle, _ROWS * len(STAGES) * _FIELDS * 8)
            os.environ[_VARIABLE] = path
            self.owner = os.getpid()
            atexit.register(self.forget)
        else:
            handle = os.open(path, os.O_RDWR)
            self.owner = 0
        self.path = path
        self._memory = mmap.mmap(handle, 0)
        os.close(handle)
        self.table: Any = np.frombuffer(self._memory, dtype=np.int64).reshape(_ROWS, len(STAGES), _FIELDS)

    def forget(self) -> None:
        if self.owner == os.getpid() and os.path.exists(self.path):
            os.unlink(self.path)
            os.environ.pop(_VARIABLE, None)


_book = _Book()


def clear() -> None:
    _book.table[:] = 0


def own_book() -> None:
    """Give this process a ledger of its own, so that two pipelines can run side by side."""
    global _book
    os.environ.pop(_VARIABLE, None)
    _book = _Book()


def close_book() -> None:
    """Remove this process's own ledger file; for processes that end without running exit handlers."""
    _book.forget()


def spent() -> dict[str, Spent]:
    """Per stage, what was spent since `clear` by all processes together."""
    found = {}
    for stage, (wall, cpu, samples) in zip(STAGES, _book.table.sum(axis=0).tolist(), strict=True):
        if samples:
            found[stage] = Spent(wall / samples / 1e9, cpu / samples / 1e9, samples)
    return found


class Watch:
    """Clocks of one piece of work: ``lap(stage)`` charges what has passed since the last lap."""

    __slots__ = ("_cpu", "_wall")

    def __init__(self) -> None:
        self._cpu = thread_time_ns()
        self._wall = perf_counter_ns()

    def lap(self, stage: str, samples: int = 1) -> None:
        wall, cpu = perf_counter_ns(), thread_time_ns()
        row = _book.table[os.getpid() % _ROWS, STAGES.index(stage)]
        row[0] += wall - self._wall
        row[1] += cpu - self._cpu
        row[2] += samples
        self._cpu = thread_time_ns()
        self._wall = perf_counter_ns()
