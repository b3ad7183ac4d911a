"""The level of one figure, and whether the figure has risen above it, or fallen below it, for good. Pure.

On a logarithmic scale, the median of the last values is held against the level: a baseline's, or the median of the first values. So
half of the last values must have changed, and no outlier and no short burst is a drift. The level follows slow waves, such as a
day's, within `WAVE` of where it began. A figure that fell for good (a page cache that has warmed) gets another level.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

BAR = 0.85
"""Part of the change that is to be found by which the median must have risen: noise and waves may hide the rest."""
SPREADS = 1.5
"""Standard deviations of single values by which it must have risen at least: of a noisy figure only larger changes are found."""
WAVE = 0.10
"""How far the level may follow slow waves from where it began."""
SLOWNESS = 120
"""Values in which it follows most of a lasting change, within `WAVE`."""
_MAD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""


class Level:
    """Fed a figure's values, one after the other."""

    def __init__(self, change: float, count: int, fixed: float | None = None) -> None:
        self.count = count
        """Values that teach the level, and whose median is held against it from then on."""
        self.fixed = fixed
        """A baseline's level."""
        self.last: deque[float] = deque(maxlen=count)
        self.first = 0.0
        """The level as it began."""
        self.drifting = False
        self._level: float | None = None
        self._bar = BAR * math.log1p(change)
        self._fell = False
        """It lies below a baseline's level for good, and that was said."""

    def feed(self, value: float) -> str | None:
        """``up`` where a rise became certain, ``over`` where it ended, ``down`` where the figure fell for good."""
        self.last.append(value)
        if len(self.last) < self.count:
            return None
        middle = median(self.last)
        if self._level is None:
            self._level = self.first = middle if self.fixed is None else self.fixed
            self._bar = max(self._bar, SPREADS * _MAD * median(abs(value - middle) for value in self.last))
        excess = middle - self._level
        if self.drifting:
            self.drifting = excess > self._bar / 2
            return None if self.drifting else "over"
        if excess > self._bar:
            self.drifting = True
            return "up"
        if excess < -self._bar and not self._fell:
            self._fall()
            return "down"
        if abs(excess) < self._bar / 2:
            self._level = max(self.first - WAVE, min(self.first + WAVE, self._level + excess / SLOWNESS))
        return None

    def _fall(self) -> None:
        if self.fixed is not None:
            self._fell = True
            return
        self.last = deque(self._latest, maxlen=self.count)
        self._level = self.first = median(self.last)

    @property
    def _latest(self) -> list[float]:
        """Those that have changed by when a change is certain."""
        return list(self.last)[-(self.count // 2) :]

    @property
    def ratio(self) -> float | None:
        """Where the latest values lie, over the level as it began; None while there is none."""
        return None if self._level is None else math.exp(median(self._latest) - self.first)

    @property
    def raised(self) -> int:
        """How many of the last values lie above the level."""
        return sum(value > (self._level or 0.0) + self._bar / 2 for value in self.last)
