"""Pictures made by fused calls: FastLoader's way, which the plan asks it for."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from pipefix.fixes.fixer import Fixer, Place
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import LoaderChange, PlanFile


class Fuse(Fixer):
    """Whether dataset and transforms fit was tried by the probe; that samples stay what they are, and come faster, is verified."""

    MODES: ClassVar[dict[str, Any]] = {"fuse-exact": "exact", "fuse-close": "close"}
    remedies = frozenset(MODES)
    last = True

    def refuses(self, step: Proposed, place: Place) -> str | None:
        now = mode_of(place)
        if now is not None:
            return f"pictures are made by one call each already (fuse = {now!r})"
        if place.plan.augmentation is not None:
            return "the plan moves transforms to whole batches, and a fused call makes all of them"
        return None

    def alters(self, step: Proposed) -> str | None:
        return step.risk

    def plan(self, step: Proposed, place: Place) -> PlanFile:
        now = place.plan.loader or LoaderChange()
        return msgspec.structs.replace(place.plan, loader=msgspec.structs.replace(now, fuse=self.MODES[step.id]))


def mode_of(place: Place) -> str | None:
    """How close pixels are where pictures are fused already."""
    change = place.plan.loader
    return (change.fuse if change is not None else None) or getattr(place.subject.loader, "fuse", None)
