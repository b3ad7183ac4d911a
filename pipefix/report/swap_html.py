"""A swap as one page: what stays and moves, the figures, and a contact sheet of originals, both results and their difference."""

from __future__ import annotations

from collections.abc import Sequence

from pipefix.report import swap_text, wording
from pipefix.report.markup import Markup, Piece, el, join, name, sentence, table, text
from pipefix.report.skeleton import document, header, labelled, section
from pipefix.report.swapfile import PanelPicture, ParityFigures, SwapReport

_SHEET = """
.sheet { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 8px; margin: 10px 0; }
.sheet figure { margin: 0; } .sheet img { width: 100%; height: auto; image-rendering: auto; border: 1px solid var(--line); }
.sheet figcaption { color: var(--soft); font-size: 0.85rem; }
"""


def page(report: SwapReport, sheet: Sequence[PanelPicture] = ()) -> str:
    body = [
        header("pipefix swap ", f"{report.target} to {report.to}"),
        _card(report),
        section("split", "Where it is cut", _split(report)),
    ]
    if report.parity is not None:
        body += [
            section("parity", "How equal the two sides are", _parity(report.parity)),
            section("draws", "Random transforms", _draws(report.parity)),
        ]
    if sheet:
        body.append(section("sheet", "Contact sheet", _sheet(sheet)))
    title = f"Swap to {report.to}: {report.target} (pipefix)"
    footer = f"Made by pipefix {report.pipefix}. The page needs no network."
    return document(title, body, footer, style=_SHEET, pictures=True)


def _card(report: SwapReport) -> Markup:
    """What moves, whether it is the same, and what it brings."""
    moved = wording.counted(len(report.moves), "transform")
    said = (
        f"{moved} of {len(report.moves) + len(report.stays)} can move to whole batches."
        if report.moves
        else "Nothing can be moved."
    )
    rows = [labelled("Result", el("p", sentence(said), class_="verdict"))]
    kind = "inconclusive"
    if report.parity is not None:
        kind = "balanced" if report.parity.holds else "input-bound"
        rows.append(labelled("Equal", el("p", sentence(swap_text.verdict(report.parity)))))
    rows += [labelled(label, el("p", sentence(words))) for label, words in (("Gain", swap_text.gain(report)),) if words]
    return el("section", el("dl", rows), class_=f"card k-{kind}", id="card", aria_label="Result")


def _split(report: SwapReport) -> Markup:
    stays = [[name(one.transform), "stays", sentence(one.why)] for one in report.stays]
    moves = [[name(one.transform), "moves", sentence(", ".join(one.ops))] for one in report.moves]
    told = [el("p", sentence(words)) for words in (swap_text.wire(report), *report.notes) if words]
    return join((told, table("Transforms", ("Transform", "Where", "Why, or what it does"), stays + moves)))


def _parity(parity: ParityFigures) -> Markup:
    rows = [
        [name(one.op), str(one.pictures), f"{one.mean:.3f}", f"{one.p99:.2f}", f"{one.worst:.1f}", sentence(one.note)]
        for one in (*parity.pixels, *([parity.whole] if parity.whole else []))
    ]
    unchecked = [el("p", sentence(f"Not checked: {one.transform}: {one.why}.")) for one in parity.declined]
    heads = ("Operation", "Pictures", "Mean", "99 %", "Worst", "Where a difference comes from")
    return join((el("p", "Errors are in 1/255 of the pixels' range.", class_="lead"), table("Pixels", heads, rows), unchecked))


def _draws(parity: ParityFigures) -> Markup:
    rows: list[list[Piece]] = []
    for one in parity.drawn:
        if one.declined:
            rows.append([name(one.op), "", "", "", sentence(one.declined)])
        for parameter in one.parameters:
            rows.append(
                [
                    name(one.op),
                    name(parameter.parameter),
                    _moments(parameter.theirs),
                    _moments(parameter.ours),
                    f"{parameter.p:.3g}",
                ]
            )
    heads = ("Transform", "Figure of the results", "torchvision: range, mean, sd", "swapped: range, mean, sd", "p")
    lead = f"Two-sample Kolmogorov-Smirnov tests; a false alarm in {parity.false_alarm:g} of all transforms that are equal."
    return join((el("p", lead, class_="lead"), table("Draws", heads, rows)))


def _moments(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < 4:
        return "never drawn"
    return f"{known[0]:.4g} to {known[1]:.4g}, {known[2]:.4g}, {known[3]:.3g}"


def _sheet(sheet: Sequence[PanelPicture]) -> Markup:
    cells = []
    for panel in sheet:
        told = (
            ("as the dataset reads it", panel.original), ("on the CPU", panel.cpu), ("swapped", panel.swapped),
            (f"difference x 16 (mean {panel.mean:.2f}/255)", panel.difference),
        )  # fmt: skip
        cells += [
            el("figure", Markup(f'<img alt="{text(words)}" src="data:image/png;base64,{data}">'), el("figcaption", words))
            for words, data in told
        ]
    return el("div", cells, class_="sheet")
