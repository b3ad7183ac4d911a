"""What a swap found, as JSON (``pipefix.swap/1``). Pure data."""

from __future__ import annotations

import msgspec

from pipefix.vocabulary.quantity import Interval

FORMAT = "pipefix.swap/1"


class Stays(msgspec.Struct, frozen=True, kw_only=True):
    transform: str
    why: str


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    transform: str
    ops: list[str] = []
    """As they were read, with every parameter."""


class WireFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One sample as it crosses to the training process."""

    shape: list[int] | None = None
    dtype: str = ""
    bytes: int | None = None


class PixelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """In 1/255 of the range."""

    op: str
    pictures: int
    mean: float
    p99: float
    worst: float
    within: bool
    note: str = ""


class ParameterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Least, greatest, mean and standard deviation, both ways, and the test's p."""

    parameter: str
    ours: list[float]
    theirs: list[float]
    p: float


class DrawnFigures(msgspec.Struct, frozen=True, kw_only=True):
    op: str
    count: int
    alike: bool
    parameters: list[ParameterFigures] = []
    declined: str = ""


class ParityFigures(msgspec.Struct, frozen=True, kw_only=True):
    device: str
    holds: bool
    false_alarm: float
    """Of the test of one transform's parameters."""
    pixels: list[PixelFigures] = []
    drawn: list[DrawnFigures] = []
    whole: PixelFigures | None = None
    declined: list[Stays] = []
    """What was not checked."""


class SwapReport(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    to: str
    library: str
    stays: list[Stays]
    moves: list[Moves]
    before: WireFigures
    after: WireFigures
    format: str = FORMAT
    pipefix: str = ""
    created: str = ""
    where: str = ""
    """The dataset's attribute that holds the transforms."""
    gain: Interval | None = None
    gain_why: str = ""
    notes: list[str] = []
    parity: ParityFigures | None = None
    written: str | None = None


class PanelPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the contact sheet: PNG files in base64."""

    original: str
    cpu: str
    swapped: str
    difference: str
    mean: float
