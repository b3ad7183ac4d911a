"""Tries one step of a plan: makes its change, compares samples, measures the speed, and says why it is not kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipefix.fixes import same_samples, speedup
from pipefix.fixes.builder import Say
from pipefix.fixes.outcome import Measured, Sameness
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import PlanFile
from pipefix.subject.subject import Subject
from pipefix.vocabulary.quantity import times_between


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
