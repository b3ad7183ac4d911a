"""A clock for probes that moves when it is looked at and when work says how long it takes, and at no other time."""

from __future__ import annotations

import importlib
import mmap
import os
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipefix.measurement.run_arms import LOOK_AGAIN
from pipefix.system.run_queue import RunQueue

READING = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "thread_time_ns", "process_time", "process_time_ns")
MEASUREMENT = (
    "pipefix.measurement.measuring_fetcher", "pipefix.measurement.consumer", "pipefix.measurement.consumer_alone",
    "pipefix.measurement.measure", "pipefix.measurement.budget", "pipefix.measurement.run_arms",
    "pipefix.measurement.gpu", "pipefix.measurement.worker_probe", "pipefix.measurement.sample_maker",
    "pipefix.measurement.startup", "pipefix.hooks.charges", "pipefix.hooks.sample_timer", "pipefix.subject.call_sites",
)  # fmt: skip
"""Whatever tells the time of batches and of the budget. Limits on what hangs keep the real clock."""
PROBE = (
    *MEASUREMENT, "pipefix.api.probe",
    "pipefix.caches.estimate", "pipefix.fixes.speedup",
)  # fmt: skip
"""And what tries fixes beside the pipeline."""
CELLS = 64


class Ticks:
    """Each look moves it by one tick, in this process and in those forked from it, which share it; ``passes`` moves it as well. So
    blocks and budgets end after so many batches, whatever the machine does meanwhile. Without workers every figure is exact."""

    def __init__(self, tick: float = 1e-4) -> None:
        self.tick = round(tick * 1e9)
        # A cell for each thread, of whatever process, so that no two write to the same.
        self._cells = memoryview(mmap.mmap(-1, 8 * CELLS)).cast("q")
        self.sleeps: list[float] = []
        """What this process was told to sleep."""

    def passes(self, seconds: float) -> None:
        """Work that takes so long, or a sleep."""
        self._move(round(seconds * 1e9))

    def passes_elsewhere(self, seconds: float) -> None:
        """Another process has the core for so long."""
        self._cells[(threading.get_native_id() + 1) % CELLS] += round(seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.passes(seconds)
        if seconds <= LOOK_AGAIN:  # it waits for other processes, which need a processor for that
            os.sched_yield()

    @property
    def now(self) -> float:
        """A look that moves nothing."""
        return sum(self._cells) / 1e9

    def _move(self, nanoseconds: int) -> None:
        self._cells[threading.get_native_id() % CELLS] += nanoseconds

    def perf_counter_ns(self) -> int:
        self._move(self.tick)
        return sum(self._cells)

    def perf_counter(self) -> float:
        return self.perf_counter_ns() / 1e9

    monotonic_ns, monotonic = perf_counter_ns, perf_counter

    def thread_time_ns(self) -> int:
        """All work computes: of this thread alone, and looking costs nothing."""
        return self._cells[threading.get_native_id() % CELLS]

    process_time_ns = thread_time_ns

    def process_time(self) -> float:
        return self.thread_time_ns() / 1e9

    def given_to(self, modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Ticks:
        """These modules look at this clock instead of the machine's. Nobody waits for a processor in its time."""
        clock = SimpleNamespace(**{name: getattr(self, name) for name in (*READING, "sleep")})
        for name in modules:
            _given(importlib.import_module(name), clock, monkeypatch)
        monkeypatch.setattr(RunQueue, "waited", lambda queue: 0)
        return self


def _given(module: ModuleType, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = {getattr(time, name): name for name in READING}
    for name, value in list(vars(module).items()):
        if value is time:
            monkeypatch.setattr(module, name, clock)
        elif callable(value) and value.__class__ is type(time.perf_counter) and value in real:
            monkeypatch.setattr(module, name, getattr(clock, real[value]))
