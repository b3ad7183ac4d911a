"""Makes the plan: asks every remedy, ranks those worth making, and says why not of the rest. Pure."""

from __future__ import annotations

from pipefix.diagnosis.sentences import NOTICEABLE, free_input, longer_budget
from pipefix.plan.case import Case
from pipefix.plan.plan import Declined, Plan, Proposed, Step
from pipefix.plan.remedy import all_remedies
from pipefix.vocabulary.gain import figure, surely_above
from pipefix.vocabulary.quantity import seconds, size
from pipefix.vocabulary.stage import INPUT, Stage

WORTH_MAKING = 1.03
"""A remedy that gains less is not proposed."""
UNSURE = 0.97
"""Where the interval reaches below this, the remedy may as well slow the pipeline down."""
HORIZON = 3600.0
"""Seconds of training (or ten epochs, if that is longer) over which one-off costs must repay themselves when steps are ranked."""
DISK_PRICE = 1e-9
"""Seconds that a byte of disk counts for when steps are ranked: 100 GB weigh as much as 100 s."""


def advise(case: Case) -> Plan:
    steps = _without_dominated([_worth(step, case) for kind in all_remedies() for step in kind().judge(case)])
    proposed = [step for step in steps if isinstance(step, Proposed)]
    declined = [step for step in steps if isinstance(step, Declined)]
    return Plan((*sorted(proposed, key=lambda step: (-saved(step, case), step.id)), *declined))


def saved(step: Proposed, case: Case) -> float:
    """Seconds that a step saves for certain (its interval's lower end) over the horizon, less what it costs."""
    epoch = case.diagnosis.sample.value * (case.epoch or 0)
    horizon = max(HORIZON, 10 * epoch)
    cost = (step.seconds or 0.0) + DISK_PRICE * (step.disk_bytes or 0.0)
    return horizon * (1 - 1 / max(step.speedup.low, 1e-6)) - cost


def _worth(step: Step, case: Case) -> Step:
    if not isinstance(step, Proposed):
        return step
    if _waits_for_step(step, case):
        at_most = f"; this would gain {figure(step.gain)}" if step.speedup.value >= WORTH_MAKING else ""
        batch = seconds(case.wall(Stage.STEP) * case.batch)
        return step.declined(f"the training step limits ({batch} a batch), so faster data would wait for it{at_most}")
    if step.speedup.value < WORTH_MAKING:
        little = f"would gain under {round(100 * WORTH_MAKING - 100)} %"
        return step.declined(f"{'would be slower' if step.speedup.high < 1 else little}: {figure(step.gain)}")
    if step.speedup.low < UNSURE:
        longer = longer_budget(case.measurement)
        return step.declined(f"{figure(step.gain)} is too uncertain to act on; --budget {longer} narrows it")
    return step


def _waits_for_step(step: Proposed, case: Case) -> bool:
    """Whether faster data would wait for the training step. They do not where workers take cores from it, as it is seen where this
    really ran, or where data were free."""
    limits = case.measurement.workers and case.diagnosis.verdict.kind == "step-bound"  # without workers, data and step take turns
    if not limits or step.stage not in INPUT or step.every_epoch or surely_above(step.gain, WORTH_MAKING):
        return False
    free = free_input(case.measurement, case.diagnosis)
    return free is None or free.low <= NOTICEABLE


def _without_dominated(steps: list[Step]) -> list[Step]:
    """Of the caches whose size is known, only the split points that no other beats: at least as fast for no more disk."""
    known = [step for step in steps if isinstance(step, Proposed) and step.disk_bytes is not None]
    caches = [step for step in known if step.id.startswith("cache-")]
    return [_beaten(step, caches) or step if isinstance(step, Proposed) and step in caches else step for step in steps]


def _beaten(step: Proposed, caches: list[Proposed]) -> Declined | None:
    gain, disk = step.speedup.value, step.disk_bytes or 0.0
    for other in caches:
        other_gain, other_disk = other.speedup.value, other.disk_bytes or 0.0
        if other_gain >= gain and other_disk <= disk and (other_gain, other_disk) != (gain, disk):
            beaten = f"{other.id} gains {figure(other.gain)} for {size(other_disk)} of disk"
            return step.declined(f"{beaten}, this {figure(step.gain)} for {size(disk)}")
    return None
