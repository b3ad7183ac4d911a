"""Figures as a person reads them, intervals included; shared by the terminal card, the page and the comparison.

A figure that is not finite reads as "unknown"; an interval without a finite end says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def _exact(interval: Interval) -> bool:
    return interval.low == interval.value == interval.high


def seconds(value: float | None) -> str:
    return quantity.seconds(value) if value is not None and math.isfinite(value) else UNKNOWN


def seconds_between(interval: Interval | None) -> str:
    """``4.60 ms (4.41-4.80)``."""
    if interval is None or not math.isfinite(interval.value):
        return UNKNOWN
    text = seconds(interval.value)
    return text if _exact(interval) else f"{text} ({_ends(interval, quantity.time_unit(interval.value)[1])})"


def size(value: float | None) -> str:
    return quantity.size(value) if value is not None and math.isfinite(value) else UNKNOWN


def percent(share: float | None) -> str:
    return quantity.percent(share) if share is not None and math.isfinite(share) else UNKNOWN


def percent_between(interval: Interval | None) -> str:
    if interval is None or not math.isfinite(interval.value):
        return UNKNOWN
    text = percent(interval.value)
    if _exact(interval):
        return text
    low, high = (percent(end).removesuffix(" %") for end in (interval.low, interval.high))
    return f"{text} ({between(low, high)})"


def times(ratio: float | None) -> str:
    return quantity.times(ratio) if ratio is not None and math.isfinite(ratio) else UNKNOWN


def times_between(interval: Interval | None) -> str:
    """``1.42x (1.35-1.49)``."""
    if interval is None or not math.isfinite(interval.value):
        return UNKNOWN
    if math.isfinite(interval.low) and math.isfinite(interval.high):
        return span(interval)
    return f"{times(interval.value)} ({_ends(interval)})"


def rate(value: float | None, unit: str = "samples/s") -> str:
    return quantity.rate(value, unit) if value is not None and math.isfinite(value) else UNKNOWN


def rate_between(interval: Interval | None, unit: str = "samples/s") -> str:
    if interval is None or not math.isfinite(interval.value):
        return UNKNOWN
    text = rate(interval.value, unit)
    return text if _exact(interval) else f"{text} ({_ends(interval)})"


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
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def counted(count: int, noun: str) -> str:
    """``1 finding``, ``3 findings``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
