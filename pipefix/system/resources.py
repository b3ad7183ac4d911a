"""What is left for this process to use: memory, shared memory, cores; and how busy and how fast the cores are.
Limits of control groups count."""

from __future__ import annotations

import multiprocessing.process
import os
import resource
import statistics
import time
from contextlib import suppress
from pathlib import Path

import psutil

from pipefix.system import cgroups
from pipefix.system.mounts import text_of

WORKER_BYTES = 60_000_000
"""Private memory of a worker that was never seen: an interpreter with torch, its pages shared with the training process."""
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Kinds of CPU time; the last is what a hypervisor took."""


REPEATED = 5
"""Times that the reference work is done at once: the first finds its caches cold."""


def memory_left() -> int:
    """Bytes that can be taken before the kernel kills somebody. What the page cache holds of files is given up before that."""
    return min([int(psutil.virtual_memory().available), *cgroups.memory_left()])


def shared_memory() -> tuple[int | None, int | None]:
    """Bytes of /dev/shm, and those of them that are free; None where there is none."""
    with suppress(AttributeError, OSError):
        room = os.statvfs("/dev/shm")
        return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    return None, None


def cores() -> float:
    """CPU seconds a second: those of the CPUs that this process may run on, or less where a control group limits it."""
    allowed = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    return min(allowed, cgroups.limits().quota_cores or allowed)


def rollup(pid: int | str = "self") -> dict[str, int]:
    """Bytes that a process takes, by their kind (``Pss``, ``Private_Dirty``, …); empty where the system does not tell."""
    lines = text_of(f"/proc/{pid}/smaps_rollup").splitlines()
    return {words[0].rstrip(":"): 1024 * int(words[1]) for line in lines if len(words := line.split()) == 3 and words[2] == "kB"}


def out_of_memory_kills() -> int | None:
    """How often the kernel killed a process here because memory was short; None where it does not say."""
    return (cgroups.counters(Path("/proc/vmstat")) | cgroups.counters(Path("/sys/fs/cgroup/memory.events"))).get("oom_kill")


def childrens_cpu_ns() -> int:
    """CPU nanoseconds of this process's children so far: those that ended, such as an ffmpeg, and live ones of multiprocessing."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = round(1e9 * (ended.ru_utime + ended.ru_stime))
    for child in tuple(getattr(multiprocessing.process, "_children", ())):
        with suppress(OSError, TypeError):  # it has ended meanwhile, or has no number yet
            spent += time.clock_gettime_ns(~child.pid << 3 | 2)  # Linux's CPU clock of a process
    return spent


def reference_seconds() -> float:
    """CPU seconds of the same small work, whatever the pipeline: by it runs tell a slower machine from slower code."""
    return statistics.median(_reference() for _ in range(REPEATED))


def _reference() -> float:
    begun, total = time.thread_time(), 0
    for number in range(3000):
        total += number * number
    return time.thread_time() - begun


class Neighbours:
    """Looks at the machine's CPU time from when it is made on. Processes that this one started and waited for are its own."""

    def __init__(self) -> None:
        self._begun = _others_seconds()

    def cores(self) -> float:
        """CPU seconds a second that others used since."""
        begun, now = self._begun, _others_seconds()
        return max(0.0, (now[1] - begun[1]) / (now[0] - begun[0])) if now[0] > begun[0] else 0.0


def _others_seconds() -> tuple[float, float]:
    """A time, and the CPU seconds that others had used by then."""
    times = psutil.cpu_times()
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    busy = sum(getattr(times, kind, 0.0) for kind in BUSY)
    return time.monotonic(), busy - sum(usage.ru_utime + usage.ru_stime for usage in own)
