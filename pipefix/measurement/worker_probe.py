"""Makes the loader that is measured: like the user's, with their dataset and settings, an endless order, and a worker probe.

By that ``worker_init_fn`` whichever process makes batches does so by a `MeasuringFetcher`; the user's own is called as it would be.
One switch decides what a batch is made of: live or recorded, timed or not.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing.queues
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler, get_worker_info

from pipefix.hooks import torch_internals
from pipefix.measurement import failing
from pipefix.measurement.failing import Failure
from pipefix.measurement.measuring_fetcher import MeasuringFetcher
from pipefix.measurement.probe_task import ProbeOptions, ProbeTask
from pipefix.subject.subject import Subject
from pipefix.system.forks import start_method_of

ORDERS_KEPT = 64


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
    # An interrupt that falls into a finaliser is lost there, and Python would tell of it; the worker is ended otherwise then.
    shown = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else shown(lost)
    raise KeyboardInterrupt


def probed_loader(subject: Subject, probe: WorkerProbe, known: list[Any] | None = None) -> DataLoader[Any]:
    """``known``: samples that were read before, which it gives in place of the sampler's."""
    loader = subject.loader
    settings = torch_internals.loader_arguments(loader, num_workers=probe.task.options.workers) | {
        "collate_fn": called,
        "persistent_workers": False,  # there is one epoch, without end
        "pin_memory": loader.pin_memory and torch.cuda.is_available(),
        "worker_init_fn": probe,
    }
    if loader.generator is not None:
        settings["generator"] = torch.Generator(loader.generator.device)
        settings["generator"].set_state(loader.generator.get_state())
    if not subject.iterable:
        for name in ("batch_size", "drop_last", "sampler", "batch_sampler"):
            settings.pop(name, None)
        orders = SampleOrders(subject, known)
        settings |= {"batch_sampler": orders} if subject.auto_collation else {"sampler": orders, "batch_size": None}
    # A loader that hands batches over in a way of its own brings what makes another that does.
    make: Any = getattr(loader, "another", DataLoader)
    probed: DataLoader[Any] = make(loader.dataset, **settings)
    vars(probed)["dataset"] = loader.dataset  # a data pipe is wrapped by each loader
    return probed


def probe_of(subject: Subject, switch: torch.Tensor, options: ProbeOptions) -> WorkerProbe:
    """Of the subject's loader."""
    loader = subject.loader
    kind = "stream" if subject.iterable else "batched" if subject.batched_fetch else "map" if subject.auto_collation else "single"
    leaves_out = kind != "stream" and getattr(loader, "on_bad", "raise") != "raise"
    task = ProbeTask(loader.collate_fn, switch, options, kind, whole_batches=subject.groups_samples, leaves_out=leaves_out)
    return WorkerProbe(task, loader.worker_init_fn, forked=start_method_of(loader) == "fork")


class SampleOrders(Sampler[Any]):
    """The user's own sampler order, epoch after epoch; or samples that were read before, in batches of the user's size (or, where
    a batch sampler of theirs chooses which samples go together, in its own batches)."""

    def __init__(self, subject: Subject, known: list[Any] | None = None) -> None:
        self._subject = subject
        self._known = known or []
        self.spent_ns = 0
        """Nanoseconds that the user's sampler took so far. It runs where the batches are taken, in the training process."""
        self.recorded = False
        """Latest orders are given again, and the sampler is not asked."""
        self._latest: deque[Any] = deque(maxlen=ORDERS_KEPT)

    def __iter__(self) -> Iterator[Any]:
        orders = iter(self._orders())
        while True:
            if self.recorded and self._latest:
                self._latest.rotate(-1)
                yield self._latest[-1]
                continue
            begun = perf_counter_ns()
            try:
                order = next(orders)
            except StopIteration:
                return
            finally:
                self.spent_ns += perf_counter_ns() - begun
            self._latest.append(order)
            yield order

    def _orders(self) -> Iterator[Any]:
        if not self._known:
            return self._subject.orders()
        if self._subject.batched_fetch or self._subject.groups_samples or not self._subject.auto_collation:
            # The sampler is asked all the same: what it takes belongs to the settings that are tried.
            return (known for known, _ in zip(itertools.cycle(self._known), self._subject.orders(), strict=False))
        known = itertools.cycle(self._known)
        return (list(itertools.islice(known, len(order))) for order in self._subject.orders())
