"""`StageCosts`: each stage's seconds a delivered sample, with intervals, and its share of the limiting process's time."""

from __future__ import annotations

import numpy as np

from pipefix.diagnosis.attribution import IN_TURN, INDEX, MAIN, WORKER, clock_cost, columns, compute_shares, cpu_shares, operations
from pipefix.diagnosis.diagnosis import OpCost, StageCost
from pipefix.diagnosis.throughput import PipelineModel
from pipefix.hooks.charges import OWN_NAMES
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.statistics import Floats, interval
from pipefix.vocabulary.gain import Bounded, MeasuredGain, NotTried
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.stage import ORDER, Stage

OPS_KEPT = 24
"""Operations of a stage that are told, the costliest first."""


class StageCosts:
    """Seconds a sample by stage, with intervals, read off one ledger.

    ``real`` are the timed arm's blocks, ``each`` the seconds a sample by column, ``draws`` resamplings of them and ``model`` the
    stations that these make; ``main_bound`` says that the training process limits.
    """

    def __init__(
        self, measurement: Measurement, real: list[Block], each: Floats, draws: Floats, model: PipelineModel, main_bound: bool
    ) -> None:
        self.measurement, self.real, self.each, self.draws, self.main_bound = measurement, real, each, draws, main_bound
        self.border_bound = measurement.workers > 0 and not main_bound and bool(np.median(model.crossing_limits))
        self.cpu = cpu_shares(real)
        self.compute = compute_shares(real)
        self.ops = operations(real, clock_cost(measurement, real))
        self.samples = sum(block.samples for block in real)
        self._exposed, self._rest = self._station()
        self._whole = float(self._cycle(each[None, :])[0])

    def measured(self) -> list[Stage]:
        seen = self.measurement
        ran = {Stage.IPC: bool(seen.workers), Stage.TRANSFER: bool(seen.transfer), Stage.STEP: seen.has_consumer}
        return [stage for stage in ORDER if ran.get(stage, True)]

    def _station(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of what limits: the columns that make up its stages, and those that belong to none."""
        if not self.measurement.workers:
            return IN_TURN, ("own", "between", "loop", "sampler")
        if self.main_bound:
            return MAIN, ("wait", "loop", "sampler")
        # Where the crossing limits, that is what workers are idle for.
        return ((*WORKER, "idle"), ("own", "between")) if self.border_bound else (WORKER, ("own", "between", "idle"))

    def _cycle(self, rows: Floats) -> Floats:
        """Seconds a sample that the limiting station is up, for one draw a row."""
        return np.asarray(columns(rows, (*self._exposed, *self._rest)).sum(axis=1))

    def total(self) -> float:
        """Attributed and unattributed seconds a delivered sample, as the clocks saw them."""
        return self._whole / self.measurement.workers if self.measurement.workers and not self.main_bound else self._whole

    def unattributed(self) -> float:
        """Share of the limiting station's time that belongs to no stage."""
        return float(sum(self.each[INDEX[name]] for name in self._rest) / self._whole)

    def share_interval(self, stage: Stage) -> Interval:
        names: tuple[str, ...] = (stage.value,)
        if stage is Stage.IPC:
            names = ("main_ipc",) if self.main_bound else ("ipc", "idle") if self.border_bound else ("ipc",)
        if not set(names) <= set(self._exposed):
            return exactly(0.0)
        share = float(self.each[[INDEX[name] for name in names]].sum() / self._whole)
        return interval(columns(self.draws, names).sum(axis=1) / self._cycle(self.draws), share)

    def stage(self, stage: Stage, gain: MeasuredGain | Bounded | NotTried) -> StageCost:
        wall = self.seconds("ipc", "main_ipc") if stage is Stage.IPC else self.seconds(stage.value)
        if stage is Stage.TRANSFER:
            copies = self.measurement.transfer
            wall = exactly((copies.get("exposed") or copies[self._way()]) / self.measurement.settings.samples_a_batch)
        share, cpu = self.share_interval(stage).value, self.cpu.get(stage.value)
        return StageCost(
            stage=stage, wall=wall, share=share, hidden=share == 0 and wall.value > 0, gain=gain, bytes=self._bytes(stage),
            cpu=wall.scaled(cpu) if cpu is not None else None,
            waiting=wall.value * (1 - self.compute[stage.value]) if stage.value in self.compute else None,
            ops=self._copies() if stage is Stage.TRANSFER else self._operations(stage),
        )  # fmt: skip

    def seconds(self, *names: str) -> Interval:
        """A sample, of these columns."""
        return interval(columns(self.draws, names).sum(axis=1), float(sum(self.each[INDEX[name]] for name in names)))

    def own_code(self, stage: Stage | None) -> float:
        """Seconds a sample of a stage that are the user's own code, there by its place between two calls only.

        Not what waits before anything is read: that is a source, though none that pipefix knows.
        """
        if stage is None:
            return 0.0
        names = OWN_NAMES[1:] if stage is Stage.STORAGE else OWN_NAMES
        return float(sum(op.wall_s for op in self.ops.get(stage, []) if op.name in names))

    def _operations(self, stage: Stage) -> tuple[OpCost, ...]:
        """The costliest ones, and the others as one: they add up to the stage."""
        every = self.ops.get(stage, [])
        rest = every[OPS_KEPT:]
        if len(rest) < 2:
            return tuple(every)
        cpu = [op.cpu_s for op in rest if op.cpu_s is not None]
        calls = sum(op.calls for op in rest)
        others = OpCost(f"{len(rest)} others", sum(op.wall_s for op in rest), sum(cpu) if len(cpu) == len(rest) else None, calls)
        return (*every[:OPS_KEPT], others)

    def _copies(self) -> tuple[OpCost, ...]:
        """Ways to the device, each measured by itself: a batch takes the first of them."""
        batch = self.measurement.settings.samples_a_batch
        names = {"pinned": "copy from pinned memory", "pageable": "copy from ordinary memory", "pinning": "copy into pinned memory"}
        copies, copy_kind = self.measurement.transfer, self._way()
        ways = sorted((key for key in names if key in copies), key=lambda key: key != copy_kind)
        others = sorted(key for key in copies if key.startswith(f"{copy_kind} to "))  # where several devices are in use
        named = [(names[key], copies[key]) for key in ways]
        named += [(names[copy_kind] + key.removeprefix(copy_kind), copies[key]) for key in others]
        return tuple(OpCost(name, spent / batch, None, 1 / batch) for name, spent in named)

    def _way(self) -> str:
        """How the loader's batches come to the device."""
        return "pinned" if self.measurement.settings.pin_memory else "pageable"

    def _bytes(self, stage: Stage) -> float | None:
        if stage is Stage.STORAGE:
            return sum(row.trace.bytes_read for block in self.real for row in block.rows) / self.samples
        if stage in (Stage.COLLATE, Stage.IPC, Stage.TRANSFER):
            held = self.measurement.facts.get("batch.bytes")
            return held / self.measurement.settings.samples_a_batch if held else None
        return None
