"""What other programs take of the machine while a pipeline is measured: a run beside a busy neighbour is no slower pipeline."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of /proc/stat: user, nice, system, interrupts, soft interrupts, and what a hypervisor took."""


class Neighbours:
    """Looks at the machine's CPU time from when it is made on. Processes that this one started and waited for are its own."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._begun = self._look()

    def cores(self) -> float | None:
        """CPU seconds a second that others used since; None where the system does not say."""
        begun, now = self._begun, self._look()
        if begun is None or now is None or now[0] <= begun[0]:
            return None
        return max(0.0, (now[1] - begun[1]) / (now[0] - begun[0]))

    def _look(self) -> tuple[float, float] | None:
        """A time, and the CPU seconds that others had used by then."""
        try:
            columns = self._stat.read_text().split("\n", 1)[0].split()[1:]
            busy = sum(int(columns[place]) for place in BUSY) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), busy - sum(usage.ru_utime + usage.ru_stime for usage in own)
