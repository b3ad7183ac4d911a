"""Bytes of device memory that trials take, as the driver tells (NVML). Does not wake CUDA."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable
from typing import Any

from pipefix.vocabulary.nvml import NotVisible, handle_of


class Vram:
    """The first device, as it was when the tuning began; ``why`` says why there is none to be watched."""

    def __init__(self, nvml: Any = None) -> None:
        self.why: str | None = None
        self.free: float | None = None
        """Bytes that could be taken at the beginning."""
        self._handle: Any = None
        self._before = 0.0
        try:
            self._nvml = nvml if nvml is not None else importlib.import_module("pynvml")
        except ImportError:
            self.why = "pynvml is not installed (pip install nvidia-ml-py), so the driver cannot be asked"
            return
        try:
            self._nvml.nvmlInit()
            if not self._nvml.nvmlDeviceGetCount():
                self.why = "the driver knows no device"
                return
            self._handle = handle_of(self._nvml)
            memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
            self.free, self._before = float(memory.total - memory.used), float(memory.used)
        except NotVisible as error:
            self.why = str(error)
        except self._nvml.NVMLError as error:
            self._handle = None
            self.why = f"the driver cannot be asked: {error}"

    def of(self, processes: Iterable[int]) -> float:
        """Bytes that these hold; where the driver knows them by other numbers (in a container), all that came since the beginning.

        0 where nothing can be told.
        """
        if self._handle is None:
            return 0.0
        try:
            trial_pids = set(processes)
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
            held = [process.usedGpuMemory for process in running if process.pid in trial_pids]
            if held and None not in held:
                return float(sum(held))
            return max(0.0, float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used) - self._before) if running else 0.0
        except self._nvml.NVMLError:
            return 0.0

    def close(self) -> None:
        if self._handle is not None:
            self._handle = None
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
