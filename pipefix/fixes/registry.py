"""Every fixer, and which one a remedy is for. Found by walking the package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

from pipefix.fixes.fixer import FixContext, Fixer, kind_of
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import PlanFile

WHY_BY_HAND = {
    "batched-fetch": "the dataset would need a __getitems__ of its own, which only its author can write",
    "batched-tokenisation": "tokenising would move from the dataset to collate_fn, which is your code",
    "collate-faster": "collate_fn, or what the dataset returns, is your code",
    "early-copy": "which device batches go to is said in your code: pipefix.FastLoader(..., device='cuda')",
}
"""Remedies that change the user's own code: they are theirs to make."""


class ByHand(Fixer):
    """Refuses, with the reason."""

    remedies = frozenset(WHY_BY_HAND)

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        return WHY_BY_HAND.get(kind_of(step.id, self.remedies) or "", "this version does not know how to apply it")

    def plan(self, step: Proposed, context: FixContext) -> PlanFile:
        return context.plan


@cache
def all_fixers() -> tuple[Fixer, ...]:
    import pipefix.fixes as package

    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
    return tuple(kind() for kind in sorted(_below(Fixer), key=lambda kind: kind.__name__) if kind is not ByHand)


def _below(kind: type[Any]) -> Iterator[type[Fixer]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def fixer_for(id: str) -> Fixer:
    """The fixer of a remedy; one that says how to do it by hand where there is none."""
    return next((fixer for fixer in all_fixers() if kind_of(id, fixer.remedies) is not None), ByHand())
