"""Batches handed over through memory that is used again: FastLoader's way, which the plan asks it for."""

from __future__ import annotations

import msgspec

from pipefix.fixes.fixer import Fixer, Place
from pipefix.loader.fast_loader import FastLoader
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import LoaderChange, PlanFile


class HandOver(Fixer):
    """The one setting that torch's own loader does not have."""

    remedies = frozenset({"handover-slots"})

    def refuses(self, step: Proposed, place: Place) -> str | None:
        change = place.plan.loader
        if change is not None and change.engine == "processes":
            return "the plan hands batches over through reused memory already"
        if isinstance(place.subject.loader, FastLoader) and place.subject.loader.engine == "processes":
            return "the loader hands batches over through reused memory already"
        engines = {getattr(change, "engine", None), getattr(place.subject.loader, "engine", None)}
        if "subprocess" in engines:
            return "one worker process hands its batches over through reused memory already"
        if "threads" in engines:
            return "threads of the process make the batches, which need not be handed over"
        workers = place.subject.loader.num_workers if change is None or change.num_workers is None else change.num_workers
        return None if workers else "without workers there is nothing to hand over"

    def plan(self, step: Proposed, place: Place) -> PlanFile:
        now = place.plan.loader or LoaderChange()
        return msgspec.structs.replace(place.plan, loader=msgspec.structs.replace(now, engine="processes"))
