"""`Companion`: tells whether a signal that came was sent to this process alone, or to all that run with it.

``timeout``, Slurm and systemd send to all processes of a job, and so does a terminal. The program has such a signal already, and a
second one would interrupt what it does about the first: writing a checkpoint.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterable

_ARRIVES = 0.05
"""Seconds until what is sent to all has surely reached each of them."""
_AGAIN = 0.5
"""Seconds within which the same signal is of the same sender: ``timeout`` sends to its child, and then to all."""


class Companion:
    """A process beside this one that keeps the signals which it gets, and ends with this one."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = set(numbers)
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: dict[int, float] = {}
        """When a signal last came here, by its number."""
        self._begin()

    def _begin(self) -> None:
        before, quiet = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers), subprocess.DEVNULL
        try:
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def got(self, number: int) -> bool | None:
        """Whether a signal that came just now came here as well; None where that cannot be told."""
        time.sleep(_ARRIVES)
        known = self._has(number)
        if known:
            self._heard[number] = time.monotonic()
            self.end()
            self._begin()
        elif time.monotonic() - self._heard.get(number, -_AGAIN) < _AGAIN:
            return True
        return known

    def _has(self, number: int) -> bool | None:
        if self._process is None:
            return None
        try:
            with open(f"/proc/{self._process.pid}/status", encoding="ascii", errors="replace") as status:
                waiting = next(int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:"))
        except (OSError, StopIteration):
            return None
        return bool(waiting >> (number - 1) & 1)

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
                process.communicate()
