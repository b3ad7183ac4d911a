"""Augmentation moved to whole batches on the GPU, after it was shown to do the same there."""

from __future__ import annotations

from typing import Literal

import msgspec
import torch

from pipefix.augment import samples as sampled
from pipefix.augment import support
from pipefix.augment.hold import hold
from pipefix.augment.parity import front_of
from pipefix.augment.split import Split, split
from pipefix.augment.swap import files_of, find
from pipefix.augment.translate import translate
from pipefix.fixes.builder import Say
from pipefix.fixes.fixer import FixContext, Fixer
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
        with failure.as_target_error("Reading samples of the dataset"):
            sampled.refuse_more_than_pictures(dataset, at, context.subject.loader.collate_fn)
            pictures = sampled.pictures(dataset, at, PICTURES)
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
        dataset = context.subject.dataset
        at, listed = find(dataset), files_of(dataset)
        assert at is not None
        assert not isinstance(listed, str)
        with failure.as_target_error("Reading samples of the dataset"):
            sampled.refuse_other_files(dataset, at, *listed, PICTURES)
        super().make(step, context, say)
