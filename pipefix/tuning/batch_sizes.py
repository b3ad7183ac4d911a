"""What other batch sizes would deliver: doubled until memory ends. Told, never chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipefix.tuning import told as telling
from pipefix.tuning.limits import Footprint, Limits, Usage, ending, refusal
from pipefix.tuning.trial import Ended
from pipefix.vocabulary.quantity import Interval

if TYPE_CHECKING:
    from pipefix.tuning.tuner import Bench, Found

DOUBLINGS = 6
BLOCKS = 2


@dataclass(frozen=True)
class Size:
    batch_size: int
    rate: Interval | None = None
    batch_s: float | None = None
    stall: float | None = None
    reason: str = ""
    """It was not run."""


def sweep(bench: Bench, found: Found, own: int, limits: Limits, *, seconds: float) -> Iterator[Size]:
    """From half the present size upwards, with the settings that were chosen."""
    assert found.batch is not None
    footprint = Footprint(found.batch).with_trial(replace(found.chosen, batch_size=own), found.used)

    def watch(now: Usage) -> str | None:
        return ending(limits, now)

    for power in range(-1, DOUBLINGS):
        count = int(own * 2**power)
        if count < 1:
            continue
        settings = replace(found.chosen, batch_size=count)
        why = refusal(limits, footprint.predict(settings))
        if why is None:
            try:
                running = bench.start(settings, watch)
                try:
                    blocks = [running.block(seconds / BLOCKS) for _ in range(BLOCKS)]
                    footprint = footprint.with_trial(settings, running.used)
                finally:
                    running.close()
            except Ended as end:
                why = str(end)
        if why is not None:
            yield Size(count, reason=why)
            return
        logs = [math.log(block.rate) for block in blocks]
        rate = telling.around(math.exp(sum(logs) / len(logs)), telling.doubt(logs))
        yield Size(count, rate, count / rate.value, telling.stall(blocks).value)
