"""The document of ``pipefix swap``: what stays and why, what moves, bytes a sample, and how equal the two sides are."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from pipefix.report.document import Block, Document, Field, Image, Images, Paragraph, Section, Table, field, points
from pipefix.report.runfile import Run
from pipefix.vocabulary import quantity
from pipefix.vocabulary.commands import command, on_target
from pipefix.vocabulary.version import VERSION

if TYPE_CHECKING:
    from pipefix.augment.parity import Panel, Parity, PixelError
    from pipefix.augment.split import SampleFormat, Split
    from pipefix.augment.swap import Swap

_REMEDIES = {"kornia": "augment-gpu", "dali": "decode-gpu"}
SIDE = 160
"""Pixels of a picture on the contact sheet."""
_TO = {"kornia": "To the batch, as one module on its device:", "dali": "To DALI's graph, from encoded bytes to the batch:"}


class PredictedGain(msgspec.Struct, frozen=True):
    """What a probe said of moving augmentation."""

    gain: quantity.Interval | None
    """Throughput with it over throughput as it is."""
    why: str
    """Why there is no figure, or why the probe advises against it."""

    def __str__(self) -> str:
        if self.gain is None:
            return self.why
        return f"{quantity.times_between(self.gain)} the throughput is what the probe predicts. {self.why}".strip()


def predicted(run: Run | None, target: str, to: str) -> PredictedGain:
    if run is None and target.endswith(" object>"):
        measured = f"{on_target('probe', target)}.save('run.json') measures it"
        return PredictedGain(None, f"Not predicted: {measured}; then add run='run.json'.")
    if run is None:
        probe = command("pipefix", "probe", target, "--out", "run.json")
        return PredictedGain(None, f"Not predicted: {probe} measures it; then add --run run.json.")
    remedy = next((remedy for remedy in run.remedies if remedy.id == _REMEDIES[to]), None)
    if remedy is None or quantity.usable(remedy.speedup) is None:
        return PredictedGain(None, "The run file says nothing about moving augmentation.")
    other = f"It probed another target, {run.target}. " if run.target not in ("", target) else ""
    declined = "" if remedy.status == "proposed" else "The probe declines it here: "
    return PredictedGain(remedy.speedup, f"{other}{declined}{remedy.why}.")


def figures(target: str, swap: Swap, parity: Parity | None, worth: PredictedGain) -> dict[str, Any]:
    """The JSON of a swap (``pipefix.swap/1``)."""
    cut = swap.split
    return {
        "format": "pipefix.swap/1",
        "pipefix": VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "target": target,
        "to": cut.target,
        "where": ".".join(swap.place.path),
        "stays": [{"transform": name, "why": why} for name, why in cut.reasons],
        "moves": [{"transform": part.name, "settings": str(part.source)} for part in cut.on_batch],
        "before": _format(cut.format_before),
        "after": _format(cut.format_after),
        "gain": worth.gain,
        "gain_why": worth.why,
        "notes": swap.notes(),
        "parity": _checks(parity) if parity is not None else None,
    }


def _checks(parity: Parity) -> dict[str, Any]:
    pixels, whole = [_error(error) for error in parity.pixels], _error(parity.whole) if parity.whole is not None else None
    return {"device": parity.device, "holds": parity.holds, "pixels": pixels, "whole": whole}


def _format(sample: SampleFormat) -> dict[str, Any]:
    return {"shape": sample.shape, "dtype": sample.dtype, "bytes": sample.nbytes}


def _error(error: PixelError) -> dict[str, Any]:
    return {**vars(error), "within": error.within}


def report(target: str, swap: Swap, parity: Parity | None, worth: PredictedGain, *, full: bool = False) -> Document:
    """``full``: with the contact sheet, for the page."""
    cut = swap.split
    moves = [str(part.source) for part in cut.on_batch]
    stays = "Nothing stays on the CPU before the batch." if cut.target != "dali" else "Nothing: DALI begins with the encoded file."
    if cut.reasons:
        stays = "On the CPU, in the dataset, before samples are collated:"
    card = [
        Field("STAYS", [Paragraph(stays), *points([f"{name}: {why}" for name, why in cut.reasons])]),
        Field("MOVES", [Paragraph(_TO[cut.target] if moves else "Nothing can be moved."), *points(moves)]),
        field("WIRE", _crossings(cut)),
        field("GAIN", str(worth)),
    ]
    notes = [Paragraph(note) for note in swap.notes()]
    card += [Field("NOTE", [*notes])] if notes else []
    if parity is not None:
        card.append(field("PARITY", verdict(parity), "good" if parity.holds else "bad"))
    kind = "warn" if parity is None else "good" if parity.holds else "bad"
    sections = [*_parity(parity), *(contact_sheet(parity.sheet) if full else [])] if parity is not None else []
    return Document(
        command="pipefix swap", target=f"{target} --to {cut.target}", kind=kind, card=card, sections=sections, version=VERSION
    )


def _crossings(cut: Split) -> str:
    """What crosses for one sample, before and after."""
    before, after = cut.format_before, cut.format_after
    if cut.target == "dali":
        return f"A sample is {_crossing(after)} in the batch; it is made in this process, so nothing crosses between processes."
    less = ""
    if before.nbytes and after.nbytes and before.nbytes != after.nbytes:
        ratio = before.nbytes / after.nbytes
        less = f": {quantity.times(ratio)} less" if ratio > 1 else f": {quantity.times(1 / ratio)} more"
    return f"A sample crosses to the training process as {_crossing(after)} instead of {_crossing(before)}{less}."


def _crossing(sample: SampleFormat) -> str:
    return f"{sample.dtype} of any size" if sample.nbytes is None else f"{quantity.size(sample.nbytes)} ({sample})"


def verdict(parity: Parity) -> str:
    if parity.holds:
        checked = f"{quantity.counted(len(parity.pixels), 'transform')} and the whole list"
        within = f"{checked} within 1/255 on average and 4/255 at the 99th percentile"
        return f"The same seed gives the same samples both ways, on {parity.device}: {within}."
    return f"Not equal: {', '.join(error.op for error in parity.checked if not error.within)}. The figures are below."


def _parity(parity: Parity) -> list[Section]:
    heads = ["transform", "pictures", "mean", "99 %", "worst", "where a difference comes from"]
    table = Table(heads, list(map(_pixels, parity.checked)), "lrrrrl", caption="Pixels")
    blocks: list[Block] = [table, Paragraph("Errors are in 1/255 of the pixels' range; 0 is exact.", "soft")]
    return [Section(title="How equal the two sides are", blocks=blocks)] if table.rows else []


def _pixels(error: PixelError) -> list[str]:
    errors = [f"{error.mean:.3f}", f"{error.p99:.2f}", f"{error.worst:.1f}", error.note]
    return [error.op, str(error.pictures), *(errors if error.worst else ["exact", "0", "0", ""])]


def contact_sheet(panels: Sequence[Panel]) -> list[Section]:
    """A row for each sample: as it is read, both results, and their difference; on the page alone."""
    captions = ["as the dataset reads it", "on the CPU", "swapped", "difference x 16 (mean {:.2f}/255)"]
    rows = []
    for panel in panels:
        pictures = zip(captions, (panel.original, panel.cpu, panel.swapped, panel.difference), strict=True)
        rows.append([Image(caption.format(panel.mean), _png(picture)) for caption, picture in pictures])
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
