"""What a worker process does first: caps threads of libraries, has every error sent, and ends when the training process does."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import util
from typing import Any, NoReturn

import torch
from torch.utils.data import get_worker_info

from pipefix.hooks import torch_internals
from pipefix.hooks.torch_internals import ErrorInWorker
from pipefix.loader.policy.read_policy import StandsForDataset

BEFORE_QUEUES = -4
"""Among what a process does at its exit: after all else, but for waiting until its queues are sent."""
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class FirstInWorker:
    """A ``worker_init_fn`` that does something of ours, and then what the user's own does."""

    def __init__(self, first: Callable[[], object], then: Callable[[int], object] | None = None) -> None:
        self.first, self.then = first, then

    def __call__(self, worker: int) -> None:
        self.first()
        if self.then is not None:
            self.then(worker)


def start_worker(threads: int | None, *, forked: bool) -> None:
    """That of a `FastLoader`: `get_worker_info` shows the user's own dataset, the worker ends with the training process, and native
    libraries have so many threads where a plan says how many."""
    info = get_worker_info()
    if info is not None:
        if forked:  # others have nothing of it, and libraries print what is left when they end
            gc.freeze()  # garbage of the training process, such as memory of a device, cannot be freed here
        while isinstance(info.dataset, StandsForDataset):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # it is frozen
    end_with_parent()
    torch_internals.worker_module.ExceptionWrapper = SentError
    if threads is not None:
        cap_threads(threads)


def cap_threads(threads: int) -> None:
    """In this process, for libraries that are loaded and for those that will be: one is enough where there are as many processes as
    cores. 0 is none beside the caller, for OpenCV."""
    for name in _VARIABLES:
        os.environ[name] = str(max(1, threads))
    torch.set_num_threads(max(1, threads))
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0 if threads <= 1 else threads)
    with suppress(ImportError):  # what is loaded already keeps its threads; most libraries are asked above
        import threadpoolctl  # type: ignore[import-not-found,unused-ignore]

        threadpoolctl.threadpool_limits(max(1, threads))


# -- errors of samples, also those whose class cannot be sent --------------------------------------------------------------


class UnpicklableError(RuntimeError):
    """Stands for an error whose class cannot be sent from process to process; its text says which, and where it was raised."""


class SentError(ErrorInWorker):
    """Torch's, for errors of any class: torch sends an error's class, and its text. A class that is made at run time (as botocore
    makes its own) cannot be pickled: the queue's thread in the worker drops the message, and the training process would wait for
    that batch for ever."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        super().__init__(exc_info, where)  # type: ignore[no-untyped-call]
        self.unsent: str | None = None
        """The name of a class that cannot be sent."""
        try:
            pickle.dumps(self.exc_type)
        except Exception:  # noqa: BLE001 - a metaclass of the user's may raise anything
            self.unsent = f"{self.exc_type.__module__}.{self.exc_type.__qualname__}"
            self.exc_type = UnpicklableError

    def reraise(self) -> NoReturn:
        if self.unsent is None:
            super().reraise()  # type: ignore[no-untyped-call]
        raise UnpicklableError(
            f"Caught {self.unsent} {self.where}. Its class cannot be pickled, so this stands for it.\nOriginal {self.exc_msg}"
        )


# -- its end: a worker that outlived the training process would hold memory, files and a terminal for ever -----------------


class Parent(torch_internals.ParentWatchdog):
    """The training process, as this worker sees it."""

    def __init__(self) -> None:
        self._pid, known = os.getppid(), multiprocessing.parent_process()
        # Where a server forked this worker, that lives as long as its workers do.
        self._served = known if known is not None and known.pid != self._pid else None

    def is_alive(self) -> bool:
        return os.getppid() == self._pid and (self._served is None or self._served.is_alive())


def end_with_parent() -> None:
    """This worker ends when the training process has gone.

    Torch's worker sees that by its parent process alone, which under forkserver is the server; and at its exit it waits until its
    batches are sent, where the pipe may be full, or a worker that was killed hold the lock, and nobody is left to mend that.
    """
    parent = Parent()

    def leave() -> None:
        if not parent.is_alive():
            util._flush_std_streams()  # type: ignore[attr-defined]
            os._exit(0)

    torch_internals.worker_module.ManagerWatchdog = lambda: parent
    util.Finalize(None, leave, exitpriority=BEFORE_QUEUES)
