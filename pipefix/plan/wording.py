"""Figures inside a remedy's sentence."""

from __future__ import annotations

from pipefix.vocabulary.quantity import Interval, times


def span(gain: Interval) -> str:
    """``1.42x (1.31-1.55x)``."""
    return f"{times(gain.value)} ({times(gain.low).removesuffix('x')}-{times(gain.high)})"


def processes(count: int) -> str:
    return "no workers" if count == 0 else "1 worker" if count == 1 else f"{count} workers"
