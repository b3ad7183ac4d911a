"""The run file: what one probe saw, as JSON (``pipefix.run/1``). Pure data; nothing here measures or decides.

Readers accept every older version and refuse a newer major one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect

from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.settings import LoaderSettings

FORMAT = "pipefix.run/1"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """input-bound, step-bound, balanced or inconclusive."""
    stage: str | None
    """The stage to work on; None where no single one dominates."""
    sentence: str
    """What a person reads first."""
    confidence: float
    """0 to 1: how often the same verdict came out when the evidence was resampled."""
    rule: str | None = None
    """The rule that decided, with its thresholds."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    delivered: Interval
    """Samples a second that the consumer received (or would have, with none)."""
    demand: Interval | None = None
    """Samples a second the consumer could take if data were free; None without a consumer."""
    unit: str = "samples/s"


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One named operation inside a stage."""

    name: str
    wall_s: float
    """Seconds a sample, own time only (nested ops are counted under their own names)."""
    cpu_s: float | None = None
    calls: float = 1.0
    """Calls a sample."""
    opaque: str | None = None
    """Why this could not be cut further, where it could not."""


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
    marginal_gain: Interval | None = None
    """Measured: throughput with this stage replaced by a recording, over throughput as it is."""
    ops: list[Op] = []
    declined: str | None = None


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One way the pipeline was replayed; every block's rate is kept."""

    name: str
    replaces: list[str] = []
    rates: list[float] = []
    """Samples a second, one per block."""
    declined: str | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
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
    speedup: Interval | None = None
    cost: Cost | None = None
    command: str | None = None
    """Exactly what to type or change."""
    measured: bool = False
    """True where the speed-up was measured on a trial arm rather than derived from the model."""
    risk: str | None = None
    """What may change besides speed."""
    frees: str | None = None
    """What it gives back where it gains no time."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the environment audit that fired."""

    id: str
    severity: str
    """problem, warning or note."""
    found: str
    advice: str
    rule: str | None = None
    """The rule with its threshold, as it is printed."""


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
    period: int | None = None
    """Long waits come every so many batches (a sign of round-robin workers)."""


class Instrument(msgspec.Struct, frozen=True, kw_only=True):
    """What measuring itself cost."""

    seam_cost_s: float | None = None
    """Seconds a timed call through a seam."""
    seams_per_sample: float | None = None
    slowdown: float | None = None
    """Timed over untimed seconds a sample."""
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
    consumer: str = "none"
    """Where the step came from: train_step, model, emulated (with its figure) or none."""
    verdict: Verdict | None = None
    throughput: Throughput | None = None
    sample_s: Interval | None = None
    """Delivered seconds a sample: what the stages and ``unattributed_s`` add up to."""
    stages: list[StageFigures] = []
    unattributed_s: float | None = None
    """Seconds a sample that belong to no stage."""
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


def encode(run: Run) -> bytes:
    """JSON text. What has no finite value is written as null, as JSON demands, and read back as unknown or unbounded."""
    try:
        data = msgspec.json.encode(run)
    except UnicodeEncodeError:
        # A file name that is not UTF-8 reaches us as lone surrogates; they are written as escapes.
        data = msgspec.json.encode(_writable(msgspec.to_builtins(run)))
    return msgspec.json.format(data, indent=1) + b"\n"


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list) else value


def write(run: Run, path: Path) -> None:
    write_whole(encode(run), path, what="run file")


def write_whole(data: bytes, path: Path, *, what: str) -> None:
    """Write whole or not at all: a full disk leaves an older file as it was. Pipes and devices are written straight."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        path = path.resolve()
        draft = path.with_name(f".pipefix-{secrets.token_hex(6)}")
        try:
            with open(draft, "xb") as file:
                if path.exists():
                    os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    except (OSError, RuntimeError, ValueError) as error:  # the last two: a loop of links, a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise UnreadableFile(
            f"The {what} {path} could not be written: {reason}.",
            advice=f"Choose a place with room that you may write to, such as DIR/{path.name}",
        ) from error


def decode(data: bytes, *, origin: str) -> Run:
    try:
        head = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFile(f"{origin} is not a pipefix run file: it is not JSON ({error}).") from error
    name = head.get("format") if isinstance(head, dict) else None
    if not isinstance(name, str) or not name.startswith("pipefix.run/"):
        raise UnreadableFile(f'{origin} is not a pipefix run file: its "format" is {name!r}, not {FORMAT!r}.')
    major = name.removeprefix("pipefix.run/").split(".")[0]
    if not major.isdecimal() or int(major) > 1:
        raise UnreadableFile(
            f"{origin} was written by a newer pipefix: its format is {name!r}, and this one reads up to {FORMAT!r}.",
            advice="Upgrade with: pip install --upgrade pipefix",
        )
    try:
        return msgspec.convert(_with_unknowns(head, msgspec.inspect.type_info(Run)), Run)
    except msgspec.ValidationError as error:
        raise UnreadableFile(f"{origin} is damaged: {error}.") from error


_UNKNOWN = {"low": float("-inf"), "high": float("inf")}


def _with_unknowns(data: Any, kind: msgspec.inspect.Type) -> Any:
    """Give nulls their meaning where a figure is required: an interval's end is unbounded, any other figure is unknown (NaN)."""
    if isinstance(kind, msgspec.inspect.UnionType) and data is not None:
        kind = next((one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)), kind)
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(data, dict):
        known = {field.encode_name: field.type for field in kind.fields}
        ends = _UNKNOWN if kind.cls is Interval else {}
        return {name: _unknown(value, known[name], ends.get(name)) if name in known else value for name, value in data.items()}
    if isinstance(kind, msgspec.inspect.ListType) and isinstance(data, list):
        return [_unknown(item, kind.item_type, None) for item in data]
    return data


def _unknown(value: Any, kind: msgspec.inspect.Type, end: float | None) -> Any:
    if value is None and isinstance(kind, msgspec.inspect.FloatType):
        return float("nan") if end is None else end
    return _with_unknowns(value, kind)


def read(path: Path) -> Run:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"The run file {path} could not be read: {error.strerror or error}.") from error
    return decode(data, origin=str(path))
