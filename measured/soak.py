"""Epochs of FastLoader until ten workers were killed: no sample lost or doubled, nothing left behind.

`scripts/bench soak` goes on for twenty minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

from measured.row import Row, at_least, at_most
from measured.soaking import GROWTH, left, soak

KILLS, MOST_S = 10, 180.0
EVERY_S = 1.0


def rows() -> Iterator[Row]:
    told = soak(MOST_S, every=EVERY_S, kills=KILLS)
    found = left(told)
    assert told.before is not None
    assert told.after is not None
    grown = (told.after.memory - told.before.memory) / 1e6
    yield at_least("soak: workers killed", told.kills, "", KILLS, note=f"in {MOST_S:.0f} s at most", source="what was asked for")
    yield at_most(
        "soak: epochs with a sample lost, doubled or not its own", len(told.wrong), f"of {told.epochs}", 0,
        steady=True, note="; ".join(told.wrong),
    )  # fmt: skip
    yield at_most("soak: kinds of things left behind", len(found), "", 0, steady=True, note="; ".join(found))
    yield at_most("soak: memory more than after the first epochs", grown, "MB", GROWTH / 1e6, source="its allocator's room")
