"""What a process and all that it started use now. Read from /proc: memory by PSS, shared memory, open files, CPU seconds; asked of
the driver: the device's memory.

Summed resident sizes count every shared page once a process; the proportional size counts it once. Shared memory that was unlinked
while it is in use (as torch's batches are) is in no directory, so it is counted by what is mapped.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipefix.system.resources import rollup
from pipefix.tuning.limits import Usage
from pipefix.vocabulary.nvml import NotVisible, handle_of

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def group(leader: int) -> list[int]:
    """Processes of a session, its leader among them: whatever a trial started, also where its parent has died."""
    members = [pid for pid in map(int, filter(str.isdigit, _listed(PROC))) if _session(pid) == leader]
    return [pid for pid in members if (fields := _stat(pid)) is not None and fields[0] != "Z"]


def _session(pid: int) -> int | None:
    """Asked of the kernel: of thousands of processes that a machine may have, no file is read."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def read(processes: Iterable[int]) -> Usage:
    """What processes take together, but for CPU; those that end meanwhile count nothing."""
    memory = shm = 0.0
    files = 0
    for pid in processes:
        sizes = rollup(pid)
        memory += sizes.get("Pss", 0)
        shm += sizes.get("Pss_Shmem", 0)
        files = max(files, len(_listed(PROC / str(pid) / "fd")))
    return Usage(memory, shm, files)


def cpu_seconds(processes: Iterable[int]) -> float:
    """Of processes that live, since they began."""
    fields = [stat_fields for pid in processes if (stat_fields := _stat(pid)) is not None]
    return sum(int(stat_fields[11]) + int(stat_fields[12]) for stat_fields in fields) / _TICKS


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may hold blanks and brackets: state, parent, group, session, …"""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


class Vram:
    """Bytes of the first device's memory, as the driver tells (NVML), since the tuning began; ``why`` says why there is none to be
    watched. Does not wake CUDA."""

    def __init__(self, nvml: Any = None) -> None:
        self.why: str | None = None
        self.free: float | None = None
        """Bytes that could be taken at the beginning."""
        self._handle: Any = None
        self._used = 0.0
        """Of the device, when it was last asked."""
        self._grown: dict[int, float] = {}
        """By trial, where the driver knows no process of it: what the device's memory grew by whenever it was asked about."""
        self._nvml = nvml if nvml is not None else importlib.import_module("pynvml")
        try:
            self._nvml.nvmlInit()
            if not self._nvml.nvmlDeviceGetCount():
                self.why = "the driver knows no device"
                return
            self._handle = handle_of(self._nvml)
            memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
            self.free, self._used = float(memory.total - memory.used), float(memory.used)
        except NotVisible as error:
            self.why = str(error)
        except self._nvml.NVMLError as error:
            self._handle = None
            self.why = f"the driver cannot be asked: {error}"

    def of(self, leader: int, processes: Iterable[int]) -> float:
        """Bytes that a trial's processes hold; where the driver knows them by other numbers (in a container), what came while the
        trial was asked about, since trials run in turn.

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
            used = float(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
            if running:
                self._grown[leader] = self._grown.get(leader, 0.0) + max(0.0, used - self._used)
            self._used = used if running else min(self._used, used)
            return self._grown.get(leader, 0.0)
        except self._nvml.NVMLError:
            return 0.0

    def close(self) -> None:
        if self._handle is not None:
            self._handle = None
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
