"""A driver that is made up: NVML with devices of 8 GiB, as far as it is asked here."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle
from types import SimpleNamespace
from typing import Any

from pipefix.vocabulary.nvml import IDLE

GIB = 1 << 30


@dataclass
class Driver:
    broken: str = ""
    """What it says in place of an answer."""
    devices: int = 1
    used: int = GIB
    held: dict[int, int | None] = field(default_factory=dict)
    """Bytes by process."""
    busy: list[int] = field(default_factory=list)
    """Per cent of each look; after the last one it cannot tell."""
    reasons: tuple[int, ...] = (IDLE,)
    """For low clocks, look by look, again and again."""
    power: int | None = None
    """Milliwatts; None: it cannot tell."""
    open: int = 0
    """Times that it was begun and not ended."""

    class NVMLError(Exception):
        pass

    def __post_init__(self) -> None:
        self._reasons = cycle(self.reasons)

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError(self.broken)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "999.1"

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "Test GPU"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=8 * GIB, used=self.used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in self.held.items()]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if not self.busy:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=self.busy.pop(0))

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if self.power is None:
            raise self.NVMLError("Not Supported")
        return self.power

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return next(self._reasons)
