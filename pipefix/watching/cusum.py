"""A sequential test for a lasting rise of a noisy figure (a one-sided CUSUM), and how often it fires for nothing. Pure.

Each value adds what it lies above the level plus a slack, and the sum never falls below zero. Noise keeps it near zero; a rise by
twice the slack makes it grow by one slack a value. It fires above a limit that follows from the noise and from the false alarms
that are allowed (Siegmund's formula). No single value may add more than a sixth of the limit: outliers are no drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

PIECES = 6
"""Values that it takes to fire, at least."""
_MAD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""
_LEAST_NOISE = 0.02
_UNSURE = 10
"""A noise that was learned from so many values may be half as large again as it looked; from more, by so much less."""
_ALIKE = 0.3
"""How much neighbours resemble each other (their correlation) where few values have shown it."""
_MOST_ALIKE = 0.7
_OVERSHOOT = 1.166


class Rise:
    """The test itself. Values, level, slack and limit are in the same (here: logarithmic) units."""

    def __init__(self, slack: float, limit: float) -> None:
        self.slack, self.limit = slack, limit
        self.sum = 0.0
        self.above: list[float] = []
        """Values since the sum last was zero, the latest `_KEPT`."""
        self.run = 0
        """How many values that are."""

    def feed(self, excess: float) -> bool:
        """``excess``: the value less its level. True while the sum lies above the limit."""
        step = max(-self.limit, min(excess - self.slack, self.limit / PIECES))
        self.sum = max(0.0, min(self.sum + step, 2 * self.limit))
        if self.sum == 0.0:
            self.above.clear()
            self.run = 0
        else:
            self.run += 1
            self.above.append(excess)
            del self.above[:-_KEPT]
        return self.sum > self.limit

    def limited(self, limit: float) -> None:
        """The noise is known better now."""
        self.limit = limit
        self.sum = min(self.sum, 2 * limit)

    def clear(self) -> None:
        self.sum, self.run = 0.0, 0
        self.above.clear()


_KEPT = 64


def noise(values: Sequence[float]) -> float:
    """The spread of a figure from one value to the next, as a standard deviation that outliers do not enlarge.

    Where neighbours resemble each other, the sum of several spreads further than independent values would: counted in.
    """
    middle = median(values)
    off = [value - middle for value in values]
    spread = max(_LEAST_NOISE, _MAD * median(abs(value) for value in off))
    clipped = [max(-4 * spread, min(4 * spread, value)) for value in off]
    square = sum(value * value for value in clipped)
    # Tails that come again and again are part of the noise.
    spread = max(spread, math.sqrt(square / len(off)))
    alike = sum(value * following for value, following in pairwise(clipped)) / square if square else 0.0
    # Few values say little about either: they are pulled towards what is usual, and to the safe side.
    count = len(values)
    alike = max(0.0, min(_MOST_ALIKE, (count * alike + 20 * _ALIKE) / (count + 20)))
    return spread * (1 + 0.5 * min(1.0, _UNSURE / count)) * math.sqrt((1 + alike) / (1 - alike))


def values_between_alarms(limit: float, slack: float, noise: float) -> float:
    """How many values pass, on average, between two false alarms (Siegmund 1985)."""
    drift = slack / noise
    height = limit / noise + _OVERSHOOT
    exponent = 2 * drift * height
    return (math.exp(min(exponent, 700.0)) - exponent - 1) / (2 * drift * drift)


def limit_for(values: float, slack: float, noise: float) -> float:
    """The limit at which so many values pass between two false alarms."""
    low, high = 0.0, noise
    while values_between_alarms(high, slack, noise) < values:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if values_between_alarms(middle, slack, noise) < values else (low, middle)
    return max(high, 2 * slack)
