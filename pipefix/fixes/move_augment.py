"""Augmentation moved to whole batches on the GPU, after it was shown to do the same there."""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from pipefix.augment import samples as sampled
from pipefix.augment.hold import hold
from pipefix.augment.parity import front_of
from pipefix.augment.split import Split, split
from pipefix.augment.swap import Place as Where
from pipefix.augment.swap import find
from pipefix.augment.translate import translate
from pipefix.fixes.fixer import Fixer, Place, Say
from pipefix.loader import planned
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import AugmentationChange, PlanFile
from pipefix.subject import failure
from pipefix.vocabulary.errors import TargetError

PICTURES = 8


class MoveAugment(Fixer):
    """To Kornia. DALI makes a loader of its own, which is the user's to write."""

    remedies = frozenset({"augment-gpu"})
    backend = "kornia"

    def refuses(self, step: Proposed, place: Place) -> str | None:
        if place.subject.iterable:
            return "the dataset is a stream, whose samples bear no index to key random numbers by"
        if find(place.subject.dataset) is None:
            return "the dataset keeps its transforms under none of the usual names (transform, transforms, augment)"
        if not torch.cuda.is_available():
            return "there is no CUDA device here"
        if place.plan.augmentation is not None:
            return "the plan moves augmentation already"
        return None

    def alters(self, step: Proposed) -> str | None:
        return "random numbers are drawn anew for each sample, by seed, epoch and index"

    def plan(self, step: Proposed, place: Place) -> PlanFile:
        operations = [type(op).__name__ for op in self._cut(place).ops]
        if not operations:
            raise TargetError(
                "None of the dataset's transforms can be moved to the batch.",
                advice="See why with: pipefix swap TARGET --to kornia",
            )
        change = AugmentationChange(backend="kornia", operations=operations)
        return msgspec.structs.replace(place.plan, augmentation=change)

    def make(self, step: Proposed, place: Place, say: Say) -> None:
        """Nothing lies on the disk; what moves is held against torchvision first."""
        cut = self._cut(place)
        dataset = planned.before_moving(place.subject.dataset, place.plan, place.folder)
        at = find(dataset)
        assert at is not None
        pictures = _pictures(dataset, at)
        with failure.told("The part of the transforms that stays"):
            images = front_of(cut, pictures, 0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = hold(cut, pictures, images, self.backend, device=device, progress=lambda words, done: say(words, done))
        if not found.holds:
            raise TargetError(
                f"Moved to {self.backend}, the transforms do not do the same.",
                advice="See where they differ with: pipefix swap TARGET --to kornia --check",
            )

    def _cut(self, place: Place) -> Split:
        dataset = planned.before_moving(place.subject.dataset, place.plan, place.folder)
        at = find(dataset)
        if at is None:
            raise TargetError("Behind the cache no transform runs live: there is nothing to move.")
        return split(translate(at.transform), self.backend)


def _pictures(dataset: Any, at: Where) -> list[Any]:
    with failure.told("Reading samples of the dataset"):
        return list(sampled.pictures(dataset, at, PICTURES))
