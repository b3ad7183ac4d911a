"""A loader like another, with a plan or other settings in place: what `fix` and `tune` measure these by."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from pipefix.hooks.torch_internals import loader_arguments
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.planning import planned
from pipefix.loader.workers import dataset_once
from pipefix.loader.workers.start import CappedThreads
from pipefix.plan.planfile import NAME, LoaderChange, PlanFile


def loader(theirs: DataLoader[Any], plan: PlanFile, folder: Path) -> DataLoader[Any]:
    """A loader with the plan in place: the same samplers, the same collate function, the same batches."""
    reads, change = planned.dataset(theirs.dataset, plan, folder), plan.loader or LoaderChange()
    collate_fn = planned.collated(theirs.collate_fn, plan)
    made = _like(theirs, reads, change, collate_fn=collate_fn, whole=planned.by_dali(plan))
    if isinstance(made, FastLoader) and planned.by_dali(plan):
        made._planned = planned.Planned(plan, folder / NAME, theirs.dataset)
    return made


def with_settings(theirs: DataLoader[Any], *, batch_size: int | None = None, **settings: Any) -> DataLoader[Any]:
    """A loader like another with other settings, called as a plan calls them; what is None stays as it is."""
    return _like(theirs, theirs.dataset, LoaderChange(**settings), batch_size)


def _like(
    theirs: DataLoader[Any], reads: Any, change: LoaderChange, batch_size: int | None = None, *, collate_fn: Any = None,
    whole: bool = False,
) -> DataLoader[Any]:  # fmt: skip
    """``whole``: a `FastLoader`, whose plan has batches made whole. ``collate_fn``: in place of theirs."""
    given = loader_arguments(theirs, batch_size=batch_size)
    if collate_fn is not None:
        given["collate_fn"] = collate_fn
    # Threads that make fused calls need neither, and a worker_init_fn would have workers make them.
    wraps = change.fuse is None or theirs.worker_init_fn is not None
    if change.worker_threads is not None and wraps:
        given["worker_init_fn"] = CappedThreads(change.worker_threads, given["worker_init_fn"])
    made = planned.arguments(change, given)
    if made.get("multiprocessing_context") == "forkserver":
        dataset_once.preload(reads, theirs.collate_fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores: what that brings is about to be measured
        return FastLoader(reads, **made) if whole else _kind(theirs, change)(reads, **made)


def _kind(theirs: DataLoader[Any], change: LoaderChange) -> Callable[..., DataLoader[Any]]:
    """What the plan's loader is made by: as the plan says, or as ``theirs`` was told to hand batches over."""
    if change.fuse is not None:
        theirs_is = theirs.engine if isinstance(theirs, FastLoader) else "auto"
        return functools.partial(FastLoader, fuse=change.fuse, engine=change.engine or theirs_is)
    if change.engine is None:
        return getattr(theirs, "another", DataLoader)
    return DataLoader if change.engine == "torch" else functools.partial(FastLoader, engine=change.engine)
