"""Whether threads of this process may make a loader's samples: what has to be so, and what is told where it is not.

That a dataset may be called from several threads at once cannot be seen from outside: whoever asks for threads says it. What can be
seen is whether samples draw random numbers. Generators are the process's, so that samples which share them would differ from run to
run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe, default_collate, default_convert

from pipefix.caches.dataset import CachedDataset
from pipefix.loader.metering.stage_clock import StageClock
from pipefix.loader.policy.read_policy import Outcome, PolicedDataset, ReadPolicy
from pipefix.loader.resume import length
from pipefix.loader.slots.portable import Portable
from pipefix.loader.threads.draws import tried
from pipefix.loader.workers.settings import CappedThreads
from pipefix.vocabulary.attributes import own

STREAM = "the dataset is a stream, or made of data pipes: its samples are not asked for by index"
ENOUGH = 2
"""Samples that are made alone before threads make any."""


class Threadable:
    """A loader's ``engine="threads"``, or ``"subprocess"``. What samples showed is kept as long as dataset and collate function are
    the same."""

    def __init__(self) -> None:
        self._known: tuple[Any, Any, str | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": None}

    def why_not(self, loader: Any, reads: Any) -> str | None:
        """Why threads do not make the samples of the next epoch; None: they do."""
        why = _unfit(loader, reads, apart=loader._engine == "subprocess")
        if why is not None:
            return why
        if self._known is None or self._known[0] is not reads or self._known[1] is not loader.collate_fn:
            self._known = reads, loader.collate_fn, _seen(loader, reads)
        return self._known[2]


def users_init(loader: Any) -> Any:
    """The user's own ``worker_init_fn``, without what is put around it here."""
    init = loader.worker_init_fn
    while isinstance(init, (StageClock, CappedThreads)):
        init = init.users if isinstance(init, StageClock) else init.then
    return init


def _unfit(loader: Any, reads: Any, *, apart: bool) -> str | None:
    """``apart``: threads of a worker process."""
    if isinstance(loader.dataset, (IterableDataset, IterDataPipe, MapDataPipe)):
        return STREAM
    if users_init(loader) is not None and not apart:
        return "worker_init_fn is called in worker processes"
    if loader.sample_timeout:
        return "sample_timeout interrupts worker processes"
    if loader.multiprocessing_context is not None and not apart:
        return "multiprocessing_context chooses how worker processes are started"
    if any(isinstance(one, CachedDataset) for one in _wrapped(reads)):
        return "CachedDataset reads for one thread of a process"
    return None


def _wrapped(dataset: Any) -> Iterator[Any]:
    """A dataset, and those that it is made of."""
    todo = [dataset]
    for _ in range(64):
        if not todo:
            return
        one = todo.pop()
        yield one
        inner, several = own(one, "dataset"), own(one, "datasets")
        todo += [] if inner is None else [inner]
        todo += several if isinstance(several, (list, tuple)) else []


def _seen(loader: Any, reads: Any) -> str | None:
    """What is wrong with a few samples and their batch, made alone. Errors are raised where the sample is asked for."""
    known = length(loader)
    if known == 0:
        return None
    one = partial(PolicedDataset(reads, ReadPolicy()).one, 0)
    good: list[Any] = []
    error: Exception | None = None
    last = (known or 2) - 1
    for index in dict.fromkeys((0, last, last // 2, min(1, last))):
        made, drew = tried(partial(Outcome.of, one, index), *_wrapped(reads))
        if drew:
            return "samples draw random numbers, which threads would share"
        error = error or made.error
        if made.error is None:
            good.append(made.sample)
        if len(good) == ENOUGH:
            break
    if not good:
        return f"no sample could be made alone, to see whether it draws random numbers ({type(error).__name__}: {error})"
    collate = loader.collate_fn.collate_fn if isinstance(loader.collate_fn, Portable) else loader.collate_fn
    together = good if loader.batch_sampler is not None else good[0]
    known = collate is default_collate or collate is default_convert
    if not known and tried(partial(Outcome.of, collate, together), collate)[1]:
        return "collate_fn draws random numbers, which threads would share"
    return None
