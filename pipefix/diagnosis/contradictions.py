"""Checks a finished diagnosis: a sentence for each of its statements that its own figures contradict. Pure.

The rules that judge should leave nothing to be seen here. It is looked at once more, by simpler means, at the end of every probe:
what contradicts itself is told as inconclusive, with the contradiction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipefix.diagnosis.diagnosis import Diagnosis, StageCost
from pipefix.measurement.experiments import LEAVE_ONE_OUT
from pipefix.measurement.measurement import Measurement
from pipefix.vocabulary.gain import FEWEST_FOR_INTERVAL, Bounded, MeasuredGain, figure, surely_above
from pipefix.vocabulary.quantity import Interval, percent, seconds
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

RIVAL = 1.05
"""So many times more than the named stage's own arm may another's gain before that contradicts the verdict."""
LEAST_SAVED = 0.25
"""Part of the time that a stage is said to take which its own arm saves at least, where nothing runs beside it."""
CLOSE = 1e-6


def contradictions(measurement: Measurement, diagnosis: Diagnosis) -> list[str]:
    """Every statement of ``diagnosis`` that its own figures contradict, in words."""
    return [
        *_of_verdict(measurement, diagnosis),
        *(sentence for cost in diagnosis.stages.values() for sentence in _of_stage(measurement, cost)),
        *_of_the_whole(diagnosis),
    ]


def _of_verdict(measurement: Measurement, diagnosis: Diagnosis) -> Iterator[str]:
    """A stage is named whose own arm gains, and no other's gains more."""
    kind, sampler = diagnosis.verdict.kind, diagnosis.sampler_gain
    if diagnosis.verdict.stage is None:
        return
    stage = Stage(diagnosis.verdict.stage)
    cost = diagnosis.stages.get(stage)
    if kind not in ("input-bound", "step-bound") or cost is None:
        yield f"{stage} is named, and " + (f"the verdict is {kind}" if cost is not None else "was not measured")
        return
    if isinstance(cost.gain, Bounded) and not measurement.workers and 1 - 1 / cost.gain.at_most < LEAST_SAVED * cost.share:
        yield f"{stage} is said to take {percent(cost.share)} of the time, and without it there would be {figure(cost.gain)}"
    if not isinstance(cost.gain, MeasuredGain):
        return
    own = cost.gain.interval
    without = f"without it the pipeline delivers {figure(cost.gain)}"
    if stage is not Stage.STEP and cost.gain.blocks < FEWEST_FOR_INTERVAL:
        yield f"{stage} is named, and its arm ran for one block"
    if own.high < 1 - CLOSE:
        yield f"{stage} is named, and {without}"
    if not measurement.workers and stage is not Stage.STEP and 1 - 1 / own.high < LEAST_SAVED * cost.share:
        yield f"{stage} is said to take {percent(cost.share)} of the time, and {without}"
    for rival_stage, rival in diagnosis.stages.items():
        if rival_stage is not stage and surely_above(rival.gain, RIVAL * own.high):
            yield f"{stage} is named, and {without}, but without {rival_stage} {figure(rival.gain)}"
    if sampler is not None and surely_above(sampler, RIVAL * own.high):
        yield f"{stage} is named, and {without}, but without the sampler {figure(sampler)}"


def _of_stage(measurement: Measurement, cost: StageCost) -> Iterator[str]:
    """No gain without its arm, no figure outside of its own interval, no operations that take longer than their stage."""
    arm = LEAVE_ONE_OUT.get(cost.stage)
    if isinstance(cost.gain, MeasuredGain) and (arm is None or not measurement.of(arm.name)):
        yield f"{cost.stage} is said to gain {figure(cost.gain)}, and no arm ran without it"
    figures = [cost.wall, *([cost.gain.interval] if isinstance(cost.gain, MeasuredGain) else [])]
    if not all(map(_inside, figures)):
        yield f"{cost.stage} takes {seconds(cost.wall.value)} a sample and gains {figure(cost.gain)}, outside of the interval"
    operations = sum(op.wall_s for op in cost.ops)
    if cost.stage in IN_SAMPLE and operations > cost.wall.value * (1 + CLOSE) + 1e-12:
        yield f"operations of {cost.stage} take {seconds(operations)} a sample, and the stage {seconds(cost.wall.value)}"


def _inside(estimate: Interval) -> bool:
    slack = CLOSE * abs(estimate.value)
    return math.isfinite(estimate.value) and estimate.low - slack <= estimate.value <= estimate.high + slack


def _of_the_whole(diagnosis: Diagnosis) -> Iterator[str]:
    """Shares of the stages and what belongs to none are the whole; a part of the time lies between none and all of it."""
    whole = sum(cost.share for cost in diagnosis.stages.values()) + diagnosis.unattributed / diagnosis.sample.value
    if not math.isclose(whole, 1, rel_tol=1e-4):
        yield f"the stages and the rest add up to {percent(whole)} of the time"
    if diagnosis.fed is not None and not -CLOSE <= diagnosis.fed <= 1 + CLOSE:
        yield f"the step is said to have data {percent(diagnosis.fed)} of the time"
