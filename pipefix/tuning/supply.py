"""How long a consumer would wait for workers in the long run, from when each of their batches was begun and made. Pure.

Batches that were made before anybody asked for them hide a shortage for as long as they last: a consumer that takes a little more
than is made finds its queue full, and waits only when that is drained, perhaps long after a measurement is over. So what it waits
is held against what the workers make while they have something to do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchTimes:
    """One batch, as its worker made it. Seconds of one clock."""

    worker: int
    room: float
    """When the worker could be told to make it; a full queue keeps it waiting for that."""
    begun: float
    ended: float


def turns(batches: Sequence[BatchTimes]) -> tuple[float, ...]:
    """Seconds that each batch kept its worker, handing over the one before included; waiting for room is not. In the order of
    ``batches``.

    What a worker's first batch took besides making is not known: it has none, and is left out.
    """
    last: dict[int, BatchTimes] = {}
    pairs = []
    for batch in batches:
        before = last.get(batch.worker)
        last[batch.worker] = batch
        if before is not None:
            pairs.append((before, batch))
    # Between two batches that a worker makes without a rest lies what handing over takes; after a rest that cannot be seen.
    at_once = [batch.begun - before.ended for before, batch in pairs if batch.room <= before.ended]
    between = statistics.median(at_once) if at_once else 0.0
    return tuple(
        batch.ended - before.ended
        if batch.room <= before.ended
        else batch.ended - batch.begun + min(between, batch.begun - before.ended)
        for before, batch in pairs
    )


def shortage(turn: float, workers: int, step: float) -> float:
    """Share of its time that a consumer which takes a batch every ``step`` waits in the long run; 0 where nothing says so.

    ``turn``: seconds that a batch keeps one of the workers on average; 0 where that is not known.
    """
    return max(0.0, 1 - workers * step / turn) if turn > 0 and step > 0 and workers else 0.0
