"""A swap as one page: what stays and moves, the figures, and a contact sheet of originals, both results and their difference."""

from __future__ import annotations

from collections.abc import Sequence

from pipefix.report import swap_text
from pipefix.report.html import asset, digest
from pipefix.report.markup import Markup, Piece, el, join, name, sentence, table, text
from pipefix.report.swapfile import PanelPicture, ParityFigures, SwapReport

_SHEET = """
.sheet { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 8px; margin: 10px 0; }
.sheet figure { margin: 0; } .sheet img { width: 100%; height: auto; image-rendering: auto; border: 1px solid var(--line); }
.sheet figcaption { color: var(--soft); font-size: 0.85rem; }
"""


def page(report: SwapReport, sheet: Sequence[PanelPicture] = ()) -> str:
    style = asset("page.css") + _SHEET
    policy = f"default-src 'none'; style-src '{digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="generator" content="pipefix"><meta name="color-scheme" content="light dark">'),
        el("title", f"Swap to {report.to}: {report.target} (pipefix)"),
        Markup(f"<style>{style}</style>"),
    )
    body = [
        el(
            "header",
            el("div", el("h1", el("span", "pipefix swap ", class_="brand"), name(report.target), f" to {report.to}"), class_="top"),
        ),
        _section("split", "Where it is cut", _split(report)),
    ]
    if report.parity is not None:
        body += [
            _section("parity", "How equal the two sides are", _parity(report.parity)),
            _section("draws", "Random parameters", _draws(report.parity)),
        ]
    if sheet:
        body.append(_section("sheet", "Contact sheet", _sheet(sheet)))
    footer = el("footer", el("p", f"Made by pipefix {report.pipefix}. The page needs no network."))
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{el("body", el("main", body), footer)}\n</html>\n'


def _section(anchor: str, title: str, body: Piece) -> Markup:
    return el("section", el("h2", title, id=f"{anchor}-title"), body, id=anchor, aria_labelledby=f"{anchor}-title")


def _split(report: SwapReport) -> Markup:
    stays = [[name(one.transform), "stays", sentence(one.why)] for one in report.stays]
    moves = [[name(one.transform), "moves", sentence(", ".join(one.ops))] for one in report.moves]
    told = [el("p", sentence(words)) for words in (swap_text.wire(report), swap_text.gain(report), *report.notes) if words]
    return join((told, table("Transforms", ("Transform", "", "Why, or what it does"), stays + moves)))


def _parity(parity: ParityFigures) -> Markup:
    rows = [
        [name(one.op), str(one.pictures), f"{one.mean:.3f}", f"{one.p99:.2f}", f"{one.worst:.1f}", sentence(one.note)]
        for one in (*parity.pixels, *([parity.whole] if parity.whole else []))
    ]
    unchecked = [el("p", sentence(f"Not checked: {one.transform}: {one.why}.")) for one in parity.declined]
    heads = ("Operation", "Pictures", "Mean", "99 %", "Worst", "Where a difference comes from")
    lead = el("p", sentence(swap_text.verdict(parity)), class_="verdict")
    return join(
        (lead, el("p", "Errors are in 1/255 of the pixels' range.", class_="lead"), table("Pixels", heads, rows), unchecked)
    )


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
    heads = ("Transform", "Parameter", "torchvision: range, mean, sd", "swapped: range, mean, sd", "p")
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
