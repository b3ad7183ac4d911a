"""What a change brings (throughput after over before: above 1 is faster) and how that is known; words of such a figure.

A gain is one of four: it was tried (`MeasuredGain`), computed (`Modelled`), limited by what else was seen (`Bounded`), or nothing
is known (`NotTried`). Whatever is computed of several gains is known no better than the least known of them (`derived`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipefix.vocabulary.quantity import Interval, times, times_between

FEWEST_RESAMPLED = 5
"""Blocks that a share of resamples must rest on: resampling fewer repeats the same few again and again."""
FEWEST_FOR_INTERVAL = 2
"""Blocks that an interval must rest on: one block says nothing of how far blocks differ."""


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


@dataclass(frozen=True)
class Modelled:
    """Computed from what was measured."""

    interval: Interval
    rests_on: str = "the model"
    """Of what it was computed: the model alone, or also an arm that came near it."""
    how: ClassVar[str] = "modelled"


@dataclass(frozen=True)
class Bounded:
    """It did not run; what else was measured leaves at most this."""

    at_most: float
    why: str = ""
    how: ClassVar[str] = "bounded"


@dataclass(frozen=True)
class NotTried:
    """Nothing is known of it."""

    why: str = ""
    how: ClassVar[str] = "not tried"


Gain = MeasuredGain | Modelled | Bounded | NotTried
Told = MeasuredGain | Modelled
"""A gain with a figure of its own."""


def derived(interval: Interval, *sources: Gain, rests_on: str = "the model") -> Gain:
    """``interval``, computed of ``sources``, as the least known of them lets it be told."""
    least = max(sources, key=lambda gain: _ORDER.index(type(gain)))
    if isinstance(least, NotTried):
        return least
    if isinstance(least, Bounded):
        return Bounded(interval.high, least.why)
    if isinstance(least, MeasuredGain):
        return MeasuredGain(interval, min(gain.blocks for gain in sources if isinstance(gain, MeasuredGain)))
    return Modelled(interval, rests_on)


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
    return times_between(gain.interval)


def words(gain: Gain) -> str:
    """``1.42x (1.31-1.55), measured``."""
    if isinstance(gain, NotTried):
        return f"not tried: {gain.why}" if gain.why else "not tried"
    if isinstance(gain, Bounded):
        return f"{figure(gain)}, not tried"
    return f"{figure(gain)}, {pedigree(isinstance(gain, MeasuredGain))}"


def pedigree(tried: bool, *, whole: bool = False) -> str:
    """How a figure is known, as it is printed beside it. ``whole``: told at length."""
    if whole:
        return "measured in a trial" if tried else "predicted by the model"
    return "measured" if tried else "predicted"


_ORDER: tuple[type[Gain], ...] = (MeasuredGain, Modelled, Bounded, NotTried)
