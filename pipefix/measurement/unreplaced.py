"""Whether an arm really did without the stage that it replaces: what cannot be recorded runs all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Block, charges_of, rows_of
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


def _spent(blocks: Sequence[Block], stages: set[str]) -> dict[str, float]:
    """Nanoseconds a sample of these stages, by operation."""
    rows, samples = rows_of(blocks), sum(block.samples for block in blocks) or 1
    spent = [(charge.stage, charge.op, charge.wall) for charge in charges_of(rows)]
    spent += [entry for row in rows for entry in row.trace.foreign]  # threads of the user's own are neither recorded nor replaced
    spent_ns: Counter[str] = Counter()
    for stage, op, wall in spent:
        if stage in stages:
            spent_ns[op] += wall
    return {op: wall / samples for op, wall in spent_ns.items()}
