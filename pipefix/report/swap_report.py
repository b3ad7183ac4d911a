"""What a swap found as a document: what stays and why, what moves, the wire, how equal the two sides are, and a contact sheet."""

from __future__ import annotations

from collections.abc import Sequence

from pipefix.report import wording
from pipefix.report.document import Block, Document, Field, Image, Images, Paragraph, Points, Section, Table, field
from pipefix.report.swapfile import PanelPicture, ParityFigures, PixelFigures, SwapReport, WireFigures
from pipefix.vocabulary.quantity import size, times

_TO = {
    "kornia": "To the batch, as one module on its device:",
    "dali": "To DALI's graph, from encoded bytes to the batch:",
}


def report(swap: SwapReport, sheet: Sequence[PanelPicture] = ()) -> Document:
    parity = swap.parity
    holds = None if parity is None else parity.holds
    stays, moves = _stays(swap), "Nothing can be moved." if not swap.moves else _TO[swap.to]
    ops = [move.settings or move.transform for move in swap.moves]
    card = [
        Field(
            "STAYS", [Paragraph(stays), *([Points([f"{one.transform}: {one.why}" for one in swap.stays])] if swap.stays else [])]
        ),
        Field("MOVES", [Paragraph(moves), *([Points(ops)] if ops else [])]),
        field("WIRE", wire(swap)),
        field("GAIN", gain(swap)),
    ]
    card += [Field("NOTE", [Paragraph(note) for note in swap.notes])] if swap.notes else []
    if parity is not None:
        card.append(field("PARITY", verdict(parity), "good" if parity.holds else "bad"))
        card += [field("UNCHECKED", f"{one.transform}: {one.why}") for one in parity.declined]
    sections = _parity(parity) if parity is not None else []
    if sheet:
        sections.append(Section(title="Contact sheet", blocks=[Images([_row(panel) for panel in sheet])], only="page"))
    return Document(
        command="pipefix swap",
        target=f"{swap.target} --to {swap.to}",
        kind={True: "good", False: "bad", None: "warn"}[holds],
        card=card,
        sections=sections,
        version=swap.pipefix,
    )


def _stays(swap: SwapReport) -> str:
    if swap.stays:
        return "On the CPU, in the dataset, before samples are collated:"
    return "Nothing stays on the CPU before the batch." if swap.to != "dali" else "Nothing: DALI begins with the encoded file."


def _crossing(wire: WireFigures) -> str:
    if wire.shape is None:
        return f"{wire.dtype} of any size"
    return f"{size(wire.bytes or 0)} ({wire.dtype} {'x'.join(map(str, wire.shape))})"


def wire(swap: SwapReport) -> str:
    """What crosses for one sample, before and after."""
    before, after = swap.before, swap.after
    if swap.to == "dali":
        return f"A sample is {_crossing(after)} in the batch; it is made in this process, so nothing crosses between processes."
    less = ""
    if before.bytes and after.bytes and before.bytes != after.bytes:
        ratio = before.bytes / after.bytes
        less = f": {times(ratio)} less" if ratio > 1 else f": {times(1 / ratio)} more"
    return f"A sample crosses to the training process as {_crossing(after)} instead of {_crossing(before)}{less}."


def gain(swap: SwapReport) -> str:
    if swap.gain is None:
        return swap.gain_why
    return f"{wording.times_between(swap.gain)} the throughput is what the probe predicts. {swap.gain_why}".strip()


# -- parity ------------------------------------------------------------------------------------------------------------


def verdict(parity: ParityFigures) -> str:
    if parity.holds:
        return (
            f"The same seed gives the same samples both ways, on {parity.device}: "
            f"{wording.counted(len(parity.pixels), 'transform')} and the whole list within "
            "1/255 on average and 4/255 at the 99th percentile."
        )
    wrong = [one.op for one in parity.pixels if not one.within]
    if parity.whole is not None and not parity.whole.within:
        wrong.append("the whole list")
    return f"Not equal: {', '.join(wrong)}. The figures are below."


def _parity(parity: ParityFigures) -> list[Section]:
    checked = [*parity.pixels, *([parity.whole] if parity.whole else [])]
    heads = ["transform", "pictures", "mean", "99 %", "worst", "where a difference comes from"]
    table = Table(heads, [_pixels(one) for one in checked], "lrrrrl", caption="Pixels")
    blocks: list[Block] = [table, Paragraph("Errors are in 1/255 of the pixels' range; 0 is exact.", "soft")]
    return [Section(title="How equal the two sides are", blocks=blocks)] if checked else []


def _pixels(one: PixelFigures) -> list[str]:
    figures = [f"{one.mean:.3f}", f"{one.p99:.2f}", f"{one.worst:.1f}"] if one.worst else ["exact", "0", "0"]
    return [one.op, str(one.pictures), *figures, one.note if one.worst else ""]


def _row(panel: PanelPicture) -> list[Image]:
    captions = ("as the dataset reads it", "on the CPU", "swapped", f"difference x 16 (mean {panel.mean:.2f}/255)")
    pictures = (panel.original, panel.cpu, panel.swapped, panel.difference)
    return [Image(caption, png) for caption, png in zip(captions, pictures, strict=True)]
