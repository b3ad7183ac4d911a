"""A loader like another, with a plan in place: what `fix` and `tune` measure a plan by."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from pipefix.loader import packed, planned
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.worker_settings import CappedThreads, SharedBy
from pipefix.plan.planfile import LoaderChange, PlanFile


def loader(theirs: DataLoader[Any], plan: PlanFile, folder: Path) -> DataLoader[Any]:
    """A loader with the plan in place: the same samplers, the same collate function, the same batches."""
    given: dict[str, Any] = {
        "num_workers": theirs.num_workers,
        "collate_fn": theirs.collate_fn,
        "pin_memory": theirs.pin_memory,
        "timeout": theirs.timeout,
        "worker_init_fn": theirs.worker_init_fn,
        "multiprocessing_context": theirs.multiprocessing_context,
        "generator": theirs.generator,
        "prefetch_factor": theirs.prefetch_factor,
        "persistent_workers": theirs.persistent_workers,
        "in_order": theirs.in_order,
    }
    if isinstance(theirs.dataset, IterableDataset):
        given |= {"batch_size": theirs.batch_size, "drop_last": theirs.drop_last}
    elif theirs.batch_size is None and theirs.batch_sampler is not None:
        given["batch_sampler"] = theirs.batch_sampler
    else:
        given |= {"batch_size": theirs.batch_size, "drop_last": theirs.drop_last, "sampler": theirs.sampler}
    reads = planned.dataset(theirs.dataset, plan, folder)
    change = plan.loader or LoaderChange()
    # Threads that make fused calls need neither, and a worker_init_fn would have workers make them.
    wraps = change.fuse is None or theirs.worker_init_fn is not None
    if change.worker_threads is not None and wraps:
        given["worker_init_fn"] = CappedThreads(change.worker_threads, given["worker_init_fn"])
    if change.sharing is not None and wraps:
        given["worker_init_fn"] = SharedBy(change.sharing, given["worker_init_fn"])
    made = planned.arguments(plan.loader, given)
    if made.get("multiprocessing_context") == "forkserver":
        packed.preload(reads, theirs.collate_fn)
    return _kind(theirs, change)(reads, **made)


def _kind(theirs: DataLoader[Any], change: LoaderChange) -> Callable[..., DataLoader[Any]]:
    """What the plan's loader is made by: as the plan says, or as ``theirs`` was told to hand batches over."""
    if change.fuse is not None:
        theirs_is = theirs.engine if isinstance(theirs, FastLoader) else "auto"
        return functools.partial(FastLoader, fuse=change.fuse, engine=change.engine or theirs_is)
    if change.engine is None:
        return getattr(theirs, "another", DataLoader)
    return DataLoader if change.engine == "torch" else functools.partial(FastLoader, engine=change.engine)
