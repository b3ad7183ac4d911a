"""What `pipefix swap` says: what stays and why, what moves, the bytes a sample crosses with, and how equal the two sides are.

`SwapReport` is its JSON (``pipefix.swap/1``), `of_swap` makes it, and `report` and `contact_sheet` make what is printed and drawn.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from pipefix.report import wording
from pipefix.report.document import Block, Document, Field, Image, Images, Paragraph, Points, Section, Table, field
from pipefix.report.runfile import Run
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.quantity import Interval, size, times
from pipefix.vocabulary.version import VERSION

if TYPE_CHECKING:
    from pipefix.augment.parity import Panel, Parity
    from pipefix.augment.split import SampleFormat
    from pipefix.augment.swap import Swap

REMEDY = "augment-gpu"
SIDE = 160
"""Pixels of a picture on the contact sheet."""
_TO = {
    "kornia": "To the batch, as one module on its device:",
    "dali": "To DALI's graph, from encoded bytes to the batch:",
}


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
    format: str = "pipefix.swap/1"
    pipefix: str = ""
    created: str = ""
    where: str = ""
    """The dataset's attribute that holds the transforms."""
    gain: Interval | None = None
    gain_why: str = ""
    notes: list[str] = []
    parity: ParityFigures | None = None


def of_swap(target: str, swap: Swap, parity: Parity | None, run: Run | None) -> SwapReport:
    """``run`` predicts the gain."""
    cut = swap.split
    gain, why = _gain(run, target)
    return SwapReport(
        target=target,
        to=cut.target,
        stays=_stay(cut.reasons),
        moves=[Moves(transform=part.name, settings=str(part.source)) for part in cut.on_batch],
        before=_wire(cut.format_before),
        after=_wire(cut.format_after),
        pipefix=VERSION,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        where=".".join(swap.place.path) if swap.place is not None else "",
        gain=gain,
        gain_why=why,
        notes=list(swap.notes()),
        parity=_parity_figures(parity) if parity is not None else None,
    )


def _stay(reasons: Sequence[tuple[str, str]]) -> list[Stays]:
    return [Stays(transform=name, why=why) for name, why in reasons]


def _wire(sample: SampleFormat) -> WireFigures:
    return WireFigures(shape=list(sample.shape) if sample.shape else None, dtype=sample.dtype, bytes=sample.nbytes)


def _gain(run: Run | None, target: str) -> tuple[Interval | None, str]:
    if run is None:
        probe = command("pipefix", "probe", target, "--out", "run.json")
        return None, f"Not predicted: {probe} measures it; then add --run run.json."
    remedy = next((remedy for remedy in run.remedies if remedy.id == REMEDY), None)
    if remedy is None or remedy.speedup is None:
        return None, "The run file says nothing about moving augmentation."
    return remedy.speedup, "" if remedy.status == "proposed" else f"The probe declines it here: {remedy.why}."


def _parity_figures(parity: Parity) -> ParityFigures:
    """Without the pictures."""
    return ParityFigures(
        device=parity.device,
        holds=parity.holds,
        pixels=msgspec.convert(parity.pixels, list[PixelFigures], from_attributes=True),
        whole=msgspec.convert(parity.whole, PixelFigures | None, from_attributes=True),
        declined=_stay(parity.declined),
    )


# -- as a document ---------------------------------------------------------------------------------------------------


def report(swap: SwapReport, sheet: Sequence[Section] = ()) -> Document:
    """``sheet``: what `contact_sheet` made, for the page."""
    parity = swap.parity
    card = [
        Field("STAYS", [Paragraph(_stays(swap)), *_points([f"{part.transform}: {part.why}" for part in swap.stays])]),
        Field(
            "MOVES",
            [
                Paragraph(_TO[swap.to] if swap.moves else "Nothing can be moved."),
                *_points([part.settings or part.transform for part in swap.moves]),
            ],
        ),
        field("WIRE", _crossings(swap)),
        field("GAIN", _worth(swap)),
    ]
    card += [Field("NOTE", [Paragraph(note) for note in swap.notes])] if swap.notes else []
    if parity is not None:
        card.append(field("PARITY", verdict(parity), "good" if parity.holds else "bad"))
        card += [field("UNCHECKED", f"{part.transform}: {part.why}") for part in parity.declined]
    return Document(
        command="pipefix swap",
        target=f"{swap.target} --to {swap.to}",
        kind="warn" if parity is None else "good" if parity.holds else "bad",
        card=card,
        sections=[*(_parity(parity) if parity is not None else []), *sheet],
        version=swap.pipefix,
    )


def _points(texts: list[str]) -> list[Points]:
    return [Points(texts)] if texts else []


def _stays(swap: SwapReport) -> str:
    if swap.stays:
        return "On the CPU, in the dataset, before samples are collated:"
    return "Nothing stays on the CPU before the batch." if swap.to != "dali" else "Nothing: DALI begins with the encoded file."


def _crossings(swap: SwapReport) -> str:
    """What crosses for one sample, before and after."""
    before, after = swap.before, swap.after
    if swap.to == "dali":
        return f"A sample is {_crossing(after)} in the batch; it is made in this process, so nothing crosses between processes."
    less = ""
    if before.bytes and after.bytes and before.bytes != after.bytes:
        ratio = before.bytes / after.bytes
        less = f": {times(ratio)} less" if ratio > 1 else f": {times(1 / ratio)} more"
    return f"A sample crosses to the training process as {_crossing(after)} instead of {_crossing(before)}{less}."


def _crossing(wire: WireFigures) -> str:
    if wire.shape is None:
        return f"{wire.dtype} of any size"
    return f"{size(wire.bytes or 0)} ({wire.dtype} {'x'.join(map(str, wire.shape))})"


def _worth(swap: SwapReport) -> str:
    if swap.gain is None:
        return swap.gain_why
    return f"{wording.times_between(swap.gain)} the throughput is what the probe predicts. {swap.gain_why}".strip()


def verdict(parity: ParityFigures) -> str:
    if parity.holds:
        return (
            f"The same seed gives the same samples both ways, on {parity.device}: "
            f"{wording.counted(len(parity.pixels), 'transform')} and the whole list within "
            "1/255 on average and 4/255 at the 99th percentile."
        )
    wrong = [figures.op for figures in parity.pixels if not figures.within]
    if parity.whole is not None and not parity.whole.within:
        wrong.append("the whole list")
    return f"Not equal: {', '.join(wrong)}. The figures are below."


def _parity(parity: ParityFigures) -> list[Section]:
    checked = [*parity.pixels, *([parity.whole] if parity.whole else [])]
    heads = ["transform", "pictures", "mean", "99 %", "worst", "where a difference comes from"]
    table = Table(heads, list(map(_pixels, checked)), "lrrrrl", caption="Pixels")
    blocks: list[Block] = [table, Paragraph("Errors are in 1/255 of the pixels' range; 0 is exact.", "soft")]
    return [Section(title="How equal the two sides are", blocks=blocks)] if checked else []


def _pixels(figures: PixelFigures) -> list[str]:
    exact = not figures.worst
    errors = ["exact", "0", "0"] if exact else [f"{figures.mean:.3f}", f"{figures.p99:.2f}", f"{figures.worst:.1f}"]
    return [figures.op, str(figures.pictures), *errors, "" if exact else figures.note]


def contact_sheet(panels: Sequence[Panel]) -> list[Section]:
    """A row for each sample: as it is read, both results, and their difference; on the page alone."""
    rows = [
        [
            Image("as the dataset reads it", _png(panel.original)),
            Image("on the CPU", _png(panel.cpu)),
            Image("swapped", _png(panel.swapped)),
            Image(f"difference x 16 (mean {panel.mean:.2f}/255)", _png(panel.difference)),
        ]
        for panel in panels
    ]
    return [Section(title="Contact sheet", blocks=[Images(rows)], only="page")] if rows else []


def _png(array: Any) -> str:
    import numpy as np
    from PIL import Image as Pillow

    array = np.asarray(array)
    array = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    picture = Pillow.fromarray(array.astype(np.uint8)).convert("RGB")
    picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
