"""The result of a measurement: every block's and every batch's times. Nothing here decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipefix.measurement.trace import BatchTrace, Charge
from pipefix.vocabulary.gain import MeasuredGain
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.settings import LoaderSettings
from pipefix.vocabulary.stage import Stage

KEPT = 0.2
"""Part of the operations of a first reading below which a later one is of what the dataset kept."""
LEAST_KEPT, MUCH_KEPT = 100e3, 0.5
"""Nanoseconds a sample, and part of its making as it is measured, that reading it again must save before it is told."""


@dataclass(frozen=True)
class Row:
    """One batch as the training process saw it. Nanoseconds of one clock that all processes share."""

    asked: int
    got: int
    done: int
    """When the consumer had finished with it."""
    waited: int
    """Of the time between `asked` and `got`: blocked until a batch lay ready."""
    received: int
    """Of the time between `asked` and `got`: reading it from the pipe and rebuilding it."""
    trace: BatchTrace
    device: int = 0
    """Nanoseconds the step kept a device busy, by events."""
    idle: int | None = None
    """Nanoseconds a device had nothing to do before the step, by events; None: not known. Work that earlier steps have queued
    counts here, which one step's times alone do not tell."""
    room: int = 0
    """When a worker could be told to make it, an earlier batch being taken; 0 where there was room from the beginning."""
    sampled: int = 0
    """Of the time between `asked` and `got`: asking the user's sampler which samples come next."""
    harness: int = 0
    """Before `asked`, what the loop that measures computes for itself since the batch before, and training's does not."""


@dataclass(frozen=True)
class Block:
    """An uninterrupted run of one arm, its first batches left out."""

    arm: str
    rows: tuple[Row, ...]
    seconds: float
    """Wall time of the rows, what only measuring caused left out."""
    samples: int
    main_cpu: float = 0.0
    """CPU seconds of the training process in the block."""
    own_seconds: float = 0.0
    """What only measuring caused and was left out."""

    @property
    def rate(self) -> float:
        return self.samples / self.seconds

    def keep_sums(self) -> None:
        """Of arms whose batches nobody looks at one by one: operations are summed in the first row, and the others
        forget theirs. A fast loader gives a hundred thousand batches a minute."""
        sums: dict[tuple[str | None, str], list[int]] = {}
        for charge in charges_of(self.rows):
            figures = sums.setdefault((charge.stage, charge.op), [0, 0, 0, 0, 0])
            for place, value in enumerate((charge.wall, charge.cpu, charge.cpu_wall, charge.calls, charge.entered)):
                figures[place] += value
        for row in self.rows:
            row.trace.charges, row.trace.unit_walls, row.trace.foreign = [], [], []
        if self.rows:
            self.rows[0].trace.charges = [Charge(stage, op, *figures) for (stage, op), figures in sums.items()]


@dataclass(frozen=True)
class FusedCall:
    """One call a sample in the place of decoding and transforming, tried on pictures of the dataset."""

    why_not: str = ""
    """It cannot be done here."""
    left: Interval = field(default=Interval(1.0, 1.0, 1.0))
    """Seconds of the call over those of the dataset's own code, reading included."""
    pictures: int = 0
    apart: str = ""
    """How far the pictures lie from the dataset's own, in words."""
    draws: bool = False
    """The transforms draw random numbers."""
    processes: str = ""
    """Why worker processes make the calls; empty where threads of the training process do."""
    gain: MeasuredGain | None = None
    """How much faster the loader with these calls is, run in turn with the loader as it is; None: not tried."""


@dataclass(frozen=True)
class KeptRecord:
    """A finished sample as a cache's record, tried on a few of the dataset."""

    seconds: Interval = field(default=Interval(0.0, 0.0, 0.0))
    """To read one back, out of memory."""
    bytes: float = 0.0
    why_not: str = ""
    """Samples cannot be stored."""
    gain: Interval | None = None
    """How much faster the loader is that reads finished samples back, run in turn with the loader as it is; None: not tried."""
    pairs: int = 0
    """Blocks of both that it rests on."""


@dataclass(frozen=True)
class TriedCache:
    """What came of beginning a cache on a few samples."""

    refused: str = ""
    """Why it is not proposed; empty where nothing speaks against it, or that could not be tried."""
    record_bytes: float | None = None
    """Of a record, on average; None where none was made."""
    described_bytes: float = 0.0
    """Of a record of what a sample reads, those that tell where it is from: beside ``record_bytes``."""
    part_samples: int | None = None
    """How many samples one of its parts is for: what they share is kept once in each."""
    late: bool = False
    """Whether it was left before anything had come of it."""
    whole: bool = False
    """Whether its records are finished samples, none of whose transforms run when they are read."""
    uncut: bool = False
    """Whether they would be whatever it keeps: the transforms cannot be held apart."""
    kept: tuple[str, ...] = ()
    """Transforms whose results it keeps, each with its settings in brackets."""


@dataclass(frozen=True)
class DistinctReads:
    """What so many samples read."""

    distinct_bytes: float
    """Once where samples read the very same stretch of a file, as a ``source`` cache keeps it; stretches may overlap."""
    bytes: float
    """As often as it was read."""
    samples: int


@dataclass(frozen=True)
class Unpacked:
    """What of an array or a table is unpacked for a sample."""

    name: str
    chunk: str
    """Its chunks, such as ``50 x 64 x 64``; empty for a table."""
    asked: float
    """Bytes that a sample asks for; 0 where that is not known."""
    unpacked: float
    """Bytes that a sample has unpacked."""


@dataclass
class Measurement:
    """All that a probe saw of one subject."""

    settings: LoaderSettings
    workers: int
    """Those that give batches."""
    cores: float
    """CPU cores this process may use, quota included."""
    consumer: str = "none"
    has_consumer: bool = False
    blocks: list[Block] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)
    """Arms that did not run, and why."""
    untried: set[str] = field(default_factory=set)
    """Of these, those that only the time was lacking for."""
    trials: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Other settings, really run: (samples/s with them, samples/s as it is) in neighbouring blocks."""
    seam_cost: float = 0.0
    """Seconds a timed call through a hook adds."""
    cold: dict[str, Any] = field(default_factory=dict)
    first_batch: float | None = None
    epoch_restart: float | None = None
    step_split: dict[str, float] = field(default_factory=dict)
    step_facts: dict[str, Any] = field(default_factory=dict)
    """What one step had the host do for a CUDA device, for the audit; empty where nobody looked."""
    nvml: dict[str, float] = field(default_factory=dict)
    """Utilisation, memory and power while the loop ran: supporting evidence, never the objective."""
    transfer: dict[str, float] = field(default_factory=dict)
    """Seconds a batch for pinned and pageable copies, with a CUDA device; ``exposed``: what the step takes more for its copy."""
    recorded_bytes: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    mixed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Libraries in use that have no hooks, with their releases."""
    looks: dict[int, list[tuple[int, dict[str, float]]]] = field(default_factory=dict)
    """By process: (samples made by then, facts about it and its batch), for the audit."""
    paths: list[str] = field(default_factory=list)
    """Files that samples were read from."""
    read_once: list[DistinctReads] = field(default_factory=list)
    """Of half of what was recorded, and of all of it; empty where nothing was seen to be read."""
    stores: list[str] = field(default_factory=list)
    """Stores of objects that samples were read from, such as ``s3://bucket``."""
    traced: list[Row] = field(default_factory=list)
    """An uninterrupted run of batches with the begin and end of every operation, where a trace was asked for."""
    fused: dict[str, FusedCall] = field(default_factory=dict)
    """By how close pixels are to be (``exact``, ``close``); empty where nobody tried."""
    record: KeptRecord | None = None
    """None where nobody tried."""
    handover: MeasuredGain | None = None
    """What FastLoader's hand-over gained in the place of the loader's own; None where nobody tried."""
    reuses_memory: bool = False
    """Whether the loader hands batches over through memory that was used before, as a FastLoader does."""
    copies_early: bool = False
    """Whether it brings them to the device beside the step before, from pinned memory, likewise."""
    tried_caches: dict[str, TriedCache] = field(default_factory=dict)
    """By what a cache keeps of a sample."""
    same_every_time: bool = False
    """Whether a few finished samples were made twice and came out the same."""
    throttled: float | None = None
    """Part of the run's scheduling periods in which the CPU quota ran out; None with no quota."""
    others_cores: float | None = None
    """CPU cores that other programs used meanwhile; None where the system does not say."""
    reference_seconds: list[float] = field(default_factory=list)
    """What the reference work took, after each block."""
    peak_rss: int = 0
    seconds: float = 0.0
    partial: bool = False
    lost_by_fork: str | None = None
    """A library whose threads workers might wait for without end, were they forked; None where there are workers, which work."""
    own_pool: str | None = None
    """The kind of a pool of processes that computes in the dataset; None where there are workers, which can have none."""
    idle_workers: int = 0
    """Workers that left at once, their part of the stream being empty."""
    why_none: str = ""
    """Why the model of the target's file is not the consumer."""
    shards: int | None = None
    """Parts that a stream can be read in at once; None for other datasets, and where the stream does not say."""
    whole_stream_each: bool | None = False
    """Two workers of a stream were seen to give the same samples: each goes through all of it. None: they did with the same random
    numbers only."""
    own_lines: Counter[str] = field(default_factory=Counter)
    """Lines of the user's own code that no hook times, by how often they were seen running."""
    unpacked: list[Unpacked] = field(default_factory=list)
    collate_lines: Counter[str] = field(default_factory=Counter)
    """Lines of the user's own code, by how often they were seen running while batches were collated."""
    first_calls: dict[str, float] = field(default_factory=dict)
    """Operations a sample by stage when samples were read for the first time."""
    first_cpu: dict[str, float] = field(default_factory=dict)
    """CPU nanoseconds a sample that they computed then."""

    @property
    def harness_seconds(self) -> float | None:
        """Seconds a batch that measuring itself takes of the loop without clocks, already left out of every rate."""
        blocks = [block for block in self.of("plain") if block.rows]
        return sum(block.own_seconds for block in blocks) / sum(len(block.rows) for block in blocks) if blocks else None

    @property
    def kept_by_dataset(self) -> list[str]:
        """Stages that the dataset itself passes by once it has read a sample: it has a cache of its own."""
        rows = self.rows("real")
        samples = sum(row.trace.samples for row in rows)
        again: Counter[str] = Counter()
        for charge in charges_of(rows):
            again[charge.stage or ""] += charge.calls
        return [stage for stage, calls in self.first_calls.items() if samples and again[stage] / samples < KEPT * calls]

    @property
    def kept_by_library(self) -> dict[str, tuple[float, float]]:
        """Stages whose operations computed much more when a sample was first read than when it was read again, and how much: CPU
        seconds a sample. Something below the dataset keeps what it unpacked, as HDF5 does with its latest chunks."""
        rows = self.rows("real")
        made = sum(sum(row.trace.unit_walls) for row in rows) / (sum(row.trace.samples for row in rows) or 1)
        again, least = cpu_by_stage(rows), max(LEAST_KEPT, MUCH_KEPT * made)
        kept = {}
        for stage in self.first_cpu.keys() - set(self.kept_by_dataset):
            first, then = self.first_cpu[stage], again.get(stage, 0.0)
            if first - then > least and then < KEPT * first:
                kept[stage] = first / 1e9, then / 1e9
        return kept

    @property
    def facts(self) -> dict[str, float]:
        """The first look into the first process."""
        return next((looks[0][1] for looks in self.looks.values()), {})

    def take_in(self, traces: Sequence[BatchTrace]) -> None:
        """What the workers' last traces say of all that was recorded."""
        self.recorded_bytes = sum(trace.recorded_bytes for trace in traces)
        for trace in traces:
            self.refused.update(trace.refused)
            self.own_lines.update(trace.own_lines)
            self.collate_lines.update(trace.collate_lines)
            self.mixed = sorted({*self.mixed, *trace.mixed})
            self.left_out = sorted({*self.left_out, *trace.left_out})

    def of(self, arm: str) -> list[Block]:
        return [block for block in self.blocks if block.arm == arm]

    def rows(self, arm: str) -> list[Row]:
        return rows_of(self.of(arm))


def rows_of(blocks: Iterable[Block]) -> list[Row]:
    """Their batches, block after block."""
    return [row for block in blocks for row in block.rows]


def charges_of(rows: Iterable[Row]) -> Iterator[Charge]:
    """What operations took in these batches."""
    return (charge for row in rows for charge in row.trace.charges)


def calls_by_stage(rows: Sequence[Row]) -> dict[str, float]:
    """Operations a sample, by stage: of reading and decoding, where every second sample has one at least."""
    samples, charges = sum(row.trace.samples for row in rows) or 1, list(charges_of(rows))
    kinds = (Stage.STORAGE.value, Stage.DECODE.value)
    counted = {stage: sum(charge.calls / samples for charge in charges if charge.stage == stage) for stage in kinds}
    return {stage: calls for stage, calls in counted.items() if calls >= 0.5}


def cpu_by_stage(rows: Sequence[Row]) -> dict[str, float]:
    """CPU nanoseconds a sample of reading and decoding, by the samples whose CPU time was read."""
    spent: dict[str, float] = {}
    for charge in charges_of(rows):
        if charge.cpu_wall and charge.stage in (Stage.STORAGE.value, Stage.DECODE.value):
            spent[charge.stage] = spent.get(charge.stage, 0.0) + charge.wall * min(1.0, charge.cpu / charge.cpu_wall)
    samples = sum(row.trace.samples for row in rows)
    return {stage: value / samples for stage, value in spent.items()} if samples else {}


def unpacked_of(latest: Sequence[Row], samples: int) -> list[Unpacked]:
    """What was unpacked a sample. ``latest``: of each worker its last batch, which tells all of its reads; ``samples``: of all."""
    sums: dict[tuple[str, str], list[int]] = {}
    for row in latest:
        for name, chunk, asked, unpacked in row.trace.chunk_reads:
            bytes_so_far = sums.setdefault((name, chunk), [0, 0])
            bytes_so_far[0] += asked
            bytes_so_far[1] += unpacked
    return [Unpacked(*named, asked / samples, unpacked / samples) for named, (asked, unpacked) in sums.items() if unpacked]
