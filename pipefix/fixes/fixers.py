"""The fixers that build something: caches by the converter; and augmentation that moves to whole batches on the GPU, after it was
shown to be the same there."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

import msgspec
import torch

from pipefix.augment import parity, support
from pipefix.augment import samples as sampled
from pipefix.augment.split import Split, split
from pipefix.augment.transforms import files_of, find
from pipefix.caches import convert as conversion
from pipefix.caches.estimate import Forecast, forecast
from pipefix.fixes.attempt import FixContext, Fixer
from pipefix.fixes.cache_process import Say
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.planning import by_dali, planned
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import AugmentationChange, CacheChange, Change
from pipefix.plan.remedies.caches import kept_already
from pipefix.subject import failure
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import TargetError
from pipefix.vocabulary.quantity import size

SPARE = 1.1
"""Room that must be free, as a multiple of what the cache is predicted to take."""
PICTURES = 8
"""Held against one another before anything moves."""


class BuildCache(Fixer):
    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        if context.subject.iterable:
            return "the dataset is a stream, which has no index that records could be looked up by"
        now, change = context.plan.cache, _change(step)
        if now is not None and (why := kept_already(change.store, now.store, now.path)):
            return why
        room, taken = _free(context.folder), step.disk_bytes
        if room is not None and taken is not None and taken * SPARE > room:
            taken = min(taken, _forecast_bytes(change, context) or taken)
            if taken * SPARE > room:
                return f"it would take {size(taken)} of disk, and {size(room)} are free"
        return None

    def alters(self, step: Proposed) -> str | None:
        if _change(step).store != "resized":
            return None
        return f"pictures have {conversion.DEFAULT_SIZE} pixels on the shorter side, compressed once more"

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        change, folder = _change(step), context.folder / _change(step).path
        folder.parent.mkdir(exist_ok=True)
        context.builder.build(conversion.recipe_of(change.format, change.store), folder, say)


def _change(step: Proposed) -> CacheChange:
    assert isinstance(step.change, CacheChange)
    return step.change


def _forecast_bytes(change: CacheChange, context: FixContext) -> float | None:
    """What it would take, told from some of its records: a plan may know no more than a bound. None where none can be made."""
    recipe = conversion.recipe_of(change.format, change.store)
    with tempfile.TemporaryDirectory(prefix="pipefix-forecast-") as scratch:
        trial = partial(forecast, context.subject.dataset, recipe, Path(scratch) / change.store, workers=0)
        try:
            predicted: Forecast = in_child_process(trial)
        except NotFused:
            return None
    return predicted.bytes


def _free(folder: Path) -> int | None:
    where = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    try:
        return shutil.disk_usage(where).free
    except OSError:
        return None


class MoveAugment(Fixer):
    """To Kornia, as a module that is called with whole batches."""

    backend = "kornia"

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        if context.subject.iterable:
            return "the dataset is a stream: which of its samples would be compared cannot be said"
        if find(context.subject.dataset) is None:
            return "the dataset keeps its transforms under none of the usual names (transform, transforms, augment)"
        if not torch.cuda.is_available():
            return "there is no CUDA device here"
        if context.plan.augmentation is not None:
            return "the plan moves augmentation already"
        return None

    def alters(self, step: Proposed) -> str | None:
        return "pixels change by rounding, at most 1/255 on average; random numbers stay as they are"

    def change(self, step: Proposed, context: FixContext) -> Change:
        """With the operations that move, now that it is known what they are applied to."""
        operations = self._cut(context).names
        if not operations:
            why = command("pipefix", "swap", context.subject.target, "--to", self.backend)
            raise TargetError("None of the dataset's transforms can be moved to the batch.", advice=f"See why with: {why}")
        assert isinstance(step.change, AugmentationChange)
        return msgspec.structs.replace(step.change, operations=operations)

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        """Nothing lies on the disk; what moves is held against torchvision first."""
        cut = self._cut(context)
        dataset = planned.before_moving(context.subject.dataset, context.plan, context.folder)
        at = find(dataset)
        assert at is not None
        with failure.as_target_error("Reading samples of the dataset"):
            sampled.refuse_more_than_pictures(dataset, at, cut)
            pictures = sampled.pictures(dataset, at, PICTURES)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        with failure.as_target_error("The dataset's transforms"):
            result = parity.check(cut, pictures, device=device, progress=say)
        if not result.holds:
            check = command("pipefix", "swap", context.subject.target, "--to", self.backend, "--check")
            problem = f"Moved to {self.backend}, the transforms do not do the same."
            raise TargetError(problem, advice=f"See where they differ with: {check}")

    def _cut(self, context: FixContext) -> Split:
        dataset = planned.before_moving(context.subject.dataset, context.plan, context.folder)
        at = find(dataset)
        if at is None:
            raise TargetError("Behind the cache no transform runs live: there is nothing to move.")
        return split(at.value, self.backend)


class DecodeByDali(MoveAugment):
    """To DALI, which makes batches whole from the dataset's files."""

    backend = "dali"

    def is_last(self, step: Proposed) -> bool:
        return True

    def alters(self, step: Proposed) -> str | None:
        return "random numbers are drawn from generators seeded for each sample, by seed, epoch and index"

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        why = super().refuses(step, context) or support.gpu_declined("dali")
        return why or by_dali.why_not(context.subject.loader, context.subject.dataset, context.plan)

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        dataset = context.subject.dataset
        at, listed = find(dataset), files_of(dataset)
        assert at is not None
        assert not isinstance(listed, str)
        with failure.as_target_error("Reading samples of the dataset"):
            sampled.refuse_other_files(dataset, at, *listed, PICTURES)
        super().make(step, context, say)
