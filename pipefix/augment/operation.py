"""What an operation is: a transform in words that belong to no library, with every parameter, and how its numbers are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream


@dataclass(frozen=True)
class Op:
    """One operation on a sample. A frozen dataclass of its settings."""

    random: ClassVar[bool] = True
    """Whether it may do something else to the same sample the next time."""

    @property
    def is_random(self) -> bool:
        return self.random

    @property
    def within(self) -> tuple[tuple[Op, ...], ...]:
        """The lists inside a choice."""
        return ()

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        """Parameters for all samples of the frame, as torchvision draws them for one; the frame's sizes are those afterwards."""
        raise NotImplementedError(f"{type(self).__name__} has no numbers to draw")


@dataclass(frozen=True)
class Untranslatable(Op):
    """An operation that stays where it is, and why."""

    op: str
    """Its name, as a person would recognise it."""
    why: str
    may_be_random: bool = True
    """It cannot be looked into, unless it is known."""

    @property
    def is_random(self) -> bool:
        return self.may_be_random


class NotTranslatable(Exception):
    """A transform has no operation with these parameters; the message says why."""


@dataclass(frozen=True)
class Always(Op):
    """A step for every sample, whose parameters are the operation's settings."""

    step: ClassVar[str]
    random = False

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [frame.step(self.step, **{field.name: getattr(self, field.name) for field in fields(self)})]


@dataclass(frozen=True)
class Sometimes(Op):
    """A step without parameters, for the samples that come up with probability ``p``."""

    p: float = 0.5

    step: ClassVar[str]

    def draw(self, stream: Stream, frame: Frame) -> list[DrawnStep]:
        return [chance(self.p, stream, frame)[1].step(self.step)]


def draw_list(listed: Iterable[Op], stream: Stream, frame: Frame, *, first: int = 0) -> list[DrawnStep]:
    """The steps of a list of operations; the frame's sizes are those afterwards. ``first`` is the place of the first operation."""
    steps: list[DrawnStep] = []
    for place, op in enumerate(listed, first):
        steps += op.draw(stream.fork(place), frame)
    return steps


def chance(p: float, stream: Stream, frame: Frame) -> tuple[Stream, Frame, Any]:
    """The samples that come up with probability ``p``: their numbers, their sizes, and which they are."""
    if p >= 1:
        return stream, frame, slice(None)
    chosen = stream.fork(-1).uniform(1)[:, 0] < p
    return stream.take(chosen), frame.take(chosen), chosen
