"""CPU cores that other programs use while a pipeline is measured: beside a busy neighbour it is no slower pipeline."""

from __future__ import annotations

import resource
import time

import psutil

BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Kinds of CPU time; the last is what a hypervisor took."""


class Neighbours:
    """Looks at the machine's CPU time from when it is made on. Processes that this one started and waited for are its own."""

    def __init__(self) -> None:
        self._begun = _look()

    def cores(self) -> float:
        """CPU seconds a second that others used since."""
        begun, now = self._begun, _look()
        return max(0.0, (now[1] - begun[1]) / (now[0] - begun[0])) if now[0] > begun[0] else 0.0


def _look() -> tuple[float, float]:
    """A time, and the CPU seconds that others had used by then."""
    times = psutil.cpu_times()
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    busy = sum(getattr(times, kind, 0.0) for kind in BUSY)
    return time.monotonic(), busy - sum(usage.ru_utime + usage.ru_stime for usage in own)
