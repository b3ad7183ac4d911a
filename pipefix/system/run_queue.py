"""Seconds that this thread was ready to run and had no CPU: what tells a starved stage from a waiting one.

Both take wall time without CPU time. Only the second gains from more workers.
"""

from __future__ import annotations

import os

_open, _pread, _close = os.open, os.pread, os.close
"""The functions themselves: reading the scheduler's books is no storage cost of the pipeline's."""
_LONGEST = 128


class RunQueue:
    """The scheduler's own record of one thread (the one that makes this object). Always 0 where there is none."""

    def __init__(self) -> None:
        try:
            self._file = _open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def waited(self) -> int:
        """Nanoseconds on a run queue since the thread began."""
        try:
            return int(_pread(self._file, _LONGEST, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def close(self) -> None:
        if self._file >= 0:
            _close(self._file)
            self._file = -1
