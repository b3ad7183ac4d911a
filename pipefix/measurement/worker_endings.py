"""Ends worker processes in the middle of a batch, without torch taking that for a crash."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from pipefix.hooks import torch_internals

PATIENCE = 1.0
"""Seconds that the lock of workers' last event, and workers that are killed, are waited for."""
SILENCE = 0.3
"""Seconds in which no worker ends that was told to: the others do not hear it, and are told by a harder signal."""


def abandon(iterator: Any) -> None:
    """End worker processes in the middle of a batch. Torch must not take that for a crash, so it forgets them first."""
    processes = torch_internals.processes_of(iterator)
    torch_internals.forget_pids(iterator)
    done = getattr(iterator, "_workers_done_event", None)
    if done is not None and done._cond.acquire(True, PATIENCE):
        done._cond.release()
        done.set()
    # An interrupt first: a worker that can still hear it removes its own temporary files.
    for stop, silence in ((_interrupt, SILENCE), (BaseProcess.terminate, SILENCE), (BaseProcess.kill, PATIENCE)):
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            stop(process)
        while alive and (ended := wait([process.sentinel for process in alive], silence)):
            for process in [process for process in alive if process.sentinel in ended]:
                process.join(silence)
                alive.remove(process)
    if done is not None:
        # A worker that was ended while it looked at the event holds its lock for ever, and torch would wait for it.
        iterator._workers_done_event = threading.Event()


def _interrupt(process: BaseProcess) -> None:
    if process.pid is not None:
        os.kill(process.pid, signal.SIGINT)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """While workers are put away a second Ctrl-C must not leave them behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)
