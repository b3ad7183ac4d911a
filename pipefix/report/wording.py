"""Numbers and intervals in words, with units; what is unknown or unbounded says so. For terminal, page and comparison.

A figure that is not finite reads as "unknown"; an interval without a finite end says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from pipefix.vocabulary import quantity
from pipefix.vocabulary.gain import span
from pipefix.vocabulary.quantity import Interval, three_digits

UNKNOWN = "unknown"


def known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def usable(interval: Interval | None) -> Interval | None:
    """The interval if its estimate is a figure, else None."""
    return interval if interval is not None and math.isfinite(interval.value) else None


def between(low: str, high: str) -> str:
    """``1.35-1.49``; with a word where a minus sign would be misread."""
    return f"{low} to {high}" if low.startswith("-") or high.startswith("-") else f"{low}-{high}"


def _ends(interval: Interval, scale: float = 1.0) -> str:
    low, high = interval.low / scale, interval.high / scale
    if math.isfinite(low) and math.isfinite(high):
        return between(three_digits(low), three_digits(high))
    if math.isfinite(low):
        return f"at least {three_digits(low)}"
    return f"at most {three_digits(high)}" if math.isfinite(high) else "no interval"


def _or_unknown(words: Callable[[float], str]) -> Callable[[float | None], str]:
    return lambda value: words(value) if value is not None and math.isfinite(value) else UNKNOWN


seconds, size = _or_unknown(quantity.seconds), _or_unknown(quantity.size)
percent, times = _or_unknown(quantity.percent), _or_unknown(quantity.times)


def rate(value: float | None, unit: str = "samples/s") -> str:
    return quantity.rate(value, unit) if value is not None and math.isfinite(value) else UNKNOWN


def _with_ends(interval: Interval | None, text: Callable[[float], str], scale: float = 1.0) -> str:
    """The estimate in words, and its interval in brackets unless it is exact."""
    if interval is None or not math.isfinite(interval.value):
        return UNKNOWN
    exact = interval.low == interval.value == interval.high
    return text(interval.value) + ("" if exact else f" ({_ends(interval, scale)})")


def seconds_between(interval: Interval | None) -> str:
    """``4.60 ms (4.41-4.80)``."""
    estimate = usable(interval)
    scale = quantity.time_unit(estimate.value)[1] if estimate is not None else 1.0
    return _with_ends(estimate, quantity.seconds, scale)


def rate_between(interval: Interval | None, unit: str = "samples/s") -> str:
    return _with_ends(interval, lambda value: quantity.rate(value, unit))


def percent_between(interval: Interval | None) -> str:
    if interval is None or not math.isfinite(interval.value):
        return UNKNOWN
    low, high = (percent(end).removesuffix(" %") for end in (interval.low, interval.high))
    exact = interval.low == interval.value == interval.high
    return percent(interval.value) + ("" if exact else f" ({between(low, high)})")


def times_between(interval: Interval | None) -> str:
    """``1.42x (1.35-1.49)``."""
    if interval is not None and all(map(math.isfinite, (interval.value, interval.low, interval.high))):
        return span(interval)
    return _with_ends(interval, quantity.times)


def number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if value == round(value) else three_digits(value)


def calls(a_sample: float) -> str:
    """``2 calls``; ``1 in 64 samples`` for what is called once a batch; nothing for once a sample."""
    if a_sample == 1 or not math.isfinite(a_sample):
        return ""
    between = 1 / a_sample if a_sample > 0 else 0.0
    return f"1 in {number(round(between))} samples" if 2 <= between < math.inf else f"{number(a_sample)} calls"


def median(values: Sequence[float]) -> float | None:
    """The middle of the finite ones."""
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else None


def counted(count: int, noun: str) -> str:
    """``1 finding``, ``3 findings``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
