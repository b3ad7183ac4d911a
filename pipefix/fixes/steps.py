"""`Fixer`, the base of what makes a remedy's change: what stands in its way, what it alters, what is built for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipefix.fixes.builder import Builder, Say
from pipefix.measurement.consumer import Consumer
from pipefix.plan.plan import Plan, Proposed
from pipefix.plan.planfile import Change, LoaderChange, PlanFile
from pipefix.subject.subject import Subject


@dataclass(frozen=True)
class ProbeResult:
    """One look at a pipeline."""

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
        if step.change.fuse is not None:
            return _is_fused(context)
        return _needs_no_handing_over(context) if step.change.engine == "processes" else None

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


def _is_fused(context: FixContext) -> str | None:
    """Why pictures are not to be made by fused calls; None where they can be, as far as the plan tells."""
    change = context.plan.loader
    now = (change.fuse if change is not None else None) or getattr(context.subject.loader, "fuse", None)
    if now is not None:
        return f"pictures are made by one call each already (fuse = {now!r})"
    if context.plan.augmentation is not None:
        return "the plan moves transforms to whole batches, and a fused call makes all of them"
    return None


def _needs_no_handing_over(context: FixContext) -> str | None:
    """Why batches are not to be handed over through reused memory; None where they can be."""
    change, loader = context.plan.loader, context.subject.loader
    planned, own = getattr(change, "engine", None), getattr(loader, "engine", None)
    if "processes" in (planned, own):
        return f"the {'plan' if planned == 'processes' else 'loader'} hands batches over through reused memory already"
    workers = loader.num_workers if change is None or change.num_workers is None else change.num_workers
    return None if workers else "without workers there is nothing to hand over"
