"""Beside a probe: decodes and transforms a few samples by one fused call, and tells how many times faster that is."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.fixes import fused_trial
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.measurement.measurement import FusedCall
from pipefix.measurement.statistics import Floats, bootstrap, interval
from pipefix.plan.operations import pictures_of
from pipefix.plan.remedy import WORTH_TRYING
from pipefix.subject.subject import Subject
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

MODES = ("exact", "close")
LOOKING = 0.35
"""Part of the time in which pictures are made both ways, and as much for the whole loader; the rest goes to starting a process, and
to finding out how to fuse."""
SAMPLES_MADE, LONGEST = 18, 4.0
"""Samples that a trial makes at least, counted by their own code's time; and how many times the time that it has it may take."""
FEW = 4
"""Batches that do not show a loader's pace."""


def calls(subject: Subject, diagnosis: Diagnosis, seconds: float) -> dict[str, FusedCall]:
    """By mode, in about so long; empty where no pictures are decoded (what would make them takes seconds to load), where there is
    too little to be gained by any, or samples take too long to make."""
    if subject.iterable or not pictures_of(diagnosis) or diagnosis.part_of_making(Stage.DECODE, Stage.AUGMENT) <= WORTH_TRYING:
        return {}
    making_s = sum(diagnosis.stages[stage].wall.value for stage in IN_SAMPLE if stage in diagnosis.stages)
    if SAMPLES_MADE * making_s * len(MODES) > LONGEST * seconds:
        return {}
    import pipefix.loader.fusing.source  # noqa: F401 - once here, rather than in each of the processes that try it

    each = seconds / len(MODES)
    return {mode: _tried(subject, mode, LOOKING * each) for mode in MODES}


def _tried(subject: Subject, mode: str, seconds: float) -> FusedCall:
    try:
        return fused_call(in_child_process(partial(fused_trial.try_on_dataset, subject.loader, mode, seconds)))
    except NotFused as error:
        return FusedCall(why_not=str(error))


def fused_call(trial: fused_trial.DatasetTrial) -> FusedCall:
    pace = _left(np.array(trial.paces, dtype=float)) if len(trial.paces) >= FEW else None
    return FusedCall(
        left=_left(np.column_stack([trial.fused, trial.own])), pictures=len(trial.own), apart=trial.distance, draws=trial.draws,
        processes=trial.processes, pace=pace,
    )  # fmt: skip


def _left(pairs: Floats) -> Interval:
    """The part of the time that fused calls take, of pairs of fused and own."""

    def ratio(pairs: Floats) -> Floats:
        fused, own = pairs.sum(axis=0)
        return np.atleast_1d(fused / own)

    return interval(bootstrap([pairs], ratio)[:, 0], float(ratio(pairs)[0]))
