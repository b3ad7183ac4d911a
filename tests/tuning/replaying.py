"""A search on a grid: its trials are answered from the table, with noise, and its choice is held against all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipefix.tuning.results import Goal, Trial
from pipefix.tuning.search import Finished, NextTrial, Search, beaten
from pipefix.tuning.space import Settings
from tests.tuning.grids import Grid


@dataclass(frozen=True)
class Played:
    grid: Grid
    chosen: Settings
    trials: int
    regret: float
    """How much less the choice delivers than the best of the whole grid."""
    start: float
    """The same of the settings that it began with."""
    workers: int
    fewest: int | None
    """That feed the consumer, where any do."""
    path: tuple[Trial, ...]


def play(grid: Grid, start: Settings, *, seed: int, most: int = 8) -> Played:
    draw = np.random.default_rng(seed)
    goal = Goal(has_consumer=grid.demand is not None)
    search = Search(grid.space, goal, start, most_trials=most)
    look = grid.looked_at(draw)
    trials: list[Trial] = []
    while True:
        proposal = search.next(trials, look)
        if isinstance(proposal, Finished):
            break
        assert isinstance(proposal, NextTrial)
        trials.append(grid.measured(proposal.settings, draw))
    best = search.best(trials)
    assert best is not None
    chosen = best.settings if confirmed(grid, best.settings, start, goal, draw) else start
    regret = max(0.0, 1 - grid.delivered(chosen) / grid.best())
    return Played(
        grid,
        chosen,
        len(trials),
        regret,
        max(0.0, 1 - grid.delivered(start) / grid.best()),
        chosen.workers,
        grid.fewest(goal),
        tuple(trials),
    )


def confirmed(grid: Grid, chosen: Settings, start: Settings, goal: Goal, draw: Any) -> bool:
    """Whether the choice beats the start when both are measured once more, as the tuner does at its end."""
    if chosen.normal() == start.normal():
        return True
    chosen_again, start_again = (grid.measured(settings, draw, noise=grid.noise / 2) for settings in (chosen, start))
    return beaten(start_again, chosen_again, goal) is None
