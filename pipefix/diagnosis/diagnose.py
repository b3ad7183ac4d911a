"""`diagnose`: a measurement in, a diagnosis out; nothing is run. Pure."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from msgspec.structs import replace

from pipefix.diagnosis import sentences, verdict_rules
from pipefix.diagnosis.attribution import INDEX, WORKER, columns, exposed_share, ledger, own_wait, per_sample, starved_share
from pipefix.diagnosis.clock_overhead import calls_per_sample, delivered_seconds, seconds_each, unclocked
from pipefix.diagnosis.costs import StageCosts
from pipefix.diagnosis.diagnosis import Diagnosis, StageCost, Stations, Verdict
from pipefix.diagnosis.doubts import Claim, Doubt, DoubtKind, could_run, doubted
from pipefix.diagnosis.throughput import PipelineModel, of_draws
from pipefix.diagnosis.verdict_rules import Ranking, contradictions
from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT, Experiment
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.statistics import APART, RESAMPLES, Floats, bootstrap, interval, ratio, spread_around
from pipefix.vocabulary.gain import FEWEST_FOR_INTERVAL, Bounded, MeasuredGain, NotTried, surely_above
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import IN_SAMPLE, ORDER, Stage

WITHOUT = LEAVE_ONE_OUT | {None: experiments.NO_SAMPLER}
"""The arm without a stage; None is the sampler."""
CLEAR = 1.3
"""A stage that is this far ahead of what comes next is no close call."""
OWN_PART = 0.6
"""Part of a sample's making, by the clocks, that is one stage's before what the arm without whole samples gains counts as its."""
HARDLY = 0.02
"""Part of a block's time that is left at least when the sampler's is taken off."""
MOST_CREDITED = 0.9
"""Part of the time that a stage without an arm of its own is believed to take at most."""


def diagnose(measurement: Measurement) -> Diagnosis:
    """Where a delivered sample's time goes and what limits it."""
    real = measurement.of(experiments.REAL.name)
    clocked = ledger(measurement, real)
    draws, each = bootstrap(clocked, per_sample), per_sample(np.concatenate(clocked))
    if measurement.workers:
        handed = [_without_sampler(block, measurement) for block in measurement.of(experiments.PREBUILT.name)]
        each[INDEX["border"]], draws[:, INDEX["border"]] = _paced(handed)
        each[INDEX["supply"]], draws[:, INDEX["supply"]] = _paced(_undisturbed(measurement))
    model = of_draws(draws, measurement.workers)
    arms = _arms(measurement)
    gains = _gains(measurement, arms, draws)
    ranking = verdict_rules.judge(draws, measurement.workers, has_consumer=measurement.has_consumer)
    tried = {stage: gain for stage, gain in gains.items() if isinstance(gain, MeasuredGain)}
    worth = {
        stage: Interval(1.0, 1.0, gain.at_most) if isinstance(gain, Bounded) else arms[LEAVE_ONE_OUT[stage].name]
        for stage, gain in gains.items()
    }
    if (whole := _without_whole_samples(measurement, arms, gains, draws)) is not None:
        tried[whole[0]], worth[whole[0]] = whole[1], whole[1].interval
    sampler = _measured(measurement, arms, experiments.NO_SAMPLER.name)
    rival = verdict_rules.contradicted(ranking, worth, tried, measurement.workers)
    by_sampler = verdict_rules.outgained(ranking, worth, arms.get(experiments.NO_SAMPLER.name), measurement.workers)
    once = any(gain.blocks < FEWEST_FOR_INTERVAL for gain in (*tried.values(), *([sampler] if sampler is not None else [])))
    by_arms = None if once else verdict_rules.decided_by_arms(
        ranking, worth, sampler, lambda *stages: _lead_of(measurement, *map(WITHOUT.get, stages)),
        has_consumer=measurement.has_consumer,
    )  # fmt: skip
    if by_arms is not None and (
        ranking.kind == "inconclusive" or (measurement.workers and (rival is not None or by_sampler or ranking.kind == "balanced"))
    ):
        # Side by side, stages slow each other down, which clocks charge to the wrong one; in a row they cannot.
        ranking, rival, by_sampler = by_arms, None, False
    sample = _sample_seconds(measurement)
    plain = measurement.of(experiments.PLAIN.name)
    own = own_wait(measurement.of(experiments.FLOOR.name), measurement.workers) if measurement.has_consumer else 0.0
    main_bound = measurement.workers > 0 and float(np.median(model.supply_over_main())) < 1
    costs = StageCosts(measurement, real, each, draws, model, main_bound)
    stages = {stage: costs.stage(stage, gains.get(stage) or NotTried()) for stage in costs.measured()}
    if rival is not None:
        doubt: Doubt | None = Doubt(DoubtKind.RIVAL, rival, tried[rival])
    elif by_sampler:
        doubt = Doubt(DoubtKind.NO_ROOM, ranking.stage, sampler, experiments.NO_SAMPLER.name)
    elif _whole_samples_gain_more(measurement, ranking, worth, arms, draws):
        samples = experiments.SAMPLES.name
        doubt = Doubt(DoubtKind.NO_ROOM, ranking.stage, _measured(measurement, arms, samples), samples)
    else:
        doubt = doubted(Claim(measurement, ranking, model, costs.own_code(ranking.stage), sampler, gains, arms))
        agreed = by_arms is not None and (by_arms.stage, by_arms.sampler) == (ranking.stage, ranking.sampler)
        if by_arms is not None and agreed and measurement.workers and doubt is not None and doubt.kind is DoubtKind.LITTLE_GAIN:
            # How much it gains is then the arm's to say: what runs beside it changes with it.
            ranking, doubt = by_arms, None
    kind = "inconclusive" if doubt is not None else ranking.kind
    stage = ranking.stage if kind in ("input-bound", "step-bound") else None
    diagnosis = Diagnosis(
        verdict=Verdict(
            kind=kind, stage=stage, sentence="", confidence=round(ranking.confidence, 4), blocks=len(real),
            by_arms=ranking.by_arms, rule=verdict_rules.STATEMENT,
        ),
        sample=sample, stages=stages, arms=arms, tail=_tail(real), calls_per_sample=calls_per_sample(real),
        declined=_declined(stages, measurement.declined),
        unattributed=costs.unattributed() * sample.value,
        closure=costs.total() / sample.value - 1,
        stations=_stations(measurement, model), demand=_demand(measurement),
        fed=1 - exposed_share(plain or real, measurement.workers, own) if measurement.has_consumer else None,
        loader_wait=own / 1e9 if own else None,
        starved=starved_share(real), slowdown=seconds_each(real) / sample.value,
        sampler=costs.seconds("sampler"), sampler_gain=sampler,
        lead=ranking.lead if stage is not None else None,
    )  # fmt: skip
    sentence = sentences.verdict(measurement, diagnosis, ranking, doubt, costs.share_interval)
    diagnosis.verdict = replace(diagnosis.verdict, sentence=sentence)
    diagnosis.contradictions = contradictions(measurement, diagnosis)
    if diagnosis.contradictions:
        kind, sentence = "inconclusive", sentences.contradicted(measurement, diagnosis.contradictions[0])
        diagnosis.verdict, diagnosis.lead = replace(diagnosis.verdict, kind=kind, stage=None, sentence=sentence), None
    diagnosis.caveats = sentences.caveats(measurement, diagnosis)
    if kind == "inconclusive":
        diagnosis.wanting = _wanting(ranking, doubt, worth, tried)
    return diagnosis


def wanting(measurement: Measurement) -> tuple[str, ...]:
    """Arms that decide an open verdict, of which more blocks may settle it; none where it is not open."""
    return diagnose(measurement).wanting if measurement.of(experiments.REAL.name) else ()


def _wanting(
    ranking: Ranking, doubt: Doubt | None, worth: dict[Stage, Interval], tried: dict[Stage, MeasuredGain]
) -> tuple[str, ...]:
    """The arms of what the clocks put first, of what speaks against it, and of all that may gain as much as what gains most."""
    open_stages = {ranking.stage, ranking.second, doubt.stage if doubt is not None else None}
    most = max((worth[stage].low for stage in tried), default=float("inf"))
    open_stages |= {stage for stage in tried if worth[stage].high >= most}
    names = {arm.name for stage, arm in LEAVE_ONE_OUT.items() if stage in open_stages} | {experiments.REAL.name}
    if doubt is not None:
        names |= {doubt.arm} | ({experiments.SAMPLES.name} if doubt.kind is DoubtKind.OWN_CODE else set())
    if ranking.sampler:
        names.add(experiments.NO_SAMPLER.name)
    if Stage.IPC in open_stages:
        names.add(experiments.PREBUILT.name)  # what crossing the border takes, by the clocks
    return tuple(arm.name for arm in experiments.POOL if arm.name in names)


def settled(measurement: Measurement) -> bool:
    """Whether more rounds would change nothing a reader acts on: the verdict is sure, no close call, and its gain known to 5 %.

    A close call gets all the time there is: what disturbs a shared machine lasts for seconds, and rounds that follow each other
    closely agree on what is true of those seconds only.
    """
    diagnosis = diagnose(measurement)
    verdict, lead, ratio = diagnosis.verdict, diagnosis.lead, diagnosis.stations.supply_over_main
    # How far the named stage is ahead at least, of other stages and of the other station.
    ahead = min(lead.low, max(ratio.low, 1 / ratio.high) if ratio is not None else float("inf")) if lead is not None else 1.0
    if not verdict.confidence >= 0.99 or ahead < CLEAR:
        return False
    stage = diagnosis.stages.get(Stage(verdict.stage)) if verdict.stage is not None else None
    if stage is None or not isinstance(stage.gain, MeasuredGain):
        return True
    return (stage.gain.interval.high - stage.gain.interval.low) / stage.gain.interval.value < 0.1


def _sample_seconds(measurement: Measurement) -> Interval:
    """Delivered seconds a sample of the untimed arm; of the timed one where there was no time for it."""
    blocks = measurement.of(experiments.PLAIN.name) or measurement.of(experiments.REAL.name)
    values = np.asarray([block.seconds / block.samples for block in blocks])
    draws = np.median(np.random.default_rng(0).choice(values, (400, len(values))), axis=1)
    return interval(draws, float(np.median(values)))


def _paced(each: list[float]) -> tuple[float, Floats]:
    """Seconds a sample of an arm, with draws of it; nothing where it was not run."""
    return (float(np.median(each)), spread_around(each)) if each else (0.0, np.zeros(RESAMPLES))


def _without_sampler(block: Block, measurement: Measurement) -> float:
    """Seconds a sample without the user's sampler, as far as that does not run while workers are busy anyway.

    That workers waited for a core which the sampler had is no work of theirs; what they computed needs its cores all the same.
    """
    seconds, traces = block.seconds / block.samples, [row.trace for row in block.rows]
    working = sum(max(0, trace.ended - trace.begun - trace.starved) for trace in traces) / max(1, measurement.workers)
    computed = sum(trace.cpu for trace in traces) / max(1.0, measurement.cores)
    busy = max(working, computed) / 1e9 / block.samples
    sampled = sum(row.sampled for row in block.rows) / 1e9 / block.samples
    return min(seconds, max(busy, seconds - sampled, HARDLY * seconds))


def _undisturbed(measurement: Measurement) -> list[float]:
    """Seconds a sample in the faster half of the blocks of the loader alone.

    What disturbs a machine only ever slows it down, and it slows workers that always compute by more than a step that they are
    held against, which may wait for a device.
    """
    each = sorted(_without_sampler(block, measurement) for block in measurement.of(experiments.SUPPLY.name))
    return each[: (len(each) + 1) // 2]


def _lead_of(measurement: Measurement, *arms: Experiment | None) -> Interval | None:
    """Throughput of the first arm over the second's; None where one of them did not run."""
    blocks = [measurement.of(arm.name) if arm is not None else [] for arm in arms]
    if not all(blocks):
        return None
    cost = delivered_seconds(measurement)
    lead = ratio(*([unclocked(block, cost) for block in each] for each in blocks))
    # Two blocks that agree by chance are no evidence that neighbouring blocks do.
    half = APART / np.sqrt(min(map(len, blocks)))
    return Interval(lead.value, min(lead.low, lead.value * np.exp(-half)), max(lead.high, lead.value * np.exp(half)))


def _arms(measurement: Measurement) -> dict[str, Interval]:
    """Throughput of every arm over the real one's; timed arms against the timed one, the untimed against itself."""
    cost, rates = delivered_seconds(measurement), defaultdict[str, list[float]](list)
    for block in measurement.blocks:
        rates[block.arm].append(unclocked(block, cost))
    return {arm: ratio(rates[arm], rates[experiments.REAL.name]) for arm in rates if arm != experiments.ALONE}


def _gains(measurement: Measurement, arms: dict[str, Interval], draws: Floats) -> dict[Stage, MeasuredGain | Bounded]:
    """What each stage's disappearance would gain; where no arm says so, what it can gain at most."""
    gains: dict[Stage, MeasuredGain | Bounded] = {}
    for stage, arm in LEAVE_ONE_OUT.items():
        if (gain := _measured(measurement, arms, arm.name)) is not None:
            gains[stage] = gain
        elif stage in IN_SAMPLE:
            # It can gain no more than its part of the time of those who do it: of a worker, or of the one process.
            doers = columns(draws, (*WORKER, "own", "between")) if measurement.workers else draws[:, : INDEX["border"]]
            share = float(np.median(draws[:, INDEX[stage.value]] / doers.sum(axis=1)))
            # Nor more than an arm without it and others, whatever limits beside the workers.
            more = [arm.name for arm in experiments.POOL if stage in arm.replaces and measurement.workers]
            bounds = [arms[arm].high for arm in more if len(measurement.of(arm)) >= FEWEST_FOR_INTERVAL]
            gains[stage] = Bounded(max(1.0, min([1 / (1 - min(MOST_CREDITED, share)), *bounds])))
    return gains


def _without_whole_samples(
    measurement: Measurement, arms: dict[str, Interval], gains: dict[Stage, MeasuredGain | Bounded], draws: Floats
) -> tuple[Stage, MeasuredGain] | None:
    """The stage in which a sample's own code lies, and what the arm without whole samples gains, where no arm of its own says it.

    The other stages of a sample have theirs, or take next to nothing: what they do not gain is this one's.
    """
    gain = _measured(measurement, arms, experiments.SAMPLES.name)
    bare = [stage for stage in IN_SAMPLE if not isinstance(gains.get(stage), MeasuredGain)]
    if gain is None or not surely_above(gain, verdict_rules.DECISIVE) or not bare:
        return None
    costs = {stage: float(np.median(draws[:, INDEX[stage.value]])) for stage in IN_SAMPLE}
    stage = max(bare, key=costs.__getitem__)
    return (stage, gain) if costs[stage] >= OWN_PART * sum(costs.values()) and not could_run(stage, measurement) else None


def _whole_samples_gain_more(
    measurement: Measurement, ranking: Ranking, worth: dict[Stage, Interval], arms: dict[str, Interval], draws: Floats
) -> bool:
    """Whether a stage is named that is no part of a sample, and the costliest stage of a sample gains more than its own arm.

    What the arm without whole samples saves is that stage's by its part of them: several small stages together are no rival.
    """
    gain = arms.get(experiments.SAMPLES.name)
    if gain is None or ranking.stage is None or ranking.stage in IN_SAMPLE or ranking.kind not in ("input-bound", "step-bound"):
        return False
    costs = [float(np.median(draws[:, INDEX[stage.value]])) for stage in IN_SAMPLE]
    part = max(costs) / sum(costs) if sum(costs) else 1.0
    costliest = gain.mapped(lambda faster: 1 / (1 - part * (1 - 1 / faster)))
    lead = _lead_of(measurement, experiments.SAMPLES, LEAVE_ONE_OUT.get(ranking.stage))
    faster = lead is not None and lead.low * costliest.value / gain.value > verdict_rules.CONTRADICTION
    return faster or verdict_rules.outgained(ranking, worth, costliest, measurement.workers)


def _measured(measurement: Measurement, arms: dict[str, Interval], arm: str) -> MeasuredGain | None:
    """An arm's gain and the blocks that it rests on; None where it did not run."""
    blocks = min(len(measurement.of(arm)), len(measurement.of(experiments.REAL.name)))
    return MeasuredGain(arms[arm], blocks) if arm in arms else None


def _stations(measurement: Measurement, model: PipelineModel) -> Stations:
    if not measurement.workers:
        return Stations(None, interval(model.seconds()), None)
    border = interval(model.crossing) if model.crossing.any() else None
    return Stations(interval(model.pool), interval(model.main), interval(model.supply_over_main()), border)


def _demand(measurement: Measurement) -> Interval | None:
    rates = np.asarray([block.rate for block in measurement.of(experiments.ALONE)])
    return Interval(float(np.median(rates)), float(rates.min()), float(rates.max())) if len(rates) else None


def _tail(blocks: list[Block]) -> dict[str, float]:
    rows = [row for block in blocks for row in block.rows if row.trace.unit_walls]
    walls = np.asarray([wall for row in rows for wall in row.trace.unit_walls]) / 1e9
    if not len(walls):
        return {}
    together = sum(row.trace.samples for row in rows) / len(walls)
    walls /= together
    p50, p95, p99 = (float(value) for value in np.percentile(walls, (50, 95, 99)))
    blocked = [_head_of_line(block) for block in blocks]
    return {
        "p50": p50, "p95": p95, "p99": p99, "max": float(walls.max()), "samples": len(walls) * together, "together": together,
        "blocked": sum(blocked) / len(blocked),
    }  # fmt: skip


def _head_of_line(block: Block) -> float:
    """Seconds a sample that the consumer waited although a later batch was already done."""
    waited = 0
    for place, row in enumerate(block.rows):
        later = [later_row.trace.ended for later_row in block.rows[place + 1 : place + 9]]
        if later:
            waited += max(0, min(row.got, row.trace.ended) - max(row.asked, min(later)))
    return waited / 1e9 / block.samples


def _declined(stages: dict[Stage, StageCost], declined: dict[str, str]) -> dict[Stage, str]:
    reasons = {
        Stage.IPC: "num_workers is 0: batches are made in the training process and cross no border",
        Stage.TRANSFER: declined.get(Stage.TRANSFER.value, "no CUDA device is present"),
        Stage.STEP: "no consumer: give train_step(batch) or model in the target's file, or --step-ms / --target-rate",
    }
    return {stage: reasons[stage] for stage in ORDER if stage not in stages}
