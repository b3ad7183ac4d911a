"""A comparison of two runs as one page: what changed, whether that is more than noise, and every figure side by side."""

from __future__ import annotations

from pipefix.report import plots, wording
from pipefix.report.comparable import changed_settings
from pipefix.report.compare import Comparison, gate_sentence, regressed
from pipefix.report.markup import Markup, Piece, el, name, sentence, table
from pipefix.report.plots import PlotRow, hue
from pipefix.report.side_by_side import side_by_side
from pipefix.report.skeleton import document, header, labelled, section, tiles
from pipefix.vocabulary.version import VERSION


def page(found: Comparison, limit: float | None = None) -> str:
    """``limit``: the loss that the gate allows."""
    target = found.after.target or "a pipeline"
    sections = [
        ("stages", "Stages", side_by_side(found.before, found.after)),
        ("ratios", "What became slower, and what faster", _ratios(found)),
        ("beside", "Beside the rate", _beside(found)),
        ("settings", "Changed settings", _list(changed_settings(found.before, found.after))),
        ("doubts", "Doubts", _list(found.doubts)),
    ]
    main = [
        header("pipefix compare ", target),
        _card(found, limit),
        *(section(anchor, title, body) for anchor, title, body in sections if body),
    ]
    footer = f"Made by pipefix {VERSION}. Intervals are 95 %. The page needs no network."
    return document(f"Compared: {target} (pipefix)", main, footer)


def _card(found: Comparison, limit: float | None) -> Markup:
    kind = "inconclusive" if not found.settled else "balanced" if found.ratio.value >= 1 else "input-bound"
    rows = [labelled("Result", el("p", sentence(found.sentence), class_="verdict"))]
    if limit is not None:
        kind = "input-bound" if regressed(found, limit) else kind
        rows.append(labelled("Gate", el("p", sentence(gate_sentence(found, limit)))))
    for label, run in (("Before", found.before), ("After", found.after)):
        said = run.verdict.sentence if run.verdict is not None else "No verdict."
        rows.append(labelled(label, el("p", sentence(said)), el("p", el("small", name(run.created)))))
    assert found.before.throughput is not None
    assert found.after.throughput is not None
    figures = [
        ("before", wording.rate_between(found.before.throughput.delivered, found.before.throughput.unit)),
        ("after", wording.rate_between(found.after.throughput.delivered, found.after.throughput.unit)),
        ("after over before", wording.times_between(found.ratio)),
    ]
    if found.machine.sentence:
        figures.append(("without the machine's part", wording.times_between(found.own)))
    return el("section", el("dl", rows), tiles(figures), class_=f"card k-{kind}", id="card", aria_label="Result")


def _ratios(found: Comparison) -> Markup:
    """Seconds a sample of each stage, after over before."""
    known = [(change.stage, change.ratio) for change in found.stages if change.ratio is not None]
    if not known:
        return Markup("")
    scale = plots.spanning([end for _, one in known for end in (one.low, one.value, one.high)], base=1.0)
    rows = []
    for stage, one in known:
        word = "within noise" if one.low <= 1 <= one.high else "slower" if one.value > 1 else "faster"
        said = [el("b", wording.times(one.value)), " ", el("span", f"{word}", class_="interval")]
        shapes = [plots.bar(scale, one, base=1.0, class_=hue(stage)), plots.baseline(scale, 1.0)]
        title = f"{stage}: {wording.times_between(one)}, {word}"
        rows.append(PlotRow(label=name(stage), said=el("span", said), shapes=el("g", shapes), title=title))
    ticks = [wording.times(tick) for tick in scale.ticks]
    chart = plots.chart(rows, scale, axis="of the seconds a sample before", ticks=ticks)
    return el("figure", el("figcaption", "Seconds a sample, after over before"), chart)


def _beside(found: Comparison) -> Markup:
    rows: list[list[Piece]] = [[one.what, one.before, one.after] for one in found.beside]
    return table("Beside the rate", ("Figure", "Before", "After"), rows) if rows else Markup("")


def _list(notes: list[str]) -> Markup:
    return el("ul", [el("li", sentence(note)) for note in notes], class_="caveats") if notes else Markup("")
