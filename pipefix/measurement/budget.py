"""How much to measure (`MeasurementPlan`), and what is left of the seconds for it (`BudgetClock`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pipefix.measurement.measurement import Measurement

Progress = Callable[[str, float], None]
"""Told what is being done and the part of it that is done."""


def silent(phase: str, done: float) -> None:
    """Tell nobody how far the measurement is."""


@dataclass(frozen=True)
class MeasurementPlan:
    """How much to measure."""

    budget: float = 60.0
    """Seconds for everything."""
    recording_bytes: int = 1_000_000_000
    trial_workers: tuple[int, ...] = ()
    """Worker counts to try for real."""
    events: bool = False
    observe: Callable[[Any], dict[str, float]] | None = None
    seam_cost: float = 0.0
    """Seconds a timed call through a hook adds: what is asked after a round judges by the same figures as the report."""
    enough: Callable[[Measurement], bool] | None = None
    """Asked after every round: whether the verdict is settled."""
    wanting: Callable[[Measurement], Collection[str]] | None = None
    """Arms that decide a verdict that is still open: from the fourth round on these alone run, and where no round fits any more,
    those of them with too few blocks for an interval."""
    seed: int = 0
    """Of the sampler's order where the user gave it no generator of its own."""
    progress: Progress = silent


class BudgetClock:
    """What is left of the budget."""

    def __init__(self, budget: float) -> None:
        self.begun = time.perf_counter()
        self.budget = budget

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def left(self) -> float:
        return self.budget - self.spent
