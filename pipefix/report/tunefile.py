"""What a tuning found, as JSON (``pipefix.tune/1``). Pure data."""

from __future__ import annotations

import msgspec

from pipefix.vocabulary.quantity import Interval

FORMAT = "pipefix.tune/1"


class Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of a loader."""

    num_workers: int
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True
    worker_threads: int | None = None
    engine: str | None = None
    """FastLoader's."""
    batch_size: int | None = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one trial, its training process included, took."""

    memory_bytes: float
    """By PSS."""
    shm_bytes: float
    files: float
    """Open in one process."""
    cores: float
    """CPU seconds a second."""
    vram_bytes: float = 0.0
    """Of the device."""


class TrialFigures(msgspec.Struct, frozen=True, kw_only=True):
    settings: Setting
    said: str
    """The settings in words."""
    status: str
    """run, refused (never started), ended (it came near a limit) or failed."""
    why: str = ""
    """It was asked for."""
    reason: str = ""
    """It was not run, or not to its end."""
    rate: Interval | None = None
    stall: float | None = None
    used: Resources | None = None
    seconds: float = 0.0
    started_s: float = 0.0
    """From the start of the workers to the first batch; 0 without workers."""


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


class BatchSize(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size that was asked about."""

    batch_size: int
    rate: Interval | None = None
    batch_s: float | None = None
    """Seconds from one batch to the next."""
    stall: float | None = None
    reason: str = ""
    """It was not run."""


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    before: Setting
    """As found."""
    after: Setting
    """To be used; the same as before where nothing better was found."""
    sentence: str
    certificate: Certificate
    trials: list[TrialFigures]
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
