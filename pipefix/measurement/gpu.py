"""What the device did while the loop ran: busy time by events, and NVML's view as supporting evidence only.

No step is waited for. Events are recorded around each step and read after the block, when the device has finished anyway.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch

EVERY_S = 0.2
"""NVML updates its utilisation figure a few times a second; asking more often tells nothing new."""


def present() -> bool:
    return bool(torch.cuda.is_available())


class StepEvents:
    """Pairs of events around steps on the current stream."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._pairs.append((event, None))

    def end(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._pairs[-1] = (self._pairs[-1][0], event)

    def busy(self) -> list[int]:
        """Device nanoseconds of every step since the last call. Waits for the device once."""
        torch.cuda.synchronize()
        pairs, self._pairs = self._pairs, []
        return [int(begun.elapsed_time(ended) * 1e6) for begun, ended in pairs if ended is not None]


class NvmlWatch:
    """Samples utilisation, memory and power while it is entered. Silent where NVML cannot be asked."""

    def __init__(self, device: int = 0) -> None:
        self.figures: dict[str, float] = {}
        self._device = device
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: list[tuple[float, float, float]] = []

    def __enter__(self) -> NvmlWatch:
        if present():
            self._thread = threading.Thread(target=self._sample, daemon=True, name="pipefix-nvml")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._samples:
            columns = list(zip(*self._samples, strict=True))
            names = ("nvml_utilisation", "nvml_memory_bytes", "nvml_power_w")
            self.figures = {name: sum(column) / len(column) for name, column in zip(names, columns, strict=True)}

    def _sample(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(self._device)
        except Exception as error:  # noqa: BLE001 - NVML is supporting evidence; without it nothing is lost
            self.figures = {}
            self.declined = f"NVML cannot be asked: {error}"
            return
        while not self._stop.wait(EVERY_S):
            used = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).used
            self._samples.append((used, float(memory), pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3))
        pynvml.nvmlShutdown()

    declined: str | None = None
