"""Reads amounts as people write them, on the command line and in Python: ``90s``, ``500MB``, ``5%``; or says what would do."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pipefix.vocabulary.errors import BadUsage

_Amount = TypeVar("_Amount")

_NUMBER = re.compile(r"\s*([+-]?[\d._]*\d\.?(?:[eE][+-]?\d+)?)\s*([^\d\s]*)\s*$")
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "ms": 1e-3}
_BYTES = {
    "": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
    "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12,
}  # fmt: skip


class BadAmount(ValueError, ArgumentTypeError):
    """A text that is no amount; argparse tells what it says."""


def _split(text: str) -> tuple[float, str] | None:
    """A number and its unit; None where there is no finite number."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    with suppress(ValueError):
        value = float(match[1].replace("_", ""))
        return (value, match[2].lower()) if math.isfinite(value) else None
    return None


def _without_comma(text: str) -> None:
    """Half of the world parts decimals by it, and the other half thousands."""
    point, joined = text.replace(",", ".", 1), text.replace(",", "")
    if "," in text and _split(joined) is not None:
        thousands = re.match(r"\s*[+-]?\d{1,3}(,\d{3})+(?!\d)", text) is not None
        readings = [reading for reading, fits in ((point, text.count(",") == 1), (joined, thousands)) if fits] or [joined]
        raise BadAmount(f"{text!r} has a comma in it; write {' or '.join(reading.strip() for reading in readings)}")


def _scaled(text: str, units: dict[str, float], quantity: str, examples: str) -> float:
    _without_comma(text)
    parts = _split(text)
    if parts is None or parts[1] not in units:
        raise BadAmount(f"{text!r} is not {quantity}; write {examples}")
    value = parts[0] * units[parts[1]]
    if value <= 0:
        raise BadAmount(f"{text!r} is not above zero; write {examples}")
    return value


seconds = partial(_scaled, units=_SECONDS, quantity="a number of seconds", examples="60, 90s or 2m")
_MILLISECONDS = {unit: scale * 1e3 if unit else 1.0 for unit, scale in _SECONDS.items()}
"""Plain numbers are milliseconds; a unit may say otherwise."""
milliseconds = partial(_scaled, units=_MILLISECONDS, quantity="a number of milliseconds", examples="25 or 0.2s")
rate = partial(_scaled, units=dict.fromkeys(("", "/s", "samples/s"), 1.0), quantity="a number of samples a second", examples="1200")
cores = partial(_scaled, units=dict.fromkeys(("", "core", "cores"), 1.0), quantity="a number of CPU cores", examples="4 or 2.5")
price = partial(_scaled, units={"": 1.0}, quantity="an amount of money", examples="3.50")


def size(text: str) -> int:
    value = _scaled(text, _BYTES, "a size", "500MB, 2GB or 1GiB")
    if value < 1:
        raise BadAmount(f"{text!r} is less than one byte; write 500MB, 2GB or 1GiB")
    return int(value)


def share(text: str) -> float:
    """``5%`` is 0.05. A bare number is per cent too; a bare fraction could be meant either way."""
    _without_comma(text)
    parts = _split(text)
    if parts is None or parts[1] not in ("", "%"):
        raise BadAmount(f"{text!r} is not a percentage; write 5%")
    if not 0 <= parts[0] <= 100:
        raise BadAmount(f"{text!r} is not between 0% and 100%; write 5%")
    if 0 < parts[0] < 1 and not parts[1]:
        raise BadAmount(f"{text!r} could mean {parts[0]:g}% or {100 * parts[0]:g}%; write {100 * parts[0]:g}% or {parts[0]:g}%")
    return parts[0] / 100


def taken_share(name: str, value: float | str) -> float:
    """A share that a call may be given as text or as a number, which is no percentage.

    Raises:
        BadUsage: It is neither.
    """
    part = taken(name, value, share)
    if not 0 <= part <= 1:
        advice = f"Write {name}={part / 100:g}, or {name}='{part:g}%'."
        raise BadUsage(f"{name} is a share from 0 to 1, and {part:g} is not.", advice=advice)
    return part


def taken(name: str, value: _Amount | str, read: Callable[[str], Any]) -> _Amount:
    """An argument of a call that may be given as text, or as the number that ``read`` makes of such a text.

    Raises:
        BadUsage: It is text that ``read`` refuses, or a number that is not above zero where that is no share.
    """
    if isinstance(value, (int, float)) and read is not share and not value > 0:
        raise BadUsage(f"{name}: {value:g} is not above zero.", advice=f"Give a number, or text with its unit, for {name}.")
    if not isinstance(value, str):
        return value
    try:
        return read(value)  # type: ignore[no-any-return]
    except ValueError as error:
        raise BadUsage(f"{name}: {error}.", advice=f"Give a number, or text with its unit, for {name}.") from error
