"""Puts a plan in place: the dataset that reads its cache, the module for whole batches, and the loader's arguments.

The plan has the last word over the arguments in the code; what it does not name stays as the code has it. It names files relative
to itself, so everything here is told the folder that it lies in.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch.utils.data import IterableDataset

from pipefix.caches import cut as cuts
from pipefix.caches.dataset import CachedDataset
from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, CacheChange, LoaderChange, PlanFile, TunedOn
from pipefix.system.machine import gpus_here
from pipefix.system.resources import cores
from pipefix.vocabulary.commands import command, on_target
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.versioned import short

if TYPE_CHECKING:
    from pipefix.augment.module import Augment
    from pipefix.augment.swap import Swap

OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
"""Arguments that mean nothing without workers, and that torch refuses then."""
_AS_THEY_ARE = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order")


# -- the dataset -----------------------------------------------------------------------------------------------------------


def dataset(original: Any, plan: PlanFile, folder: Path) -> Any:
    """``original`` as the plan has it: reading from the cache, without the operations that move to the batch."""
    if plan.augmentation is None or by_dali(plan):
        return original if plan.cache is None else cached(original, plan.cache, folder)
    return moved(original, plan, folder)[0]


def by_dali(plan: PlanFile) -> bool:
    """Whether DALI makes batches whole, from the dataset's files."""
    return plan.augmentation is not None and plan.augmentation.backend == "dali"


def module(original: Any, plan: PlanFile, folder: Path) -> Augment | None:
    """What is done to whole batches on their device: ``batch = module(batch)``; None where nothing moves, or DALI does it."""
    return None if plan.augmentation is None or by_dali(plan) else moved(original, plan, folder)[1]


def moved(original: Any, plan: PlanFile, folder: Path) -> tuple[Any, Augment]:
    """The dataset without the operations that move, and the module that does them. A cache of sources lies below all of them."""
    assert plan.augmentation is not None
    whole = before_moving(original, plan, folder)
    swap = swap_of(whole, plan.augmentation)
    reads = swap.dataset(whole)
    if plan.cache is not None and plan.cache.store == "source":
        reads = cached(reads, plan.cache, folder)
    return reads, swap.module()


def collated(collate_fn: Any, plan: PlanFile) -> Any:
    """The collate function for the plan's samples, which come with the calls recorded of them where augmentation moves."""
    if plan.augmentation is None or by_dali(plan):
        return collate_fn
    from pipefix.augment.swap import with_calls_apart

    return with_calls_apart(collate_fn)


def before_moving(original: Any, plan: PlanFile, folder: Path) -> Any:
    """The dataset whose transforms are cut where augmentation moves: behind a cache of samples, those that still run live."""
    if plan.cache is None or plan.cache.store == "source":
        return original
    from_cache = cached(original, plan.cache, folder)
    if isinstance(from_cache.transform, cuts.Chain):
        from torchvision.transforms import v2

        from_cache.transform = v2.Compose(from_cache.transform.operations)
    return from_cache


def cached(original: Any, change: CacheChange, folder: Path) -> CachedDataset:
    """``original``, read from the plan's cache."""
    place = folder / change.path
    if isinstance(original, IterableDataset):
        raise BadUsage(
            f"The plan names the cache {place}, whose samples are asked for by number, and the dataset is a stream.",
            advice="Give the loader the cache itself, pipefix.CachedDataset(path), or take [cache] out of the plan.",
        )
    if not os.path.lexists(place):
        anew = f"Make it anew, {command('pipefix', 'fix', 'TARGET', '--out', folder)}, with plan= left out of the code meanwhile"
        raise UnreadableFile(
            f"The plan names the cache {place}, and there is none.",
            advice=f"{anew if change.is_of_fix else 'Bring it back there'}, or take [cache] out of the plan.",
        )
    try:
        opened = CachedDataset(place, dataset=original)
    except BadUsage as error:  # the dataset is another one now
        if change.is_of_fix:
            back = command("pipefix", "fix", "--undo", "--out", folder)
            error.advise(f"Take the step back, {back}, and have it made anew: pipefix fix TARGET; or take [cache] out of the plan.")
        raise
    if opened.manifest.recipe.store != change.store:
        raise BadUsage(
            f"The plan calls the cache {place} one of store {change.store!r}, and it is one of {opened.manifest.recipe.store!r}.",
            advice=f'Say so in the plan: store = "{opened.manifest.recipe.store}"',
        )
    if hasattr(type(original), "__len__") and len(opened) != len(original):
        mend = "Mend the damaged samples that it leaves out. " if opened.manifest.bad else ""
        raise BadUsage(
            f"The cache {place} that the plan names has {counted(len(opened), 'record')}, and the dataset "
            f"{counted(len(original), 'sample')}.",
            advice=f"{mend}Bring it up to date with: {opened.manifest.update(place)}; or take [cache] out of the plan.",
        )
    return opened


def swap_of(original: Any, change: AugmentationChange) -> Swap:
    """The dataset's transforms cut in two, where the plan's operations are what can move; without any named, whatever can."""
    from pipefix.augment import support
    from pipefix.augment.split import split
    from pipefix.augment.swap import Swap
    from pipefix.augment.transforms import find

    support.check(change.backend)
    place = find(original)
    cut = split(place.value if place is not None else None, change.backend)
    moving = cut.names
    if place is None or not moving or moving != (change.operations or moving):
        raise BadUsage(
            f"The plan moves {', '.join(change.operations) or 'augmentation'} to the batch, and of this dataset's transforms "
            f"{', '.join(moving) or 'none'} can be moved.",
            advice="Take [augmentation] out of the plan, or make a new plan: pipefix fix TARGET",
        )
    return Swap(cut, place)


# -- the loader ------------------------------------------------------------------------------------------------------------


def arguments(change: LoaderChange, own: Mapping[str, Any]) -> dict[str, Any]:
    """A loader's keyword arguments with the plan's in place."""
    named = {name: getattr(change, name) for name in _AS_THEY_ARE} | {"multiprocessing_context": change.start_method}
    changed = {**own, **{name: value for name, value in named.items() if value is not None}}
    if not changed.get("num_workers"):
        changed = {name: value for name, value in changed.items() if name not in OF_WORKERS}
    return changed


class Planned:
    """One plan, or none, for one `FastLoader`. The dataset that it was given stays its ``dataset``, so that samplers and frameworks
    see what they know; what is read instead is told here."""

    def __init__(self, plan: PlanFile | None = None, path: Path | None = None, original: Any = None) -> None:
        self.plan, self.path, self._is_one = plan or PlanFile(), path or Path(), plan is not None
        self.settings = self.plan.loader or LoaderChange()
        self.given = original
        """The dataset as the code has it."""
        self.folder = self.path.parent.absolute()
        """Also where the program has changed its directory when the first batch is asked for."""
        self.reads = original if self.plan.cache is None else cached(original, self.plan.cache, self.folder)
        """What samples are read from; None: the loader's dataset."""
        self.module: Any = None
        """What is done to batches; made when the first is asked for."""
        self._moved = self.plan.augmentation is None or by_dali(self.plan)
        self.whole: Any = None
        """What makes batches whole, from the dataset's files; None where its own code makes samples."""
        self.whole_asked = not by_dali(self.plan)
        self._warned = False

    def begin(self) -> None:
        """Before the first batch: what is costly to make. What cannot move stays in the dataset, with a warning."""
        if self._moved:
            return
        try:
            self.reads, self.module = moved(self.given, self.plan, self.folder)
        except BadUsage as error:
            warnings.warn(f"{self.path}: {error} It stays in the dataset. {error.advice}", RuntimeWarning, stacklevel=2)
        self._moved = True

    def __getstate__(self) -> dict[str, Any]:
        """DALI's pipeline stays in its process."""
        return {**self.__dict__, "whole": None, "whole_asked": not by_dali(self.plan)}

    def warn_of_cpu(self, carrier: Any) -> None:
        """Said once, where a device is in use: augmentation was moved for it, and batches do not go there."""
        if self._warned or self.module is None or carrier is not None or not torch.cuda.is_initialized():
            return
        self._warned = True
        warnings.warn(f"{self.path}: {self._where(carrier)}", RuntimeWarning, stacklevel=4)

    def _where(self, carrier: Any) -> str:
        if carrier is not None and not carrier.why:
            return f"on {carrier.device}"
        needed = "" if carrier is not None else ' (FastLoader(..., device="cuda") has the device do it)'
        return f"augmentation that was moved runs on the CPU, in this process{needed}"

    def explain(self, carrier: Any = None) -> str:
        """``carrier``: brings batches to a device; None: they stay where they are."""
        if not self._is_one:
            return ""
        changes = []
        if self.plan.cache is not None:
            changes.append(f"samples are read from {self.path.parent / self.plan.cache.path}")
        if self.module is not None:
            changes.append(f"{', '.join(self.module.operations)} are done to whole batches: {self._where(carrier)}")
        if self.whole is not None:
            changes.append(self.whole.explain())
        return f"By the plan {self.path}" + (f": {'; '.join(changes)}." if changes else ".")


def read(path: str | os.PathLike[str], original: Any) -> Planned:
    """Open a plan for a dataset. Says so where it was made for another machine."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"plan option should be the path of one plan file, but got plan={short(path)}")
    where = Path(path)
    plan = planfile.read(where)
    if plan.machine is not None:
        memory = int(psutil.virtual_memory().total) if plan.machine.memory_bytes else None
        here = TunedOn(cores=max(cores(), 0.01), gpus=[gpu.name for gpu in gpus_here()[0]], memory_bytes=memory)
        unlike = plan.machine.differences(here)
        if unlike:
            tune = on_target("tune", plan.target or "TARGET")
            told = f"{where} was made for another machine: {'; '.join(unlike)}. Tune it for this one with: {tune}"
            warnings.warn(told, RuntimeWarning, stacklevel=3)
    return Planned(plan, where, original)
