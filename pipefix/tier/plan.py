"""What a tier keeps: parts come in the order in which they were first wanted, as long as the budget has room, and none goes.

Each part is read once an epoch, in an order that differs every time. So whatever is thrown out for another is as likely to be
wanted next as what it was thrown out for: over epochs, keeping half of the parts answers half of the reads, and the least recently
used half answers a sixth.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pipefix.vocabulary import amounts
from pipefix.vocabulary.errors import BadUsage


class Wish(NamedTuple):
    name: str
    bytes: int


def admitted(wishes: Iterable[Wish], held: int, budget: int) -> list[Wish]:
    """Of the parts that are wanted, in this order, those that fit beside ``held`` bytes; a smaller one may follow one too large."""
    found = []
    for wish in wishes:
        if held + wish.bytes <= budget:
            held += wish.bytes
            found.append(wish)
    return found


def place_and_budget(told: str) -> tuple[Path, int]:
    """Of ``DIR:SIZE``, such as ``/nvme/tier:200GB``."""
    place, _, told_size = told.rpartition(":")
    try:
        budget = amounts.size(told_size)
    except ValueError:
        budget = 0
    if not place or not budget:
        raise BadUsage(
            f"A tier of {told!r} has no budget.", advice="Name a directory and the bytes that it may take: /nvme/tier:200GB"
        )
    return Path(place), budget
