"""A figure of this machine, the bounds that are wanted of it, and whether it lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """What a module of `measured/` reports, one line of the table."""

    name: str
    """What was measured, its module's subject first: ``ruler: real step, 3 ms planted``."""
    figure: float
    unit: str
    low: float | None = None
    high: float | None = None
    source: str = ""
    """Where the bounds come from."""
    note: str = ""
    """What the figure alone does not say, such as the sentence of a wrong verdict."""
    steady: bool = False
    """What other programs do makes no difference to it, as to a count of lost samples: it is judged on a busy machine too."""

    @property
    def judged(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def inside(self) -> bool:
        return (self.low is None or self.figure >= self.low) and (self.high is None or self.figure <= self.high)

    @property
    def wanted(self) -> str:
        if self.low is None and self.high is None:
            return "-"
        if self.low is None:
            return f"<= {self.high:g}"
        if self.high is None:
            return f">= {self.low:g}"
        return f"{self.low:g} to {self.high:g}"


def at_most(name: str, figure: float, unit: str, limit: float, **others: Any) -> Row:
    return Row(name, figure, unit, high=limit, **others)


def at_least(name: str, figure: float, unit: str, limit: float, **others: Any) -> Row:
    return Row(name, figure, unit, low=limit, **others)


def about(name: str, figure: float, unit: str, value: float, tolerance: float, **others: Any) -> Row:
    """``tolerance``: the part of ``value`` that the figure may differ by, 0.1 for 10 %."""
    return Row(name, figure, unit, low=value * (1 - tolerance), high=value * (1 + tolerance), **others)


def holds(name: str, held: int, asked: int, **others: Any) -> Row:
    """``held`` of ``asked`` cases were as they should be; all are wanted."""
    return Row(name, held, f"of {asked}", low=asked, **others)
