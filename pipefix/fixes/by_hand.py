"""Remedies that change the user's own code: they are theirs to make, and each says why."""

from __future__ import annotations

from pipefix.fixes.fixer import Fixer, Place, kind_of
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import PlanFile

WHY = {
    "storage-memory": "the dataset's own code would have to hold the bytes; cache-source brings the same without a change to it",
    "batched-fetch": "the dataset would need a __getitems__ of its own, which only its author can write",
    "batched-tokenisation": "tokenising would move from the dataset to collate_fn, which is your code",
    "collate-faster": "collate_fn, or what the dataset returns, is your code",
    "uint8-wire": "the transform and the training step would have to change together, and both are your code",
}


class ByHand(Fixer):
    """Refuses, with the reason."""

    remedies = frozenset(WHY)

    def refuses(self, step: Proposed, place: Place) -> str | None:
        kind = kind_of(step.id, self.remedies)
        return WHY[kind] if kind is not None else "this version does not know how to apply it"

    def plan(self, step: Proposed, place: Place) -> PlanFile:
        return place.plan
