"""The run file (``pipefix.run/1``, JSON): the structs that hold what a probe measured, read and written. Nothing is decided.

Readers accept every older version and refuse a newer major one.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect

from pipefix.diagnosis.diagnosis import OpCost as OpCost
from pipefix.diagnosis.diagnosis import Verdict as Verdict
from pipefix.report.program_figures import ProgramFigures
from pipefix.vocabulary import versioned
from pipefix.vocabulary.finding import Finding as Finding
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.settings import LoaderSettings

FORMAT = "pipefix.run/1"
EVALUATION_WAITS = "Evaluation waits for longer"
"""What a verdict by clocks says where the training does not wait longest."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    delivered: Interval
    """Samples a second that the consumer received (or would have, with none)."""
    demand: Interval | None = None
    """Samples a second the consumer could take if data were free; None without a consumer."""
    unit: str = "samples/s"


class GainFigures(Interval, frozen=True):
    """Throughput with a change over throughput as it is, and how that is known."""

    value: float = float("nan")
    """Not a number where it is bounded, or nothing is known."""
    low: float = float("-inf")
    high: float = float("inf")
    how: str = ""
    """measured, modelled, bounded or not tried; empty in files of older versions that do not tell."""
    at_most: float | None = None
    """What it is bounded by."""


class StageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One stage; ``declined`` says why there are no figures."""

    stage: str
    wall_s: Interval | None = None
    """Seconds a sample spent here, in whichever process runs it."""
    cpu_s: Interval | None = None
    """CPU seconds a sample. Wall far above CPU means waiting."""
    share: float | None = None
    """Part of the delivered time a sample that this stage accounts for; 0 where it is hidden behind another."""
    hidden: bool = False
    """True where the stage runs entirely beside something slower."""
    bytes: float | None = None
    """Bytes a sample that crossed this stage."""
    marginal_gain: GainFigures | None = None
    """With this stage replaced by a recording; where no such arm ran, bounded by what its part of the time leaves."""
    waiting_s: float | None = None
    """Seconds a sample that it neither computes nor queues for a CPU. None: not known."""
    ops: list[OpCost] = []
    declined: str | None = None


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way the pipeline was replayed; every block's rate is kept."""

    name: str
    replaces: list[str] = []
    rates: list[float] = []
    """Samples a second, one per block."""
    declined: str | None = None


class RemedyCost(msgspec.Struct, frozen=True, kw_only=True):
    disk_bytes: float | None = None
    seconds: float | None = None
    """One-off seconds to apply the remedy."""


class RemedyFigures(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    stage: str
    title: str
    status: str
    """proposed or declined."""
    why: str
    speedup: GainFigures | None = None
    cost: RemedyCost | None = None
    command: str | None = None
    """Exactly what to type or change."""
    measured: bool = False
    """True where the speed-up was measured on a trial arm rather than derived from the model."""
    risk: str | None = None
    """What may change besides speed."""
    relieves: list[str] = []
    """Stages besides its own that cost less with it."""


class Caveat(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    sentence: str
    """A doubt about these figures and what would settle it."""


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """How unequal samples are, and what that costs."""

    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    samples: int
    head_of_line_s: float | None = None
    """Seconds a sample that finished batches waited behind an unfinished earlier one."""
    edges_s: list[float] = []
    """Bounds of the classes that `counts` counts samples in, from the quickest to the slowest; one more than there are counts."""
    counts: list[int] = []


class StartUp(msgspec.Struct, frozen=True, kw_only=True):
    first_batch_s: float | None = None
    """From ``iter(loader)`` to the first batch."""
    epoch_restart_s: float | None = None
    """The same for the second epoch."""
    load_target_s: float | None = None


class StepSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer's step in seconds a batch, where a model was given."""

    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    other_s: float | None = None


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer's wait for each batch, in order, for the timeline."""

    at_s: list[float] = []
    """When the batch was asked for, seconds from the start of the block."""
    wait_s: list[float] = []
    step_s: list[float] = []
    fed: float | None = None
    """Part of the loop's time that the consumer was not waiting for data: 1.0 is always fed."""
    loader_s: float | None = None
    """Seconds a batch that it waits for the loader itself, however little the data cost; `fed` does not count them."""


class Instrument(msgspec.Struct, frozen=True, kw_only=True):
    """What measuring itself cost."""

    seam_cost_s: float | None = None
    """Seconds a timed call through a hook."""
    seams_per_sample: float | None = None
    slowdown: float | None = None
    """Timed over untimed seconds a sample."""
    harness_s: float | None = None
    """Seconds a batch that measuring takes of the loop beside the clocks; left out of every figure."""
    seconds: float | None = None
    """How long the probe took."""
    peak_rss_bytes: float | None = None
    recording_bytes: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    pipefix: str = ""
    created: str = ""
    """ISO 8601 with offset."""
    target: str = ""
    partial: bool = False
    """True where the run was interrupted: figures are what was known by then."""
    machine: dict[str, Any] = {}
    settings: LoaderSettings = LoaderSettings()
    given: dict[str, int] = {}
    """What the probe was told to set in place of the loader's own: batch_size, workers."""
    consumer: str = "none"
    """Where the step came from: train_step, model, emulated (with its figure) or none."""
    verdict: Verdict | None = None
    throughput: Throughput | None = None
    sample_s: Interval | None = None
    """Delivered seconds a sample: what the stages and ``unattributed_s`` add up to."""
    stages: list[StageFigures] = []
    unattributed_s: float | None = None
    """Seconds a sample that belong to no stage."""
    sampler_s: Interval | None = None
    """Of these: what the sampler takes in the training process."""
    sampler_gain: GainFigures | None = None
    """Throughput over throughput now, were the sampler free; None where no arm ran without it."""
    cold: dict[str, Any] = {}
    """Residency before and after eviction, and the cold arm's ratio; ``declined`` says why there is none."""
    arms: list[Arm] = []
    remedies: list[RemedyFigures] = []
    audit: list[Finding] = []
    caveats: list[Caveat] = []
    tail: Tail | None = None
    startup: StartUp | None = None
    step_split: StepSplit | None = None
    waits: Waits | None = None
    instrument: Instrument | None = None
    outcomes: list[dict[str, Any]] = []
    program: ProgramFigures | None = None
    """For a program that `pipefix run` started."""

    @property
    def proposed(self) -> list[RemedyFigures]:
        """Remedies worth making, the best first."""
        return [remedy for remedy in self.remedies if remedy.status == "proposed"]


def encode(run: Run) -> str:
    """JSON text. Nulls are read back as unknown figures and unbounded ends of intervals."""
    return versioned.text(run)


def write(run: Run, path: Path) -> None:
    versioned.write(encode(run), path, what="run file")


def decode(data: bytes | str, *, origin: str) -> Run:
    known = partial(_with_unknowns, kind=msgspec.inspect.type_info(Run))
    run = versioned.decode(data, Run, format=FORMAT, origin=origin, what="a pipefix run file", prepare=known)
    stages = [msgspec.structs.replace(stage, marginal_gain=_as_known(stage, run.arms)) for stage in run.stages]
    return msgspec.structs.replace(run, stages=stages, remedies=[_with_how(remedy) for remedy in run.remedies])


def _as_known(stage: StageFigures, arms: list[Arm]) -> GainFigures | None:
    """Versions before evidence was written filled in a bound where no arm had run: it is told as one."""
    gain = stage.marginal_gain
    if gain is None or gain.how or not arms:
        return gain
    for arm in arms:
        if arm.rates and (arm.replaces == [stage.stage] or (arm.name, stage.stage) == ("no-consumer", "step")):
            return msgspec.structs.replace(gain, how="measured", blocks=len(arm.rates))
    return GainFigures(how="bounded", at_most=gain.high if math.isfinite(gain.high) else None)


def _with_how(remedy: RemedyFigures) -> RemedyFigures:
    """The same for what remedies would bring."""
    if remedy.speedup is None or remedy.speedup.how:
        return remedy
    how = "measured" if remedy.measured else "modelled"
    return msgspec.structs.replace(remedy, speedup=msgspec.structs.replace(remedy.speedup, how=how))


def read(path: Path) -> Run:
    return decode(versioned.read(path, what="run file"), origin=str(path))


def _with_unknowns(data: Any, kind: msgspec.inspect.Type | None, unknown: float = math.nan) -> Any:
    """Give nulls their meaning where a figure is required: an interval's end is unbounded, any other figure is unknown (NaN)."""
    if data is None:
        return unknown if isinstance(kind, msgspec.inspect.FloatType) else None
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next((member for member in kind.types if not isinstance(member, msgspec.inspect.NoneType)), kind)
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(data, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        ends = {"low": -math.inf, "high": math.inf} if issubclass(kind.cls, Interval) else {}
        return {name: _with_unknowns(value, known.get(name), ends.get(name, math.nan)) for name, value in data.items()}
    if isinstance(kind, msgspec.inspect.ListType) and isinstance(data, list):
        return [_with_unknowns(item, kind.item_type) for item in data]
    return data
