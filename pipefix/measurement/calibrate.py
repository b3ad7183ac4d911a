"""What the instrument itself costs: measured, stated, and subtracted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from pipefix.seams.patches import Patches
from pipefix.seams.tap import Tap
from pipefix.subject.user_code import UserCodeSeams
from pipefix.vocabulary.stage import Stage

CALLS = 150
BETWEEN = 4 << 20
"""Bytes written between two calls: what samples are made of passes through the caches, so that a seam does not find its code and
data there, as it would if nothing but seams were called."""


def seam_cost() -> float:
    """Seconds that one timed call through a seam adds to the code around it.

    The mean of the two kinds that samples are made of: a library's function, and an operation of a transform list.
    """
    tap, patches = Tap(), Patches()
    tap.active = True
    listed = _Listed()
    UserCodeSeams(tap, patches).dataset(listed)
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
    """In turns; medians."""
    between, memory = bytes(BETWEEN), bytearray(BETWEEN)
    spent: tuple[list[int], list[int]] = ([], [])
    tap.begin(0)
    for _ in range(CALLS):
        for call, found in zip((timed, bare), spent, strict=True):
            memory[:] = between
            begun = time.perf_counter_ns()
            call()
            found.append(time.perf_counter_ns() - begun)
    tap.end()
    slow, quick = (statistics.median(found) for found in spent)
    return max(0.0, slow - quick) / 1e9
