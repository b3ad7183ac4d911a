"""A machine that a test made up: pipelines with a known throughput and a known appetite, on a clock of its own.

Its processes take memory bit by bit, as real ones do while they start; what they take is not quite what anybody would predict.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipefix.tuning.block_figures import TrialBlock
from pipefix.tuning.limits import BatchCost, ResourceLimits, Usage
from pipefix.tuning.results import Goal, TuneResult, TuningPlan
from pipefix.tuning.space import Settings
from pipefix.tuning.trial import TrialEnded, Watch
from pipefix.tuning.tuner import Tuner
from tests.tuning.grids import Grid

TICK = 0.05
"""Seconds between two looks of the watch."""
START_S = 0.5
"""Seconds in which a trial comes to its full size."""
BATCH = 16


@dataclass(frozen=True)
class Appetite:
    """What the pipeline really takes."""

    process: float = 300e6
    worker: float = 80e6
    """Private bytes of one."""
    batch: float = 10e6
    storages: int = 2
    process_files: float = 40
    worker_files: float = 9
    crowd: float = 1.0
    """Factor on a worker's bytes where there are more than three: nobody could have predicted that."""
    growth: float = 0.0
    """Bytes that every process grows by in a second: a leak."""

    def of(self, settings: Settings, busy: float) -> Usage:
        in_flight = settings.in_flight + settings.workers
        return Usage(
            memory_bytes=self.process
            + settings.workers * self.worker * (self.crowd if settings.workers > 3 else 1)
            + in_flight * self.batch,
            shm_bytes=in_flight * self.batch if settings.workers else 0.0,
            files=self.process_files + settings.workers * self.worker_files + in_flight * self.storages,
            cores=busy,
        )


@dataclass
class Machine:
    """Stands in for `Processes`, and keeps the highest figures that were ever reached."""

    grid: Grid
    appetite: Appetite = field(default_factory=Appetite)
    seed: int = 0
    break_at: float | None = None
    """Seconds of its clock at which somebody presses Ctrl-C."""
    starting: Callable[[int], float] = lambda _: START_S
    """Seconds in which so many workers come to make their first batch."""
    compiling: float = 0.0
    """Seconds that the first step of each trial takes beside a step."""

    def __post_init__(self) -> None:
        self.now = 0.0
        self.draw = np.random.default_rng(self.seed)
        self.running: list[FakeTrial] = []
        self.highest = Usage()
        self.started: list[Settings] = []

    def clock(self) -> float:
        return self.now

    def own(self) -> Usage:
        return Usage(0.6 * self.appetite.process, 0.0, self.appetite.process_files)

    def look(self, settings: Settings, watch: Watch) -> BatchCost:
        with closing(self.start(settings, watch)) as trial:
            self.started.pop()
            trial.steps = False
            trial.block(0.2)
        seconds = BATCH / self.grid.curve(0)
        own = self.appetite
        wrong = np.exp(0.05 * self.draw.standard_normal(3))
        return BatchCost(
            own.batch, own.storages, own.process * wrong[0], own.process_files,
            self.grid.computing * seconds * wrong[1], seconds, BATCH,
        )  # fmt: skip

    def start(self, settings: Settings, watch: Watch) -> FakeTrial:
        trial = FakeTrial(self, settings.normal(), watch)
        self.running.append(trial)
        self.started.append(settings.normal())
        return trial

    def busy(self, settings: Settings) -> float:
        rate = self.grid.delivered(settings)
        return min(max(1, settings.workers), rate * self.grid.computing / self.grid.curve(0), self.grid.cores)


class FakeTrial:
    def __init__(self, machine: Machine, settings: Settings, watch: Watch) -> None:
        self.machine = machine
        self.settings = settings
        self.used = self.now = Usage()
        self.age = 0.0
        self.started_s = 0.0
        self.steps = True
        """Whether its consumer is run."""
        self._watch = watch

    def block(self, seconds: float) -> TrialBlock:
        assert self in self.machine.running, "a trial that was closed is asked for batches"
        machine, grid = self.machine, self.machine.grid
        starting = machine.starting(self.settings.workers)
        until = machine.now + seconds + (starting if not self.started_s else 0.0)
        while machine.now < until:
            machine.now += TICK
            self.age += TICK
            if machine.break_at is not None and machine.now > machine.break_at:
                raise KeyboardInterrupt
            self._take()
            why = self._watch(self.now)
            if why is not None:
                self.close()
                raise TrialEnded(why, limit=True)
        late = machine.compiling if self.steps and not self.started_s else 0.0
        machine.now += late
        self.started_s = starting
        rate = grid.delivered(self.settings) * float(np.exp(grid.noise * machine.draw.standard_normal()))
        count = max(4, int(rate * seconds / BATCH))
        each = count * BATCH / rate / count
        step = BATCH / grid.demand if grid.demand is not None else 0.0
        wait = max(0.0, each - step)
        making = BATCH * max(1, self.settings.workers) / grid.supply(self.settings)
        return TrialBlock(
            count * each, count * BATCH, (wait,) * count, (step,) * count, (making,) * count,
            grid.threads if self.settings.workers else None, self.settings.workers, starting, late_s=late,
        )  # fmt: skip

    def _take(self) -> None:
        machine = self.machine
        whole = machine.appetite.of(self.settings, machine.busy(self.settings))
        share = min(1.0, 0.2 + self.age / START_S)
        grown = machine.appetite.growth * self.age * (1 + self.settings.workers)
        self.now = Usage(whole.memory_bytes * share + grown, whole.shm_bytes * share, whole.files * share, whole.cores)
        self.used = self.used.most(self.now)
        every = [process.now for process in machine.running]
        together = Usage(
            sum(usage.memory_bytes for usage in every),
            sum(usage.shm_bytes for usage in every),
            max(usage.files for usage in every),
            max(usage.cores for usage in every),
        )
        machine.highest = machine.highest.most(together)

    def close(self, *, at_once: bool = False) -> None:
        if self in self.machine.running:
            self.machine.running.remove(self)


ONE, NONE = Settings(1), ResourceLimits()


def planned(machine: Machine, start: Settings = ONE, limits: ResourceLimits = NONE, **more: Any) -> TuningPlan:
    """A minute of the machine's clock, for its consumer if it has one; ``more``: what is otherwise."""
    goal = Goal(has_consumer=machine.grid.demand is not None)
    facts: dict[str, Any] = {"space": machine.grid.space, "goal": goal, "start": start, "limits": limits, "budget": 60.0}
    return TuningPlan(**facts | more)


def tuned(machine: Machine, start: Settings = ONE, limits: ResourceLimits = NONE, **more: Any) -> TuneResult:
    return Tuner(machine, planned(machine, start, limits, **more), clock=machine.clock).run()


def breaches(limits: ResourceLimits, highest: Usage) -> list[str]:
    """Figures that were above their limit at any time."""
    return [
        name
        for name in ("memory_bytes", "shm_bytes", "files", "cores")
        if (limit := getattr(limits, name)) is not None and getattr(highest, name) > limit
    ]
