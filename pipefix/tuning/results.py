"""What a tuning was asked for, what its trials measured, and what came of it, as report and result file hold it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pipefix.tuning import block_figures as figures
from pipefix.tuning.limits import BatchCost, ResourceLimits, Usage
from pipefix.tuning.space import Settings, Space, said
from pipefix.vocabulary.quantity import Interval

MOST_TRIALS = 8
FAILED = "it failed: "
"""How the reason of a trial begins that raised."""


@dataclass(frozen=True)
class Goal:
    stall: float = 0.01
    """Share of the time that the consumer may wait for batches."""
    has_consumer: bool = False

    def fed(self, trial: Trial) -> bool:
        """Whether the consumer waited for no more than that."""
        return trial.stall is not None and trial.stall <= self.stall


class Trial(msgspec.Struct, frozen=True):
    """Settings, and how their trial went."""

    settings: Settings
    rate: Interval | None = None
    """Delivered samples a second, brought to the same level as the others by the best settings so far, which ran beside it."""
    status: str = "run"
    """run, refused (never started), ended (it came near a limit) or failed."""
    why: str = ""
    """These settings were chosen for a trial."""
    reason: str = ""
    """They were not run, or not to their end."""
    stall: float | None = None
    """Share of the time that the consumer waited; None without a consumer."""
    demand: float | None = None
    """Samples a second that the consumer takes where nothing keeps it waiting."""
    potential: float | None = None
    """Samples a second that the workers made while they were at work, with all of them at work all the time."""
    tail: float | None = None
    """Making time of the slowest batches over that of the middle ones."""
    threads: float | None = None
    """CPU seconds that a worker's threads spent in a second of its own work; above one, libraries compute beside it."""
    used: Usage = Usage()
    seconds: float = 0.0
    started_s: float = 0.0
    """From the start of the workers to the first batch; 0 without workers."""
    alone: bool = False
    """Other settings had been run, but none in turn with these: both did not fit the limits. The rate is of another moment."""

    @property
    def ran(self) -> bool:
        return self.status == "run" and self.rate is not None

    @property
    def level(self) -> float:
        return self.rate.value if self.rate is not None else 0.0

    @property
    def doubt(self) -> float:
        """Standard deviation of its logarithm."""
        return math.log(self.rate.high / self.rate.low) / (2 * 1.96) if self.rate is not None else 0.0


def trial_of(settings: Settings, blocks: Sequence[figures.TrialBlock], rate: Interval, goal: Goal) -> Trial:
    """What blocks of these settings tell; ``rate`` is that which they deliver beside the others."""
    return Trial(
        settings.normal(), rate,
        stall=figures.stall(blocks).value if goal.has_consumer else None,
        demand=blocks[-1].demand if goal.has_consumer else None,
        potential=figures.potential(blocks), tail=figures.tail(blocks), threads=figures.threads(blocks),
        started_s=blocks[-1].started_s if settings.workers else 0.0,
    )  # fmt: skip


def why_none_is_better(trials: Sequence[Trial], start: Settings) -> str:
    others = [trial for trial in trials if trial.settings != start]
    failed = [trial for trial in others if not trial.ran]
    if others and len(failed) == len(others):
        how = "failed" if any(trial.status == "failed" for trial in failed) else "had to be ended"
        each = f"all others {how}" if len(failed) > 1 else f"the trial of {said(failed[0].settings)} {how}"
        return f"{each} ({failed[0].reason.removeprefix(FAILED)})"
    return "no settings were found that are better" if others else "no other settings were tried"


class BatchSize(msgspec.Struct, frozen=True):
    batch_size: int
    rate: Interval | None = None
    """Delivered samples a second."""
    batch_s: float | None = None
    """Seconds from one batch to the next."""
    stall: float | None = None
    used: Usage = Usage()
    reason: str = ""
    """It was not run."""


@dataclass(frozen=True)
class TuningPlan:
    """How much to try, and with what aim."""

    space: Space
    goal: Goal
    start: Settings
    limits: ResourceLimits = field(default=ResourceLimits())
    budget: float = 90.0
    """Seconds for everything."""
    most_trials: int = MOST_TRIALS


@dataclass(frozen=True)
class TuneResult:
    tried: tuple[Trial, ...]
    """And what was refused."""
    chosen: Settings
    kept: str | None
    """Why the start is kept; None where it was beaten."""
    before: Interval | None
    """Delivered by the start, side by side with the winner at the end; None where it could not be run."""
    after: Interval | None
    blocks: tuple[figures.TrialBlock, ...]
    """Of the settings chosen, the last ones: what the certificate rests on."""
    batch: BatchCost | None
    enough: str
    """Why no more was tried."""
    partial: bool = False
    seconds: float = 0.0
    started_s: float = 0.0
    used: Usage = field(default=Usage())
