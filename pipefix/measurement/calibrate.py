"""What a timed call itself costs, in seconds, so that it can be subtracted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from pipefix.hooks.patches import Patches
from pipefix.hooks.sample_timer import SampleTimer
from pipefix.subject.user_code import UserCodeHooks
from pipefix.vocabulary.stage import Stage

CALLS = 150
BETWEEN = 4 << 20
"""Bytes written between two calls: what samples are made of passes through the caches, so that a hook does not find its code and
data there, as it would if nothing but hooks were called."""


def seam_cost() -> float:
    """Seconds that one timed call through a hook adds to the code around it.

    The mean of the two kinds that samples are made of: a library's function, and an operation of a transform list.
    """
    timer, patches = SampleTimer(), Patches()
    timer.active = True
    listed = SimpleNamespace(transforms=[_Operation()])
    UserCodeHooks(timer, patches).dataset(listed)
    (operation,), value = listed.transforms, torch.zeros(1, 1, device="cpu")
    try:
        own = _added(timer, lambda: operation(value), lambda: _Operation.bare(operation, value))
    finally:
        patches.undo()
    return (_added(timer, lambda: timer.timed_call(Stage.AUGMENT, "calibration", _nothing), _nothing) + own) / 2


class _Operation:
    def __call__(self, value: Any) -> Any:
        return value

    bare = __call__


def _nothing() -> None:
    return None


def _added(timer: SampleTimer, timed: Callable[[], object], bare: Callable[[], object]) -> float:
    """In turns; medians."""
    between, memory = bytes(BETWEEN), bytearray(BETWEEN)
    spent: tuple[list[int], list[int]] = ([], [])
    timer.begin(0)
    for _ in range(CALLS):
        for call, spent_ns in zip((timed, bare), spent, strict=True):
            memory[:] = between
            begun = time.perf_counter_ns()
            call()
            spent_ns.append(time.perf_counter_ns() - begun)
    timer.end()
    slow, quick = (statistics.median(spent_ns) for spent_ns in spent)
    return max(0.0, slow - quick) / 1e9
