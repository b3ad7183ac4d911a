"""A swap told as a report: from the nouns of the augment room to plain data."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from pipefix.augment.parity import Panel, Parity
from pipefix.augment.split import SampleFormat
from pipefix.augment.swap import Swap
from pipefix.report.runfile import Run
from pipefix.report.swapfile import (
    Moves,
    PanelPicture,
    ParityFigures,
    PixelFigures,
    Stays,
    SwapReport,
    WireFigures,
)
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.version import VERSION

REMEDY = "augment-gpu"
SIDE = 160
"""Pixels of a picture on the contact sheet."""


def report(target: str, made: Swap, parity: Parity | None, run: Run | None) -> SwapReport:
    cut = made.split
    gain, why = _gain(run, target)
    return SwapReport(
        target=target,
        to=cut.target,
        stays=[Stays(transform=name, why=why) for name, why in cut.reasons],
        moves=[Moves(transform=part.name, settings=str(part.source)) for part in cut.on_batch],
        before=_wire(cut.format_before),
        after=_wire(cut.format_after),
        pipefix=VERSION,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        where=".".join(made.place.path) if made.place is not None else "",
        gain=gain,
        gain_why=why,
        notes=list(made.notes()),
        parity=_parity(parity) if parity is not None else None,
    )


def _wire(wire: SampleFormat) -> WireFigures:
    return WireFigures(shape=list(wire.shape) if wire.shape else None, dtype=wire.dtype, bytes=wire.nbytes)


def _gain(run: Run | None, target: str) -> tuple[Any, str]:
    if run is None:
        return (
            None,
            f"Not predicted: {command('pipefix', 'probe', target, '--out', 'run.json')} measures it; then add --run run.json.",
        )
    found = next((one for one in run.remedies if one.id == REMEDY), None)
    if found is None or found.speedup is None:
        return None, "The run file says nothing about moving augmentation."
    status = "" if found.status == "proposed" else f"The probe declines it here: {found.why}."
    return found.speedup, status


def _parity(parity: Parity) -> ParityFigures:
    """The same figures without the pictures; what is not a number stays one that JSON has no word for."""
    return ParityFigures(
        device=parity.device,
        holds=parity.holds,
        pixels=msgspec.convert(parity.pixels, list[PixelFigures], from_attributes=True),
        whole=msgspec.convert(parity.whole, PixelFigures | None, from_attributes=True),
        declined=[Stays(transform=name, why=why) for name, why in parity.declined],
    )


def sheet(panels: Sequence[Panel]) -> list[PanelPicture]:
    names = ("original", "cpu", "swapped", "difference")
    return [PanelPicture(mean=panel.mean, **{name: _png(getattr(panel, name)) for name in names}) for panel in panels]


def _png(array: Any) -> str:
    array = np.asarray(array)
    array = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    picture = Image.fromarray(array.astype(np.uint8)).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
