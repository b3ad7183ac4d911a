"""A window: what a loader did in half a minute, as one line of JSON (``pipefix.watch/1``). Pure data."""

from __future__ import annotations

import msgspec

from pipefix.vocabulary.errors import UnreadableFile

FORMAT = "pipefix.watch/1"


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds a batch: the middle and the tail."""

    p50: float
    p95: float
    p99: float
    max: float


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage costs."""

    s: float
    """Seconds a sample: the median of the batches that were looked at."""
    batches: int
    """How many those were."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the pipeline that changed."""

    kind: str
    """slower, costlier, larger, machine, restarts, died; or over or cheaper, which are no alarms."""
    stage: str | None
    ratio: float | None = None
    """After over before."""
    before: float | None = None
    """Seconds a sample; bytes a sample where samples became larger; seconds where starting takes longer."""
    after: float | None = None
    since: float | None = None
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
    time: float
    """Unix time of its end."""
    number: int
    seconds: float
    batches: int = 0
    samples: int = 0
    rate: float = 0.0
    """Samples a second that the consumer received."""
    waiting: float | None = None
    """Part of the loop's time that the consumer waited for data; the starts of epochs apart. None where it took no batch."""
    wait: Spread | None = None
    step: Spread | None = None
    epochs: int = 0
    """Begun so far."""
    starts: list[float] = []
    """Seconds that epochs begun in this window took to give their first batch."""
    stages: dict[str, Cost] = {}
    declined: str | None = None
    """Why some stages have no figures."""
    bytes: float | None = None
    """Read from storage, a sample."""
    cpu: float | None = None
    """Processor seconds that making a sample took."""
    busy: float | None = None
    """Part of their time that workers spent on making batches."""
    workers: int = 0
    died: list[str] = []
    """Workers that ended by themselves, and how."""
    looking: float | None = None
    """Part of the makers' time that looking at stages took."""
    labels: dict[str, str] = {}
    notices: list[Notice] = []
    """What changed with this window."""
    drifting: list[str] = []
    """What is drifting at its end: `kind:stage`."""
    ended: bool = False
    """True in the last one: the watch was closed."""


def encode(window: Window) -> bytes:
    """One line."""
    return msgspec.json.encode(window) + b"\n"


def decode(line: bytes, *, origin: str) -> Window:
    try:
        head = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFile(f"{origin} is not what pipefix.watch writes: a line is not JSON ({error}).", advice=_ADVICE) from error
    name = head.get("format") if isinstance(head, dict) else None
    if not isinstance(name, str) or not name.startswith("pipefix.watch/"):
        raise UnreadableFile(
            f'{origin} is not what pipefix.watch writes: a line\'s "format" is {name!r}, not {FORMAT!r}.', advice=_ADVICE
        )
    major = name.removeprefix("pipefix.watch/").split(".")[0]
    if not major.isdecimal() or int(major) > 1:
        raise UnreadableFile(
            f"{origin} was written by a newer pipefix: its format is {name!r}, and this one reads up to {FORMAT!r}.",
            advice="Upgrade with: pip install --upgrade pipefix",
        )
    try:
        return msgspec.convert(head, Window)
    except msgspec.ValidationError as error:
        raise UnreadableFile(f"{origin} is damaged: {error}.", advice=_ADVICE) from error


_ADVICE = "A job writes one with: pipefix.watch(loader, jsonl='watch.jsonl')"
