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
    settings: str = ""
    """As it describes itself."""


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


class ParityFigures(msgspec.Struct, frozen=True, kw_only=True):
    device: str
    holds: bool
    pixels: list[PixelFigures] = []
    whole: PixelFigures | None = None
    declined: list[Stays] = []
    """What was not checked."""


class SwapReport(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    to: str
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


class PanelPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the contact sheet: PNG files in base64."""

    original: str
    cpu: str
    swapped: str
    difference: str
    mean: float
