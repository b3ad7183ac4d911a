"""Whether the cores kept one pace while a pipeline was measured, by the CPU time of work that was done again and again. Pure."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from pipefix.measurement.measurement import Measurement

PARTS, FEWEST = 3, 6
"""Of the measuring, which are held against each other; and blocks of each below which nothing is told."""
LEAST_CPU = 0.02
"""CPU seconds of a block below which it tells nothing of a pace."""
TOLD = 1.25
"""Times the CPU time from which on it is told: what neighbours do to the caches comes to less."""


def slower_by(measurement: Measurement) -> float:
    """How many times as much CPU time the same work took in the slowest part of the measuring as in the quickest; 1 where that is
    little, or not known."""
    took: dict[str, list[float]] = defaultdict(list)
    blocks = []
    for block in measurement.blocks:
        cpu = sum(row.trace.cpu for row in block.rows) / 1e9
        if cpu >= LEAST_CPU:
            took[block.arm].append(cpu / block.samples)
            blocks.append((block.arm, cpu / block.samples))
    usual = {arm: float(np.median(each)) for arm, each in took.items()}
    logs = np.log([each / usual[arm] for arm, each in blocks])
    if len(logs) < PARTS * FEWEST:
        return 1.0
    levels = [float(np.median(part)) for part in np.array_split(logs, PARTS)]
    times = float(np.exp(max(levels) - min(levels)))
    return times if times >= TOLD else 1.0
