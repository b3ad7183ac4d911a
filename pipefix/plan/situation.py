"""What every remedy looks at: the measurement, the diagnosis, and the figures that several remedies need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pipefix.diagnosis.diagnosis import Diagnosis, StageCost
from pipefix.measurement import experiments
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.machine import Machine
from pipefix.measurement.measurement import Block, Measurement
from pipefix.measurement.trace import BatchTrace
from pipefix.plan.as_measured import line_of
from pipefix.plan.model import Line, doubted, pooled
from pipefix.plan.operations import Operations, operations_of
from pipefix.vocabulary.quantity import Interval, exactly, seconds
from pipefix.vocabulary.stage import Stage

NO_CUDA = "no CUDA device here"
PIXEL_BYTES = Interval(0.35, 0.12, 0.8)
"""Bytes a pixel of pictures as datasets hold them (JPEG of quality 75 to 95)."""


@dataclass(frozen=True)
class Situation:
    found: Measurement
    diagnosis: Diagnosis
    target: str = "TARGET"
    machine: Machine | None = None
    cuda: bool = False
    verbs: frozenset[str] = frozenset()
    """Commands that this version of pipefix has."""

    @cached_property
    def line(self) -> Line:
        return line_of(self.found, self.diagnosis)

    @cached_property
    def operations(self) -> Operations:
        return operations_of(self.found, self.diagnosis)

    @property
    def start_method(self) -> str:
        """How workers are started: as set, or the platform's default."""
        known = self.found.settings.start_method
        if known is not None:
            return known
        if self.machine is not None and self.machine.system != "Linux":
            return "spawn"
        parts = self.machine.python.split(".")[:2] if self.machine is not None else []
        newer = len(parts) == 2 and all(one.isdigit() for one in parts) and tuple(map(int, parts)) >= (3, 14)
        return "forkserver" if newer else "fork"

    # -- sizes ---------------------------------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        return self.found.settings.batch_size or 1

    @property
    def length(self) -> int | None:
        return self.found.settings.length

    @property
    def epoch(self) -> int | None:
        return self.found.settings.epoch

    @property
    def batch_bytes(self) -> float:
        """Bytes of one batch; 0 where nobody looked."""
        facts = self.found.facts
        return facts.get("batch.bytes", facts.get("batch_bytes", 0.0))

    @property
    def sample_bytes(self) -> float:
        return self.batch_bytes / self.batch

    @property
    def source_bytes(self) -> float:
        """Bytes read a sample."""
        cost = self.cost(Stage.STORAGE)
        return cost.bytes or 0.0 if cost is not None else 0.0

    @property
    def dataset_bytes(self) -> float | None:
        return self.source_bytes * self.length if self.length is not None and self.source_bytes else None

    @property
    def nothing_to_keep(self) -> str | None:
        """Why no bytes can be held or cached: none are read, or all that was seen of reading them is that the code waits."""
        reading = self.wall(Stage.STORAGE)
        if not reading:
            return "nothing is read from storage while samples are made"
        return (
            None if self.source_bytes else f"storage takes {seconds(reading)} a sample, but no bytes were seen that could be kept"
        )

    @property
    def memory(self) -> int | None:
        """Bytes of memory that can still be taken."""
        return self.machine.memory_room_bytes if self.machine is not None else None

    @cached_property
    def pixels(self) -> Interval | None:
        """Pixels of a decoded picture; None where nothing decodes pictures."""
        if not self.operations.pictures:
            return None
        known = self.found.facts.get("decoded_bytes")
        if known:
            return exactly(known / 3)
        if not self.source_bytes:
            return None
        return Interval(*(self.source_bytes / rate for rate in (PIXEL_BYTES.value, PIXEL_BYTES.high, PIXEL_BYTES.low)))

    @cached_property
    def decoded_bytes(self) -> Interval | None:
        """Bytes of a decoded sample."""
        known = self.found.facts.get("decoded_bytes")
        if known:
            return exactly(known)
        if self.pixels is not None:
            return self.pixels.scaled(3)
        return exactly(self.sample_bytes) if self.sample_bytes else None

    # -- costs ---------------------------------------------------------------------------------------------------------

    def cost(self, stage: Stage) -> StageCost | None:
        return self.diagnosis.stages.get(stage)

    def wall(self, stage: Stage) -> float:
        """Seconds a sample, in whichever process."""
        cost = self.cost(stage)
        return cost.wall.value if cost is not None else 0.0

    def share(self, stage: Stage) -> float:
        """Part of a sample's making that a stage accounts for."""
        total = sum(float(one.wall[0]) for one in self.line.making.values())
        return self.line.wall(stage) / total if total else 0.0

    def waits(self, stage: Stage) -> bool:
        """Whether a stage mostly waits rather than computes."""
        return self.line.waiting(stage) > 0.5 * self.line.wall(stage) > 0

    def gain(self, arm: Experiment) -> Interval | None:
        """Throughput of an arm over the real one's; None where it did not run."""
        return self.diagnosis.arms.get(arm.name)

    def predicted(self, line: Line, before: Line | None = None) -> Interval:
        """The speed-up of ``line`` by the model alone."""
        return doubted((before or self.line).speedup(line))

    def after(self, arm: Experiment, line: Line, *, name: str) -> Interval:
        """The speed-up of ``line``: an arm that came near it and the model together, or the model alone."""
        gain = self.gain(arm)
        if gain is None:
            return self.predicted(line)
        return pooled(self.line.anchored(gain, self.during(arm), line, name=name), self.line.speedup(line))

    def during(self, arm: Experiment) -> Line:
        """The pipeline as it ran in an arm: without the stages answered from the recording, as far as they really were."""
        line = self.line
        for stage in arm.replaces:
            line = line.scaled(stage, self.left(arm, stage))
        return line

    def left(self, arm: Experiment, stage: Stage) -> float:
        """The part of a stage that an arm still ran: operations whose results cannot be recorded run live."""
        now, then = (_charged(self.found.of(name), stage) for name in (experiments.REAL.name, arm.name))
        return min(1.0, then / now) if now and then else 0.0

    @cached_property
    def slow_disk(self) -> Interval | None:
        """How many times faster the pipeline runs with its files in memory than with them evicted; None where not measured."""
        cold = self.gain(experiments.COLD)
        return cold.inverted() if cold is not None else None

    @property
    def disk_seconds(self) -> float | None:
        """Seconds a byte that reading from the disk itself adds, all readers together; None where no cold arm ran."""
        if self.slow_disk is None or not self.source_bytes:
            return None
        return max(0.0, self.slow_disk.value - 1) * self.diagnosis.sample.value / self.source_bytes


def _charged(blocks: Sequence[Block], stage: Stage) -> float:
    """Nanoseconds a sample that the clocks charged to a stage."""
    samples = sum(block.samples for block in blocks)
    walls = sum(_wall(row.trace, stage) for block in blocks for row in block.rows)
    return walls / samples if samples else 0.0


def _wall(trace: BatchTrace, stage: Stage) -> int:
    if stage is Stage.COLLATE:
        return trace.collate_wall
    own = sum(charge.wall for charge in trace.charges if charge.stage == stage)
    return own + sum(spent for name, _, spent in trace.foreign if name == stage)
