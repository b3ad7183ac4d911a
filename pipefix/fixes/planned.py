"""A plan put in place: the dataset that reads from its cache, the loader's arguments, and the module that batches go through.

A plan names files relative to itself, so everything here is told the folder that it lies in.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from pipefix.caches import cut as cuts
from pipefix.caches.dataset import CachedDataset
from pipefix.loader.fast_loader import FastLoader
from pipefix.plan.planfile import AugmentationChange, CacheChange, LoaderChange, PlanFile
from pipefix.vocabulary.errors import BadUsage

if TYPE_CHECKING:
    from pipefix.augment.augment import Augment
    from pipefix.augment.swap import Swap

PRELOADED = ("torch", "torchvision")
"""What a fork server imports before it forks workers."""
_AS_THEY_ARE = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")
_WORKERS_ONLY = ("prefetch_factor", "persistent_workers", "multiprocessing_context")
"""Arguments that torch refuses, or warns of, where there are no workers."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


# -- the dataset -----------------------------------------------------------------------------------------------------------


def dataset(given: Any, plan: PlanFile, folder: Path) -> Any:
    """``given`` as the plan has it: reading from the cache, without the operations that move to the batch."""
    if plan.augmentation is None:
        return given if plan.cache is None else _cached(given, plan.cache, folder)
    whole = before_moving(given, plan, folder)
    moved = swap_of(whole, plan.augmentation).dataset(whole)
    return _cached(moved, plan.cache, folder) if plan.cache is not None and plan.cache.store == "source" else moved


def before_moving(given: Any, plan: PlanFile, folder: Path) -> Any:
    """The dataset whose transforms are cut where augmentation moves: behind a cache of samples, those that still run live."""
    if plan.cache is None or plan.cache.store == "source":
        return given
    made = _cached(given, plan.cache, folder)
    if isinstance(made.transform, cuts.Chain):
        from torchvision.transforms import v2

        made.transform = v2.Compose(made.transform.operations)
    return made


def _cached(given: Any, change: CacheChange, folder: Path) -> CachedDataset:
    if isinstance(given, IterableDataset):
        raise BadUsage(
            "The plan names a cache, and the dataset is a stream, which has no index to look records up by.",
            advice="Take [cache] out of the plan.",
        )
    return CachedDataset(folder / change.path, dataset=given)


def swap_of(given: Any, change: AugmentationChange) -> Swap:
    """The dataset's transforms cut in two, where the plan's operations are what can move."""
    from pipefix.augment.split import split
    from pipefix.augment.swap import Swap, find
    from pipefix.augment.translate import translate

    if change.backend != "kornia":
        raise BadUsage(
            f"The plan moves augmentation to {change.backend}, which makes a loader of its own.",
            advice="Use what this writes: pipefix swap TARGET --to dali --write augment.py",
        )
    place = find(given)
    cut = split(translate(place.transform if place is not None else None), change.backend)
    moving = [type(op).__name__ for op in cut.ops]
    if place is None or not moving or moving != change.operations:
        raise BadUsage(
            f"The plan moves {', '.join(change.operations) or 'nothing'} to the batch, and of this dataset's transforms "
            f"{', '.join(moving) or 'none'} can be moved.",
            advice="Take [augmentation] out of the plan, or make a new plan: pipefix fix TARGET",
        )
    return Swap(cut, place)


def module(given: Any, plan: PlanFile, folder: Path) -> Augment | None:
    """What is done to whole batches on their device: ``batch = module(batch)``; None where nothing moves."""
    if plan.augmentation is None:
        return None
    return swap_of(before_moving(given, plan, folder), plan.augmentation).module()


# -- the loader ------------------------------------------------------------------------------------------------------------


class CappedThreads:
    """A ``worker_init_fn`` that limits the threads of native libraries, and then does what the user's own does."""

    def __init__(self, threads: int, then: Callable[[int], object] | None = None) -> None:
        self.threads, self.then = threads, then

    def __call__(self, worker: int) -> None:
        cap_threads(self.threads)
        if self.then is not None:
            self.then(worker)


class SharedBy:
    """A ``worker_init_fn`` that sets how the worker shares the memory of its tensors, and then does what the user's own does."""

    def __init__(self, strategy: str, then: Callable[[int], object] | None = None) -> None:
        self.strategy, self.then = strategy, then

    def __call__(self, worker: int) -> None:
        torch.multiprocessing.set_sharing_strategy(self.strategy)
        if self.then is not None:
            self.then(worker)


def cap_threads(threads: int) -> None:
    """In this process, for libraries that are loaded and for those that will be. 0 is none beside the caller, for OpenCV."""
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(max(1, threads))
    torch.set_num_threads(max(1, threads))
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0 if threads <= 1 else threads)
    try:
        import threadpoolctl  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return  # what is loaded already keeps its threads; most libraries are asked above
    threadpoolctl.threadpool_limits(max(1, threads))


def arguments(change: LoaderChange | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """A loader's keyword arguments with the plan's in place; what the plan does not say stays as it was given."""
    changed = dict(given)
    if change is not None:
        changed |= {name: getattr(change, name) for name in _AS_THEY_ARE if getattr(change, name) is not None}
        if change.start_method is not None:
            changed["multiprocessing_context"] = _context(change.start_method)
        if change.worker_threads is not None:
            changed["worker_init_fn"] = CappedThreads(change.worker_threads, changed.get("worker_init_fn"))
        if change.sharing is not None:
            changed["worker_init_fn"] = SharedBy(change.sharing, changed.get("worker_init_fn"))
    if not changed.get("num_workers"):
        changed = {name: value for name, value in changed.items() if name not in _WORKERS_ONLY} | {"timeout": 0}
    return changed


def _context(method: str) -> Any:
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(list(PRELOADED))
    return context


def loader(theirs: DataLoader[Any], plan: PlanFile, folder: Path) -> DataLoader[Any]:
    """Another loader with the plan in place: the same samplers, the same collate function, the same batches."""
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
    make: Callable[..., DataLoader[Any]] = getattr(theirs, "another", DataLoader)
    if plan.loader is not None and plan.loader.engine is not None:
        make = DataLoader if plan.loader.engine == "torch" else functools.partial(FastLoader, engine=plan.loader.engine)
    return make(dataset(theirs.dataset, plan, folder), **arguments(plan.loader, given))
