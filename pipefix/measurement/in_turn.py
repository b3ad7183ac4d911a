"""Runs two things in turn, pair after pair, so that what drifts meanwhile evens out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_turn(candidate: Callable[[], T], reference: Callable[[], T]) -> Iterator[tuple[T, T]]:
    """What both give, pair after pair, every second one in the other order; as many as the caller asks for."""
    while True:
        first = candidate()
        yield first, reference()
        second = reference()
        yield candidate(), second
