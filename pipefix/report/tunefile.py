"""What a tuning found, as JSON (``pipefix.tune/1``). Pure data."""

from __future__ import annotations

import msgspec

from pipefix.tuning.results import BatchSize, Trial
from pipefix.tuning.space import Settings
from pipefix.vocabulary.quantity import Interval

FORMAT = "pipefix.tune/1"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the consumer is fed with the settings that are kept, and the figures that show it."""

    fed: bool | None
    """None where there is no consumer, or the interval settles neither."""
    emulated: bool
    """The consumer sleeps as long as a step would take: what a real one's CPU use would disturb is not in the figures."""
    consumer: str
    allowed: float
    """Share of the time that it may wait."""
    stall: Interval | None = None
    """Share of the time that it waited."""
    delivered: Interval | None = None
    """Samples a second."""
    demand: float | None = None
    """Samples a second that it takes where nothing keeps it waiting."""
    batches: int = 0
    seconds: float = 0.0
    nvml: dict[str, float] = {}
    """What the driver says of the device meanwhile: supporting evidence."""
    sentence: str = ""


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    before: Settings
    """As found."""
    after: Settings
    """To be used; the same as before where nothing better was found."""
    sentence: str
    certificate: Certificate
    trials: list[Trial]
    format: str = FORMAT
    pipefix: str = ""
    created: str = ""
    changes: dict[str, object] = {}
    rate_before: Interval | None = None
    rate_after: Interval | None = None
    kept: str | None = None
    """Why the settings stay as they are."""
    enough: str = ""
    """Why no more was tried."""
    declined: dict[str, str] = {}
    """What was not searched, and why."""
    notes: list[str] = []
    batch_sizes: list[BatchSize] = []
    limits: dict[str, float] = {}
    partial: bool = False
    seconds: float = 0.0
    written: str | None = None
    """The plan file."""
