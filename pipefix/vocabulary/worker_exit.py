"""Says in words how a worker process died, from its exit code, and what that usually means."""

from __future__ import annotations

import signal
from contextlib import suppress

CAUSES = {
    signal.SIGKILL: "The kernel does so where memory is short",
    signal.SIGSEGV: "A native library crashed",
    signal.SIGABRT: "A native library gave up: its last words are above",
    signal.SIGBUS: "Memory that it shares with this process could not be had",
}


def describe_exit(exit_code: int) -> str:
    """From a process's exit code, which is negative where a signal ended it."""
    if exit_code >= 0:
        return f"it left with exit code {exit_code}"
    return f"it was killed by signal {signal_name(-exit_code)}"


def signal_name(number: int) -> str:
    """``9 (SIGKILL)``; of most real-time signals, which have no name of their own, the number."""
    with suppress(ValueError):
        return f"{number} ({signal.Signals(number).name})"
    return str(number)


def is_worker_death(error: BaseException) -> bool:
    """Whether torch says so of one of its workers. Its signal handler speaks wherever the main thread happens to be.

    (An error that was caught in a worker may quote such words: of a loader inside the user's dataset.)
    """
    text = str(error)
    of_worker = isinstance(error, RuntimeError) and text.startswith("DataLoader worker")
    return of_worker and ("killed by signal" in text or "exited unexpectedly" in text)
