"""One step on its way: its change, whether samples stay what they were, whether the pipeline is faster, and why it is not kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipefix.fixes import same_samples, speedup
from pipefix.fixes.builder import Say
from pipefix.fixes.outcome import Measured, Sameness
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import PlanFile
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
        self, before: PlanFile, now: speedup.Pipeline, then: speedup.Pipeline, *, alters: str | None, seconds: float, say: Say
    ) -> str | None:
        """Compare samples and measure for about ``seconds``; why the change is not kept, None where it is.

        Args:
            before: the plan in effect, without the change.
            now: the pipeline with that plan.
            then: the pipeline with the change.
            alters: what training is known to see differently afterwards.
        """
        say("verifying: comparing samples", 0.0)
        untouched = (before.cache, before.augmentation) == (self.plan.cache, self.plan.augmentation)
        if before.augmentation != self.plan.augmentation:
            self.same = moved(alters)
        else:
            self.same = same_samples.same(now.subject, then.subject, alters=alters, untouched=untouched)
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


def moved(alters: str | None) -> Sameness:
    """Of augmentation that moves to the device: each operation was compared with the CPU's when the step was built."""
    return Sameness(
        kind="different",
        sentence=f"{alters or 'augmentation moved'}; operation by operation it was shown to do the same as on the CPU",
    )
