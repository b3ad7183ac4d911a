"""What the loader's meter costs."""

from __future__ import annotations

from collections.abc import Iterator

from measured.row import Row, at_most
from pipefix.loader.metering.stage_clock import calibrate


def rows() -> Iterator[Row]:
    yield at_most("loader: a timed call", calibrate(), "ns", 5000)
