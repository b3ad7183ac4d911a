"""Arms that are compared run in turns, so that the machine's changes of pace fall on all of them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, TypeVar

Arm = TypeVar("Arm", bound=Hashable)
Order = Literal["alternating", "rotating", "shuffled", "fixed"]


def ordered(arms: Sequence[Arm], turn: int, order: Order) -> list[Arm]:
    """The arms as they run in one turn.

    Args:
        arms: Their names.
        turn: Number of the turn.
        order: ``alternating`` turns the row around each time, ``rotating`` begins with another arm each time, ``shuffled`` is drawn
            from the turn's number.
    """
    row = list(arms)
    if order == "alternating":
        return row[:: 1 if turn % 2 else -1]
    if order == "rotating":
        first = turn % len(row) if row else 0
        return row[first:] + row[:first]
    if order == "shuffled":
        random.Random(turn).shuffle(row)
    return row


def in_turns(
    arms: Mapping[Arm, Callable[[], float]],
    rounds: int,
    *,
    warm: int = 1,
    order: Order = "alternating",
    before: Callable[[], object] | None = None,
    after: Callable[[int, Arm, float], object] | None = None,
) -> dict[Arm, list[float]]:
    """Each arm's figures, one a round.

    Args:
        arms: What to run; each returns its figure.
        rounds: Rounds that count.
        warm: Rounds before them that do not.
        order: See `ordered`.
        before: Called before each run, a collection of garbage for instance.
        after: Called with the turn, the arm and its figure, to tell of progress.

    Returns:
        For each arm one figure for every round that counts; figures at the same place are neighbours in time.
    """
    figures: dict[Arm, list[float]] = {name: [] for name in arms}
    for turn in range(rounds + warm):
        for name in ordered(list(arms), turn, order):
            if before is not None:
                before()
            figure = arms[name]()
            if turn >= warm:
                figures[name].append(figure)
                if after is not None:
                    after(turn - warm + 1, name, figure)
    return figures


def ratios(figures: Mapping[Arm, Sequence[float]], over: Arm, under: Arm) -> list[float]:
    """``over`` divided by ``under``, neighbour by neighbour."""
    return [a / b for a, b in zip(figures[over], figures[under], strict=True)]


def median_ratio(figures: Mapping[Arm, Sequence[float]], over: Arm, under: Arm) -> float:
    return statistics.median(ratios(figures, over, under))
