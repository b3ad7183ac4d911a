"""Waits until other programs leave the processor alone, so that what is measured next is the pipeline and not its neighbours."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import psutil

from measured.planted import server

BUSY = 0.1
"""Part of all cores' time that others may use and the machine still counts as quiet."""


def busy_share(seconds: float = 0.5) -> float:
    """Part of all cores' time that was used just now (while this process sleeps)."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    used, total = (later - earlier for earlier, later in zip(before, after, strict=True))
    # The time that cores wait for a disk may be counted back: then more than all of it seems used.
    return min(1.0, max(0.0, used / total)) if total else 0.0


class Others:
    """What other programs use of all cores' time, from its making until `share` is asked.

    Ours are this process, all that it has started, and the server that makes planted pipelines wait.
    """

    def __init__(self) -> None:
        self._ours, (self._used, self._total) = _ours(), _ticks()

    def share(self) -> float:
        ours, (used, total) = _ours() - self._ours, _ticks()
        passed = total - self._total
        return max(0.0, used - self._used - ours) / passed if passed else 0.0


def _ours() -> float:
    """Clock ticks of CPU time."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        # The server is counted whoever forked it.
        with contextlib.suppress(psutil.Error):
            own += sum(child.cpu_times()[:4]) if child.pid != server.process() else 0.0
    return (own + server.cpu_seconds()) * os.sysconf("SC_CLK_TCK")


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
