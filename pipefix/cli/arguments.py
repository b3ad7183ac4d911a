"""Values on the command line, as people write them: ``90s``, ``500MB``, ``5%``. A refusal says what was found and what would do."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError

_NUMBER = re.compile(r"\s*([+-]?[\d.,_]*\d\.?(?:[eE][+-]?\d+)?)\s*([^\d\s]*)\s*$")
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "ms": 1e-3}
_BYTES = {
    "": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
    "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12,
}  # fmt: skip


def _split(text: str) -> tuple[float, str] | None:
    """A number and its unit; None where there is no finite number."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    try:
        value = float(match[1].replace("_", "").replace(",", ""))
    except ValueError:
        return None
    return (value, match[2].lower()) if math.isfinite(value) else None


def _scaled(text: str, units: dict[str, float], what: str, examples: str) -> float:
    parts = _split(text)
    if parts is None or parts[1] not in units:
        raise ArgumentTypeError(f"{text!r} is not {what}; write {examples}")
    value = parts[0] * units[parts[1]]
    if value <= 0:
        raise ArgumentTypeError(f"{text!r} is not above zero; write {examples}")
    return value


def seconds(text: str) -> float:
    return _scaled(text, _SECONDS, "a number of seconds", "60, 90s or 2m")


def milliseconds(text: str) -> float:
    """Plain numbers are milliseconds; a unit may say otherwise."""
    plain = {**{unit: scale * 1e3 for unit, scale in _SECONDS.items()}, "": 1.0}
    return _scaled(text, plain, "a number of milliseconds", "25 or 0.2s")


def rate(text: str) -> float:
    return _scaled(text, {"": 1.0, "/s": 1.0, "samples/s": 1.0}, "a number of samples a second", "1200")


def size(text: str) -> int:
    value = _scaled(text, _BYTES, "a size", "500MB, 2GB or 1GiB")
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is less than one byte; write 500MB, 2GB or 1GiB")
    return int(value)


def share(text: str) -> float:
    """``5%`` is 0.05. A bare number is per cent too."""
    parts = _split(text)
    if parts is None or parts[1] not in ("", "%"):
        raise ArgumentTypeError(f"{text!r} is not a percentage; write 5%")
    if not 0 <= parts[0] <= 100:
        raise ArgumentTypeError(f"{text!r} is not between 0% and 100%; write 5%")
    return parts[0] / 100


def _whole(text: str, least: int, most: int, range_: str, example: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ArgumentTypeError(f"{text!r} is not a whole number {range_}; write {example}")
    return value


def seed(text: str) -> int:
    return _whole(text, 0, 2**63 - 1, "from 0 to 2^63 - 1", "0")


def batch_size(text: str) -> int:
    return _whole(text, 1, 2**31 - 1, "above 0", "32")


def workers(text: str) -> int:
    return _whole(text, 0, 4096, "from 0 to 4096", "4")


def pixels(text: str) -> int:
    return _whole(text, 1, 65535, "from 1 to 65535", "256")


def quality(text: str) -> int:
    return _whole(text, 1, 100, "from 1 to 100", "90")
