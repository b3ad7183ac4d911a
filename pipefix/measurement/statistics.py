"""Medians, ratios and their intervals, and the turns in which two things run that are compared. Pure; numpy only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipefix.vocabulary.quantity import Interval

RESAMPLES = 400
APART = 0.1
"""Twice the 5 % that neighbouring blocks differ by on a shared machine."""
FLOOR = 0.01
"""No ratio of two timings is believed to be closer than this: clocks agree, machines drift."""

Floats = NDArray[np.float64]
T = TypeVar("T")


def interval(draws: Floats, value: float | None = None) -> Interval:
    """The middle 95 % of bootstrap draws around ``value`` (their median where none is given)."""
    centre = float(np.median(draws)) if value is None else value
    low, high = (float(end) for end in np.percentile(draws, (2.5, 97.5)))
    return Interval(centre, min(low, centre), max(high, centre))


def bootstrap(groups: Sequence[Floats], statistic: Callable[[Floats], Floats]) -> Floats:
    """Resample whole groups, then rows inside each: rows of one block resemble each other more than rows of another.

    ``groups`` are arrays of shape (rows, columns); ``statistic`` takes (rows, columns) and returns a vector.
    """
    generator = np.random.default_rng(0)
    filled = [group for group in groups if len(group)]
    draws = []
    for _ in range(RESAMPLES):
        chosen = generator.integers(0, len(filled), len(filled)) if len(filled) > 1 else [0]
        parts = [filled[number][generator.integers(0, len(filled[number]), len(filled[number]))] for number in chosen]
        draws.append(statistic(np.concatenate(parts)))
    return np.asarray(draws)


def spread_around(values: Sequence[float]) -> Floats:
    """Draws of the median of a few blocks' figures, spread as far as so few tell."""
    logs = np.log(np.asarray(values, dtype=float))
    sigma = max(FLOOR, _spread(logs) / np.sqrt(len(logs))) / 1.96
    return np.asarray(np.exp(np.median(logs) + sigma * np.random.default_rng(0).standard_normal(RESAMPLES)))


def ratio(fast: Sequence[float], base: Sequence[float]) -> Interval:
    """How many times faster the first set of rates is than the second; both from interleaved blocks.

    The interval is that of the ratio of medians under resampling, never narrower than what so few blocks can tell.
    """
    a, b = np.log(np.asarray(fast, dtype=float)), np.log(np.asarray(base, dtype=float))
    centre = float(np.median(a) - np.median(b))
    generator = np.random.default_rng(0)
    first, second = (np.median(generator.choice(logs, (RESAMPLES, len(logs))), axis=1) for logs in (a, b))
    draws = first - second
    half = max(FLOOR, _spread(a) / np.sqrt(len(a)), _spread(b) / np.sqrt(len(b)), float(np.percentile(np.abs(draws - centre), 95)))
    return Interval(float(np.exp(centre)), float(np.exp(centre - half)), float(np.exp(centre + half)))


def in_turn(candidate: Callable[[], T], reference: Callable[[], T]) -> Iterator[tuple[T, T]]:
    """What both give, pair after pair, every second one in the other order: what drifts evens out. As many as are asked for."""
    while True:
        first = candidate()
        yield first, reference()
        second = reference()
        yield candidate(), second


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    """How many times faster the first rate of each pair is than its second; what drifts from pair to pair is on both sides.

    What neighbouring blocks differ by weighs as much as one pair does: two that agree by chance would be believed to a hundredth.
    """
    seen = ratio([fast / base for fast, base in pairs], [1.0] * len(pairs))
    half = float(np.hypot(np.log(seen.high / seen.value), APART / len(pairs) if len(pairs) > 1 else 0.0))
    return Interval(seen.value, seen.value * float(np.exp(-half)), seen.value * float(np.exp(half)))


def _spread(logs: Floats) -> float:
    """Twice a robust standard deviation; for a single block what neighbouring ones differ by."""
    if len(logs) < 2:
        return APART
    return 2 * float(np.median(np.abs(logs - np.median(logs)))) * 1.4826
