"""Numbers with a pedigree, and how a person reads them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


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


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def seconds(value: float) -> str:
    """``0.00123`` -> ``1.23 ms``; minutes and hours above 90 s."""
    size = abs(value)
    if size >= 5400:
        return f"{value / 3600:.1f} h"
    if size >= 90:
        return f"{value / 60:.1f} min"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if size >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return "0 s" if value == 0 else f"{_three_digits(value * 1e9)} ns"


def size(value: float) -> str:
    """Bytes in decimal units, as disks and networks are sold: ``1234567`` -> ``1.23 MB``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def rate(value: float, unit: str = "samples/s") -> str:
    return f"{_three_digits(value)} {unit}"


def percent(share: float) -> str:
    """``0.613`` -> ``61 %``; tenths below ten per cent."""
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def times(ratio: float) -> str:
    """A speed-up: ``3.4x``."""
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"
