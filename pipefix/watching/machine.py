"""What the machine does while a job runs, as means over a window: CPUs, memory, and the job's GPU by NVML."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import psutil

from pipefix.vocabulary.nvml import job_handle, questions

LOOK_EVERY = 1.0
"""Seconds between two looks: NVML's own figures are of about as long."""


class MachineFigures:
    """Means over the looks since they were taken last. What cannot be asked is left out, and nothing here raises."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}
        self._nvml: Any = None
        self._gpu: dict[str, Callable[[], float]] = {}
        self._without_gpu = False
        psutil.cpu_percent()  # from now on

    def look(self) -> None:
        self._ask({"cpu": lambda: psutil.cpu_percent() / 100, "memory": lambda: psutil.virtual_memory().percent / 100})
        if self._nvml is None and not self._without_gpu and _uses_cuda():
            self._begin()
        for name in self._ask(self._gpu):
            del self._gpu[name]

    def take(self) -> dict[str, float]:
        readings, self._seen = self._seen, {}
        return {name: round(sum(values) / len(values), 4) for name, values in readings.items()}

    def close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(Exception):  # the program has shut it down itself
                self._nvml.nvmlShutdown()
            self._nvml, self._gpu, self._without_gpu = None, {}, True

    def _ask(self, readers: dict[str, Callable[[], float]]) -> list[str]:
        """Those that could not be asked."""
        failed = []
        for name, ask in readers.items():
            try:
                self._seen.setdefault(name, []).append(ask())
            except Exception:  # noqa: BLE001 - libraries and drivers raise what they like
                self._seen.pop(name)
                failed.append(name)
        return failed

    def _begin(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._gpu = {f"gpu_{name}": ask for name, ask in questions(pynvml, job_handle(pynvml)).items()}
        except Exception:  # noqa: BLE001 - as above
            self._without_gpu = True


def _uses_cuda() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())
