"""An estimate with its 95 % interval, and numbers as people read them: 1.23 ms, 4.5 GB, 61 %, 3.4x."""

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


def three_digits(value: float) -> str:
    """``1,234``, ``12.3``, ``1.23``, ``0.0123``: the tenths and hundredths that this size deserves."""
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def time_unit(value: float) -> tuple[str, float]:
    """What a time is told in, and its seconds: minutes and hours from one and a half of them."""
    for unit, scale in (("h", 3600.0), ("min", 60.0)):
        if abs(value) >= 1.5 * scale:
            return unit, scale
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= 0.9995 * scale:
            return unit, scale
    return ("s", 1.0) if value == 0 else ("ns", 1e-9)


def seconds(value: float) -> str:
    """``0.00123`` -> ``1.23 ms``; minutes and hours above 90 s."""
    unit, scale = time_unit(value)
    return f"{value / scale:.1f} {unit}" if unit in ("h", "min") else f"{three_digits(value / scale)} {unit}"


def size(value: float) -> str:
    """Bytes in decimal units, as disks and networks are sold: ``1234567`` -> ``1.23 MB``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= scale:
            return f"{three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def rate(value: float, unit: str = "samples/s") -> str:
    return f"{three_digits(value)} {unit}"


def percent(share: float) -> str:
    """``0.613`` -> ``61 %``; tenths below ten per cent."""
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def times(ratio: float) -> str:
    """A speed-up: ``3.4x``."""
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"
