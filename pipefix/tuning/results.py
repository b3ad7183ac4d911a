"""What a search is asked, and what trials told it."""

from __future__ import annotations

from dataclasses import dataclass

from pipefix.tuning.space import Settings


@dataclass(frozen=True)
class Goal:
    stall: float = 0.01
    """Share of the time that the consumer may wait for batches."""
    has_consumer: bool = False


@dataclass(frozen=True)
class TrialResult:
    """What one trial told, brought to the same level as the others by the incumbent that ran beside it."""

    settings: Settings
    rate: float = 0.0
    """Delivered samples a second."""
    doubt: float = 0.03
    """Standard deviation of its logarithm."""
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
    ended: str | None = None
    """Why it was ended before it told anything."""


@dataclass(frozen=True)
class Preview:
    """A few batches made in one process before any trial."""

    rate: float
    """Samples a second."""
    doubt: float = 0.1
    cpu_s: float | None = None
    """CPU seconds a sample."""
    handing: float = 0.0
    """Handing a batch over to another process, as part of its making: what batches of its size are known to take."""
