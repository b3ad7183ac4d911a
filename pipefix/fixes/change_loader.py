"""Settings of the loader: how many workers, how they start and stay, pinning, the order of batches, threads, FastLoader's own."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from pipefix.fixes.fixer import FixContext, Fixer
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import LoaderChange, PlanFile


class ChangeLoader(Fixer):
    """What `pipefix.plan.remedies` proposes as arguments of the loader."""

    SETTINGS: ClassVar[dict[str, dict[str, Any]]] = {
        "persistent-workers": {"persistent_workers": True},
        "tail-scheduling": {"in_order": False},
        "pinning": {"pin_memory": True},
        "thread-caps": {"worker_threads": 1},
        "handover-slots": {"engine": "processes"},
    }
    remedies = frozenset({"workers", *SETTINGS})

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        if step.frees is not None:
            return f"it gains no time (it frees {step.frees}), and here only what is faster is kept"
        return _needs_no_handing_over(context) if step.id == "handover-slots" else None

    def alters(self, step: Proposed) -> str | None:
        return "batches come in another order from run to run" if step.id == "tail-scheduling" else None

    def plan(self, step: Proposed, context: FixContext) -> PlanFile:
        settings = self.SETTINGS.get(step.id) or {"num_workers": int(step.id.rpartition("-")[2])}
        return _with(context.plan, settings)


class Fuse(Fixer):
    """Pictures made by fused calls. Whether dataset and transforms fit was tried by the probe; that samples stay what they are, and
    come faster, is verified."""

    remedies = frozenset({"fuse"})
    last = True

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        change = context.plan.loader
        now = (change.fuse if change is not None else None) or getattr(context.subject.loader, "fuse", None)
        if now is not None:
            return f"pictures are made by one call each already (fuse = {now!r})"
        if context.plan.augmentation is not None:
            return "the plan moves transforms to whole batches, and a fused call makes all of them"
        return None

    def alters(self, step: Proposed) -> str | None:
        return step.risk

    def plan(self, step: Proposed, context: FixContext) -> PlanFile:
        return _with(context.plan, {"fuse": step.id.removeprefix("fuse-")})


def _with(plan: PlanFile, settings: dict[str, Any]) -> PlanFile:
    return msgspec.structs.replace(plan, loader=msgspec.structs.replace(plan.loader or LoaderChange(), **settings))


def _needs_no_handing_over(context: FixContext) -> str | None:
    """Why batches are not to be handed over through reused memory; None where they can be."""
    change, theirs = context.plan.loader, context.subject.loader
    planned, own = getattr(change, "engine", None), getattr(theirs, "engine", None)
    if "processes" in (planned, own):
        return f"the {'plan' if planned == 'processes' else 'loader'} hands batches over through reused memory already"
    workers = theirs.num_workers if change is None or change.num_workers is None else change.num_workers
    return None if workers else "without workers there is nothing to hand over"
