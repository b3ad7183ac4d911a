"""Beside a probe: runs FastLoader's hand-over in turn with the user's loader, where the arms promise something of it."""

from __future__ import annotations

from dataclasses import replace

from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.fixes.speedup import Pipeline, faster
from pipefix.loader.planning import as_planned
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import Measurement
from pipefix.plan.advise import WORTH_MAKING
from pipefix.plan.case import Case
from pipefix.plan.plan import Proposed
from pipefix.plan.remedies.moving_batches import HandoverSlots
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import PipefixError
from pipefix.vocabulary.gain import MeasuredGain

LATE = 2.0
"""A first batch that takes so many times what there is for the trial: it would have to come twice."""


def handover(
    subject: Subject, consumer: Consumer, measurement: Measurement, diagnosis: Diagnosis, seconds: float
) -> MeasuredGain | None:
    """None where the arms promise nothing of it, where the loader starts too late for it, or where it could not be tried."""
    step = HandoverSlots().answer(Case(measurement, diagnosis, subject.target))
    if not isinstance(step, Proposed) or step.speedup.value < WORTH_MAKING:
        return None
    if measurement.first_batch is None or measurement.first_batch > LATE * seconds:
        return None
    try:
        over = replace(subject, loader=as_planned.with_settings(subject.loader, engine=HandoverSlots.change.engine))
        worth = faster(Pipeline(subject, consumer), Pipeline(over, consumer), seconds=seconds)
    except (PipefixError, RuntimeError):
        return None
    return MeasuredGain(worth.gain, worth.pairs)
