"""Signals to the program while it waits for a process that was forked from it: each is the program's, and none is lost.

Its own handlers write checkpoints or ask a job to be queued again, which that process must not do a second time.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)
_ASKING = (*_ENDING, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""By which a program is asked for something."""


def held_back() -> Any:
    """From now on no signal is delivered. One that falls among what Python calls at a fork is printed there, and lost.

    Returns:
        What `delivered` is to be given.
    """
    return signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def delivered(before: Any) -> None:
    """As before `held_back`; what came meanwhile comes now."""
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_the_program() -> None:
    """In the forked process: what ends a program interrupts what is done here, and no handler of the program's is called."""
    for number in _ASKING:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number in _ENDING else signal.SIG_IGN)


@contextlib.contextmanager
def hearing() -> Iterator[Callable[[], bool]]:
    """What tells whether the program was asked for something since that was last told; its handlers are called as ever."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    theirs = signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def asked() -> bool:
        try:
            numbers = os.read(read, 4096)
        except BlockingIOError:
            return False
        if theirs >= 0:
            with contextlib.suppress(OSError):
                os.write(theirs, numbers)
        return any(number in _ASKING for number in numbers)

    try:
        yield asked
    finally:
        signal.set_wakeup_fd(theirs)
        os.close(read)
        os.close(write)
