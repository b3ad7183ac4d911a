"""Why a stage must not be named although the clocks name it: the arms that ran gain less than the clocks claim. Pure.

Without such evidence a stage is not named: what clocks charge to a stage may be spent by code that no hook times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from pipefix.diagnosis import verdict_rules
from pipefix.diagnosis.attribution import WORKER, charged
from pipefix.diagnosis.throughput import PipelineModel
from pipefix.diagnosis.verdict_rules import Ranking
from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT, POOL, Experiment
from pipefix.measurement.measurement import Measurement
from pipefix.measurement.statistics import Floats
from pipefix.vocabulary.gain import FEWEST_FOR_INTERVAL, Bounded, MeasuredGain
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage

SUPPORT, LEAST_SUPPORT = 0.6, 0.4
"""Part of the time that clocks charge to a stage which its arm must save, by the upper end of its interval and by its estimate.
An arm saves a little less than all: recordings are looked up, and what shares the cores with it changes."""
MOST_OWN = 0.5
"""Part of a stage that the user's own code, bounded by no call that pipefix knows, may take before its name is not enough."""
ENOUGH = ((20, 0.4), (8, 0.7))
"""Looks at the running line, and the part of them that a line must have, before it is named: of few looks, more of them."""
FEWEST_LOOKS = 20
"""Looks at the running line before a line decides a verdict."""
MOST_LEFT = 0.7
"""Part of a stage that its own arm may have run all the same and still be evidence for the rest."""
PACES = 1.25
"""The consumer by itself, which is run as an arm too, may be so much faster than the pipeline and still set its pace: all that is
not the step can gain no more than that."""
BEYOND = (experiments.REAL.name, experiments.PLAIN.name, experiments.COLD.name, experiments.TRACED.name)
"""Arms that replace nothing."""


class DoubtKind(Enum):
    RIVAL = "rival"
    """Another stage's arm gains more than the stage that the clocks point to."""
    LITTLE_GAIN = "little gain"
    """The stage's own arm gains much less than the clocks claim."""
    NOT_TRIED = "not tried"
    """The stage's own arm could have run and did not."""
    ONE_BLOCK = "one block"
    NO_ROOM = "no room"
    """An arm that left the stage as it is gained more than what the stage takes, or its own arm, allows."""
    KEPT = "kept"
    """A stage computed much more when samples were first read than when they were read again."""
    OWN_CODE = "own code"
    """The time is the user's own code, which only its place between two known calls puts into this stage."""


@dataclass(frozen=True)
class Doubt:
    """Why a stage is not named."""

    kind: DoubtKind
    stage: Stage | None
    """That the arms point to (`RIVAL`), or else that the clocks point to."""
    gain: MeasuredGain | None = None
    """Of the arm that speaks against it."""
    arm: str = ""
    own: float = 0.0
    """Seconds a sample of the user's own code."""


@dataclass(frozen=True)
class Claim:
    """What the clocks say, and what the arms gain."""

    measurement: Measurement
    ranking: Ranking
    model: PipelineModel
    own: float
    """Seconds a sample of the named stage that are the user's own code, put there by their place only."""
    sampler: MeasuredGain | None
    """Of the pipeline without the user's sampler."""
    gains: Mapping[Stage, MeasuredGain | Bounded]
    """Of the pipeline without a stage."""
    arms: Mapping[str, Interval]

    @property
    def stage(self) -> Stage:
        """The named one."""
        assert self.ranking.stage is not None
        return self.ranking.stage

    @cached_property
    def _whole(self) -> float:
        """Seconds a delivered sample."""
        return _middle(self.model.seconds())

    def saved(self, after: Floats) -> float:
        """Part of the time that is gone where a delivered sample takes ``after`` seconds."""
        return max(0.0, 1 - _middle(after) / self._whole) if self._whole else 0.0

    @cached_property
    def claimed(self) -> float:
        """Part of the time that would be gone with the named stage."""
        without = self.model.without(self.stage).seconds()
        if not self.measurement.workers:
            # What a device computes meanwhile is left when the making is gone.
            rows = self.measurement.rows(experiments.REAL.name)
            device = sum(row.device for row in rows) / 1e9 / (sum(row.trace.samples for row in rows) or 1)
            without = np.maximum(without, 0.0 if self.stage is Stage.STEP else device)
        return self.saved(without)

    @cached_property
    def alone(self) -> float:
        """Part of the time that the named stage takes by itself."""
        stage, workers, model = self.stage, self.measurement.workers, self.model
        making, taking = (
            parts[stage.value].wall if stage.value in parts else np.zeros(1) for parts in (model.making, model.taking)
        )
        alone: Floats = making / max(1, workers) + taking
        if workers and stage is Stage.IPC:
            alone = np.maximum(model.taking[stage.value].wall, model.crossing)
        return _middle(alone) / self._whole if self._whole else 0.0


def doubted(claim: Claim) -> Doubt | None:
    """Why the stage that the ranking names is not to be named; None where it may be, or where none is named."""
    ranking, measurement = claim.ranking, claim.measurement
    stage = ranking.stage
    if ranking.sampler and stage is None:
        return _sampler_doubted(claim)
    if ranking.kind not in ("input-bound", "step-bound") or stage is None:
        return None
    kept = [Stage(name) for name in measurement.kept_by_library if name != stage]
    if kept and ranking.kind == "input-bound":
        return Doubt(DoubtKind.KEPT, kept[0])
    if ranking.by_arms:
        return None
    gain = claim.gains.get(stage)
    placed = claim.own > MOST_OWN * _middle(claim.model.wall_of(stage))
    own_code = Doubt(DoubtKind.OWN_CODE, stage, own=claim.own) if placed else None
    if isinstance(gain, MeasuredGain):
        if stage is not Stage.STEP and gain.blocks < FEWEST_FOR_INTERVAL:
            return Doubt(DoubtKind.ONE_BLOCK, stage, gain)
        if supports(claim.arms[LEAVE_ONE_OUT[stage].name], claim.claimed) or _supported_in_part(claim):
            return None
        return own_code or Doubt(DoubtKind.LITTLE_GAIN, stage, gain)
    if own_code is not None:
        return None if _is_line(claim) else own_code
    paced = stage is Stage.STEP and _sets_the_pace(measurement)
    if could_run(stage, measurement) and not paced:
        return Doubt(DoubtKind.NOT_TRIED, stage)
    if len(measurement.of(experiments.REAL.name)) < FEWEST_FOR_INTERVAL and not paced:
        return Doubt(DoubtKind.ONE_BLOCK, stage)
    return _against(claim)


def _sampler_doubted(claim: Claim) -> Doubt | None:
    """What speaks against the sampler: the arm without it gains much less than the clocks claim, or another gains more."""
    gain, own = claim.sampler, experiments.NO_SAMPLER.name
    if gain is None:
        return Doubt(DoubtKind.NOT_TRIED, None)
    if gain.blocks < FEWEST_FOR_INTERVAL:
        return Doubt(DoubtKind.ONE_BLOCK, None)
    if claim.ranking.by_arms:
        return None
    if not supports(gain.interval, claim.saved(claim.model.without_sampler().seconds())):
        return Doubt(DoubtKind.LITTLE_GAIN, None, gain, own)
    for name, rival in claim.arms.items():
        # Without workers' work the sampler has a core to itself: an arm may gain by that alone, and as much as its own.
        if name not in (*BEYOND, own) and rival.low > verdict_rules.CONTRADICTION * gain.interval.high:
            return Doubt(DoubtKind.NO_ROOM, None, MeasuredGain(rival, len(claim.measurement.of(name))), name)
    return None


def supports(gain: Interval, saved: float) -> bool:
    """Whether an arm saves about so much of the time."""
    return 1 - 1 / gain.high >= SUPPORT * saved and 1 - 1 / gain.value >= LEAST_SUPPORT * saved


def _supported_in_part(claim: Claim) -> bool:
    """Where the stage's own arm ran part of it all the same (a video is opened, whatever its frames are answered from): whether it
    saves about what the rest takes, and an arm that does without whole samples saves all that is claimed."""
    stage, arm = claim.stage, LEAVE_ONE_OUT[claim.stage].name
    now, then = (charged(claim.measurement.of(name), stage) for name in (experiments.REAL.name, arm))
    left = then / now if now else 1.0
    if not 0 < left < MOST_LEFT or not any(_removes(other, stage) and other.name in claim.arms for other in POOL):
        return False
    part = claim.saved(claim.model.scaled(stage, left).seconds())
    return supports(claim.arms[arm], part) and _against(claim) is None


def busiest_line(looks: Mapping[str, int], function: str = "") -> str | None:
    """The line that was seen running most often, of a function of the user's or of any, where it stands out:
    ``function at file.py:line``."""
    seen = {line: count for line, count in looks.items() if not function or _is_in(line, function)}
    line = max(seen, key=seen.__getitem__, default=None)
    every = sum(seen.values())
    stands_out = line is not None and any(every >= looks and seen[line] >= part * every for looks, part in ENOUGH)
    return line if stands_out else None


def _is_in(line: str, function: str) -> bool:
    name = line.partition(" at ")[0]
    return name == function or function.endswith(f".{name}")  # before Python 3.11 a frame does not know its class


def _is_line(claim: Claim) -> bool:
    """Whether one line of the user's own code was seen so often that it alone takes more than every other stage, and the arms that
    do without whole samples save what is claimed: then the line is what to look at, whatever its stage is called."""
    stage, measurement = claim.stage, claim.measurement
    line = busiest_line(measurement.own_lines)
    without = [arm.name for arm in POOL if _removes(arm, stage)]
    looks = sum(measurement.own_lines.values())
    if line is None or looks < FEWEST_LOOKS or max(len(measurement.of(arm)) for arm in without) < FEWEST_FOR_INTERVAL:
        return False
    takes = claim.own * measurement.own_lines[line] / looks
    others = [_middle(claim.model.wall_of(Stage(name))) for name in WORKER if name != stage and name in claim.model.making]
    return takes > verdict_rules.DOMINATES * max(others, default=0.0) and _against(claim) is None


def _sets_the_pace(measurement: Measurement) -> bool:
    """Whether the consumer by itself, in two blocks or more, was hardly faster than with the pipeline."""
    alone = [block.rate for block in measurement.of(experiments.ALONE)]
    with_data = [block.rate for name in (experiments.REAL.name, experiments.PLAIN.name) for block in measurement.of(name)]
    if len(alone) < FEWEST_FOR_INTERVAL or not with_data:
        return False
    return float(np.median(alone)) <= PACES * float(np.median(with_data))


def could_run(stage: Stage, measurement: Measurement) -> bool:
    """Whether a stage's own arm, which did not run, only lacked the time."""
    arm = LEAVE_ONE_OUT.get(stage)
    return arm is not None and (arm.name in measurement.untried or arm.name not in measurement.declined)


def _against(claim: Claim) -> Doubt | None:
    """An arm that ran and leaves no room for the claim."""
    stage, measurement = claim.stage, claim.measurement
    for arm in (arm for arm in POOL if arm.name in claim.arms and arm.name not in BEYOND):
        gain, measured_gain = claim.arms[arm.name], MeasuredGain(claim.arms[arm.name], len(measurement.of(arm.name)))
        if _removes(arm, stage):
            if not supports(gain, claim.claimed):
                return Doubt(DoubtKind.LITTLE_GAIN, stage, measured_gain, arm.name)
        elif stage not in arm.replaces and gain.low * claim.alone > verdict_rules.DOMINATES:
            return Doubt(DoubtKind.NO_ROOM, stage, measured_gain, arm.name)
    return None


def _removes(arm: Experiment, stage: Stage) -> bool:
    """Whether an arm does without a stage even where its single operations cannot be recorded: whole samples can be.

    The copy to the device is the consumer's.
    """
    whole = arm in (experiments.SAMPLES, experiments.FLOOR)
    return (whole and stage in arm.replaces) or (stage in (Stage.STEP, Stage.TRANSFER) and not arm.consumer)


def _middle(draws: Floats) -> float:
    return float(np.median(draws))
