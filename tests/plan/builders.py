"""Measurements and diagnoses made by hand: a pipeline's true costs in, what a probe would have seen out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipefix.diagnosis.diagnosis import Diagnosis, OpCost, StageCost, Stations, Verdict
from pipefix.measurement import experiments
from pipefix.measurement.experiments import POOL
from pipefix.measurement.measurement import Block, Measurement, Row
from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.plan.advise import advise
from pipefix.plan.case import Case, Moving
from pipefix.plan.plan import Plan, Step
from pipefix.system.machine import Machine
from pipefix.vocabulary.gain import NotTried
from pipefix.vocabulary.quantity import Interval, exactly
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.stage import Stage

MACHINE = Machine(
    system="Linux",
    kernel="6.1",
    python="3.11.9",
    effective_cores=4.0,
    memory_available_bytes=16_000_000_000,
    shm_bytes=8_000_000_000,
    shm_free_bytes=8_000_000_000,
)
OPS = {
    Stage.DECODE: ("PIL.Image.load",),
    Stage.AUGMENT: ("RandomResizedCrop", "ToTensor", "Normalize"),
}


@dataclass(frozen=True)
class World:
    """The truth about one pipeline, in seconds a sample; the stages' order is the house's."""

    storage: float = 0.0
    decode: float = 0.0
    augment: float = 0.0
    collate: float = 0.0
    ipc: float = 0.0
    """In a worker."""
    taking: float = 0.0
    """In the training process: taking a batch over."""
    step: float | None = None
    workers: int = 2
    cores: float = 4.0
    computing: dict[str, float] = field(default_factory=dict)
    """CPU over wall, by stage; 1 where nothing is said."""
    queued: dict[str, float] = field(default_factory=dict)
    """Part of a stage's time in the queue for a CPU; not known where nothing is said."""
    step_computing: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    ops: dict[Stage, Sequence[str]] = field(default_factory=lambda: dict(OPS))
    source_bytes: float = 100_000.0
    arms: dict[str, Interval] = field(default_factory=dict)
    tail: dict[str, float] = field(default_factory=dict)
    verdict: str = "input-bound"
    diagnosed: dict[str, Any] = field(default_factory=dict)
    """Other fields of the diagnosis."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Other fields of the measurement."""

    def but(self, **changes: Any) -> World:
        return replace(self, **changes)

    @property
    def making(self) -> float:
        return self.storage + self.decode + self.augment + self.collate + (self.ipc if self.workers else 0.0)

    @property
    def main(self) -> float:
        return (self.taking if self.workers else 0.0) + (self.step or 0.0)

    @property
    def cpu(self) -> float:
        stages = ("storage", "decode", "augment", "collate")
        made = sum(getattr(self, name) * self.computing.get(name, 1.0) for name in stages)
        return made + (self.ipc + self.taking if self.workers else 0.0) + (self.step or 0.0) * self.step_computing

    @property
    def seconds(self) -> float:
        """What the station model says of this truth."""
        if not self.workers:
            return max(self.making + self.main, self.cpu / self.cores)
        return max(self.making / self.workers, self.main, self.cpu / self.cores)

    def measurement(self) -> Measurement:
        settings = LoaderSettings(**{"batch_size": 32, "num_workers": self.workers, "length": 50_000, **self.settings})
        samples = 32 * 40
        plain = Block(experiments.PLAIN.name, (), samples * self.seconds, samples, main_cpu=samples * self._main_cpu())
        real = Block(
            experiments.REAL.name, tuple(self._rows()), samples * self.seconds, samples, main_cpu=samples * self._main_cpu()
        )
        measurement = Measurement(
            settings,
            self.workers,
            self.cores,
            "train_step" if self.step is not None else "none",
            self.step is not None,
            [plain, real],
        )
        facts = {"batch.bytes": 19_267_840.0, **self.facts}
        measurement.looks = {1: [(0, facts)]}
        for name, value in self.fields.items():
            setattr(measurement, name, value)
        return measurement

    def _main_cpu(self) -> float:
        made_here = 0.0 if self.workers else self.cpu - (self.step or 0.0) * self.step_computing
        return made_here + (self.taking if self.workers else 0.0) + (self.step or 0.0) * self.step_computing

    def _rows(self) -> list[Row]:
        charges = [Charge(stage.value, op, 1000, 1000, 1000, 1) for stage, ops in self.ops.items() for op in ops]
        return [Row(0, 1000, 2000, 0, 0, BatchTrace(1, 1, 0, 1, 32, 0, 500, 900, 900, 900, charges=charges))]

    def diagnosis(self) -> Diagnosis:
        stages = {stage: self._cost(stage) for stage in self._stages()}
        main = exactly(self.main) if self.workers else exactly(self.making + self.main)
        pool = exactly(self.making / self.workers) if self.workers else None
        ratio = exactly(self.making / self.workers / max(self.main, 1e-12)) if self.workers else None
        known = {"sample": exactly(self.seconds), "sampler": exactly(0.0), "tail": self.tail, "arms": self.arms, **self.diagnosed}
        verdict = Verdict(kind=self.verdict, stage=None, sentence="", confidence=1.0)
        stations = Stations(pool, main, ratio)
        return Diagnosis(verdict=verdict, stages=stages, declined={}, unattributed=0.0, closure=0.0, stations=stations, **known)

    def _stages(self) -> list[Stage]:
        stages = [Stage.STORAGE, Stage.DECODE, Stage.AUGMENT, Stage.COLLATE]
        if self.workers:
            stages.append(Stage.IPC)
        return [*stages, Stage.STEP] if self.step is not None else stages

    def _cost(self, stage: Stage) -> StageCost:
        spent = (
            self.ipc + self.taking
            if stage is Stage.IPC
            else self.step or 0.0
            if stage is Stage.STEP
            else getattr(self, stage.value)
        )
        names, queued = self.ops.get(stage, ()), self.queued.get(stage.value)
        return StageCost(
            stage=stage,
            wall=exactly(spent),
            cpu=None if stage in (Stage.IPC, Stage.STEP) else exactly(spent * self.computing.get(stage.value, 1.0)),
            share=0.0,
            hidden=False,
            waiting=spent * (1 - self.computing[stage.value] - queued) if queued is not None else None,
            gain=NotTried(),
            bytes=self.source_bytes if stage is Stage.STORAGE and spent else None,
            ops=tuple(OpCost(name, spent / len(names), spent / len(names), 1.0) for name in names),
        )

    def removed(self, *names: str) -> Interval:
        """What an arm that replaces these stages would have measured, if the stations were all there is."""
        return exactly(self.seconds / max(self.but(**dict.fromkeys(names, 0.0)).seconds, 1e-6))

    def with_arms(self) -> World:
        """The same with every arm run."""
        known = ("storage", "decode", "augment", "collate", "ipc")
        arms = {
            arm.name: self.removed(*(stage.value for stage in arm.replaces if stage.value in known)) for arm in POOL if arm.replaces
        }
        return self.but(arms=arms)

    def case(self, **options: Any) -> Case:
        return Case(self.measurement(), self.diagnosis(), **{"machine": MACHINE, **options})

    def plan(self, **options: Any) -> Plan:
        return advise(self.case(**options))

    def step_called(self, id: str, **options: Any) -> Step:
        steps = {step.id: step for step in self.plan(**options)}
        assert id in steps, list(steps)
        return steps[id]


JPEGS = World(storage=0.0002, decode=0.006, augment=0.003, collate=0.0002, ipc=0.0004, taking=0.0001)
"""Pictures read, decoded and cropped by two workers; decoding costs most."""
SLOW_NETWORK = World(
    storage=0.01, decode=0.001, augment=0.001, collate=0.0001, ipc=0.0003, taking=0.0001, computing={"storage": 0.05}
)  # fmt: skip
"""A store that answers after 10 ms."""
STEP_BOUND = JPEGS.but(step=0.02, verdict="step-bound")
TEXTS = World(
    storage=0.00005, decode=0.002, augment=0.0, collate=0.0001, ipc=0.00005, taking=0.00002,
    ops={Stage.DECODE: ("tokenizers.Tokenizer.encode",)},
    facts={"batch.bytes": 65_536.0}, source_bytes=500.0,
)  # fmt: skip
ALONE = JPEGS.but(workers=0)
STREAM = JPEGS.but(settings={"kind": "iterable", "length": None})
TRIED = JPEGS.but(fields={"trials": {"workers-4": [(900.0, 500.0), (910.0, 505.0), (890.0, 500.0)], "workers-1": [(260.0, 500.0)]}})
"""Four workers and one were run beside the two in use."""
FINISHED = JPEGS.but(
    ops={Stage.DECODE: ("PIL.Image.load",), Stage.AUGMENT: ("Resize", "CenterCrop", "ToTensor")}, settings={"length": 5000}
)
"""Nothing in it is random."""
WHOLE = Moving(frozenset({"RandomResizedCrop"}))
COPIES = {"pinned": 0.001, "pageable": 0.004, "bytes": 19_267_840.0}
TAIL = {"p50": 0.004, "p95": 0.01, "p99": 0.3, "max": 0.5, "samples": 4000.0, "blocked": 0.0016}
UNEQUAL = JPEGS.but(tail=TAIL, diagnosed={"sample": exactly(0.0065)})
"""Of 6.5 ms a sample, 1.6 ms went into waiting behind a slow one."""
CROWDED = World(decode=0.008, workers=4, cores=4.0, facts={"worker.busy_threads": 4.0, "worker.cv2_threads": 4.0})


def waits_for_copies(**copies: float) -> World:
    """A step of 20 ms a batch, which the loader is ahead of."""
    return STEP_BOUND.but(step=0.02 / 32, decode=0.0001, augment=0.0001, fields={"transfer": {**COPIES, **copies}})


def late(**copies: float) -> World:
    """The same, where the step waits for its copy."""
    return waits_for_copies(**{"pinned": 0.002, "exposed": 0.005, **copies})


def with_threads(world: World, process: int, thread: int, *, between: int = 0) -> World:
    """A real arm whose workers used ``process`` nanoseconds of CPU time while they made a batch, ``thread`` of them in their main
    threads; and ``between`` more until they began the next."""
    rows = []
    for number in range(8):
        trace = BatchTrace(1, 1, number % 2, number % 2, 32, number * 1000, 0, 0, thread, (number // 2) * (process + between))
        trace.process_made = process
        rows.append(Row(0, 1, 2, 0, 0, trace))
    block = Block("real", tuple(rows), 32 * 8 * world.seconds, 32 * 8)
    return world.but(fields={**world.fields, "blocks": [block]})


def computing(world: World, cpu: float) -> World:
    """All threads of its workers compute ``cpu`` seconds a sample."""
    measurement = world.measurement()
    (row,) = measurement.rows("real")
    row.trace.process_made = round(cpu * measurement.of("real")[0].samples * 1e9)
    return world.but(fields={**world.fields, "blocks": [replace(block, rows=(row,)) for block in measurement.blocks]})
