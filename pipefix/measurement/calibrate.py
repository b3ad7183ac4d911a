"""What the instrument itself costs: measured, stated, and subtracted."""

from __future__ import annotations

import time

from pipefix.seams.tap import Tap
from pipefix.vocabulary.stage import Stage

CALLS = 2000
REPEATS = 7


def seam_cost() -> float:
    """Seconds that one timed call through a seam adds to the code around it: the least disturbed of a few repeats."""
    tap = Tap()
    tap.active = True

    def bare() -> None:
        return None

    def timed() -> None:
        tap.through(Stage.AUGMENT, "calibration", bare)

    spent = []
    for _ in range(REPEATS):
        tap.begin(0)
        spent.append(_each(timed) - _each(bare))
        tap.end()
    return max(0.0, min(spent))


def _each(call: object) -> float:
    begun = time.perf_counter()
    for _ in range(CALLS):
        call()  # type: ignore[operator]
    return (time.perf_counter() - begun) / CALLS
