"""Limits the seconds of one batch: a thread interrupts the main thread where it is, which shows where it hangs.

A thread that sleeps nearly all the time looks at when the batch was begun. What hangs in native code that holds the interpreter
cannot be interrupted from inside the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time

LIMIT = 120.0
"""Seconds that a batch may take. The slowest real ones (a large archive opened by the first sample) take less than a minute."""
HANGS = 30.0
"""The same, where it is known why forked workers would never give one."""
LOOKS = 8
"""How often the thread looks while the limit passes."""


class BatchTimeLimit:
    """Watches the main thread of one process. In other threads nothing is watched: they cannot be interrupted."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self.fired = False
        """Whether the main thread was interrupted."""
        self._since = 0.0
        self._closed = threading.Event()
        self._process = 0

    def __enter__(self) -> None:
        """A batch is begun."""
        if self._process != os.getpid() and threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            threading.Thread(target=self._watch, name="pipefix-time-limit", daemon=True).start()
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        """It is complete, or failed."""
        self._since = 0.0

    def close(self) -> None:
        if self._process == os.getpid():  # a forked copy has no thread, and perhaps a lock that nobody will release
            self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self.limit / LOOKS):
            since = self._since
            if since and time.monotonic() - since > self.limit:
                self.fired = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                return

    def as_timeout(self, interrupt: KeyboardInterrupt) -> TimeoutError:
        """What the interruption is reported as, at the place where it fell."""
        error = TimeoutError(f"interrupted by pipefix after {self.limit:g} s without an answer")
        return error.with_traceback(interrupt.__traceback__)
