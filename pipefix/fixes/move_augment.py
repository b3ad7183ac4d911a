"""Augmentation moved to whole batches on the GPU, after it was shown to do the same there."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import torch

from pipefix.augment import encoded, support
from pipefix.augment import samples as sampled
from pipefix.augment.hold import hold
from pipefix.augment.parity import front_of
from pipefix.augment.split import Split, split
from pipefix.augment.swap import FoundTransforms, files_of, find
from pipefix.augment.translate import translate
from pipefix.fixes.fixer import FixContext, Fixer, Say
from pipefix.loader.planning import by_dali, planned
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import AugmentationChange, PlanFile
from pipefix.subject import failure
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import TargetError

PICTURES = 8


class MoveAugment(Fixer):
    """To Kornia, as a module that is called with whole batches."""

    remedies = frozenset({"augment-gpu"})
    backend: Literal["kornia", "dali"] = "kornia"

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        if context.subject.iterable:
            return "the dataset is a stream, whose samples bear no index to key random numbers by"
        if find(context.subject.dataset) is None:
            return "the dataset keeps its transforms under none of the usual names (transform, transforms, augment)"
        if not torch.cuda.is_available():
            return "there is no CUDA device here"
        if context.plan.augmentation is not None:
            return "the plan moves augmentation already"
        return None

    def alters(self, step: Proposed) -> str | None:
        return "random numbers are drawn anew for each sample, by seed, epoch and index"

    def plan(self, step: Proposed, context: FixContext) -> PlanFile:
        operations = [type(op).__name__ for op in self._cut(context).ops]
        if not operations:
            raise TargetError(
                "None of the dataset's transforms can be moved to the batch.",
                advice="See why with: " + command("pipefix", "swap", "TARGET", "--to", self.backend),
            )
        change = AugmentationChange(backend=self.backend, operations=operations)
        return msgspec.structs.replace(context.plan, augmentation=change)

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        """Nothing lies on the disk; what moves is held against torchvision first."""
        cut = self._cut(context)
        dataset = planned.before_moving(context.subject.dataset, context.plan, context.folder)
        at = find(dataset)
        assert at is not None
        pictures = _pictures(dataset, at)
        with failure.as_target_error("The part of the transforms that stays"):
            images = front_of(cut, pictures, 0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = hold(cut, pictures, images, self.backend, device=device, progress=lambda words, done: say(words, done))
        if not found.holds:
            raise TargetError(
                f"Moved to {self.backend}, the transforms do not do the same.",
                advice="See where they differ with: " + command("pipefix", "swap", "TARGET", "--to", self.backend, "--check"),
            )

    def _cut(self, context: FixContext) -> Split:
        dataset = planned.before_moving(context.subject.dataset, context.plan, context.folder)
        at = find(dataset)
        if at is None:
            raise TargetError("Behind the cache no transform runs live: there is nothing to move.")
        return split(translate(at.transform), self.backend)


class DecodeByDali(MoveAugment):
    """To DALI, which makes batches whole from the dataset's files."""

    remedies = frozenset({"decode-gpu"})
    backend = "dali"
    last = True

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        return (
            super().refuses(step, context)
            or support.gpu_declined("dali")
            or by_dali.why_not(context.subject.loader, context.subject.dataset, context.plan)
        )

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        _held_to_files(context.subject.dataset)
        super().make(step, context, say)


def _held_to_files(dataset: Any) -> None:
    """Samples are pictures of the files that the dataset lists, in this order, and the numbers beside them."""
    at, listed = find(dataset), files_of(dataset)
    assert at is not None
    assert not isinstance(listed, str)
    for place, picture in zip(sampled.places(dataset, PICTURES), _pictures(dataset, at), strict=True):
        file, number = listed[0][place], listed[1][place]
        with failure.as_target_error(f"dataset[{place}]"):
            sample = dataset[place]
        label = sample[1] if isinstance(sample, (tuple, list)) and len(sample) == 2 else None
        like = sampled.size_of(picture)[1:] == sampled.size_of(encoded.decoded(file))[1:]
        if not like or not isinstance(label, (int, np.integer)) or int(label) != number:
            raise TargetError(
                f"dataset[{place}] is not the picture of {file} and the number {number}, which the dataset lists there.",
                advice="Have DALI read your files by what this writes: pipefix swap TARGET --to dali --write augment.py",
            )


def _pictures(dataset: Any, at: FoundTransforms) -> list[Any]:
    with failure.as_target_error("Reading samples of the dataset"):
        return list(sampled.pictures(dataset, at, PICTURES))
