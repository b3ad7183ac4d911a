"""What a trial tells of one uninterrupted run of batches, and what is read off it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipefix.measurement.statistics import bootstrap, interval
from pipefix.vocabulary.quantity import Interval


@dataclass(frozen=True)
class Told:
    """One block: its first batches left out, so that the loader is in its steady state."""

    seconds: float
    samples: int
    waits: tuple[float, ...]
    """Seconds that the consumer waited for each batch while nothing else kept it busy."""
    steps: tuple[float, ...]
    """Seconds that each batch kept the consumer busy, its device included; zeros without one."""
    making: tuple[float, ...]
    """Seconds that making each batch took."""
    process_cpu_s: float | None
    """CPU seconds of all threads of the workers, per second of their work; None where too few batches tell."""
    workers: int
    started_s: float
    """From the start of the workers to the first batch."""

    @property
    def rate(self) -> float:
        return self.samples / self.seconds

    @property
    def stall(self) -> float:
        """Share of the time that the consumer waited."""
        waited, stepped = sum(self.waits), sum(self.steps)
        return waited / max(waited + stepped, 1e-12)

    @property
    def demand(self) -> float | None:
        """Samples a second that the consumer takes where nothing keeps it waiting."""
        stepped = sum(self.steps)
        return self.samples / stepped if stepped else None


def potential(blocks: Sequence[Told]) -> float | None:
    """Samples a second of all workers at work all the time."""
    making = sum(sum(block.making) for block in blocks)
    workers = blocks[-1].workers
    return workers * sum(block.samples for block in blocks) / making if making and workers else None


def tail(blocks: Sequence[Told]) -> float | None:
    """How many times as long as the middle batch the slowest in a hundred took; None where too few tell."""
    making = [spent for block in blocks for spent in block.making]
    if len(making) < 20:
        return None
    middle = float(np.median(making))
    return float(np.percentile(making, 99)) / middle if middle > 0 else None


def threads(blocks: Sequence[Told]) -> float | None:
    found = [block.process_cpu_s for block in blocks if block.process_cpu_s is not None]
    return float(np.median(found)) if found else None


def stall(blocks: Sequence[Told], *, seed: int = 0) -> Interval:
    """Share of the time waited, with the interval that resampling of blocks and batches leaves it."""
    groups = [np.column_stack([block.waits, block.steps]) for block in blocks if block.waits]
    waited = sum(float(group[:, 0].sum()) for group in groups)
    whole = sum(float(group.sum()) for group in groups)
    draws = bootstrap(groups, lambda rows: np.atleast_1d(rows[:, 0].sum() / max(rows.sum(), 1e-12)), seed=seed)
    return interval(draws[:, 0], waited / max(whole, 1e-12))


PRIOR_SPREAD = 0.03
"""What neighbouring blocks of one pipeline differ by (a share) where nothing else is known."""
LEAST_DOUBT = 0.008


def doubt(logs: Sequence[float]) -> float:
    """Standard deviation of the mean of a few logarithms; a few tell little of their own spread, so some is known beforehand."""
    count = len(logs)
    own = float(np.var(logs)) * count
    return max(LEAST_DOUBT, math.sqrt((own + 2 * PRIOR_SPREAD**2) / (count + 1) / count))


def around(rate: float, doubt: float) -> Interval:
    """The 95 % interval of a rate whose logarithm has this standard deviation."""
    return Interval(rate, rate * math.exp(-1.96 * doubt), rate * math.exp(1.96 * doubt))
