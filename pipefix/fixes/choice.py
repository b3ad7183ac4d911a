"""Which remedy is tried next, which is worth too little, and which somebody must be asked about. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipefix.fixes.attempt import Fixer
from pipefix.fixes.fixers import BuildCache, DecodeByDali, MoveAugment
from pipefix.fixes.outcome import Refused
from pipefix.plan.plan import Declined, Plan, Proposed
from pipefix.plan.planfile import AugmentationChange, CacheChange
from pipefix.plan.remedy import all_remedies
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.quantity import percent, seconds, size, times_between

MUCH_DISK, LONG = 1e9, 600.0
"""Bytes and seconds above which somebody is asked before a cache is built."""


@dataclass(frozen=True)
class Wishes:
    budget: float = 40.0
    """Seconds to measure in each round."""
    min_gain: float = 0.05
    only: str | None = None
    yes: bool = False
    dry_run: bool = False


def fixer_for(step: Proposed) -> Fixer:
    if isinstance(step.change, CacheChange):
        return BuildCache()
    if isinstance(step.change, AugmentationChange):
        return DecodeByDali() if step.change.backend == "dali" else MoveAugment()
    return Fixer()


def candidates(proposed: Sequence[Proposed], min_gain: float) -> list[Proposed]:
    """In the order in which they are tried: what leaves samples as they are first, the plan's own order within that; what ends a
    run comes after all others.

    What is worth too little comes last, the best of it first.
    """
    worth = [step for step in proposed if too_little(step, min_gain) is None or step.change is None]
    rest = sorted((step for step in proposed if step not in worth), key=lambda step: -step.speedup.value)
    return [*sorted(worth, key=lambda step: (fixer_for(step).is_last(step), fixer_for(step).alters(step) is not None)), *rest]


def too_little(step: Proposed, min_gain: float) -> str | None:
    if step.speedup.value - 1 >= min_gain:
        return None
    return f"is predicted to bring {times_between(step.speedup)}, less than --min-gain {percent(min_gain)}"


def condition(step: Proposed, fixer: Fixer) -> str | None:
    """What somebody should know before it is done."""
    disk = f"it takes {size(step.disk_bytes)} of disk" if (step.disk_bytes or 0.0) > MUCH_DISK else None
    if step.disk_bytes is None and isinstance(step.change, CacheChange):
        disk = "there was no time to see how much disk it takes"
    long = f"it takes {seconds(step.seconds)} to make" if (step.seconds or 0.0) > LONG else None
    return "; ".join(filter(None, (fixer.alters(step), disk, long))) or None


def is_called(id: str, name: str) -> bool:
    """``workers-8`` is called ``workers`` too."""
    return name in (id, id.rpartition("-")[0] or id)


def check_only(only: str | None) -> None:
    """Refuse a name that no remedy has, before anything is measured."""
    known = sorted(remedy.id for remedy in all_remedies())
    if only is not None and not any(is_called(id, only) or is_called(only, id) for id in known):
        raise BadUsage(f"There is no remedy {only!r}.", advice=f"Its name is one of: {', '.join(known)}.")


def refused(step: Proposed | Declined, why: str, **facts: Any) -> Refused:
    return Refused(id=step.id, title=step.title, stage=str(step.stage), why=why, predicted=step.speedup, **facts)


def why_not(plan: Plan, only: str) -> list[Refused]:
    """What the plan says of a remedy that was asked for, and that it does not propose."""
    named = [step for step in plan.declined if is_called(step.id, only)]
    if not named:
        known = ", ".join(sorted(step.id for step in plan))
        raise BadUsage(f"The plan for this pipeline has no remedy {only!r}.", advice=f"It has: {known or 'none'}.")
    return [refused(step, step.why) for step in named]
