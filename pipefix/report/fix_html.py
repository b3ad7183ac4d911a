"""What `fix` did as one page: stages before and after side by side, predicted against measured gains, and what was left alone."""

from __future__ import annotations

from pipefix.fixes.outcome import Applied, Fixed
from pipefix.report import fix_text, plots, wording
from pipefix.report.html import asset, digest
from pipefix.report.markup import Markup, Piece, el, join, name, sentence, table, text
from pipefix.report.plots import Part, Row, hue
from pipefix.report.runfile import Run, StageFigures
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.version import VERSION


def page(fixed: Fixed, before: Run | None, after: Run | None) -> str:
    style = asset("page.css")
    policy = f"default-src 'none'; style-src '{digest(style)}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="generator" content="pipefix"><meta name="color-scheme" content="light dark">'),
        el("title", f"Fixed: {fixed.target} (pipefix)"),
        Markup(f"<style>{style}</style>"),
    )
    sections = [
        ("stages", "Before and after", _stages(before, after)),
        ("gains", "Predicted and measured", _gains(fixed)),
        ("kept", "What was kept", _kept(fixed)),
        ("left", "What was left alone, and why", _left(fixed)),
    ]
    main = [
        el("header", el("div", el("h1", el("span", "pipefix fix ", class_="brand"), name(fixed.target)), class_="top")),
        _card(fixed),
        *(_section(anchor, title, body) for anchor, title, body in sections if body),
    ]
    footer = el("footer", el("p", f"Made by pipefix {VERSION}. Intervals are 95 %. The page needs no network."))
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{el("body", el("main", main), footer)}\n</html>\n'


def _section(anchor: str, title: str, body: Piece) -> Markup:
    return el("section", el("h2", title, id=f"{anchor}-title"), body, id=anchor, aria_labelledby=f"{anchor}-title")


def _card(fixed: Fixed) -> Markup:
    rows = [el("dt", "Result"), el("dd", el("p", sentence(fix_text.result(fixed)), class_="verdict"))]
    if fixed.same is not None:
        rows += [el("dt", "Samples"), el("dd", el("p", sentence(fix_text.samples(fixed.same))))]
    if fixed.stopped:
        rows += [el("dt", "Stopped"), el("dd", el("p", sentence(fixed.stopped)))]
    if fixed.plan is not None and not fixed.dry:
        rows += [el("dt", "Use"), el("dd", el("pre", el("code", fix_text.how(fixed))))]
    return el("section", el("dl", rows), _tiles(fixed), class_="card k-balanced", id="card", aria_label="Result")


def _tiles(fixed: Fixed) -> Markup | None:
    if fixed.total is None:
        return None
    told = [
        ("before", wording.rate_between(fixed.total.before)),
        ("after", wording.rate_between(fixed.total.after)),
        ("gain", wording.times_between(fixed.total.gain)),
    ]
    if fixed.saved_s is not None:
        told.append(("saved of each epoch", wording.seconds(fixed.saved_s)))
    made = []
    for label, figure in told:
        value, opening, rest = figure.partition(" (")
        small = el("span", f"({rest}", class_="interval") if opening else None
        made.append(
            el("div", el("span", label, class_="tile-label"), el("span", value, class_="tile-figure"), small, class_="tile")
        )
    return el("div", made, class_="tiles")


# -- stages side by side -----------------------------------------------------------------------------------------------------


def _stages(before: Run | None, after: Run | None) -> Markup:
    runs = [(label, run) for label, run in (("before", before), ("after", after)) if run is not None and _seconds(run)]
    if not runs:
        return Markup("")
    longest = max(sum(value for _, value in _seconds(run)) for _, run in runs)
    bars: list[Piece] = []
    for label, run in runs:
        found = _seconds(run)
        whole = sum(value for _, value in found)
        parts = [Part(value, hue(stage), f"{stage}: {wording.seconds(value)}") for stage, value in found]
        words = f"{label}: " + "; ".join(part.title for part in parts)
        bars += [
            el("figcaption", f"{label}: {wording.seconds(whole)} a sample"),
            plots.stacked(parts, longest, height=34, label=words),
        ]
    names = list(dict.fromkeys(stage.stage for _, run in runs for stage in run.stages))
    rows: list[list[Piece]] = []
    for one in names:
        cells = [_figures(run, one) for _, run in runs]
        if any(cells):
            rows.append([name(one), *cells])
    heads = ("Stage, wall a sample", *(label for label, _ in runs))
    lead = "Seconds of a delivered sample by stage, drawn to one scale; a stage that runs beside something slower is left out."
    return join((el("p", lead, class_="lead"), el("figure", bars), table("Stages before and after", heads, rows)))


def _seconds(run: Run) -> list[tuple[str, float]]:
    """What each stage takes of a delivered sample's time."""
    whole = wording.usable(run.sample_s)
    if whole is None:
        return []
    return [
        (stage.stage, stage.share * whole.value)
        for stage in run.stages
        if not stage.hidden and stage.share is not None and wording.known(stage.share) and stage.share > 0
    ]


def _figures(run: Run, wanted: str) -> str:
    stage: StageFigures | None = next((one for one in run.stages if one.stage == wanted), None)
    if stage is None or wording.usable(stage.wall_s) is None:
        return ""
    return wording.seconds_between(stage.wall_s) + (", hidden" if stage.hidden else "")


# -- gains -------------------------------------------------------------------------------------------------------------------


def _gains(fixed: Fixed) -> Markup:
    pairs = [(one.id, one.predicted, one.measured.gain) for one in fixed.applied]
    pairs += [(one.id, one.predicted, one.measured.gain) for one in fixed.refused if one.measured and one.predicted]
    if not pairs:
        return Markup("")
    values = [end for _, predicted, measured in pairs for one in (predicted, measured) for end in (one.low, one.high)]
    scale = plots.spanning(values, base=1.0)
    rows = []
    for id, predicted, measured in pairs:
        rows += [_row(f"{id}, predicted", predicted, scale, "s-none"), _row("measured", measured, scale, "s-step")]
    chart = plots.chart(rows, scale, axis="times the throughput", ticks=[wording.times(tick) for tick in scale.ticks])
    return el("figure", el("figcaption", "Each step's gain over the pipeline as it was before that step"), chart)


def _row(label: str, gain: Interval, scale: plots.Scale, class_: str) -> Row:
    shapes = join((plots.baseline(scale, 1.0), plots.bar(scale, gain, base=1.0, class_=class_)))
    said = wording.times_between(gain)
    return Row(label=name(label), said=el("span", said), shapes=shapes, title=f"{label}: {said}")


def _kept(fixed: Fixed) -> Markup:
    if not fixed.applied:
        return Markup("")
    rows = [[name(one.id), sentence(one.title), sentence(one.same.sentence), *_cells(one)] for one in fixed.applied]
    heads = ("Remedy", "", "Samples", "Predicted", "Measured", "Part of it", "Costs")
    return table("Kept", heads, rows)


def _cells(one: Applied) -> list[Piece]:
    predicted, measured = wording.times_between(one.predicted), wording.times_between(one.measured.gain)
    return [predicted, measured, wording.percent(one.held), sentence(fix_text.cost_of(one))]


def _left(fixed: Fixed) -> Markup:
    listed = [*fixed.refused, *fixed.ahead]
    if not listed:
        return Markup("")
    rows = [
        [
            name(one.id),
            sentence(one.why),
            wording.times_between(one.predicted) if one.predicted else "",
            fix_text.tried(one),
            name(one.command) if one.command else "",
        ]
        for one in listed
    ]
    return table("Left alone", ("Remedy", "Why", "Predicted", "Measured", "By hand"), rows)
