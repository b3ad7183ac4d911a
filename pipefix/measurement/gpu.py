"""What the device did while the loop ran: busy time by events, and NVML's view as supporting evidence only.

No step is waited for. Events are recorded around each step and read after the block, when the device has finished anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

EVERY_S = 0.2
"""NVML updates its utilisation figure a few times a second; asking more often tells nothing new."""

IDLE = 1
"""NVML's reason for low clocks that is none: there was nothing to do."""


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
    """Samples utilisation, memory and power while it is entered. What NVML cannot tell (of a part of a device, say) is left out."""

    def __init__(self, device: int = 0) -> None:
        self.figures: dict[str, float] = {}
        """Means over the time it was entered."""
        self.declined: dict[str, str] = {}
        """Figures there are none of, and why."""
        self._device = device
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: dict[str, list[float]] = {}

    def __enter__(self) -> NvmlWatch:
        if present():
            self._thread = threading.Thread(target=self._watch, daemon=True, name="pipefix-nvml")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.figures = {name: sum(seen) / len(seen) for name, seen in self._samples.items() if seen}

    def _watch(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - NVML is supporting evidence; without it nothing is lost
            self.declined["nvml"] = f"NVML cannot be asked: {error}"
            return
        try:
            self._sample(pynvml)
        finally:
            pynvml.nvmlShutdown()

    def _sample(self, nvml: Any) -> None:
        asked: dict[str, Callable[[], float]] = {
            "nvml_utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle(nvml)).gpu / 100,
            "nvml_memory_bytes": lambda: float(nvml.nvmlDeviceGetMemoryInfo(self._handle(nvml)).used),
            "nvml_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(self._handle(nvml)) / 1e3,
            "nvml_throttled": lambda: float(bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle(nvml)) & ~IDLE)),
        }
        while asked and not self._stop.wait(EVERY_S):
            for name, ask in list(asked.items()):
                try:
                    self._samples.setdefault(name, []).append(ask())
                except Exception as error:  # noqa: BLE001 - as above
                    self.declined[name] = str(error)
                    del asked[name]

    def _handle(self, nvml: Any) -> Any:
        return nvml.nvmlDeviceGetHandleByIndex(self._device)
