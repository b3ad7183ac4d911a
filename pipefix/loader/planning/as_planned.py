"""Makes a loader like another with a plan or other settings: what `fix` and `tune` measure."""

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
from pipefix.loader.workers.start import FirstInWorker, cap_threads
from pipefix.plan.planfile import NAME, LoaderChange, PlanFile

_HOW_SAMPLES_ARE_READ = ("on_bad", "sample_timeout", "rng", "threads_per_worker", "fuse")
"""Options of a `FastLoader` that one like it has, too. What it does to batches afterwards belongs to their consumer."""


def loader(original: DataLoader[Any], plan: PlanFile, folder: Path) -> DataLoader[Any]:
    """A loader with the plan in place: the same samplers, the same collate function, the same batches."""
    reads, change = planned.dataset(original.dataset, plan, folder), plan.loader or LoaderChange()
    collate_fn = planned.collated(original.collate_fn, plan)
    planned_loader = _like(original, reads, change, collate_fn=collate_fn, whole=planned.by_dali(plan))
    if isinstance(planned_loader, FastLoader) and planned.by_dali(plan):
        planned_loader._planned = planned.Planned(plan, folder / NAME, original.dataset)
    elif isinstance(planned_loader, FastLoader) and plan.augmentation is not None:
        planned_loader.fuse = None  # as one that is given the plan fuses nothing
    return planned_loader


def with_settings(original: DataLoader[Any], *, batch_size: int | None = None, **settings: Any) -> DataLoader[Any]:
    """A loader like another with other settings, called as a plan calls them; what is None stays as it is."""
    return _like(original, original.dataset, LoaderChange(**settings), batch_size)


def _like(
    original: DataLoader[Any], reads: Any, change: LoaderChange, batch_size: int | None = None, *, collate_fn: Any = None,
    whole: bool = False,
) -> DataLoader[Any]:  # fmt: skip
    """As the plan says, or as ``original`` was told to make batches and hand them over. ``whole``: a `FastLoader`, whose plan has
    batches made whole. ``collate_fn``: in place of the original's."""
    arguments = loader_arguments(original, batch_size=batch_size)
    if collate_fn is not None:
        arguments["collate_fn"] = collate_fn
    own: dict[str, Any] = {}
    fuse, threads = change.fuse, change.worker_threads
    if isinstance(original, FastLoader):
        own, followed = {name: getattr(original, name) for name in _HOW_SAMPLES_ARE_READ}, original._planned.settings
        fuse, threads = fuse or followed.fuse, followed.worker_threads if threads is None else threads
    if fuse is not None:
        own["fuse"] = fuse
    engine = change.engine or getattr(original, "_engine", None)  # as its own plan has it, or the code
    kind: Callable[..., DataLoader[Any]] = DataLoader
    if own or whole:
        kind = functools.partial(FastLoader, **own, engine=engine or "auto", quarantine=None, max_bad=1.0)
    elif engine not in (None, "torch"):
        kind = functools.partial(FastLoader, engine=engine)
    # Threads that make fused calls need neither, and a worker_init_fn would have workers make them.
    wraps = own.get("fuse") is None or original.worker_init_fn is not None
    if threads is not None and wraps:
        first = functools.partial(cap_threads, threads)
        arguments["worker_init_fn"] = FirstInWorker(first, arguments["worker_init_fn"])
    planned_arguments = planned.arguments(change, arguments)
    if planned_arguments.get("multiprocessing_context") == "forkserver":
        dataset_once.preload(reads, original.collate_fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores: what that brings is about to be measured
        return kind(reads, **planned_arguments)
