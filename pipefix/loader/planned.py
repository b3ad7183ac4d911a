"""What a plan file changes of a loader: its settings, where samples are read from, and what is done to batches.

The plan has the last word over the arguments in the code; what it does not name stays as the code has it. The dataset that the
loader was given stays its ``dataset``, so that samplers and frameworks see what they know; what is read instead is told here.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from pipefix.caches.dataset import CachedDataset
from pipefix.loader.limits import cores
from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, LoaderChange, PlanFile, TunedOn
from pipefix.vocabulary.errors import BadUsage

OF_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")
"""Arguments that mean nothing without workers, and that torch refuses then."""


class Planned:
    """One plan, for one loader."""

    def __init__(self, plan: PlanFile, path: Path, dataset: Any) -> None:
        self.plan, self.path = plan, path
        self.reads = self._cache(dataset)
        """What samples are read from."""
        self.module: Any = None
        """What is done to batches; made when the first is asked for."""
        self._swapped = plan.augmentation is None

    @property
    def threads(self) -> int | None:
        return self.plan.loader.worker_threads if self.plan.loader is not None else None

    @property
    def engine(self) -> str | None:
        return self.plan.loader.engine if self.plan.loader is not None else None

    @property
    def sharing(self) -> str | None:
        return self.plan.loader.sharing if self.plan.loader is not None else None

    def _cache(self, dataset: Any) -> Any:
        cache = self.plan.cache
        if cache is None:
            return dataset
        folder = self.path.parent / cache.path
        if isinstance(dataset, IterableDataset):
            raise BadUsage(
                f"{self.path} names the cache {folder}, whose samples are asked for by number, and the dataset is a stream.",
                advice="Give FastLoader the cache itself, pipefix.CachedDataset(path), or take [cache] out of the plan.",
            )
        opened = CachedDataset(folder, dataset=dataset)
        if len(opened) != len(dataset):
            raise BadUsage(
                f"The cache {folder} that {self.path} names has {len(opened)} records, and the dataset {len(dataset)} samples.",
                advice="Bring it up to date with: pipefix convert TARGET --update; or take [cache] out of the plan.",
            )
        return opened

    def begin(self) -> None:
        """Before the first batch: what is costly to make."""
        if self._swapped:
            return
        self._swapped = True
        assert self.plan.augmentation is not None
        self._swap(self.plan.augmentation)

    def _swap(self, change: AugmentationChange) -> None:
        from pipefix.augment.split import split
        from pipefix.augment.swap import Swap, find
        from pipefix.augment.translate import translate

        place = find(self.reads)
        if change.backend == "dali":
            self._warn(
                "it moves augmentation to DALI, which has a loader of its own; here it stays in the dataset. See: pipefix swap"
            )
            return
        if place is None:
            self._warn("it moves augmentation, and the dataset keeps its transforms under none of the usual names (transform, …)")
            return
        cut = split(translate(place.transform), change.backend)
        moving = [type(op).__name__ for op in cut.ops]
        if change.operations and moving != change.operations:
            self._warn(
                f"it moves {', '.join(change.operations)}, and of the dataset as it is now {', '.join(moving) or 'nothing'} can be"
            )
        if not moving:
            return
        swap = Swap(cut, place)
        self.reads, self.module = swap.dataset(self.reads), swap.module()

    def _warn(self, what: str) -> None:
        warnings.warn(f"{self.path}: {what}.", RuntimeWarning, stacklevel=2)

    def explain(self) -> str:
        told = []
        if self.plan.cache is not None:
            told.append(f"samples are read from {self.path.parent / self.plan.cache.path}")
        if self.module is not None:
            told.append(f"{', '.join(type(op).__name__ for op in self.module.ops)} are done to whole batches")
        return f"By the plan {self.path}" + (f": {'; '.join(told)}." if told else ".")


def read(path: str | os.PathLike[str], dataset: Any) -> Planned:
    """Open a plan for a dataset. Says so where it was made for another machine."""
    where = Path(path)
    plan = planfile.read(where)
    if plan.machine is not None:
        unlike = plan.machine.differences(_here(plan.machine))
        if unlike:
            target = plan.target or "TARGET"
            warnings.warn(
                f"{where} was made for another machine: {'; '.join(unlike)}. Tune it for this one with: pipefix tune {target}",
                RuntimeWarning,
                stacklevel=3,
            )
    return Planned(plan, where, dataset)


def _here(asked: TunedOn) -> TunedOn:
    import psutil

    return TunedOn(
        cores=max(cores(), 0.01),
        gpus=_gpus(),
        memory_bytes=int(psutil.virtual_memory().total) if asked.memory_bytes else None,
    )


def _gpus() -> list[str]:
    """Their names as the driver has them; none where there is no driver. Nothing is begun on a device."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    names = []
    with contextlib.suppress(pynvml.NVMLError):
        for number in range(pynvml.nvmlDeviceGetCount()):
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(number))
            names.append(name.decode() if isinstance(name, bytes) else str(name))
    return names


def applied(change: LoaderChange | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """A loader's arguments with the plan's in their place."""
    if change is None:
        return arguments
    named = {
        "num_workers": change.num_workers,
        "prefetch_factor": change.prefetch_factor,
        "pin_memory": change.pin_memory,
        "persistent_workers": change.persistent_workers,
        "multiprocessing_context": change.start_method,
        "in_order": change.in_order,
    }
    changed = {**arguments, **{name: value for name, value in named.items() if value is not None}}
    if not changed.get("num_workers"):
        for name in (*OF_WORKERS, "timeout"):
            changed.pop(name, None)
    return changed
