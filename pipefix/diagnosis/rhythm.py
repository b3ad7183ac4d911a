"""Whether the long waits for batches come in a rhythm: with round-robin workers every turn of all of them brings one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipefix.measurement.statistics import Floats

TURNS = 4
"""Turns of all workers that a stretch of waits must span: fewer show no rhythm, only a coincidence."""
STRONG = 0.5
"""Autocorrelation from which waits that far apart are called alike. Waits without a rhythm stay near 0."""
WORTH = 0.1
"""The long waits must exceed the others by this part of the time between two batches; less is no wait to speak of."""


def period(stretches: Sequence[Sequence[float]], workers: int, between: float) -> int | None:
    """Every how many batches a long wait comes, or None where no such rhythm is seen.

    ``stretches`` are the waits of uninterrupted runs of batches, in order; ``between`` is the usual time from one batch to the
    next in the same unit. The rhythm looked for is that of ``workers`` taking turns, or a part of it (four workers, two of them
    slow, bring a long wait every second batch).
    """
    if workers < 2 or between <= 0:
        return None
    kept = [_calmed(np.asarray(one, dtype=np.float64)) for one in stretches if len(one) >= TURNS * workers]
    if not kept:
        return None
    alike = {lag: _autocorrelation(kept, lag) for lag in range(1, workers + 1)}
    found = next((lag for lag in range(2, workers + 1) if workers % lag == 0 and alike[lag] >= 0.9 * alike[workers]), workers)
    if alike[workers] < STRONG or any(alike[lag] >= alike[found] for lag in range(1, found)):
        return None
    return found if _height(kept, found) >= WORTH * between else None


def _calmed(waits: Floats) -> Floats:
    """Single waits far above all others (a pause of the machine) count no more than the long ones among the rest."""
    return np.minimum(waits, 2 * np.percentile(waits, 90))


def _autocorrelation(stretches: Sequence[Floats], lag: int) -> float:
    """Over all stretches together, each around its own mean."""
    around = [one - one.mean() for one in stretches]
    spread = sum(float(one @ one) / len(one) for one in around)
    if spread <= 0:
        return 0.0
    return sum(float(one[lag:] @ one[:-lag]) / (len(one) - lag) for one in around) / spread


def _height(stretches: Sequence[Floats], lag: int) -> float:
    """How far the long waits of the rhythm stand above the others."""
    heights = []
    for one in stretches:
        phases = [float(one[phase::lag].mean()) for phase in range(lag)]
        heights.append(max(phases) - float(np.median(phases)) if lag > 2 else max(phases) - min(phases))
    return float(np.median(heights))
