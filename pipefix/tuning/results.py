"""What a search is asked, and what trials told it, as the report and the result file hold it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from pipefix.tuning.limits import Usage
from pipefix.tuning.space import Settings
from pipefix.vocabulary.quantity import Interval


@dataclass(frozen=True)
class Goal:
    stall: float = 0.01
    """Share of the time that the consumer may wait for batches."""
    has_consumer: bool = False


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

    @property
    def ran(self) -> bool:
        return self.status == "run" and self.rate is not None

    @property
    def level(self) -> float:
        """Delivered samples a second."""
        return self.rate.value if self.rate is not None else 0.0

    @property
    def doubt(self) -> float:
        """Standard deviation of its logarithm."""
        return math.log(self.rate.high / self.rate.low) / (2 * 1.96) if self.rate is not None else 0.0


class BatchSize(msgspec.Struct, frozen=True):
    """One batch size that was asked about."""

    batch_size: int
    rate: Interval | None = None
    batch_s: float | None = None
    """Seconds from one batch to the next."""
    stall: float | None = None
    reason: str = ""
    """It was not run."""
