"""Holds the winner of a tuning against the start, by blocks of both that were run in turn. Pure."""

from __future__ import annotations

import math

from pipefix.tuning import block_figures as figures
from pipefix.tuning.block_figures import TrialBlock
from pipefix.tuning.results import Goal, trial_of
from pipefix.tuning.search import beaten
from pipefix.tuning.space import Settings
from pipefix.vocabulary.quantity import Interval


def confirmed(
    best: Settings, best_blocks: list[TrialBlock], start: Settings, start_blocks: list[TrialBlock], goal: Goal
) -> tuple[str | None, Interval, Interval]:
    """Why the start is kept, None where it is beaten; and what start and winner deliver."""
    logs = [math.log(block.rate / start_block.rate) for block, start_block in zip(best_blocks, start_blocks, strict=True)]
    levels = [math.log(block.rate) for block in start_blocks]
    base, doubt, spread = math.exp(sum(levels) / len(levels)), figures.doubt(logs), figures.doubt(levels)
    level = base * math.exp(sum(logs) / len(logs))
    again = trial_of(best, best_blocks, figures.around(level, doubt / math.sqrt(2)), goal)
    start_again = trial_of(start, start_blocks, figures.around(base, doubt / math.sqrt(2)), goal)
    after = figures.around(level, spread if len(logs) < 2 else math.hypot(spread, doubt / 2))
    return beaten(start_again, again, goal), figures.around(base, spread), after
