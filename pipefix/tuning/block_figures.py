"""The figures of one block of a trial (an uninterrupted run of batches), and what is computed from them. Pure.

Batches that were made before anybody asked for them hide a shortage for as long as they last: a consumer that takes a little more
than is made finds its queue full, and waits only when that is drained, perhaps long after a measurement is over. So what it waits
is held against what the workers make while they have something to do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipefix.measurement.statistics import bootstrap, interval
from pipefix.vocabulary.quantity import Interval


@dataclass(frozen=True)
class TrialBlock:
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
    turns: tuple[float, ...] = ()
    """Seconds that batches kept their workers (`turns`); empty where that is not known."""
    nvml: dict[str, float] = field(default_factory=dict)
    """What the driver said of the device meanwhile; empty without one."""
    late_s: float = 0.0
    """What the trial's first step took before the block beside a step: compiling, above all. Of its first block only."""

    @property
    def rate(self) -> float:
        """Samples a second in the long run: what a queue that drains adds for a while is left out."""
        measured_rate = self.samples / self.seconds
        return measured_rate * (1 - self.stall) / (1 - self.waited) if any(self.steps) else measured_rate

    @property
    def waited(self) -> float:
        """Share of the time that the consumer waited."""
        waited, stepped = sum(self.waits), sum(self.steps)
        return waited / max(waited + stepped, 1e-12)

    @property
    def stall(self) -> float:
        """Share of the time that it waits in the long run."""
        return _stall(_columns(self), self.workers) if self.waits else 0.0

    @property
    def demand(self) -> float | None:
        """Samples a second that the consumer takes where nothing keeps it waiting."""
        stepped = sum(self.steps)
        return self.samples / stepped if stepped else None


def potential(blocks: Sequence[TrialBlock]) -> float | None:
    """Samples a second of all workers at work all the time."""
    making = sum(sum(block.making) for block in blocks)
    workers = blocks[-1].workers
    return workers * sum(block.samples for block in blocks) / making if making and workers else None


def tail(blocks: Sequence[TrialBlock]) -> float | None:
    """How many times as long as the middle batch the slowest in a hundred took; None where too few tell."""
    making = [spent for block in blocks for spent in block.making]
    if len(making) < 20:
        return None
    middle = float(np.median(making))
    return float(np.percentile(making, 99)) / middle if middle > 0 else None


def threads(blocks: Sequence[TrialBlock]) -> float | None:
    process_cpu_s = [block.process_cpu_s for block in blocks if block.process_cpu_s is not None]
    return float(np.median(process_cpu_s)) if process_cpu_s else None


def stall(blocks: Sequence[TrialBlock]) -> Interval:
    """Share of the time waited in the long run, with the interval that resampling of blocks and batches leaves it."""
    workers = blocks[-1].workers if blocks else 0
    groups = [_columns(block) for block in blocks if block.waits]
    draws = bootstrap(groups, lambda rows: np.atleast_1d(_stall(rows, workers)))
    return interval(draws[:, 0], _stall(np.concatenate(groups), workers) if groups else 0.0)


def _columns(block: TrialBlock) -> NDArray[np.float64]:
    """(round: waited, stepped, turns, how many turns, batches), a round being a batch of every worker: waits come in rounds, a long
    one for the first of them. Turns stand in any place, since they are only ever summed."""
    turns = np.zeros((2, len(block.waits)))
    count = min(len(block.turns), len(block.waits))
    turns[0, :count], turns[1, :count] = block.turns[:count], 1.0
    rows = np.column_stack([block.waits, block.steps, *turns, np.ones(len(block.waits))])
    return np.add.reduceat(rows, np.arange(0, len(rows), max(1, block.workers)), axis=0)


def _stall(rounds: NDArray[np.float64], workers: int) -> float:
    waited, stepped, turned, turns, batches = (float(total) for total in rounds.sum(axis=0))
    turn = turned / turns if turns >= workers > 0 else 0.0
    return max(waited / max(waited + stepped, 1e-12), shortage(turn, workers, stepped / batches))


@dataclass(frozen=True)
class BatchTimes:
    """One batch, as its worker made it. Seconds of one clock."""

    worker: int
    room: float
    """When the worker could be told to make it; a full queue keeps it waiting for that."""
    begun: float
    ended: float


def turns(batches: Sequence[BatchTimes]) -> tuple[float, ...]:
    """Seconds that each batch kept its worker, handing over the one before included; waiting for room is not. In the order of
    ``batches``.

    What a worker's first batch took besides making is not known: it has none, and is left out.
    """
    last: dict[int, BatchTimes] = {}
    pairs = []
    for batch in batches:
        before = last.get(batch.worker)
        last[batch.worker] = batch
        if before is not None:
            pairs.append((before, batch))
    # Between two batches that a worker makes without a rest lies what handing over takes; after a rest that cannot be seen.
    at_once = [batch.begun - before.ended for before, batch in pairs if batch.room <= before.ended]
    between = statistics.median(at_once) if at_once else 0.0
    return tuple(
        batch.ended - before.ended
        if batch.room <= before.ended
        else batch.ended - batch.begun + min(between, batch.begun - before.ended)
        for before, batch in pairs
    )


def shortage(turn: float, workers: int, step: float) -> float:
    """Share of its time that a consumer which takes a batch every ``step`` waits in the long run; 0 where nothing says so.

    ``turn``: seconds that a batch keeps one of the workers on average; 0 where that is not known.
    """
    return max(0.0, 1 - workers * step / turn) if turn > 0 and step > 0 and workers else 0.0


def nvml(blocks: Sequence[TrialBlock]) -> dict[str, float]:
    """Means of what the driver said, figure by figure."""
    names = {name for block in blocks for name in block.nvml}
    return {name: float(np.mean([block.nvml[name] for block in blocks if name in block.nvml])) for name in sorted(names)}


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
