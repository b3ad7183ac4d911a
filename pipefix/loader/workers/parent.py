"""Whether the training process still lives, in a worker: one that outlived it would hold memory, files and a terminal for ever."""

from __future__ import annotations

import multiprocessing
import os
import select
from multiprocessing import util

from pipefix.hooks import torch_internals

BEFORE_QUEUES = -4
"""Among what a process does at its exit: after all else, but for waiting until its queues are sent."""


class Parent:
    """The training process, as this worker sees it."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._end: select.poll | None = None
        known = multiprocessing.parent_process()
        if known is not None and known.pid != self._pid:
            # A server forked this worker, and lives as long as its workers do.
            self._end = select.poll()
            self._end.register(known.sentinel, select.POLLIN)

    def has_gone(self) -> bool:
        return os.getppid() != self._pid or (self._end is not None and bool(self._end.poll(0)))


def end_with_parent() -> None:
    """This worker ends when the training process has gone.

    Torch's worker sees that by its parent process alone, which under forkserver is the server; and at its exit it waits until its
    batches are sent, where the pipe may be full, or a worker that was killed hold the lock, and nobody is left to mend that.
    """
    parent = Parent()

    class Watchdog(torch_internals.ParentWatchdog):
        def is_alive(self) -> bool:
            return not parent.has_gone()

    def leave() -> None:
        if parent.has_gone():
            util._flush_std_streams()  # type: ignore[attr-defined]
            os._exit(0)

    torch_internals.worker_module.ManagerWatchdog = Watchdog
    util.Finalize(None, leave, exitpriority=BEFORE_QUEUES)
