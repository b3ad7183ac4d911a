"""Why a stage must not be named although the clocks name it: the arms that ran gain less than the clocks claim. Pure.

Without such evidence a stage is not named: what clocks charge to a stage may be spent by code that no hook times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pipefix.diagnosis import verdict_rules
from pipefix.diagnosis.attribution import WORKER
from pipefix.diagnosis.busiest_line import busiest_line
from pipefix.diagnosis.throughput import PipelineModel
from pipefix.diagnosis.verdict_rules import Ranking
from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT, POOL, Experiment
from pipefix.measurement.measurement import Measurement, charges_of
from pipefix.measurement.statistics import Floats
from pipefix.vocabulary.gain import FEWEST_FOR_INTERVAL, Bounded, MeasuredGain
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage

SUPPORT, LEAST_SUPPORT = 0.6, 0.4
"""Part of the time that clocks charge to a stage which its arm must save, by the upper end of its interval and by its estimate.
An arm saves a little less than all: recordings are looked up, and what shares the cores with it changes."""
MOST_OWN = 0.5
"""Part of a stage that the user's own code, bounded by no call that pipefix knows, may take before its name is not enough."""
FEWEST_LOOKS = 20
"""Looks at the running line before a line decides a verdict."""
MOST_LEFT = 0.7
"""Part of a stage that its own arm may have run all the same and still be evidence for the rest."""
PACES = 1.25
"""The consumer by itself, which is run as an arm too, may be so much faster than the pipeline and still set its pace: all that is
not the step can gain no more than that."""
BEYOND = (experiments.REAL.name, experiments.PLAIN.name, experiments.COLD.name, experiments.TRACED.name)
"""Arms that replace nothing."""


class DoubtKind(StrEnum):
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
    """What the clocks say."""

    measurement: Measurement
    ranking: Ranking
    model: PipelineModel
    own: float
    """Seconds a sample of the named stage that are the user's own code, put there by their place only."""
    sampler: MeasuredGain | None = None
    """Of the pipeline without the user's sampler."""

    @property
    def cost(self) -> float:
        """Seconds a sample of the named stage, in one process."""
        assert self.ranking.stage is not None
        return _middle(self.model.wall_of(self.ranking.stage))

    def times(self) -> tuple[float, float, float]:
        """Seconds a delivered sample: as it is, without the named stage, and what the named stage alone takes of them."""
        stage, workers, model = self.ranking.stage, self.measurement.workers, self.model
        assert stage is not None
        without = model.without(stage).seconds()
        making, taking = (
            parts[stage.value].wall if stage.value in parts else np.zeros(1) for parts in (model.making, model.taking)
        )
        alone: Floats = making / max(1, workers) + taking
        if workers and stage is Stage.IPC:
            alone = np.maximum(model.taking[stage.value].wall, model.crossing)
        if not workers:
            # What a device computes meanwhile is left when the making is gone.
            without = np.maximum(without, 0.0 if stage is Stage.STEP else _device_seconds(self.measurement))
        return _middle(model.seconds()), _middle(without), _middle(alone)


def doubted(claim: Claim, gains: Mapping[Stage, MeasuredGain | Bounded], arms: dict[str, Interval]) -> Doubt | None:
    """Why the stage that the ranking names is not to be named; None where it may be, or where none is named."""
    ranking, measurement = claim.ranking, claim.measurement
    stage = ranking.stage
    if ranking.sampler and stage is None:
        return _sampler_doubted(claim, arms)
    if ranking.kind not in ("input-bound", "step-bound") or stage is None:
        return None
    kept = [Stage(name) for name in measurement.kept_by_library if name != stage]
    if kept and ranking.kind == "input-bound":
        return Doubt(DoubtKind.KEPT, kept[0])
    if ranking.by_arms:
        return None
    whole, without, alone = claim.times()
    saved, alone = (max(0.0, 1 - without / whole), alone / whole) if whole else (0.0, 0.0)
    gain = gains.get(stage)
    own_code = Doubt(DoubtKind.OWN_CODE, stage, own=claim.own) if _own(claim) else None
    if isinstance(gain, MeasuredGain):
        if stage is not Stage.STEP and gain.blocks < FEWEST_FOR_INTERVAL:
            return Doubt(DoubtKind.ONE_BLOCK, stage, gain)
        if supports(arms[LEAVE_ONE_OUT[stage].name], saved) or _supported_in_part(claim, stage, saved, arms):
            return None
        return own_code or Doubt(DoubtKind.LITTLE_GAIN, stage, gain)
    if own_code is not None:
        return None if _is_line(claim, saved, alone, arms) else own_code
    paced = stage is Stage.STEP and _sets_the_pace(measurement)
    if could_run(stage, measurement) and not paced:
        return Doubt(DoubtKind.NOT_TRIED, stage)
    if len(measurement.of(experiments.REAL.name)) < FEWEST_FOR_INTERVAL and not paced:
        return Doubt(DoubtKind.ONE_BLOCK, stage)
    return _against(measurement, stage, saved, alone, arms)


def _sampler_doubted(claim: Claim, arms: dict[str, Interval]) -> Doubt | None:
    """What speaks against the sampler: the arm without it gains much less than the clocks claim, or another gains more."""
    measurement, model = claim.measurement, claim.model
    gain, own = claim.sampler, experiments.NO_SAMPLER.name
    if gain is None:
        return Doubt(DoubtKind.NOT_TRIED, None)
    if gain.blocks < FEWEST_FOR_INTERVAL:
        return Doubt(DoubtKind.ONE_BLOCK, None)
    if claim.ranking.by_arms:
        return None
    whole, without = _middle(model.seconds()), _middle(model.without_sampler().seconds())
    if not supports(gain.interval, max(0.0, 1 - without / whole) if whole else 0.0):
        return Doubt(DoubtKind.LITTLE_GAIN, None, gain, own)
    for name, rival in arms.items():
        # Without workers' work the sampler has a core to itself: an arm may gain by that alone, and as much as its own.
        if name not in (*BEYOND, own) and rival.low > verdict_rules.CONTRADICTION * gain.interval.high:
            return Doubt(DoubtKind.NO_ROOM, None, MeasuredGain(rival, len(measurement.of(name))), name)
    return None


def supports(gain: Interval, saved: float) -> bool:
    """Whether an arm saves about so much of the time."""
    return 1 - 1 / gain.high >= SUPPORT * saved and 1 - 1 / gain.value >= LEAST_SUPPORT * saved


def _supported_in_part(claim: Claim, stage: Stage, saved: float, arms: dict[str, Interval]) -> bool:
    """Where the stage's own arm ran part of it all the same (a video is opened, whatever its frames are answered from): whether it
    saves about what the rest takes, and an arm that does without whole samples saves all that is claimed."""
    measurement, arm = claim.measurement, LEAVE_ONE_OUT[stage].name
    now, then = (_charged(measurement, name, stage) for name in (experiments.REAL.name, arm))
    left = then / now if now else 1.0
    if not 0 < left < MOST_LEFT or not any(_removes(other, stage) and other.name in arms for other in POOL):
        return False
    whole, _, alone = claim.times()
    part = max(0.0, 1 - _middle(claim.model.scaled(stage, left).seconds()) / whole) if whole else 0.0
    return supports(arms[arm], part) and _against(measurement, stage, saved, alone / whole if whole else 0.0, arms) is None


def _charged(measurement: Measurement, arm: str, stage: Stage) -> float:
    """Nanoseconds a sample that clocks charged to a stage in an arm."""
    spent = sum(charge.wall for charge in charges_of(measurement.rows(arm)) if charge.stage == stage)
    return spent / (sum(block.samples for block in measurement.of(arm)) or 1)


def _own(claim: Claim) -> bool:
    return claim.own > MOST_OWN * claim.cost


def _is_line(claim: Claim, saved: float, alone: float, arms: dict[str, Interval]) -> bool:
    """Whether one line of the user's own code was seen so often that it alone takes more than every other stage, and the arms that
    do without whole samples save what is claimed: then the line is what to look at, whatever its stage is called."""
    stage, measurement = claim.ranking.stage, claim.measurement
    line = busiest_line(measurement.own_lines)
    without = [arm.name for arm in POOL if stage is not None and _removes(arm, stage)]
    looks = sum(measurement.own_lines.values())
    if (
        stage is None
        or line is None
        or looks < FEWEST_LOOKS
        or max(len(measurement.of(arm)) for arm in without) < FEWEST_FOR_INTERVAL
    ):
        return False
    takes = claim.own * measurement.own_lines[line] / looks
    others = [_middle(claim.model.wall_of(Stage(name))) for name in WORKER if name != stage and name in claim.model.making]
    return takes > verdict_rules.DOMINATES * max(others, default=0.0) and _against(measurement, stage, saved, alone, arms) is None


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


def _against(measurement: Measurement, stage: Stage, saved: float, alone: float, arms: dict[str, Interval]) -> Doubt | None:
    """An arm that ran and leaves no room for the claim: ``alone`` is the part of the time that the stage takes by itself."""
    for arm in (arm for arm in POOL if arm.name in arms and arm.name not in BEYOND):
        gain, measured_gain = arms[arm.name], MeasuredGain(arms[arm.name], len(measurement.of(arm.name)))
        if _removes(arm, stage):
            if not supports(gain, saved):
                return Doubt(DoubtKind.LITTLE_GAIN, stage, measured_gain, arm.name)
        elif stage not in arm.replaces and gain.low * alone > verdict_rules.DOMINATES:
            return Doubt(DoubtKind.NO_ROOM, stage, measured_gain, arm.name)
    return None


def _removes(arm: Experiment, stage: Stage) -> bool:
    """Whether an arm does without a stage even where its single operations cannot be recorded: whole samples can be.

    The copy to the device is the consumer's.
    """
    whole = arm in (experiments.SAMPLES, experiments.FLOOR)
    return (whole and stage in arm.replaces) or (stage in (Stage.STEP, Stage.TRANSFER) and not arm.consumer)


def _device_seconds(measurement: Measurement) -> float:
    rows = measurement.rows(experiments.REAL.name)
    return sum(row.device for row in rows) / 1e9 / (sum(row.trace.samples for row in rows) or 1)


def _middle(draws: Floats) -> float:
    return float(np.median(draws))
