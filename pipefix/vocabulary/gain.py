"""What a change brings (throughput after over before: above 1 is faster) and how that is known; words of such a figure.

A gain is one of four: it was tried (`MeasuredGain`), computed (`Modelled`), limited by what else was seen (`Bounded`), or nothing
is known (`NotTried`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from pipefix.vocabulary.quantity import Interval, times, times_between

FEWEST_RESAMPLED = 5
"""Blocks that a share of resamples must rest on: resampling fewer repeats the same few again and again."""
FEWEST_FOR_INTERVAL = 2
"""Blocks that an interval must rest on: one block says nothing of how far blocks differ."""

REPLAY_DOUBT = 0.06
"""The logarithm of a gain that was tried is believed to be known to so much of itself, however well blocks agree: what stands for
a change in a probe (a stage that is answered from a recording, workers under the clocks) is not quite the change. 2x to about 4 %,
1.1x to half a per cent, as one standard deviation; from 41 fixes that were really applied (benchmarks/results/whatif.md)."""


def known_from(estimate: Interval, blocks: int) -> Interval:
    """``estimate`` as so many blocks tell it: one block gives a figure, and no interval."""
    return estimate if blocks >= FEWEST_FOR_INTERVAL else Interval(estimate.value, float("-inf"), float("inf"), blocks)


@dataclass(frozen=True)
class MeasuredGain:
    """What the figure speaks of really ran beside the pipeline as it is."""

    interval: Interval
    """Its ends are unbounded where it rests on one block."""
    blocks: int
    """Of the two sides, that of which fewer ran."""
    how: ClassVar[str] = "measured"

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", known_from(self.interval, self.blocks))

    @property
    def told(self) -> Interval:
        """What is said of it: ``interval`` tells how far blocks differ, and `REPLAY_DOUBT` comes on top."""
        value, low, high = self.interval.value, self.interval.low, self.interval.high
        if not 0 < low <= value <= high < math.inf:
            return self.interval
        doubt = 1.96 * REPLAY_DOUBT * abs(math.log(value))
        below, above = (math.hypot(math.log(ratio), doubt) for ratio in (value / low, high / value))
        return Interval(value, value * math.exp(-below), value * math.exp(above))


@dataclass(frozen=True)
class Modelled:
    """Computed from what was measured."""

    interval: Interval
    how: ClassVar[str] = "modelled"

    @property
    def told(self) -> Interval:
        """The model's doubt is in its interval."""
        return self.interval


@dataclass(frozen=True)
class Bounded:
    """It did not run; what else was measured leaves at most this."""

    at_most: float
    how: ClassVar[str] = "bounded"


@dataclass(frozen=True)
class NotTried:
    """Nothing is known of it."""

    how: ClassVar[str] = "not tried"


Gain = MeasuredGain | Modelled | Bounded | NotTried
Told = MeasuredGain | Modelled
"""A gain with a figure of its own."""


def surely_above(gain: Gain, least: float) -> bool:
    """Whether it was tried often enough to say that it is more than ``least``."""
    return isinstance(gain, MeasuredGain) and gain.interval.low > least


def figure(gain: Gain) -> str:
    """``1.42x (1.31-1.55)``, without how it is known: for sentences that say so themselves."""
    if isinstance(gain, NotTried):
        return "not tried"
    if isinstance(gain, Bounded):
        return f"at most {times(gain.at_most)}"
    if isinstance(gain, MeasuredGain) and gain.blocks < FEWEST_FOR_INTERVAL:
        return f"{times(gain.interval.value)} in one block"
    return times_between(gain.told)


def pedigree(tried: bool, *, whole: bool = False) -> str:
    """How a figure is known, as it is printed beside it. ``whole``: told at length."""
    if whole:
        return "measured in a trial" if tried else "predicted by the model"
    return "measured" if tried else "predicted"
