"""A transform list as one call a sample: its geometry in steps, the rest as a table from bytes to values."""

from __future__ import annotations

from dataclasses import dataclass

from pipefix.kernels.picture import Arithmetic, Finish, PictureCut
from pipefix.loader.fusing.layout import Layout
from pipefix.loader.fusing.sample_random import numbers_of
from pipefix.loader.fusing.steps import GeometryStep


@dataclass(frozen=True)
class NotFused:
    """Not fused, and why."""

    why: str


@dataclass(frozen=True)
class FusedRecipe:
    steps: tuple[GeometryStep, ...]
    finish: Finish
    arithmetic: Arithmetic
    """Of the library that the list resizes with."""
    inexact: str | None
    """Why pixels cannot equal the list's own to the bit; None: they can."""

    def cut(self, width: int, height: int, key: int, *, exact: bool) -> PictureCut:
        """What the key's random choices ask of a picture. Raises `CannotFollow`."""
        numbers = numbers_of(key)
        layout = Layout(width, height)
        for step in self.steps:
            step.take(layout, numbers)
        return layout.cut(self.arithmetic) if exact else layout.cut(Arithmetic.TORCH, coarsest=8)
