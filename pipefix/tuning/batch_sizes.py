"""What other batch sizes would deliver, in samples a second, and take in memory: doubled until that ends. Never chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from pipefix.tuning import block_figures as figures
from pipefix.tuning.limits import Footprint, ResourceLimits, ending, refusal
from pipefix.tuning.results import BatchSize, TuneResult
from pipefix.tuning.trial import TrialEnded, TrialProcesses

DOUBLINGS = 6
BLOCKS = 2


def sweep(
    bench: TrialProcesses, tuned: TuneResult, own: int, limits: ResourceLimits, *, seconds: float, most: float = math.inf,
) -> Iterator[BatchSize]:  # fmt: skip
    """From half the present size upwards, up to ``most`` (an epoch has no more samples), with the settings that were chosen."""
    assert tuned.batch is not None
    footprint = Footprint(tuned.batch).with_trial(tuned.chosen.but(batch_size=own), tuned.used)
    for power in range(-1, DOUBLINGS):
        count = int(own * 2**power)
        if not 1 <= count <= most:
            continue
        settings = tuned.chosen.but(batch_size=count)
        why = refusal(limits, footprint.predict(settings))
        if why is None:
            try:
                with closing(bench.start(settings, partial(ending, limits))) as running:
                    blocks = [running.block(seconds / BLOCKS) for _ in range(BLOCKS)]
                    used = running.used
                    footprint = footprint.with_trial(settings, used)
            except TrialEnded as end:
                why = str(end)
        if why is not None:
            yield BatchSize(count, reason=why)
            if power < 0:  # a step may want more samples than so few
                continue
            return
        logs = [math.log(block.rate) for block in blocks]
        rate = figures.around(math.exp(sum(logs) / len(logs)), figures.doubt(logs))
        stall = figures.stall(blocks).value if blocks[-1].demand is not None else None
        yield BatchSize(count, rate, count / rate.value, stall, used)
