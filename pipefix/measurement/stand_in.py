"""The dataset that stands in for the user's inside the loader's own processes, so that they can be seen and steered.

It makes whole batches (the loader's own batching is off), because one switch must decide what a batch is made of: live or
recorded, timed or not. The user's dataset, collate function and worker_init_fn run unchanged inside it.
"""

from __future__ import annotations

import functools
import multiprocessing.queues
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from pipefix.measurement import failing
from pipefix.measurement.bench import Bench
from pipefix.measurement.failing import EmptyStream, Failure
from pipefix.measurement.stand_in_options import Delivered, StandInOptions


class StandInDataset(Dataset["Delivered | Failure"]):
    """Map-style: asked for a whole order of indices at a time."""

    places_batches = False

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        switch: torch.Tensor,
        options: StandInOptions,
        kind: str,
        *,
        whole_batches: bool = False,
    ) -> None:
        self.dataset = dataset
        self.collate = collate
        self.switch = switch
        self.options = options
        self.kind = kind
        self.whole_batches = whole_batches
        self.batch_size: int | None = None

    def __getitem__(self, order: Any) -> Delivered | Failure:
        if _failed_to_begin:
            return _failed_to_begin[0]
        return _bench(self).attempt(order)


class Deferred(StandInDataset):
    """Gives what makes the batch, for loaders that collate in a place of their own: it is called there."""

    places_batches = True

    def __getitem__(self, order: Any) -> Any:
        return functools.partial(super().__getitem__, order)


class StreamStandIn(IterableDataset["Delivered | Failure"]):
    """Iterable: yields whole batches of ``batch_size`` samples, for ever."""

    places_batches = False
    whole_batches = False

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        switch: torch.Tensor,
        options: StandInOptions,
        batch_size: int | None,
        drop_last: bool,
    ) -> None:
        self.dataset = dataset
        self.collate = collate
        self.switch = switch
        self.options = options
        self.kind = "stream"
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[Delivered | Failure]:
        if _failed_to_begin:
            yield _failed_to_begin[0]
            return
        bench = _bench(self)
        while True:
            try:
                made = bench.attempt(self.batch_size)
            except EmptyStream:
                if bench.drawn:
                    yield failing.stream_spent(bench.drawn)
                return  # with nothing at all, this worker has no part of the stream: the others go on
            yield made
            if isinstance(made, Failure):
                return


class WorkerInit:
    """Runs the user's worker_init_fn with the user's dataset in its place."""

    def __init__(self, inner: Callable[[int], None] | None) -> None:
        self.inner = inner

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        multiprocessing.queues.Queue._on_queue_feeder_error = _unsendable  # type: ignore[attr-defined]
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _hear_once)
        if info is not None:
            sys.excepthook = _unless_left(sys.excepthook)
            # Frozen for users: worker_init_fn and __iter__ look for their own dataset there.
            object.__setattr__(info, "dataset", info.dataset.dataset)  # type: ignore[attr-defined]
        if self.inner is not None:
            try:
                self.inner(worker)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - told with the first batch that is asked for
                _failed_to_begin.append(failing.of_beginning(error))


def _unsendable(queue: Any, error: Exception, sent: Any) -> None:
    """A batch that cannot be pickled is lost in the worker's feeder thread, and the training process would wait for it for ever."""
    number, batch = sent
    if isinstance(batch, Failure):
        traceback.print_exception(error)
    else:
        queue.put((number, failing.of_handover(error)))


def _unless_left(shown: Callable[..., object]) -> Callable[..., object]:
    """The thread that hands a worker's tensors out shows an error where the training process was interrupted and has left it alone:
    nobody waits for those tensors, and the interruption is told already."""

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not issubclass(kind, (ConnectionError, EOFError)) or threading.current_thread() is threading.main_thread():
            shown(kind, error, trace)

    return show


def _hear_once(*_: object) -> None:
    """A terminal's Ctrl-C reaches the workers as well. A second one, from us, must not disturb one that is leaving already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = _unless_interrupted(sys.unraisablehook)
    raise KeyboardInterrupt


def _unless_interrupted(shown: Callable[[Any], object]) -> Callable[[Any], object]:
    """An interrupt that falls into a finaliser is lost there, and Python would tell of it; the worker is ended otherwise then."""

    def show(lost: Any) -> None:
        if lost.exc_type is not KeyboardInterrupt:
            shown(lost)

    return show


_failed_to_begin: list[Failure] = []
"""In a worker whose worker_init_fn raised: what to say in place of its first batch."""
_benches: dict[tuple[int, int], Bench] = {}


def _bench(stand_in: StandInDataset | StreamStandIn) -> Bench:
    key = (os.getpid(), id(stand_in))
    if key not in _benches:
        for other in [other for other in _benches if other[0] != key[0]]:
            _benches.pop(other).close()  # a forked copy of the training process's own: its clocks have no place here
        _benches[key] = Bench(stand_in)
    return _benches[key]


def close_benches() -> None:
    """Put back everything that was patched in this process."""
    for key in [key for key in _benches if key[0] == os.getpid()]:
        _benches.pop(key).close()
