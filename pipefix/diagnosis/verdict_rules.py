"""The rules of the verdict: which stage limits, how sure that is, and when it must be left open. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from pipefix.diagnosis.attribution import IN_TURN, INDEX, MAIN, WORKER, columns
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.diagnosis.throughput import draws, of_draws
from pipefix.measurement.measurement import Measurement
from pipefix.measurement.statistics import Floats, interval
from pipefix.vocabulary.gain import MeasuredGain, NotTried, figure, surely_above
from pipefix.vocabulary.quantity import Interval, exactly, percent
from pipefix.vocabulary.stage import Stage

DOMINATES = 1.08
"""A stage that costs hardly more than the next is not singled out: mending it alone would gain next to nothing."""
ALIKE = 1.12
"""Up to this lead stages count as balanced, unless the first is surely ahead by `DOMINATES`. The borders overlap: a lead that lies
between them, however well it is known, would be left open otherwise."""
SURE = 0.95
"""A verdict is given when at least this part of the resamplings agree on it."""
EVEN = 0.9
"""Resamplings that must agree before stages are called balanced: the mildest of verdicts."""
DECISIVE = 1.08
"""Where the clocks leave it open, an arm that gains this much more than every other decides."""
AGREED, EITHER = 0.99, 0.8
"""Where neither the clocks nor the arms are sure enough by themselves, a stage that both put first is named when they are this sure
together, and each of them that sure alone."""
STATEMENT = (
    f"a stage is named when it costs over {DOMINATES:g}x the next one of what limits, in at least {SURE:.0%} of resamplings, "
    "its own arm gains about as much (or it can have none, and every arm leaves that room), and no arm contradicts it; or when the "
    f"clocks and its arm both put it first, each in {EITHER:.0%} and together in {AGREED:.0%}; stages are "
    f"called balanced when none is so, and in {EVEN:.0%} of them the lead is at most {ALIKE:g}x"
)
"""The rule as it is printed beside a verdict."""
CONTRADICTION = 1.05
"""An arm that gains this much more than the verdict's own arm contradicts it."""
LEAST_SAVED = 0.25
"""Part of the time that a stage is said to take which its own arm saves at least, where nothing runs beside it."""


@dataclass(frozen=True)
class Ranking:
    """Stages of the station that limits, costliest first, by how many resamplings say so."""

    kind: str
    stage: Stage | None
    second: Stage | None
    confidence: float
    """Where the arms decided: in how many draws from their intervals that arm gains most."""
    lead: Interval | None
    """The first stage's cost over the second's."""
    uncut: bool = False
    """True where code that no hook times may be what limits: then nothing is named with confidence."""
    sampler: bool = False
    """True where the user's sampler limits, or may: it is no stage."""
    by_arms: bool = False
    """True where the arms decided, not the clocks."""
    first_in: float = 0.0
    """Part of the resamplings in which the first stage costs more than every other, by however little."""


_POOL_STAGES = tuple(Stage(name) for name in WORKER)


def _pool_costs(draws: Floats, workers: int) -> Floats:
    """What each stage takes of a worker's time, the hand-over at least what it takes alone."""
    costs = columns(draws, WORKER)
    costs[:, WORKER.index("ipc")] = np.maximum(costs[:, WORKER.index("ipc")], workers * draws[:, INDEX["border"]])
    return costs


def judge(draws: Floats, workers: int, *, has_consumer: bool) -> Ranking:
    """``draws``: one resampled set of seconds a sample by column in each row."""
    ranking = _judge(draws, workers, has_consumer=has_consumer)
    ranking = _beside_sampler(ranking, draws, workers)
    if ranking.stage is None or (workers and ranking.stage in (Stage.STEP, Stage.TRANSFER)):
        return ranking
    named = draws[:, INDEX[ranking.stage.value]]
    if workers and ranking.stage in _POOL_STAGES:
        named = _pool_costs(draws, workers)[:, _POOL_STAGES.index(ranking.stage)]
    if float(np.mean(draws[:, INDEX["own"]] * DOMINATES > named)) > 1 - SURE:
        return replace(ranking, kind="inconclusive", uncut=True)
    return ranking


def _beside_sampler(ranking: Ranking, draws: Floats, workers: int) -> Ranking:
    """The sampler takes turns with everything where there are no workers, and else with what the training process does."""
    if workers and float(np.mean(of_draws(draws, workers).supply_over_main() < 1 / DOMINATES)) < SURE:
        return ranking
    beside = columns(draws, MAIN if workers else IN_TURN).max(axis=1)
    lead = draws[:, INDEX["sampler"]] / np.maximum(beside, 1e-12)
    ahead = float(np.mean(lead > DOMINATES))
    if ahead >= SURE:
        return Ranking("input-bound", None, ranking.stage, ahead, interval(lead), sampler=True)
    near = float(np.mean(lead > 1 / DOMINATES)) > 1 - SURE
    return replace(ranking, kind="inconclusive", sampler=True) if near else ranking


def _judge(draws: Floats, workers: int, *, has_consumer: bool) -> Ranking:
    if not workers:
        return _rank(columns(draws, IN_TURN), IN_TURN, base=1.0)
    ratio = of_draws(draws, workers).supply_over_main()
    pool = _pool_costs(draws, workers)
    waits, fed = float(np.mean(ratio > DOMINATES)), float(np.mean(ratio < 1 / DOMINATES))
    even = float(np.mean((ratio <= ALIKE) & (ratio >= 1 / ALIKE)))
    if waits >= SURE:
        return _rank(pool, WORKER, base=waits)
    if fed >= SURE:
        return _rank(columns(draws, MAIN), MAIN, base=fed)
    lead = interval(np.maximum(ratio, 1 / ratio))
    worker = _rank(pool, WORKER, base=1.0)
    main = _rank(columns(draws, MAIN), MAIN, base=1.0)
    if worker.kind == main.kind == "input-bound" and worker.stage is main.stage:
        # Handing over works on both sides of the border: where it leads on both, it does not matter which side limits.
        return replace(worker, confidence=min(worker.confidence, main.confidence))
    second_stage = Stage.STEP if has_consumer else Stage.IPC
    kind = "balanced" if even >= EVEN else "inconclusive"
    return Ranking(kind, None if kind == "balanced" else worker.stage, second_stage, max(even, waits, fed), lead)


def _rank(costs: Floats, names: tuple[str, ...], *, base: float) -> Ranking:
    stages = [Stage.IPC if name == "main_ipc" else Stage(name) for name in names]
    order = np.argsort(-np.median(costs, axis=0))
    first, second = int(order[0]), int(order[1])
    ratio = costs[:, first] / np.maximum(np.delete(costs, first, axis=1).max(axis=1), 1e-12)
    ahead = float(np.mean(ratio > DOMINATES))
    near = float(np.mean(ratio <= ALIKE))
    lead, first_in = interval(ratio), min(base, float(np.mean(ratio > 1)))
    if ahead >= SURE:
        kind = "step-bound" if stages[first] is Stage.STEP else "input-bound"
        return Ranking(kind, stages[first], stages[second], min(base, ahead), lead, first_in=first_in)
    kind = "balanced" if near >= EVEN else "inconclusive"
    return Ranking(kind, stages[first], stages[second], min(base, max(near, ahead)), lead, first_in=first_in)


def contradicted(ranking: Ranking, gains: dict[Stage, Interval], tried: Collection[Stage], workers: int) -> Stage | None:
    """The stage whose removal gains more than the verdict's, if there is one: then the clocks are not believed.

    Only an arm that ran (``tried``) contradicts. Where it did not, a bound is all that is known: it limits its own stage's claim.
    """
    least = _most_of_others(ranking, gains, workers)
    rivals = [(gains[stage].low, stage) for stage in tried if stage is not ranking.stage and gains[stage].low > least]
    return max(rivals)[1] if rivals else None


def outgained(ranking: Ranking, gains: dict[Stage, Interval], gain: Interval | None, workers: int) -> bool:
    """Whether the pipeline without its sampler, or without whole samples, contradicts a verdict that names a stage."""
    return gain is not None and gain.low > _most_of_others(ranking, gains, workers)


def _most_of_others(ranking: Ranking, gains: dict[Stage, Interval], workers: int) -> float:
    """Above which the gain of anything but the named stage contradicts the verdict; where none is named, nothing does."""
    if ranking.stage is None or ranking.kind not in ("input-bound", "step-bound"):
        return float("inf")
    own = gains.get(ranking.stage)
    most = own.high * CONTRADICTION if own is not None else float("inf")
    # Whatever leaving the step out would gain: where it limits, and batches are made beside it, nothing else gains.
    # And what loses by its removal contradicts nothing.
    return max(1.0, min(most, DOMINATES) if ranking.kind == "step-bound" and workers else most)


LeadOf = Callable[[Stage | None, Stage | None], Interval | None]


def decided_by_arms(
    ranking: Ranking, gains: dict[Stage, Interval], sampler: MeasuredGain | None, lead: LeadOf, *, has_consumer: bool
) -> Ranking | None:
    """The verdict that the arms alone give, where one stage's removal, or the sampler's, clearly gains more than every other's.

    ``lead``: the throughput without the first over that without the second, of their arms' blocks themselves: what disturbed the
    pipeline as it is, which every gain is held against, does not count. None where one of them has no arm.
    """
    known: dict[Stage | None, Interval] = dict(gains.items())
    if sampler is not None:
        known[None] = sampler.interval
    if ranking.uncut or (has_consumer and Stage.STEP not in gains) or len(known) < 2:
        return None
    first = max(known, key=lambda stage: known[stage].low)
    others = [stage for stage in known if stage is not first]
    leads = {stage: lead(first, stage) or exactly(known[first].low / known[stage].high) for stage in others}
    second = min(others, key=lambda stage: leads[stage].low)
    if known[first].low < DOMINATES or (leads[second].low < DECISIVE and not _agree(ranking, first, leads[second])):
        return None
    kind = "step-bound" if first is Stage.STEP else "input-bound"
    # `draws` of one name are drawn alike: of different ones, apart.
    drawn = {stage: draws(gain, stage or "sampler") for stage, gain in known.items()}
    ahead = drawn.pop(first) > np.max(list(drawn.values()), axis=0)
    return Ranking(kind, first, second, float(np.mean(ahead)), None, sampler=first is None, by_arms=True)


def _agree(ranking: Ranking, first: Stage | None, lead: Interval) -> bool:
    """Whether clocks and arms, neither of which settles it, both put ``first`` in front: to be wrong, both must err at once.

    ``lead``: the throughput without it over that without what comes next.
    """
    if ranking.kind == "balanced" or ranking.sampler or first is None or first is not ranking.stage or lead.low <= 0:
        return False
    sigma = max(1e-6, math.log(lead.value / lead.low) / 1.96)
    clocks, arms = ranking.first_in, NormalDist().cdf(math.log(lead.value) / sigma)
    right, wrong = clocks * arms, (1 - clocks) * (1 - arms)
    return min(clocks, arms) >= EITHER and right >= AGREED * (right + wrong)


def contradictions(measurement: Measurement, diagnosis: Diagnosis) -> list[str]:
    """What speaks against a stage that is named, in words: its own arm gains too little, or another's more.

    Looked at once more, by simpler means, at the end of every probe.
    """
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
        if surely_above(gain, CONTRADICTION * most):
            sentences.append(f"{stage} is named, and {without}, but without {name} {figure(gain)}")
    return sentences
