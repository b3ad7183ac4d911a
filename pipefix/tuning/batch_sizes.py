"""What other batch sizes would deliver: doubled until memory ends. Told, never chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipefix.tuning import block_figures as figures
from pipefix.tuning.limits import Footprint, ResourceLimits, Usage, ending, refusal
from pipefix.tuning.trial import TrialEnded
from pipefix.vocabulary.quantity import Interval

if TYPE_CHECKING:
    from pipefix.tuning.tuner import Found, TrialBench

DOUBLINGS = 6
BLOCKS = 2


@dataclass(frozen=True)
class SizeTried:
    batch_size: int
    rate: Interval | None = None
    batch_s: float | None = None
    stall: float | None = None
    reason: str = ""
    """Why this size was not run; empty where it was."""


def sweep(bench: TrialBench, found: Found, own: int, limits: ResourceLimits, *, seconds: float) -> Iterator[SizeTried]:
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
            except TrialEnded as end:
                why = str(end)
        if why is not None:
            yield SizeTried(count, reason=why)
            return
        logs = [math.log(block.rate) for block in blocks]
        rate = figures.around(math.exp(sum(logs) / len(logs)), figures.doubt(logs))
        yield SizeTried(count, rate, count / rate.value, figures.stall(blocks).value)
