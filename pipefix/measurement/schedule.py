"""Decides which arms are worth their time on this pipeline, how long their blocks may be, and which of them told nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT, Experiment
from pipefix.measurement.measurement import Block, charges_of, rows_of
from pipefix.vocabulary.quantity import percent
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

SMALL_STAGE = 0.02
"""A stage below this share of the sample's time gets no arm of its own: its removal can gain no more than that."""
ROUNDS = 4
"""Rounds of all arms that are enough for most pipelines."""
FIRST_ROUNDS = 0.5
"""Part of the time that so many rounds may take: a clear verdict needs no more, and an unclear one gets the rest."""
FEWEST_ROUNDS = 3
"""Rounds below which arms are given up, so that those that stay are known well enough."""
LEAST_LED = 0.1
"""Part of the time below which what an arm leaves out cannot be what the verdict is about."""
SHORTEST, LONGEST = 0.04, 1.5
"""Seconds of steady state in a block."""
THROWN_AWAY = 1.6
"""Rounds of all workers that a block spends before it is steady."""
TRIED_EVERY, TRIAL_BLOCKS, TRIAL_LENGTH = 4, 4, 3.0
"""Rounds from one trial of other settings to the next, which only remedies read (once the verdict stands, the best of them follows
each round until its gain is known); its blocks: with them, without, and back; their length compared with an arm's: workers that
have rested are slower at first."""
GIVEN_UP_FIRST = (experiments.SAMPLES, experiments.DECODED, experiments.FLOOR)
"""Arms that only refine a remedy, in the order in which a tight budget gives them up. On all others the verdict rests."""
OWN_LEADS = 0.5
"""Part of the time that the user's own code between known calls takes, from which on the verdict rests on the arm without whole
samples: no stage's arm does without such code."""
MOST_LEFT = 0.5
"""Part of the replaced stages' time that may be left where the replacement took hold: looking recordings up costs something too."""
WITHOUT_ONE = (*LEAVE_ONE_OUT.values(), experiments.NO_SAMPLER)
"""Arms that are given up next, where not even a block of each fits: those first that leave out what takes least."""


@dataclass(frozen=True)
class ScheduleFacts:
    """What the first look at the pipeline told."""

    workers: int
    has_consumer: bool
    share: Mapping[Stage, float]
    """Part of a batch's making by stage."""
    no_batches: str | None = None
    """Why batches could not be recorded."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """By arm: part of the time from batch to batch that what it leaves out takes, where that is done."""

    def part(self, arm: Experiment) -> float:
        return self.parts.get(arm.name, 0.0)


def facts_of(first: Block, workers: int, has_consumer: bool, no_batches: str | None) -> ScheduleFacts:
    """What a block of the pipeline as it is tells."""
    charges = list(charges_of(first.rows))
    spent = {stage: sum(charge.wall for charge in charges if charge.stage == stage) for stage in IN_SAMPLE}
    own = sum(charge.wall for charge in charges if charge.stage is None)
    making = sum(row.trace.ended - row.trace.begun for row in first.rows) or 1
    beside = max(1, workers)
    parts = {LEAVE_ONE_OUT[stage].name: value / beside for stage, value in spent.items()} | {
        experiments.SAMPLES.name: own / beside,
        experiments.NO_COLLATE.name: sum(row.trace.collate_wall for row in first.rows) / beside,
        experiments.NO_HANDOVER.name: sum(row.received for row in first.rows),
        experiments.SUPPLY.name: sum(row.done - row.got for row in first.rows),
        experiments.NO_SAMPLER.name: sum(row.sampled for row in first.rows),
    }
    shares = {stage: value / making for stage, value in spent.items()}
    parts = {arm: value / 1e9 / first.seconds for arm, value in parts.items()}
    return ScheduleFacts(workers, has_consumer, shares, no_batches, parts)


@dataclass(frozen=True)
class Schedule:
    arms: tuple[Experiment, ...]
    trials: tuple[int, ...]
    """Worker counts to try."""
    declined: Mapping[str, str]
    length: float
    """Seconds of steady state in a block."""
    lead: Experiment | None = None
    """The arm without what takes most, a stage or the sampler, first where time is short; None where all take little."""
    untried: frozenset[str] = frozenset()
    """Of the arms that were declined, those that only the time is lacking for."""
    short: bool = False
    """A batch takes so long that not even a block of each arm fits: blocks are one round, and the first look counts as one."""

    @property
    def needed(self) -> tuple[Experiment, ...]:
        """Arms that run once, however late it is: what everything is held against, and what the verdict most depends on."""
        return (experiments.REAL, experiments.PLAIN, *([self.lead] if self.short and self.lead is not None else []))

    def lap(self, number: int) -> tuple[Experiment, ...]:
        """Arms in the order of a round, every second one backwards. Where time is short the two sides of the verdict come first."""
        if self.short and self.lead is not None and number == 0:
            rest = (arm for arm in self.arms if arm not in (experiments.REAL, self.lead))
            return self.lead, experiments.REAL, self.lead, *rest
        return self.arms if number % 2 == 0 else self.arms[::-1]


def schedule(situation: ScheduleFacts, trials: Sequence[int], *, seconds: float, lap: float) -> Schedule:
    """Arms and block length for ``seconds`` of measuring, where all workers together take ``lap`` seconds for a batch each."""
    every = [arm for arm in experiments.POOL if arm not in (experiments.RECORD, experiments.COLD, experiments.TRACED)]
    declined = {arm.name: why for arm in every if (why := _useless(arm, situation)) is not None}
    arms = [arm for arm in every if arm.name not in declined]
    counts = [count for count in trials if count != situation.workers]
    shortest = SHORTEST + (2 + THROWN_AWAY) * lap
    affordable = seconds / shortest
    without = (*WITHOUT_ONE, *([experiments.SAMPLES] if situation.part(experiments.SAMPLES) >= OWN_LEADS else []))
    for arm in (arm for arm in GIVEN_UP_FIRST if arm not in without):
        if arm in arms and FEWEST_ROUNDS * _blocks(arms, counts) > affordable:
            arms.remove(arm)
            declined[arm.name] = "the time budget is too short for it; a longer --budget runs it"
    while counts and FEWEST_ROUNDS * _blocks(arms, counts) > affordable:
        count = counts.pop()
        declined[f"workers-{count}"] = "the time budget is too short to try it; a longer --budget does"
    by_part = sorted((arm for arm in without if arm in arms), key=situation.part)
    lead = by_part.pop() if by_part and situation.part(by_part[-1]) >= LEAST_LED else None
    short, untried = _blocks(arms, counts) > affordable, []
    for arm in (experiments.PREBUILT, *by_part):
        if arm in arms and _blocks(arms, counts) > affordable:
            arms.remove(arm)
            untried.append(arm.name)
            declined[arm.name] = "batches take too long for it in this time budget; a longer --budget runs it"
    each = FIRST_ROUNDS * seconds / (ROUNDS * _blocks(arms, counts)) - THROWN_AWAY * lap
    return Schedule(tuple(arms), tuple(counts), declined, min(LONGEST, max(SHORTEST, each)), lead, frozenset(untried), short)


def _blocks(arms: Sequence[Experiment], trials: Sequence[int]) -> float:
    """Blocks a round."""
    return sum(arm.length / arm.every for arm in arms) + len(trials) * TRIAL_BLOCKS * TRIAL_LENGTH / TRIED_EVERY


def _useless(arm: Experiment, situation: ScheduleFacts) -> str | None:
    """Why an arm can tell nothing about this pipeline; None where it can."""
    if arm is experiments.SUPPLY and not situation.has_consumer:
        return "there is no consumer to leave out"
    if arm is experiments.NO_SAMPLER and situation.part(arm) < SMALL_STAGE:
        return f"the sampler took under {percent(SMALL_STAGE)} of the time, so replacing it can gain no more"
    if not situation.workers and arm in (experiments.PREBUILT, experiments.NO_HANDOVER):
        return "there are no workers, so nothing crosses a process border"
    if situation.no_batches is not None and Stage.COLLATE in arm.replaces:
        return f"batches cannot be recorded: {situation.no_batches}"
    replaced = [stage for stage in IN_SAMPLE if stage in arm.replaces]
    if not replaced or Stage.COLLATE in arm.replaces:
        return None
    if sum(situation.share[stage] for stage in replaced) < SMALL_STAGE:
        took = f"{' and '.join(replaced)} took under {percent(SMALL_STAGE)} of a batch's making"
        return f"{took}, so replacing it can gain no more"
    if arm is experiments.DECODED and min(situation.share[stage] for stage in replaced) < SMALL_STAGE:
        return "the same as replacing the larger of storage and decode"
    return None


def unreplaced_operation(arm: Experiment, block: Block, real: Sequence[Block]) -> str | None:
    """The costliest operation of a replaced stage that ran all the same; None where the replacement took hold."""
    replaced = {stage.value for stage in IN_SAMPLE if stage in arm.replaces}
    if not replaced or not real:
        return None
    left, whole = _spent([block], replaced), _spent(real, replaced)
    return max(left, key=left.__getitem__) if sum(left.values()) > MOST_LEFT * sum(whole.values()) else None


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
