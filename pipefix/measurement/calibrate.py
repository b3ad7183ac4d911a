"""What the instrument itself costs: measured, stated, and subtracted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from pipefix.seams.seam import Patches
from pipefix.seams.tap import Tap
from pipefix.subject.cut import Cutter
from pipefix.vocabulary.stage import Stage

CALLS = 2000
REPEATS = 7


def seam_cost() -> float:
    """Seconds that one timed call through a seam adds to the code around it.

    The mean of the two kinds that samples are made of: a library's function, and an operation of a transform list.
    """
    tap, patches = Tap(), Patches()
    tap.active = True
    listed = _Listed()
    Cutter(tap, patches).dataset(listed)
    (operation,), value = listed.transforms, torch.zeros(1, 1)
    try:
        own = _added(tap, lambda: operation(value), lambda: _Operation.bare(operation, value))
    finally:
        patches.undo()
    return (_added(tap, lambda: tap.through(Stage.AUGMENT, "calibration", _nothing), _nothing) + own) / 2


class _Operation:
    def __call__(self, value: Any) -> Any:
        return value

    bare = __call__


class _Listed:
    """A dataset that holds one operation."""

    def __init__(self) -> None:
        self.transforms = [_Operation()]


def _nothing() -> None:
    return None


def _added(tap: Tap, timed: Callable[[], object], bare: Callable[[], object]) -> float:
    """The least disturbed of a few repeats."""
    spent = []
    for _ in range(REPEATS):
        tap.begin(0)
        spent.append(_each(timed) - _each(bare))
        tap.end()
    return max(0.0, min(spent))


def _each(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begun) / CALLS
