"""An estimate with its 95 % interval, and figures in words: 1.23 ms, 4.5 GB, 61 %, 3.4x, 1.42x (1.35-1.49).

A figure that is not finite reads as "unknown"; an interval without a finite end says so.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import TypeGuard

import msgspec

UNKNOWN = "unknown"


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    """An estimate and the 95 % interval it is believed to lie in."""

    value: float
    """The estimate itself (a median or a ratio of medians)."""
    low: float
    """2.5th percentile of the bootstrap."""
    high: float
    """97.5th percentile of the bootstrap."""
    blocks: int | None = None
    """Blocks that it rests on, told where they are too few for an interval: its ends are unbounded then."""

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """The interval of a function that only rises, or only falls."""
        low, high = sorted((function(self.low), function(self.high)))
        return Interval(function(self.value), low, high)

    def scaled(self, factor: float) -> Interval:
        return self.mapped(lambda value: value * factor)

    def inverted(self) -> Interval:
        """The interval of 1/x (for x > 0): seconds a sample into samples a second."""
        return self.mapped(lambda value: 1 / value)


def exactly(value: float) -> Interval:
    """A figure known without doubt (a byte count, a planted cost)."""
    return Interval(value, value, value)


def known(value: float | None) -> TypeGuard[float]:
    return value is not None and abs(value) <= sys.float_info.max  # a file may hold an integer that no float does


def usable(interval: Interval | None) -> Interval | None:
    """The interval if its estimate is a figure, else None."""
    return interval if interval is not None and known(interval.value) else None


# -- figures -----------------------------------------------------------------------------------------------------------


def three_digits(value: float) -> str:
    """``1,234``, ``12.3``, ``1.23``, ``0.0123``: the tenths and hundredths that this size deserves."""
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def time_unit(value: float) -> tuple[str, float]:
    """What a time is told in, and its seconds: minutes and hours from one and a half of them."""
    for unit, scale in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= (1.5 if scale > 1 else 0.9995) * scale:
            return unit, scale
    return ("s", 1.0) if value == 0 else ("ns", 1e-9)


def seconds(value: float | None) -> str:
    """``0.00123`` -> ``1.23 ms``; minutes and hours above 90 s."""
    if not known(value):
        return UNKNOWN
    unit, scale = time_unit(value)
    return f"{value / scale:.1f} {unit}" if unit in ("h", "min") else f"{three_digits(value / scale)} {unit}"


def size(value: float | None) -> str:
    """Bytes in decimal units, as disks and networks are sold: ``1234567`` -> ``1.23 MB``."""
    if not known(value):
        return UNKNOWN
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= 0.9995 * scale:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def rate(value: float | None, unit: str = "samples/s") -> str:
    return f"{three_digits(value)} {unit}".rstrip() if known(value) else UNKNOWN


def percent(share: float | None) -> str:
    """``0.613`` -> ``61 %``; tenths below ten per cent."""
    if not known(share):
        return UNKNOWN
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def times(ratio: float | None) -> str:
    """A speed-up: ``3.4x``; of less than a hundredth one digit more, ``0.004x``."""
    if not known(ratio):
        return UNKNOWN
    if 0 < ratio < 0.01:
        return f"{ratio:.3f}x" if ratio >= 0.001 else "<0.001x"
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def number(value: float | None) -> str:
    if not known(value):
        return UNKNOWN
    return f"{value:,.0f}" if value == round(value) else three_digits(value)


def calls(a_sample: float) -> str:
    """``2 calls``; ``1 in 64 samples`` for what is called once a batch; nothing for once a sample."""
    if a_sample == 1 or not math.isfinite(a_sample):
        return ""
    between = 1 / a_sample if a_sample > 0 else 0.0
    return f"1 in {number(round(between))} samples" if 2 <= between < math.inf else f"{number(a_sample)} calls"


def counted(count: int, noun: str) -> str:
    """``1 finding``, ``3 findings``, ``2 batches``, ``2 epochs``."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith(('tch', 'ss')) else 's'}"


def core_count(count: float) -> str:
    """``1 core``, ``2 cores``, ``0.5 cores``."""
    return f"{count:g} core" if count == 1 else f"{count:g} cores"


def median(values: Sequence[float]) -> float | None:
    """The middle of the finite ones."""
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else None


# -- figures with their interval -----------------------------------------------------------------------------------------


def between(low: str, high: str) -> str:
    """``1.35-1.49``; with a word where a minus sign would be misread."""
    return f"{low} to {high}" if low.startswith("-") or high.startswith("-") else f"{low}-{high}"


def _with_ends(interval: Interval | None, text: Callable[[float], str], end: Callable[[float], str]) -> str:
    """The estimate in words, and its interval in brackets unless both ends read like it."""
    if interval is None or not known(interval.value):
        return UNKNOWN
    low, high = (end(figure) if known(figure) else "" for figure in (interval.low, interval.high))
    if low == end(interval.value) == high:
        return text(interval.value)
    if low and high:
        return f"{text(interval.value)} ({between(low, high)})"
    return f"{text(interval.value)} ({f'at least {low}' if low else f'at most {high}' if high else 'no interval'})"


def seconds_between(interval: Interval | None) -> str:
    """``4.60 ms (4.41-4.80)``."""
    scale = time_unit(interval.value)[1] if interval is not None and known(interval.value) else 1.0
    return _with_ends(interval, seconds, lambda end: three_digits(end / scale))


def rate_between(interval: Interval | None, unit: str = "samples/s") -> str:
    return _with_ends(interval, lambda value: rate(value, unit), three_digits)


def percent_between(interval: Interval | None) -> str:
    return _with_ends(interval, percent, lambda end: percent(end).removesuffix(" %"))


def times_between(interval: Interval | None) -> str:
    """``1.42x (1.35-1.49)``."""
    return _with_ends(interval, times, lambda end: times(end).removesuffix("x"))
