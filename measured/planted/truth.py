"""What is true of a pipeline whose costs are known.

Without workers one thread does everything in turn: the stage with the largest cost is the one to work on.

With workers two stations run side by side. The workers together supply a sample every
``(storage + decode + augment + collate) / workers`` seconds, but no faster than batches can be handed over (``ipc``); the main
process takes one every ``step`` seconds. The slower station limits: the step, or the largest stage of the supply (a stage of the
workers counts for its share of one worker's time).

Dominance says how clear that is: by how much the limiting stage exceeds the one that would limit next. Below 1.05 it is `balanced`.
"""

from __future__ import annotations

from dataclasses import dataclass

from measured.planted.ledger import IN_SAMPLE

POOL = (*IN_SAMPLE, "collate")
BALANCED = 1.05
CLEAR = 1.15
"""A pipeline planted with a limiting stage (at least 1.2 times ahead) must really show this dominance; otherwise it has drifted and
tells nothing."""


@dataclass(frozen=True)
class Truth:
    kind: str
    stage: str | None
    dominance: float

    @property
    def label(self) -> str:
        return "balanced" if self.kind == "balanced" else self.stage or self.kind


def supply_s(costs: dict[str, float], workers: int) -> float:
    """Seconds a sample that the loader needs when nobody holds it up."""
    pool = sum(costs.get(stage, 0.0) for stage in POOL)
    return pool if workers == 0 else max(pool / workers, costs.get("ipc", 0.0))


def truth_of(costs: dict[str, float], workers: int, *, supply: float | None = None) -> Truth:
    """``supply`` is the measured seconds a sample of the loader alone, where it was measured."""
    step = costs.get("step", 0.0)
    if workers == 0:
        ranked = sorted(((value, stage) for stage, value in costs.items() if stage != "ipc"), reverse=True)
        (first, stage), second = ranked[0], ranked[1][0]
        return _truth("step-bound" if stage == "step" else "input-bound", stage, first / max(second, 1e-12))
    supplied = supply if supply is not None else supply_s(costs, workers)
    if step >= supplied:
        return _truth("step-bound", "step", step / supplied)
    shares = {stage: costs.get(stage, 0.0) / workers for stage in POOL} | {"ipc": costs.get("ipc", 0.0)}
    ranked = sorted(((value, stage) for stage, value in shares.items()), reverse=True)
    over_step = supplied / step if step else float("inf")
    return _truth("input-bound", ranked[0][1], min(over_step, ranked[0][0] / max(ranked[1][0], 1e-12)))


def _truth(kind: str, stage: str, dominance: float) -> Truth:
    return Truth("balanced", None, dominance) if dominance < BALANCED else Truth(kind, stage, dominance)


def drifted(planted: str, found: Truth) -> str | None:
    """Why the pipeline that really ran is not the one that was planted; None where it is."""
    if planted == "balanced":
        return None if found.kind == "balanced" else f"planted balanced, ran with {found.label} ahead by {found.dominance:.2f}x"
    if found.label != planted:
        return f"planted {planted}, ran with {found.label} ahead by {found.dominance:.2f}x"
    return None if found.dominance >= CLEAR else f"planted {planted}, which was ahead by {found.dominance:.2f}x only"
