"""Whether an arm really did without the stage that it replaces: what cannot be recorded runs all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Block
from pipefix.vocabulary.stage import IN_SAMPLE

MOST_LEFT = 0.5
"""Part of the replaced stages' time that may be left where the replacement took hold: looking recordings up costs something too."""


def unreplaced_operation(arm: Experiment, block: Block, real: Sequence[Block]) -> str | None:
    """The costliest operation of a replaced stage that ran all the same; None where the replacement took hold."""
    replaced = {stage.value for stage in IN_SAMPLE if stage in arm.replaces}
    if not replaced or not real:
        return None
    left, whole = _spent([block], replaced), _spent(real, replaced)
    if sum(left.values()) <= MOST_LEFT * sum(whole.values()):
        return None
    return max(left, key=left.__getitem__)


def _spent(blocks: Sequence[Block], stages: set[str]) -> Counter[str]:
    """Nanoseconds a sample of these stages, by operation."""
    samples = sum(block.samples for block in blocks) or 1
    spent_ns: Counter[str] = Counter()
    for block in blocks:
        for row in block.rows:
            for charge in row.trace.charges:
                if charge.stage in stages:
                    spent_ns[charge.op] += charge.wall / samples  # type: ignore[assignment]
            for stage, op, wall in row.trace.foreign:  # threads of the user's own are neither recorded nor replaced
                if stage in stages:
                    spent_ns[op] += wall / samples  # type: ignore[assignment]
    return spent_ns
