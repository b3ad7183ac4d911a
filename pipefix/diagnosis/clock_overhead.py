"""How much timing itself slows this pipeline, and whether the cores kept one pace meanwhile. Pure."""

from __future__ import annotations

import numpy as np

from pipefix.measurement import experiments
from pipefix.measurement.measurement import Block, Measurement, charges_of, rows_of
from pipefix.measurement.statistics import ratio

CLOCK_DOUBT = 2.0
"""How many times dearer, or cheaper, a timed call may be in a pipeline than by itself."""
MOST_CLOCKED = 0.2
"""Part of a sample's time that clocks are believed to cost at most; what is above is noise."""
FED = 0.2
"""Part of its time that a consumer waits at least where what workers do decides the pace."""
PARTS, FEWEST = 3, 6
"""Of the measuring, which are held against each other; and blocks of each below which nothing is told."""
LEAST_CPU = 0.02
"""CPU seconds of a block below which it tells nothing of a pace."""
TOLD = 1.25
"""Times the CPU time from which on it is told: what neighbours do to the caches comes to less."""


def call_seconds(measurement: Measurement, waits: float) -> float:
    """Seconds that one timed call adds where it is made. ``waits``: part of the time that the consumer waits for batches.

    As calibrated, but no more than the pipeline itself shows: where the timed arm is as fast as the untimed one, calls that take
    microseconds are what they look like.
    """
    most = _slower_at_most(measurement) if measurement.seam_cost else None
    if most is None or (measurement.workers and measurement.has_consumer and waits < FED):
        return measurement.seam_cost
    return min(measurement.seam_cost, most * max(1, measurement.workers))


def delivered_seconds(measurement: Measurement) -> float:
    """Delivered seconds that one timed call adds: what the timed arm takes longer than the untimed one, shared among its calls.

    That difference of two large figures is believed as far as it agrees with what a call costs by itself; with workers, which may
    make up for it in parallel or while a step runs, down to nothing.
    """
    real, plain = measurement.of(experiments.REAL.name), measurement.of(experiments.PLAIN.name)
    calls = calls_per_sample(real)
    if not plain or not calls:
        return 0.0
    slower = max(0.0, seconds_each(real) - seconds_each(plain)) / calls
    if measurement.seam_cost:
        least = 0.0 if measurement.workers else measurement.seam_cost / CLOCK_DOUBT
        most = _slower_at_most(measurement)
        slower = min(max(slower, least if most is None else min(least, most)), CLOCK_DOUBT * measurement.seam_cost)
    return min(slower, MOST_CLOCKED * seconds_each(real) / calls)


def unclocked(block: Block, cost: float) -> float:
    """A block's rate without what its clocks cost: an arm with fewer timed calls must not gain by that."""
    each = block.seconds / block.samples
    return 1 / max(each - cost * calls_per_sample([block]), (1 - MOST_CLOCKED) * each)


def calls_per_sample(blocks: list[Block]) -> float:
    """Timed calls a sample."""
    count = sum(charge.calls for charge in charges_of(rows_of(blocks)))
    samples = sum(block.samples for block in blocks)
    return count / samples if samples else 0.0


def seconds_each(blocks: list[Block]) -> float:
    """Delivered seconds a sample: the median block's."""
    return float(np.median([block.seconds / block.samples for block in blocks])) if blocks else float("nan")


def _slower_at_most(measurement: Measurement) -> float | None:
    """Delivered seconds that a timed call adds at most, by the interval between both arms; None where that is not known."""
    real, plain = measurement.of(experiments.REAL.name), measurement.of(experiments.PLAIN.name)
    calls = calls_per_sample(real)
    if len(real) < 2 or len(plain) < 2 or not calls:
        return None
    slowdown = ratio([block.rate for block in plain], [block.rate for block in real])
    return max(0.0, slowdown.high - 1) * seconds_each(plain) / calls


def slower_by(measurement: Measurement) -> float:
    """How many times as much CPU time the same work took in the slowest part of the measuring as in the quickest; 1 where that is
    little, or not known."""
    spent = [(block.arm, sum(row.trace.cpu for row in block.rows) / 1e9, block.samples) for block in measurement.blocks]
    took = [(arm, cpu / samples) for arm, cpu, samples in spent if cpu >= LEAST_CPU]
    usual = {arm: float(np.median([each for other, each in took if other == arm])) for arm, _ in took}
    logs = np.log([each / usual[arm] for arm, each in took])
    if len(logs) < PARTS * FEWEST:
        return 1.0
    levels = [float(np.median(part)) for part in np.array_split(logs, PARTS)]
    times = float(np.exp(max(levels) - min(levels)))
    return times if times >= TOLD else 1.0
