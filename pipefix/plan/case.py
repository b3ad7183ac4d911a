"""`Case`: what every remedy is given. Measurement, diagnosis, and the figures that several remedies need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pipefix.diagnosis.attribution import charged
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.diagnosis.throughput import PipelineModel, doubted, pooled
from pipefix.measurement import experiments
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import Measurement
from pipefix.plan.fit import fitted
from pipefix.plan.operations import Operations, operations_of
from pipefix.system.machine import Machine
from pipefix.vocabulary.quantity import Interval, core_count, exactly, percent
from pipefix.vocabulary.stage import Stage

STARVED = 0.15
"""Part of the making of batches without a CPU from which cores are called short."""
MOST_OURS = 0.75
"""Part of the cores that the pipeline itself uses at most where others are to blame that it lacks them."""
NO_CUDA = "no CUDA device here"
PIXEL_BYTES = Interval(0.35, 0.12, 0.8)
"""Bytes a pixel of pictures as datasets hold them (JPEG of quality 75 to 95)."""


@dataclass(frozen=True)
class Moving:
    """What `pipefix swap` would move to whole batches."""

    names: frozenset[str]
    """Of transforms."""
    why_none: str = ""


@dataclass(frozen=True)
class Case:
    """One pipeline as remedies judge it."""

    measurement: Measurement
    diagnosis: Diagnosis
    target: str = "TARGET"
    machine: Machine | None = None
    cuda: bool = False
    moving: Moving | None = None
    """None where nobody looked."""
    whole: Moving | None = None
    """What DALI would do from the files; None where nobody looked."""
    given: Mapping[str, int] = field(default_factory=dict)
    """What the probe was told to set in place of the loader's own: batch_size, workers."""

    @cached_property
    def model(self) -> PipelineModel:
        return fitted(self.measurement, self.diagnosis)

    @cached_property
    def operations(self) -> Operations:
        return operations_of(self.measurement, self.diagnosis)

    # -- sizes ---------------------------------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        return max(1, round(self.measurement.settings.samples_a_batch))

    @property
    def fetches_batches(self) -> bool:
        """Whether the dataset is asked for a batch's samples at once: by ``__getitems__``, or by a sampler that gives lists."""
        return self.measurement.settings.kind == "batched" or self.diagnosis.tail.get("together", 1.0) > 1

    @property
    def length(self) -> int | None:
        return self.measurement.settings.length

    @property
    def epoch(self) -> int | None:
        return self.measurement.settings.epoch

    @property
    def batch_bytes(self) -> float:
        """Bytes of one batch; 0 where nobody looked."""
        return self.measurement.facts.get("batch.bytes", 0.0)

    @property
    def sample_bytes(self) -> float:
        return self.batch_bytes / self.batch

    @property
    def source_bytes(self) -> float:
        """Bytes read a sample."""
        return self.diagnosis.stages[Stage.STORAGE].bytes or 0.0

    @property
    def memory(self) -> int | None:
        """Bytes of memory that can still be taken."""
        return self.machine.memory_room_bytes if self.machine is not None else None

    @property
    def files_fit(self) -> bool:
        """Whether all files that samples are read from fit into memory, and the dataset itself keeps nothing of what it read."""
        kept = self.measurement.kept_by_dataset or self.measurement.kept_by_library
        if not (self.measurement.paths and self.length and self.memory is not None) or kept:
            return False
        return self.length * self.source_bytes <= self.memory

    @property
    def passed_on(self) -> str:
        """What a loader in this one's place needs, in words, where a library collates; empty elsewhere."""
        library = self.measurement.settings.collate_library
        return f" Give it the same collate_fn and worker_init_fn, also where a class of {library} sets them." if library else ""

    @cached_property
    def pixels(self) -> Interval | None:
        """Pixels of a decoded picture; None where nothing decodes pictures."""
        if not self.operations.pictures:
            return None
        if known := self.measurement.facts.get("decoded_bytes"):
            return exactly(known / 3)
        return PIXEL_BYTES.mapped(lambda rate: self.source_bytes / rate) if self.source_bytes else None

    @cached_property
    def decoded_bytes(self) -> Interval | None:
        """Bytes of a decoded sample."""
        if known := self.measurement.facts.get("decoded_bytes"):
            return exactly(known)
        if self.pixels is not None:
            return self.pixels.scaled(3)
        return exactly(self.sample_bytes) if self.sample_bytes else None

    # -- costs ---------------------------------------------------------------------------------------------------------

    def wall(self, stage: Stage) -> float:
        """Seconds a sample, in whichever process."""
        cost = self.diagnosis.stages.get(stage)
        return cost.wall.value if cost is not None else 0.0

    def gain(self, arm: Experiment) -> Interval | None:
        """Throughput of an arm over the real one's; None where it did not run."""
        return self.diagnosis.arms.get(arm.name)

    def predicted(self, model: PipelineModel, before: PipelineModel | None = None) -> Interval:
        """The speed-up of ``model`` by the model alone."""
        return doubted((before or self.model).speedup(model))

    def after(self, arm: Experiment, model: PipelineModel, *, name: str) -> Interval:
        """The speed-up of ``model``: an arm that came near it and the model together, or the model alone."""
        if (gain := self.gain(arm)) is None:
            return self.predicted(model)
        return pooled(self.model.anchored(gain, self.during(arm), model, name=name), self.model.speedup(model))

    def during(self, arm: Experiment) -> PipelineModel:
        """The pipeline as it ran in an arm: without the stages answered from the recording, as far as they really were."""
        model = self.model
        for stage in arm.replaces:
            # Operations whose results cannot be recorded run live.
            now, then = (charged(self.measurement.of(name), stage) for name in (experiments.REAL.name, arm.name))
            model = model.scaled(stage, min(1.0, then / now) if now and then else 0.0)
        return model

    @cached_property
    def cpu_seconds(self) -> float | None:
        """CPU seconds a delivered sample, of all threads of all processes; None where they were not noted."""
        measurement = self.measurement
        blocks = measurement.of(experiments.PLAIN.name) or measurement.of(experiments.REAL.name)
        samples = sum(block.samples for block in blocks)
        spent = sum(block.main_cpu for block in blocks)
        if not measurement.workers:
            spent += sum(row.trace.children_cpu for block in blocks for row in block.rows) / 1e9
        else:
            making_ns = sum(max(row.trace.process_made, row.trace.cpu) for block in blocks for row in block.rows)
            spent = spent + making_ns / 1e9 if making_ns else 0.0
        return spent / samples if spent and samples else None

    @property
    def most(self) -> float | None:
        """How many times faster the same work could at most be done by all cores together; None where its CPU time is not known."""
        return self.measurement.cores * self.diagnosis.sample.value / self.cpu_seconds if self.cpu_seconds else None

    @property
    def cores_taken(self) -> str | None:
        """Why more workers would find no core: what is ready to run waits in their queue, behind others or behind itself."""
        starved, cores = self.diagnosis.starved, self.measurement.cores
        if starved < STARVED or not self.cpu_seconds:
            return None
        used = self.cpu_seconds / self.diagnosis.sample.value
        waited = f"for {percent(starved)} of the time the pipeline was ready to run and had no CPU"
        if used > MOST_OURS * cores:
            return f"{waited}: it keeps the {core_count(cores)} busy itself"
        return f"{waited}, though it uses only {used:.1f} of {core_count(cores)}: other programs have the rest"

    @property
    def disk_seconds(self) -> float | None:
        """Seconds a byte that reading from the disk itself adds, all readers together; None where no cold arm ran."""
        cold = self.gain(experiments.COLD)
        if cold is None or not self.source_bytes:
            return None
        return max(0.0, cold.inverted().value - 1) * self.diagnosis.sample.value / self.source_bytes
