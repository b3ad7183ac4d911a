"""Whole batches made by DALI where a plan says so: from the dataset's files, in the order of the loader's own samplers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import default_collate

from pipefix.loader.plain_epoch import PlainEpoch
from pipefix.loader.planning import planned
from pipefix.plan.planfile import PlanFile
from pipefix.vocabulary.errors import BadUsage, PipefixError

ADVICE = "Take [augmentation] out of the plan, or make a new plan: pipefix fix TARGET"


def of(plan: planned.Planned, loader: Any) -> DaliBatches | None:
    """What makes the loader's batches; None where the plan has nothing of it, or it cannot be had, which is warned of once."""
    if not plan.whole_asked:
        try:
            plan.whole = DaliBatches(loader, plan.given, plan.plan)
        except PipefixError as error:
            warnings.warn(f"{plan.path}: {error} The dataset makes the samples. {error.advice}", RuntimeWarning, stacklevel=4)
        plan.whole_asked = True
    batches: DaliBatches | None = plan.whole
    return batches


class DaliBatches:
    """One pipeline of DALI for all epochs of a loader. Raises where DALI cannot make its batches."""

    def __init__(self, loader: Any, dataset: Any, plan: PlanFile) -> None:
        """``dataset``: the dataset as the code has it."""
        from pipefix.augment import support

        assert plan.augmentation is not None
        why = why_not(loader, dataset, plan)
        if why is not None:
            raise BadUsage(f"The plan has DALI make the batches, and {why}.", advice=ADVICE)
        self.device = _device(loader.device)
        unusable = support.gpu_declined("dali") if self.device != "cpu" else None
        if unusable is not None:
            raise BadUsage(f"The plan has DALI make the batches: {unusable}.", advice=ADVICE)
        swap = planned.swap_of(dataset, plan.augmentation)
        self.names = swap.split.names
        threads = max(1, loader.num_workers)
        # The loader's own sampler deals samples to ranks.
        size = int(loader.batch_size or loader.batch_sampler.batch_size)
        self._made = swap.loader(dataset, batch_size=size, threads=threads, device=self.device, world_size=1)

    def batches(self, orders: Any, epoch: int) -> Iterator[list[torch.Tensor]]:
        """Of these indices, as `default_collate` puts images and labels together."""
        return map(list, self._made.in_order(orders, epoch))

    def explain(self) -> str:
        return f"batches are made whole by DALI on {self.device} from the dataset's files: {', '.join(self.names)}"


class DaliEpoch(PlainEpoch):
    """An epoch of such batches."""

    _ahead_by = 2
    """Batches that the pipeline has begun."""

    def __init__(self, loader: Any, begin: Any, batches: DaliBatches) -> None:
        self._made, self._batch_sampler = batches, loader.batch_sampler
        super().__init__(loader, begin, why="DALI makes the batches")

    def _begun(self, twin: Any, passed: int) -> Iterator[Any]:
        # Drawn from the generators in torch's order, and now: a sampler draws when its first batch is asked for.
        torch.empty((), dtype=torch.int64).random_(generator=twin.generator)
        orders = islice(iter(twin.batch_sampler), passed, None)
        return self._made.batches(chain(list(islice(orders, 1)), orders), self.standing.beginning.epoch)

    def __len__(self) -> int:
        return len(self._batch_sampler)


def why_not(loader: Any, dataset: Any, plan: PlanFile) -> str | None:
    """Why DALI cannot make a loader's batches from what its dataset lists; None where it can be tried."""
    from pipefix.augment.transforms import files_of

    if plan.cache is not None:
        return "the same plan reads samples from a cache, and DALI begins with the files"
    if loader.batch_sampler is None:
        return "the loader makes no batches of indices"
    if not (loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)):
        return "how large they are is not known"
    if loader.collate_fn is not default_collate:
        return "its collate_fn is your own"
    files = files_of(dataset)
    return files if isinstance(files, str) else None


def _device(requested: Any) -> str:
    """Where batches are made: as the loader was told, or on the device that is in use."""
    device = torch.device("cuda" if requested is None else requested)
    if device.type != "cuda" or not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"
