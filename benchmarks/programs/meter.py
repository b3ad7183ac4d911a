"""An independent meter for the programs of this folder: how long a loop waited, by its own clock, printed to a file at the end."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

_waited = _took = 0.0


def timed(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, their waits counted, the first one's included."""
    global _waited, _took
    asked = time.perf_counter()
    following = iter(batches)
    while True:
        try:
            batch = next(following)
        except StopIteration:
            _waited += time.perf_counter() - asked
            _took += time.perf_counter() - asked
            return
        got = time.perf_counter()
        _waited += got - asked
        yield batch
        _took += time.perf_counter() - asked
        asked = time.perf_counter()


def apart(seconds: float) -> None:
    """Time inside the loop that is none of its own: an evaluation."""
    global _took
    _took -= seconds


def add(waited: float, took: float) -> None:
    global _waited, _took
    _waited += waited
    _took += took


def _tell() -> None:
    place = os.environ.get("METER")
    if place and _took:
        with open(f"{place}.{os.environ.get('RANK', '0')}", "w", encoding="utf-8") as file:
            json.dump({"waited_s": _waited, "took_s": _took}, file)


atexit.register(_tell)
