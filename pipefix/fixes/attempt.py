"""`Attempt`, one step of a plan, which judges whether it is kept; and `Fixer`, the base of what makes a remedy's change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipefix.fixes import same_samples, speedup
from pipefix.fixes.cache_process import Builder, Say
from pipefix.fixes.outcome import Measured, Sameness
from pipefix.measurement.consumer import Consumer
from pipefix.plan.plan import Plan, Proposed
from pipefix.plan.planfile import Change, LoaderChange, PlanFile
from pipefix.subject.subject import Subject
from pipefix.vocabulary.quantity import times_between


@dataclass(frozen=True)
class ProbeResult:
    plan: Plan
    run: Any
    """What the report tells of it."""
    whole: bool = True
    """False where the look was interrupted."""


Look = Callable[[Subject, Consumer, float], ProbeResult]
Ask = Callable[[str], bool]


@dataclass(frozen=True)
class FixContext:
    """Where a remedy is to be applied."""

    subject: Subject
    """The pipeline as the user wrote it, without any plan."""
    plan: PlanFile
    """What is in effect already."""
    folder: Path
    """Where the plan lies, and what it names."""
    builder: Builder
    """Makes caches."""


class Fixer:
    """One kind of change: a cache, augmentation that moves, or, as here, settings of the loader, for which nothing is built; and
    what only the user's own code can change, which is refused."""

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        """Why it cannot be done here; None where it can be tried."""
        if not isinstance(step.change, LoaderChange):
            return step.by_hand
        if step.change.fuse is not None and context.plan.augmentation is not None:
            return "the plan moves transforms to whole batches, and a fused call makes all of them"
        return None

    def alters(self, step: Proposed) -> str | None:
        """What training sees afterwards that it did not before; None where samples stay what they were."""
        if not isinstance(step.change, LoaderChange):
            return None
        if step.change.in_order is False:
            return "batches come in another order from run to run"
        return step.risk if step.change.fuse is not None else None

    def is_last(self, step: Proposed) -> bool:
        """What it makes of the pipeline is not seen into by a probe, so that it comes after everything else, and ends the run."""
        return isinstance(step.change, LoaderChange) and step.change.fuse is not None

    def change(self, step: Proposed, context: FixContext) -> Change:
        """What is merged into the plan."""
        assert step.change is not None
        return step.change

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        """Build what the change names, where there is anything to be built. Raises what stands in the way."""


@dataclass
class Attempt:
    step: Proposed
    makes: str | None
    """What it puts on the disk, relative to the folder of the plan."""
    number: int
    """Of the plan's backup, once it is kept."""
    plan: PlanFile = field(default_factory=PlanFile)
    """With its change."""
    seconds: float = 0.0
    """That building took."""
    same: Sameness | None = None
    measured: Measured | None = None

    def judge(
        self, before: PlanFile, now: speedup.Pipeline, then: speedup.Pipeline, on_batch: Callable[[Any], Any] | None, *,
        alters: str | None, seconds: float, say: Say,
    ) -> str | None:  # fmt: skip
        """Compare samples and measure for about ``seconds``; why the change is not kept, None where it is.

        ``now`` is the pipeline with the plan of ``before``, and ``then`` that with the change; ``on_batch``: what is done to its
        batches; ``alters``: what training is known to see differently afterwards.
        """
        say("verifying: comparing samples", 0.0)
        self.same = compared(before, now.subject, self.plan, then.subject, on_batch, alters=alters)
        if self.same.kind == "unchecked":
            return f"whether samples stay what they are cannot be told: {self.same.sentence}"
        if self.same.kind == "unlike" or (self.same.kind == "different" and alters is None):
            return f"samples are not what they were: {self.same.sentence}"
        self.measured = speedup.faster(now, then, seconds=seconds, epochs=self.step.every_epoch, say=say)
        if self.measured.faster:
            return None
        gains = f"{times_between(self.measured.gain)}, where {times_between(self.step.speedup)} was predicted"
        if self.measured.slower:
            return f"it made the pipeline slower: {gains}"
        return f"no gain that can be told from noise: {gains}"


def compared(
    before: PlanFile, now: Subject, after: PlanFile, then: Subject, on_batch: Callable[[Any], Any] | None, *, alters: str | None
) -> Sameness:
    """Samples under one plan against those under another: a batch of them where transforms moved to whole batches. DALI draws
    otherwise, and makes no batches to compare: its pictures were compared before the plan was changed."""
    if before.augmentation == after.augmentation:
        return same_samples.same(now, then, alters=alters, untouched=before.cache == after.cache)
    changed = alters or "augmentation moved"
    if on_batch is None or not now.auto_collation:
        shown = "operation by operation it was shown to do the same as on the CPU"
        return Sameness(kind="different", sentence=f"{changed}; {shown}")
    return same_samples.same_batch(now, then, on_batch, alters=changed)
