"""Checks a finished diagnosis: a sentence for each of its statements that its own figures contradict. Pure.

It is looked at once more, by simpler means, at the end of every probe: what contradicts itself is told as inconclusive, with the
contradiction.
"""

from __future__ import annotations

from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.measurement.measurement import Measurement
from pipefix.vocabulary.gain import MeasuredGain, NotTried, figure, surely_above
from pipefix.vocabulary.quantity import percent
from pipefix.vocabulary.stage import Stage

RIVAL = 1.05
"""So many times more than the named stage's own arm may another's gain before that contradicts the verdict."""
LEAST_SAVED = 0.25
"""Part of the time that a stage is said to take which its own arm saves at least, where nothing runs beside it."""


def contradictions(measurement: Measurement, diagnosis: Diagnosis) -> list[str]:
    """What speaks against a stage that is named, in words: its own arm gains too little, or another's more."""
    stage = diagnosis.verdict.stage
    cost = diagnosis.stages.get(Stage(stage)) if stage is not None else None
    if cost is None or not isinstance(cost.gain, MeasuredGain):
        return []
    most = cost.gain.interval.high
    without = f"without it the pipeline delivers {figure(cost.gain)}"
    sentences = []
    if not measurement.workers and cost.stage is not Stage.STEP and 1 - 1 / most < LEAST_SAVED * cost.share:
        sentences.append(f"{stage} is said to take {percent(cost.share)} of the time, and {without}")
    rivals = [(str(rival.stage), rival.gain) for rival in diagnosis.stages.values() if rival is not cost]
    for name, gain in [*rivals, ("the sampler", diagnosis.sampler_gain or NotTried())]:
        if surely_above(gain, RIVAL * most):
            sentences.append(f"{stage} is named, and {without}, but without {name} {figure(gain)}")
    return sentences
