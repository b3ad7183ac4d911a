"""The ``worker_init_fn`` of a measured loader: whichever process makes its batches does so by a `MeasuringFetcher`.

The loader, its dataset and the user's own ``worker_init_fn`` are as they would be; one switch decides what a batch is made of: live
or recorded, timed or not.
"""

from __future__ import annotations

import gc
import multiprocessing.queues
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch.utils.data import get_worker_info

from pipefix.hooks import torch_internals
from pipefix.measurement import failing
from pipefix.measurement.failing import Failure
from pipefix.measurement.measuring_fetcher import MeasuringFetcher
from pipefix.measurement.probe_task import ProbeTask


def called(make: Callable[[], Any]) -> Any:
    """The collate function of a probed loader: the fetcher gives it what makes the batch. A loader that puts batches into memory of
    its own has it called there."""
    return make()


class WorkerProbe:
    """The ``worker_init_fn`` of a probed loader: does what the user's own does, and makes the next fetcher a `MeasuringFetcher`."""

    def __init__(self, task: ProbeTask, init: Callable[[int], object] | None = None, *, forked: bool = True) -> None:
        self.task, self.init, self.forked = task, init, forked
        self._failed: Failure | None = None
        """Of the user's function: what to say in place of the first batch."""

    def __call__(self, worker: int) -> None:
        if get_worker_info() is not None and self.forked:
            gc.freeze()  # memory of a device that is garbage of the process it was forked from cannot be freed here
        close_fetchers()  # of the process that this one was forked from
        multiprocessing.queues.Queue._on_queue_feeder_error = _unsendable  # type: ignore[attr-defined]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _hear_once)
        sys.excepthook = partial(_unless_left, sys.excepthook)
        if self.init is not None:
            try:
                self.init(worker)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - told with the first batch that is asked for
                self._failed = failing.of_code("worker_init_fn", error)
        torch_internals.make_next_fetcher(self.fetcher)

    def fetcher(self, kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        """In place of torch's own, made as that would be."""
        if self._failed is not None:
            return SimpleNamespace(fetch=lambda _: self._failed)
        fetcher = MeasuringFetcher(self.task, dataset, collate_fn, auto_collation=auto_collation, places=collate_fn is not called)
        if get_worker_info() is None:
            _in_this_process.append(fetcher)
        return fetcher


_in_this_process: list[MeasuringFetcher] = []
"""Those of loaders without workers."""


def close_fetchers() -> None:
    """Put back everything that they patched."""
    while _in_this_process:
        _in_this_process.pop().close()


def _unsendable(queue: Any, error: Exception, sent: Any) -> None:
    """A batch that cannot be pickled is lost in the worker's feeder thread, and the training process would wait for it for ever."""
    number, batch = sent
    if isinstance(batch, Failure):
        traceback.print_exception(error)
    else:
        queue.put((number, failing.of_handover(error)))


def _unless_left(shown: Callable[..., object], kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """The thread that hands a worker's tensors out shows an error where the training process was interrupted and has left it alone:
    nobody waits for those tensors, and the interruption is told already."""
    if not issubclass(kind, (ConnectionError, EOFError)) or threading.current_thread() is threading.main_thread():
        shown(kind, error, trace)


def _hear_once(*_: object) -> None:
    """A terminal's Ctrl-C reaches the workers as well. A second one, from us, must not disturb one that is leaving already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = partial(_unless_interrupted, sys.unraisablehook)
    raise KeyboardInterrupt


def _unless_interrupted(shown: Callable[[Any], object], lost: Any) -> None:
    """An interrupt that falls into a finaliser is lost there, and Python would tell of it; the worker is ended otherwise then."""
    if lost.exc_type is not KeyboardInterrupt:
        shown(lost)
