"""A bar: what a figure must at least, or at most, be for a claim to hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Bar:
    """One claim of a benchmark, with the figure that was last measured for it."""

    claim: str
    value: float | None
    """None where nothing was measured."""
    sense: Literal["at least", "at most"]
    limit: float
    form: str = "{:.2f}"
    """How the value and the limit are written; ``{:.1%}`` for shares."""

    @property
    def met(self) -> bool | None:
        """None where nothing was measured; a figure that is not a number never meets a bar."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.sense == "at least" else self.value <= self.limit

    @property
    def state(self) -> str:
        return {True: "met", False: "MISSED", None: "not measured"}[self.met]

    @property
    def wanted(self) -> str:
        return f"{self.sense} {self.form.format(self.limit)}"

    @property
    def figure(self) -> str:
        if self.value is None:
            return ""
        return "not a number" if math.isnan(self.value) else self.form.format(self.value)


def at_least(claim: str, value: float | None, limit: float, form: str = "{:.2f}") -> Bar:
    return Bar(claim, value, "at least", limit, form)


def at_most(claim: str, value: float | None, limit: float, form: str = "{:.2f}") -> Bar:
    return Bar(claim, value, "at most", limit, form)


def none_of(claim: str, count: float | None) -> Bar:
    """What must not happen, counted."""
    return Bar(claim, count, "at most", 0, "{:.0f}")


def conclusion(bars: Sequence[Bar]) -> str:
    """One sentence over all bars: how many are met, and which are not."""
    if not bars:
        return "It has no bar: the figures are for comparison."
    missed = [f"{bar.claim} ({bar.figure}, wanted {bar.wanted})" for bar in bars if bar.met is False]
    absent = [bar.claim for bar in bars if bar.met is None]
    met = sum(bar.met is True for bar in bars)
    parts = [
        "All bars are met" if met == len(bars) > 1 else "The bar is met" if met == len(bars) else f"{met} of {len(bars)} bars met"
    ]
    if missed:
        parts.append(f"missed: {'; '.join(missed)}")
    if absent:
        parts.append(f"not measured: {'; '.join(absent)}")
    return "; ".join(parts) + "."
