"""From a measurement to a diagnosis. Pure: nothing is run, only what was seen is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipefix.diagnosis import rhythm, rules, sentences
from pipefix.diagnosis.attribution import (
    INDEX,
    MAIN,
    WORKER,
    compute_shares,
    cpu_shares,
    exposed_share,
    ledger,
    operations,
    own_wait,
    per_sample,
    starved_share,
)
from pipefix.diagnosis.diagnosis import Diagnosis, OpCost, StageCost, Stations, Verdict
from pipefix.measurement import experiments
from pipefix.measurement.experiments import LEAVE_ONE_OUT
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.statistics import RESAMPLES, Floats, bootstrap, interval, ratio, spread_around
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.stage import IN_SAMPLE, INPUT, ORDER, Stage

OPS_KEPT = 24
CLEAR = 1.3
"""A stage that is this far ahead of what comes next is no close call."""
MOST_CREDITED = 0.9
"""Part of the time that a stage without an arm of its own is believed to take at most."""
CLOCK_DOUBT = 2.0
"""How many times dearer, or cheaper, a timed call may be in a pipeline than by itself."""
MOST_CLOCKED = 0.2
"""Part of a sample's time that clocks are believed to cost at most; what is above is noise."""


def diagnose(found: Measurement) -> Diagnosis:
    """Where a delivered sample's time goes and what limits it."""
    real = found.of(experiments.REAL.name)
    book = ledger(found, real)
    draws = bootstrap(book.groups, per_sample)
    each = book.each()
    if found.workers:
        each[INDEX["border"]], draws[:, INDEX["border"]] = _paced([1 / block.rate for block in found.of(experiments.PREBUILT.name)])
        each[INDEX["supply"]], draws[:, INDEX["supply"]] = _paced(_undisturbed(found.of(experiments.SUPPLY.name)))
    arms = {name: gain for name in {block.arm for block in found.blocks} if (gain := _gain(found, name)) is not None}
    gains = _gains(arms, draws, found.workers)
    ranking = rules.judge(draws, found.workers, has_consumer=found.has_consumer)
    rival = rules.contradicted(ranking, gains, found.workers)
    if ranking.kind == "inconclusive" or (found.workers and (rival is not None or ranking.kind == "balanced")):
        # Side by side, stages slow each other down, which clocks charge to the wrong one; in a row they cannot.
        by_arms = rules.decided_by_arms(ranking, gains, has_consumer=found.has_consumer)
        ranking, rival = (by_arms, None) if by_arms is not None else (ranking, rival)
    sample = _sample_seconds(found)
    plain, own = (
        found.of(experiments.PLAIN.name),
        own_wait(found.of(experiments.FLOOR.name), found.workers) if found.has_consumer else 0.0,
    )
    main_bound = found.workers > 0 and float(np.median(rules.supply_over_main(draws, found.workers))) < 1
    costs = _Costs(found, real, each, draws, main_bound)
    stages = {stage: costs.stage(stage, gains.get(stage)) for stage in costs.measured()}
    diagnosis = Diagnosis(
        verdict=Verdict("inconclusive", None, "", 0.0),
        sample=sample,
        stages=stages,
        declined=_declined(stages),
        unattributed=costs.unattributed() * sample.value,
        closure=costs.total() / sample.value - 1,
        stations=_stations(found, draws),
        cold=arms.get(experiments.COLD.name),
        demand=_demand(found),
        fed=1 - exposed_share(plain or real, found.workers, own) if found.has_consumer else None,
        loader_wait=own / 1e9 if own else None,
        period=_period(real, found.workers),
        starved=starved_share(real),
        slowdown=_seconds(real) / sample.value,
        calls_per_sample=_calls(real),
        tail=_tail(real),
        arms=arms,
    )
    kind = "inconclusive" if rival is not None else ranking.kind
    stage = ranking.stage if kind in ("input-bound", "step-bound") else None
    diagnosis.verdict = Verdict(kind, stage, "", ranking.confidence, rules.STATEMENT, ranking.lead if stage is not None else None)
    sentence = sentences.verdict(found, diagnosis, ranking, rival, costs.share_interval)
    diagnosis.verdict = replace(diagnosis.verdict, sentence=sentence)
    diagnosis.caveats = sentences.caveats(found, diagnosis)
    return diagnosis


def settled(found: Measurement) -> bool:
    """Whether more rounds would change nothing a reader acts on: the verdict is sure, no close call, and its gain known to 5 %.

    A close call gets all the time there is: what disturbs a shared machine lasts for seconds, and rounds that follow each other
    closely agree on what is true of those seconds only.
    """
    diagnosis = diagnose(found)
    verdict = diagnosis.verdict
    if verdict.confidence < 0.99 or _lead(diagnosis) < CLEAR:
        return False
    stage = diagnosis.stages.get(verdict.stage) if verdict.stage is not None else None
    gain = stage.gain if stage is not None else None
    return gain is None or (gain.high - gain.low) / gain.value < 0.1


def _lead(diagnosis: Diagnosis) -> float:
    """How far the named stage is ahead at least, of other stages and of the other station; 1 where none is named."""
    if diagnosis.verdict.lead is None:
        return 1.0
    ratio = diagnosis.stations.supply_over_main
    return min(diagnosis.verdict.lead.low, max(ratio.low, 1 / ratio.high) if ratio is not None else float("inf"))


class _Costs:
    """Seconds a sample by stage, with intervals, read off one ledger."""

    def __init__(self, found: Measurement, real: list[Block], each: Floats, draws: Floats, main_bound: bool) -> None:
        self.found = found
        self.real = real
        self.each = each
        self.draws = draws
        self.main_bound = main_bound
        self.border_bound = found.workers > 0 and not main_bound and bool(np.median(rules.border_bound(draws, found.workers)))
        self.cpu = cpu_shares(real)
        self.compute = compute_shares(real)
        self.ops = operations(real, found.opaque)
        self.samples = sum(block.samples for block in real)

    def measured(self) -> list[Stage]:
        found = self.found
        without = set()
        if not found.workers:
            without.add(Stage.IPC)
        if not found.transfer:
            without.add(Stage.TRANSFER)
        if not found.has_consumer:
            without.add(Stage.STEP)
        return [stage for stage in ORDER if stage not in without]

    def _exposed(self) -> tuple[str, ...]:
        """The columns that make up the limiting station's time."""
        if not self.found.workers:
            return ("storage", "decode", "augment", "collate", "transfer", "step")
        if self.main_bound:
            return MAIN
        # Where the crossing limits, that is what workers are idle for.
        return (*WORKER, "idle") if self.border_bound else WORKER

    def _rest(self) -> tuple[str, ...]:
        """The columns of the limiting station that belong to no stage."""
        if not self.found.workers:
            return ("own", "between", "loop")
        if self.main_bound:
            return ("wait", "loop")
        return ("own", "between") if self.border_bound else ("own", "between", "idle")

    def _cycle(self, rows: Floats) -> Floats:
        """Seconds a sample that the limiting station is up, for one draw a row."""
        return np.asarray(rules.columns(rows, (*self._exposed(), *self._rest())).sum(axis=1))

    def total(self) -> float:
        """Attributed and unattributed seconds a delivered sample, as the clocks saw them."""
        cycle = float(self._cycle(self.each[None, :])[0])
        return cycle / self.found.workers if self.found.workers and not self.main_bound else cycle

    def unattributed(self) -> float:
        """Share of the limiting station's time that belongs to no stage."""
        return float(sum(self.each[INDEX[name]] for name in self._rest()) / self._cycle(self.each[None, :])[0])

    def share_interval(self, stage: Stage) -> Interval:
        names: tuple[str, ...] = (stage.value,)
        if stage is Stage.IPC:
            names = ("main_ipc",) if self.main_bound else ("ipc", "idle") if self.border_bound else ("ipc",)
        if not set(names) <= set(self._exposed()):
            return exactly(0.0)
        share = float(self.each[[INDEX[name] for name in names]].sum() / self._cycle(self.each[None, :])[0])
        return interval(rules.columns(self.draws, names).sum(axis=1) / self._cycle(self.draws), share)

    def stage(self, stage: Stage, gain: Interval | None) -> StageCost:
        names = ("ipc", "main_ipc") if stage is Stage.IPC else (stage.value,)
        value = float(sum(self.each[INDEX[name]] for name in names))
        wall = interval(rules.columns(self.draws, names).sum(axis=1), value)
        if stage is Stage.TRANSFER:
            wall = exactly(self.found.transfer["pinned"] / (self.found.settings.batch_size or 1))
        share = self.share_interval(stage).value
        cpu = self.cpu.get(stage.value)
        return StageCost(
            stage=stage,
            wall=wall,
            cpu=wall.scaled(cpu) if cpu is not None else None,
            waiting=wall.value * (1 - self.compute[stage.value]) if stage.value in self.compute else None,
            share=share,
            hidden=share == 0 and wall.value > 0,
            gain=gain,
            bytes=self._bytes(stage),
            ops=self._copies() if stage is Stage.TRANSFER else tuple(OpCost(*op) for op in self.ops.get(stage, [])[:OPS_KEPT]),
        )

    def _copies(self) -> tuple[OpCost, ...]:
        """Ways to the device, each measured by itself: a batch takes one of them."""
        batch = self.found.settings.batch_size or 1
        names = {"pinned": "copy from pinned memory", "pageable": "copy from ordinary memory", "pinning": "copy into pinned memory"}
        copies = self.found.transfer
        return tuple(OpCost(name, copies[key] / batch, None, 1 / batch) for key, name in names.items() if key in copies)

    def _bytes(self, stage: Stage) -> float | None:
        if stage is Stage.STORAGE:
            return sum(row.trace.bytes_read for block in self.real for row in block.rows) / self.samples
        if stage in (Stage.COLLATE, Stage.IPC, Stage.TRANSFER):
            held = self.found.facts.get("batch.bytes")
            return held / (self.found.settings.batch_size or 1) if held else None
        return None


def _seconds(blocks: list[Block]) -> float:
    return float(np.median([block.seconds / block.samples for block in blocks])) if blocks else float("nan")


def _sample_seconds(found: Measurement) -> Interval:
    """Delivered seconds a sample of the untimed arm; of the timed one where there was no time for it."""
    blocks = found.of(experiments.PLAIN.name) or found.of(experiments.REAL.name)
    values = np.asarray([block.seconds / block.samples for block in blocks])
    draws = np.median(np.random.default_rng(0).choice(values, (400, len(values))), axis=1)
    return interval(draws, float(np.median(values)))


def _paced(each: list[float]) -> tuple[float, Floats]:
    """Seconds a sample of an arm, with draws of it; nothing where it was not run."""
    return (float(np.median(each)), spread_around(each)) if each else (0.0, np.zeros(RESAMPLES))


def _undisturbed(blocks: list[Block]) -> list[float]:
    """Seconds a sample in the faster half of an arm's blocks.

    What disturbs a machine only ever slows it down, and it slows workers that always compute by more than a step that they are
    held against, which may wait for a device.
    """
    each = sorted(1 / block.rate for block in blocks)
    return each[: (len(each) + 1) // 2]


def _gain(found: Measurement, arm: str) -> Interval | None:
    """Throughput of an arm over the real one's; timed arms against the timed one, the untimed against itself."""
    blocks = found.of(arm)
    base = found.of(experiments.REAL.name)
    if not blocks or not base or arm in (experiments.ALONE, experiments.BURNER):
        return None
    cost = _clock_seconds(found)
    return ratio([_unclocked(block, cost) for block in blocks], [_unclocked(block, cost) for block in base])


def _clock_seconds(found: Measurement) -> float:
    """Delivered seconds that one timed call adds: what the timed arm takes longer than the untimed one, shared among its calls.

    That difference of two large figures is believed as far as it agrees with what a call costs by itself; with workers, which may
    make up for it in parallel or while a step runs, down to nothing.
    """
    real, plain = found.of(experiments.REAL.name), found.of(experiments.PLAIN.name)
    calls = _calls(real)
    if not plain or not calls:
        return 0.0
    slower = max(0.0, _seconds(real) - _seconds(plain)) / calls
    if found.seam_cost:
        least = 0.0 if found.workers else found.seam_cost / CLOCK_DOUBT
        slower = min(max(slower, least), CLOCK_DOUBT * found.seam_cost)
    return min(slower, MOST_CLOCKED * _seconds(real) / calls)


def _calls(blocks: list[Block]) -> float:
    """Timed calls a sample."""
    count = sum(charge.calls for block in blocks for row in block.rows for charge in row.trace.charges)
    samples = sum(block.samples for block in blocks)
    return count / samples if samples else 0.0


def _unclocked(block: Block, cost: float) -> float:
    """A block's rate without what its clocks cost: an arm with fewer timed calls must not gain by that."""
    each = block.seconds / block.samples
    return 1 / max(each - cost * _calls([block]), (1 - MOST_CLOCKED) * each)


def _gains(arms: dict[str, Interval], draws: Floats, workers: int) -> dict[Stage, Interval]:
    """What each stage's disappearance would gain; where no arm says so, what it can gain at most."""
    gains: dict[Stage, Interval] = {}
    for stage, arm in LEAVE_ONE_OUT.items():
        if arm.name in arms:
            gains[stage] = arms[arm.name]
        elif stage in IN_SAMPLE:
            # It can gain no more than its part of the time of those who do it: of a worker, or of the one process.
            doers = rules.columns(draws, (*WORKER, "own", "between")) if workers else draws[:, : INDEX["border"]]
            share = float(np.median(draws[:, INDEX[stage.value]] / doers.sum(axis=1)))
            gains[stage] = Interval(1.0, 1.0, 1 / (1 - min(MOST_CREDITED, share)))
    return gains


def _stations(found: Measurement, draws: Floats) -> Stations:
    main = rules.main_seconds(draws)
    if not found.workers:
        return Stations(None, interval(draws.sum(axis=1)), None)
    pool = rules.pool_seconds(draws, found.workers)
    border = draws[:, INDEX["border"]]
    ratio = interval(rules.supply_over_main(draws, found.workers))
    return Stations(interval(pool), interval(main), ratio, interval(border) if border.any() else None)


def _demand(found: Measurement) -> Interval | None:
    rates = np.asarray([block.rate for block in found.of(experiments.ALONE)])
    return Interval(float(np.median(rates)), float(rates.min()), float(rates.max())) if len(rates) else None


def _period(blocks: list[Block], workers: int) -> int | None:
    """Every how many batches a long wait comes."""
    stretches = [[float(row.got - row.asked) for row in block.rows] for block in blocks]
    between = [float(row.done - row.asked) for block in blocks for row in block.rows]
    return rhythm.period(stretches, workers, float(np.mean(between))) if between else None


def _tail(blocks: list[Block]) -> dict[str, float]:
    walls = np.asarray([wall for block in blocks for row in block.rows for wall in row.trace.unit_walls]) / 1e9
    if not len(walls):
        return {}
    p50, p95, p99 = (float(value) for value in np.percentile(walls, (50, 95, 99)))
    blocked = [_head_of_line(block) for block in blocks]
    return {
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": float(walls.max()),
        "samples": float(len(walls)),
        "blocked": sum(blocked) / len(blocked),
    }


def _head_of_line(block: Block) -> float:
    """Seconds a sample that the consumer waited although a later batch was already done."""
    waited = 0
    for place, row in enumerate(block.rows):
        later = [other.trace.ended for other in block.rows[place + 1 : place + 9]]
        if later:
            waited += max(0, min(row.got, row.trace.ended) - max(row.asked, min(later)))
    return waited / 1e9 / block.samples


def _declined(stages: dict[Stage, StageCost]) -> dict[Stage, str]:
    reasons = {
        Stage.IPC: "num_workers is 0: batches are made in the training process and cross no border",
        Stage.TRANSFER: "no CUDA device is present",
        Stage.STEP: "no consumer: give train_step(batch) or model in the target's file, or --step-ms / --target-rate",
    }
    return {stage: reasons[stage] for stage in ORDER if stage not in stages}


def input_stages(diagnosis: Diagnosis) -> list[StageCost]:
    return [diagnosis.stages[stage] for stage in INPUT if stage in diagnosis.stages]
