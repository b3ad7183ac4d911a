"""Waits until other programs leave the processor alone, so that what is measured next is the pipeline and not its neighbours."""

from __future__ import annotations

import time
from pathlib import Path

BUSY = 0.15
"""Part of all cores' time that others may use and the machine still counts as quiet."""


def busy_share(seconds: float = 0.5) -> float:
    """Part of all cores' time that was used just now (while this process sleeps)."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    used, total = (later - earlier for earlier, later in zip(before, after, strict=True))
    return used / total if total else 0.0


def _ticks() -> tuple[int, int]:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


def wait(patience: float) -> float:
    """Return once the machine was quiet for a second, or after ``patience`` seconds. Says how long it took."""
    begun = time.monotonic()
    calm = 0
    while calm < 2 and time.monotonic() - begun < patience:
        calm = calm + 1 if busy_share() < BUSY else 0
    return time.monotonic() - begun
