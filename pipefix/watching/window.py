"""A window: the figures of a loader in half a minute, as one line of JSON (``pipefix.watch/1``). Pure data."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pipefix.vocabulary import versioned

FORMAT = "pipefix.watch/1"
Figure = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
"""Neither a file nor an endpoint tells more: what is beyond is a mistake, or somebody's who means harm."""
Moment = Annotated[float, msgspec.Meta(ge=0, le=250_000_000_000)]
"""Unix time, up to the year 9892."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds a batch: the middle and the tail."""

    p50: Figure
    p95: Figure
    p99: Figure
    max: Figure


class StageSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage costs."""

    s: Figure
    """Seconds a sample: the median of the batches that were looked at."""
    batches: Count
    """How many those were."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the pipeline that changed."""

    kind: str
    """slower, costlier, larger, machine, restarts, died; or over or cheaper, which are no alarms."""
    stage: str | None
    ratio: Figure | None = None
    """After over before."""
    before: Figure | None = None
    """Seconds a sample; bytes a sample where samples became larger; seconds where starting takes longer."""
    after: Figure | None = None
    since: Moment | None = None
    """Unix time at which it began, as far as can be told."""
    against: str = "the job's own beginning"
    cause: str | None = None
    """larger-samples, busy-machine, more-work or None; of what is over, what it was."""
    sentence: str = ""

    @property
    def alarm(self) -> bool:
        return self.kind not in ("over", "cheaper")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    time: Moment
    """Unix time of its end."""
    number: Count
    seconds: Figure
    batches: Count = 0
    samples: Count = 0
    rate: Figure = 0.0
    """Samples a second that the consumer received."""
    waiting: Figure | None = None
    """Part of the loop's time that the consumer waited for data; the starts of epochs apart. None where it took no batch."""
    wait: Spread | None = None
    step: Spread | None = None
    epochs: Count = 0
    """Begun so far."""
    starts: list[Figure] = []
    """Seconds that epochs begun in this window took to give their first batch."""
    stages: dict[str, StageSeconds] = {}
    declined: str | None = None
    """Why some stages have no figures."""
    bytes: Figure | None = None
    """Read from storage, a sample."""
    cpu: Figure | None = None
    """Processor seconds that making a sample took."""
    busy: Figure | None = None
    """Part of their time that workers spent on making batches."""
    workers: Count = 0
    died: list[str] = []
    """Workers that ended by themselves, and how."""
    looking: Figure | None = None
    """Part of the makers' time that looking at stages took."""
    machine: dict[str, Figure] = {}
    """Means: cpu and memory (parts of the machine's), and of the job's GPU gpu_utilisation, gpu_memory_bytes, gpu_temperature_c,
    gpu_power_w and gpu_throttled (part of the time that its clocks were held back)."""
    labels: dict[str, str] = {}
    notices: list[Notice] = []
    """What changed with this window."""
    drifting: list[str] = []
    """Figures that are drifting at its end: stages by their names, bytes, starts or machine."""
    ended: bool = False
    """True in the last one: the watch was closed."""


def encode(window: Window) -> bytes:
    return versioned.text(window, indent=False).encode()


def decode(line: bytes, *, origin: str) -> Window:
    return versioned.decode(line, Window, format=FORMAT, origin=origin, what="what pipefix.watch writes", advice=_ADVICE)


_ADVICE = "A job writes one with: pipefix.watch(loader, jsonl='watch.jsonl')"
