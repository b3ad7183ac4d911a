"""Ends worker processes in the middle of a batch, without torch taking that for a crash; removes the sockets that they leave."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import process, util
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from pipefix.hooks import torch_internals
from pipefix.vocabulary import files

PATIENCE = 1.0
"""Seconds that the lock of workers' last event, and workers that are killed, are waited for."""
SILENCE = 0.3
"""Seconds in which no worker ends that was told to: the others do not hear it, and are told by a harder signal."""
_INSIDE = re.compile(r"(listener|pym)-")
"""What multiprocessing names sockets, and files of shared memory, in such a folder."""


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
        alive = [worker for worker in processes if worker.is_alive()]
        for worker in alive:
            stop(worker)
        while alive and (ended := wait([worker.sentinel for worker in alive], silence)):
            for worker in [worker for worker in alive if worker.sentinel in ended]:
                worker.join(silence)
                alive.remove(worker)
    if done is not None:
        # A worker that was ended while it looked at the event holds its lock for ever, and torch would wait for it.
        iterator._workers_done_event = threading.Event()


def _interrupt(worker: BaseProcess) -> None:
    if worker.pid is not None:
        os.kill(worker.pid, signal.SIGINT)


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


class Sockets:
    """One folder for the sockets of a measured loader's workers, removed with the loader: a killed worker would leave its own."""

    def __init__(self) -> None:
        self._folder: str | None = None

    @contextmanager
    def given(self, context: Any) -> Iterator[None]:
        """Workers that ``context`` starts meanwhile use it, unless this process has one already, which they would use anyhow."""
        known = process.current_process()._config  # type: ignore[attr-defined]
        if (context or multiprocessing).get_start_method() == "forkserver":
            util.get_temp_dir()  # the server's own socket lies there, and stays when the pool is gone
        if known.get("tempdir") is not None:
            yield
            return
        self._folder = known["tempdir"] = tempfile.mkdtemp(prefix="pymp-")  # as multiprocessing names its own
        try:
            yield
        finally:
            known["tempdir"] = None

    def remove(self) -> None:
        """Once no worker is left."""
        if self._folder is not None:
            with suppress(OSError):  # gone already, or it holds what is not ours
                for name in os.listdir(self._folder):
                    files.remove(Path(self._folder, name), _INSIDE)
                files.remove_empty_folder(Path(self._folder))
            self._folder = None
