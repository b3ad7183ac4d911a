"""The one model of throughput: what limits a pipeline, and what it becomes when a stage, or the number of workers, changes. Pure.

The verdict is read off it (`of_draws`), remedies change a copy of it (`pipefix.plan.fit`). Four things run side by side, and the
slowest sets the pace: the workers together, the border that batches cross, the training process, and the CPU cores that all of them
share. With no workers there is no border, and the other two take turns. All figures are seconds a sample:

    T = max(making / workers, crossing, taking, cpu / cores)          T = max(making + taking, cpu / cores) without workers

A device that goes on with a step after its call has returned is one more: without workers it may hide behind the making.

Workers that want more cores than there are cost CPU besides (`CROWDING`). Only ratios of two such times are ever told, so the model
agrees with the measurement at the settings that were measured. A figure is an array: the best estimate first, then draws from its
interval, which carry the doubt through to the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pipefix.diagnosis.attribution import INDEX, WORKER, columns
from pipefix.measurement.statistics import Floats, interval
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage

DRAWS = 400
OTHER = "other"
"""The user's own code that belongs to no stage, and the loader's between samples."""
FLOOR_MAKING, FLOOR_TAKING = 0.0006, 0.00035
"""Seconds that handing over a batch takes in the worker and in the training process, however small it is."""
MAKING_RATE = Interval(0.9e9, 0.6e9, 2.0e9)
"""Bytes a second into fresh shared memory: a page fault every 4 KiB."""
TAKING_RATE = Interval(3.8e9, 2.0e9, 10e9)
CROWDING = Interval(0.22, 0.05, 0.40)
"""Part of its CPU time that a sample costs more where far more workers compute than there are cores: they switch, and push each
other out of the caches. In fixtures/grids/measured.json twelve workers on two cores deliver 15, 20 and 19 % less than two."""


def draws(estimate: Interval, name: str) -> Floats:
    """The estimate, then `DRAWS` values spread as its interval says. ``name`` seeds them: one doubt is drawn alike everywhere."""
    seed = int.from_bytes(name.encode()[:32].ljust(8, b"\0"), "little")
    normal = np.random.default_rng(seed).standard_normal(DRAWS)
    down, up = (estimate.value - estimate.low) / 1.96, (estimate.high - estimate.value) / 1.96
    spread = estimate.value + np.where(normal < 0, normal * down, normal * up)
    return np.concatenate([[estimate.value], np.maximum(spread, min(estimate.low, estimate.value) * 0.5)])


def ratio_of(before: Floats, after: Floats) -> Interval:
    """How many times shorter ``after`` is."""
    values = before / np.maximum(after, 1e-12)
    return interval(values[1:], float(values[0]))


MODEL_DOUBT = 0.12
"""The model is believed to know the logarithm of a speed-up to so much of itself: 2x to about 0.08, 1.1x to 0.01."""
ARM_DOUBT = 0.02
"""An arm is never believed closer than this: what replaces a stage is not quite what a remedy leaves of it."""


def doubted(gain: Interval) -> Interval:
    """A speed-up that rests on the model alone, with the doubt in the model itself."""
    return _around(gain.value, np.hypot(_sigma(gain), MODEL_DOUBT * abs(np.log(gain.value))), gain)


def pooled(arm: Interval, model: Interval) -> Interval:
    """A measured and a modelled speed-up as one, each with the weight that its doubt leaves it; wider where they disagree."""
    logs = np.log((arm.value, model.value))
    doubt = MODEL_DOUBT * float(np.abs(logs).max())
    sigmas = np.maximum(np.hypot((_sigma(arm), _sigma(model)), (ARM_DOUBT, doubt)), 1e-3)
    weights = 1 / sigmas**2
    centre = float(np.average(logs, weights=weights))
    apart = float(abs(logs[0] - logs[1]) / np.hypot(*sigmas))
    return _around(float(np.exp(centre)), float(1 / np.sqrt(weights.sum())) * max(1.0, apart), None)


def at_most(gain: Interval, bound: Interval) -> Interval:
    """A speed-up that cannot be larger than another is."""
    return Interval(min(gain.value, bound.value), min(gain.low, bound.low), min(gain.high, bound.high))


def _sigma(gain: Interval) -> float:
    """Half the interval's width in logarithms, as one standard deviation."""
    return float(np.log(max(gain.high, 1e-9) / max(gain.low, 1e-9)) / (2 * 1.96))


def _around(value: float, sigma: float, least: Interval | None) -> Interval:
    low, high = value * float(np.exp(-1.96 * sigma)), value * float(np.exp(1.96 * sigma))
    return Interval(value, low, high) if least is None else Interval(value, min(low, least.low), max(high, least.high))


@dataclass(frozen=True)
class StageTime:
    """One stage's seconds a sample in one process."""

    wall: Floats
    """With a core to itself."""
    cpu: Floats

    def scaled(self, factor: float | Floats) -> StageTime:
        return StageTime(self.wall * factor, self.cpu * factor)


def stage_time(wall: Interval | float, computing: float = 1.0, *, name: str = "") -> StageTime:
    """``computing``: the part of the wall time that needs a core."""
    values = draws(wall, name) if isinstance(wall, Interval) else np.full(DRAWS + 1, float(wall))
    return StageTime(values, values * computing)


@dataclass(frozen=True)
class PipelineModel:
    """The pipeline as stations."""

    making: Mapping[str, StageTime]
    """By stage (and `OTHER`): in the process that makes batches."""
    taking: Mapping[str, StageTime]
    """By stage: in the training process."""
    workers: int
    cores: float
    crossing: Floats = field(default_factory=lambda: np.zeros(DRAWS + 1))
    """With workers: what handing over batches takes at least, however fast they are made and used."""
    alone: Floats = field(default_factory=lambda: np.zeros(1))
    """What the loader took by itself, where that was measured: making and crossing take no less beside a consumer."""
    device: float = 0.0
    """Of the device with a step, where it goes on with it after its call has returned."""

    @property
    def pool(self) -> Floats:
        """Seconds a sample of all that make batches together."""
        return _sum(part.wall for part in self.making.values()) / max(1, self.workers)

    @property
    def main(self) -> Floats:
        """Seconds a sample of the training process, besides making batches."""
        return _sum(part.wall for part in self.taking.values())

    @property
    def crossing_limits(self) -> NDArray[np.bool_]:
        """Where handing batches over takes longer than making them: neither side is busy then, each waits for the other."""
        return np.asarray(self.crossing > self.pool, dtype=np.bool_)

    def seconds(self) -> Floats:
        """Seconds a delivered sample."""
        computing = _sum(part.cpu for part in (*self.making.values(), *self.taking.values())) / self.cores
        if not self.workers:
            return np.maximum(np.maximum(self.pool + self.main, computing), self.device)
        stations = (self.pool, self.crossing, self.alone, self.main, computing, self.device)
        return np.asarray(np.maximum.reduce(np.broadcast_arrays(*stations)))

    def supply_over_main(self) -> Floats:
        """How many times longer a sample takes to be made and to cross than the training process takes with it.

        Taking a batch over belongs to the training process, but to the supply where the loader was measured alone, or the crossing
        limits.
        """
        supply = np.maximum.reduce(np.broadcast_arrays(self.pool, self.crossing, self.alone))
        apart = self.crossing_limits | (self.alone > 0)
        others = _sum(part.wall for name, part in self.taking.items() if name != Stage.IPC.value)
        taking = others + np.where(apart, 0.0, _sum(part.wall for name, part in self.taking.items() if name == Stage.IPC.value))
        return np.asarray(supply / np.maximum(taking, 1e-12))

    def speedup(self, after: PipelineModel) -> Interval:
        return ratio_of(self.seconds(), after.seconds())

    def anchored(self, gain: Interval, measured: PipelineModel, after: PipelineModel, *, name: str) -> Interval:
        """The speed-up of ``after``, resting on a measured one: only what ``after`` adds to ``measured`` is the model's."""
        return ratio_of(draws(gain, name) * measured.seconds(), after.seconds())

    # -- changes -------------------------------------------------------------------------------------------------------

    def without(self, *stages: Stage) -> PipelineModel:
        model = self
        for stage in stages:
            model = model.scaled(stage, 0.0)
        return model

    def without_sampler(self) -> PipelineModel:
        """It runs in the training process, and is no stage."""
        return replace(self, taking={name: part for name, part in self.taking.items() if name != "sampler"})

    def scaled(self, stage: Stage, factor: float | Floats) -> PipelineModel:
        making, taking = _scaled(self.making, stage, factor), _scaled(self.taking, stage, factor)
        if stage is Stage.IPC:
            return replace(self, making=making, taking=taking, crossing=self.crossing * factor, alone=self.alone * factor)
        saved = _sum(part.wall for part in self.making.values()) - _sum(part.wall for part in making.values())
        alone = np.maximum(0.0, self.alone - saved / max(1, self.workers))
        return replace(self, making=making, taking=taking, alone=alone)

    def replacing(self, stage: Stage, by: StageTime) -> PipelineModel:
        return replace(self, making={**self.making, stage.value: by})

    def with_workers(self, count: int, batch: int, batch_bytes: float) -> PipelineModel:
        """The same work by ``count`` workers. From none, the hand-over comes into being; to none, it goes."""
        if not count:
            return replace(self.without(Stage.IPC), workers=0)._crowded(self._crowd(self.workers), 0.0)
        after = replace(self, workers=count)
        if not self.workers:
            making_rate, taking_rate = draws(MAKING_RATE, "making rate"), draws(TAKING_RATE, "taking rate")
            making_s = (FLOOR_MAKING + batch_bytes / making_rate) / batch
            taking_s = (FLOOR_TAKING + batch_bytes / taking_rate) / batch
            making = _added(self.making, Stage.IPC.value, StageTime(making_s, making_s))
            after = replace(after, making=making, taking=_added(self.taking, Stage.IPC.value, StageTime(taking_s, taking_s)))
        return after._crowded(self._crowd(self.workers), self._crowd(count))

    def _crowd(self, workers: int) -> float:
        """Part of the workers that want to compute at one time for which there is no core: 0 where all have one, 1 at most."""
        parts = self.making.values()
        computing, making = _sum(part.cpu for part in parts)[0], _sum(part.wall for part in parts)[0]
        wanted = workers * min(1.0, float(computing / making)) if making else 0.0
        return max(0.0, 1 - self.cores / wanted) if wanted else 0.0

    def _crowded(self, before: float, after: float) -> PipelineModel:
        """CPU times as they are where ``after`` of the workers lack a core; they were measured where ``before`` did."""
        if before == after:
            return self
        dearer = draws(CROWDING, "crowding")
        factor = (1 + after * dearer) / (1 + before * dearer)
        making = {name: StageTime(part.wall + part.cpu * (factor - 1), part.cpu * factor) for name, part in self.making.items()}
        return replace(self, making=making)

    # -- readings ------------------------------------------------------------------------------------------------------

    def wall_of(self, stage: Stage) -> Floats:
        """Seconds a sample of a stage in the process that runs it; handing over in that which makes batches."""
        return (self.taking if stage in (Stage.STEP, Stage.TRANSFER) else self.making)[stage.value].wall

    def wall(self, stage: Stage) -> float:
        """Best estimate of a stage's seconds a sample where batches are made."""
        part = self.making.get(stage.value)
        return float(part.wall[0]) if part is not None else 0.0

    @property
    def busy(self) -> float:
        """Share of the cores' time that is used."""
        computing = sum(float(part.cpu[0]) for part in (*self.making.values(), *self.taking.values()))
        return computing / (self.cores * float(self.seconds()[0]) or 1.0)


def of_draws(rows: Floats, workers: int) -> PipelineModel:
    """The stations as clocks saw them, for the verdict: one resampled set of seconds a sample by column in each row.

    Without CPU times, which clocks do not charge: what shares the cores is slower in each row already.
    """

    def part(*names: str) -> StageTime:
        return StageTime(columns(rows, names).sum(axis=1), np.zeros(len(rows)))

    making = {name: part(name) for name in WORKER} | {OTHER: part("own", "between")}
    taking = {Stage.IPC.value: part("main_ipc")} | {name: part(name) for name in ("transfer", "step", "sampler")}
    if not workers:
        return PipelineModel(making, taking | {OTHER: part("idle", "wait", "loop")}, 0, float("inf"))
    crossing, alone = (rows[:, INDEX[name]] for name in ("border", "supply"))
    return PipelineModel(making, taking, workers, float("inf"), crossing, alone)


def _sum(parts: Iterable[Floats]) -> Floats:
    return np.asarray(sum(parts, start=np.zeros(1)))


def _scaled(parts: Mapping[str, StageTime], stage: Stage, factor: float | Floats) -> Mapping[str, StageTime]:
    if stage.value not in parts:
        return parts
    return {name: part.scaled(factor) if name == stage.value else part for name, part in parts.items()}


def _added(parts: Mapping[str, StageTime], name: str, more: StageTime) -> Mapping[str, StageTime]:
    before = parts.get(name)
    whole = more if before is None else StageTime(before.wall + more.wall, before.cpu + more.cpu)
    return {**parts, name: whole}
