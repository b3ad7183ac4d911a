"""What `fix` did as one page: stages before and after side by side, predicted against measured gains, and what was left alone."""

from __future__ import annotations

from pipefix.fixes.outcome import Applied, Fixed
from pipefix.report import fix_text, plots, wording
from pipefix.report.markup import Markup, Piece, el, join, name, sentence, table
from pipefix.report.plots import PlotRow
from pipefix.report.runfile import Run
from pipefix.report.side_by_side import side_by_side
from pipefix.report.skeleton import command, document, header, labelled, section, tiles
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.version import VERSION


def page(fixed: Fixed, before: Run | None, after: Run | None) -> str:
    sections = [
        ("stages", "Before and after", side_by_side(before, after)),
        ("way", "From before to after", _waterfall(fixed, after)),
        ("gains", "Predicted and measured", _gains(fixed)),
        ("kept", "What was kept", _kept(fixed)),
        ("left", "What was left alone, and why", _left(fixed)),
    ]
    main = [
        header("pipefix fix ", fixed.target),
        _card(fixed),
        *(section(anchor, title, body) for anchor, title, body in sections if body),
    ]
    footer = f"Made by pipefix {VERSION}. Intervals are 95 %. The page needs no network."
    return document(f"Fixed: {fixed.target} (pipefix)", main, footer)


def _card(fixed: Fixed) -> Markup:
    rows = [labelled("Result", el("p", sentence(fix_text.result(fixed)), class_="verdict"))]
    if fixed.same is not None:
        rows.append(labelled("Samples", el("p", sentence(fix_text.samples(fixed.same)))))
    if fixed.stopped:
        rows.append(labelled("Stopped", el("p", sentence(fixed.stopped))))
    if fixed.plan is not None and not fixed.dry:
        rows.append(labelled("Use", command(fix_text.how(fixed))))
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
    return tiles(told)


# -- gains -------------------------------------------------------------------------------------------------------------------


def _waterfall(fixed: Fixed, after: Run | None) -> Markup:
    """The rate as each kept step raised it, and what the consumer could take: the ceiling."""
    if fixed.total is None or not fixed.applied:
        return Markup("")
    rate = fixed.total.before.value
    rows = [("before", 0.0, rate)]
    for one in fixed.applied:
        rows.append((one.id, rate, rate * one.measured.gain.value))
        rate = rows[-1][2]
    rows.append(("after, both run in turn", 0.0, fixed.total.after.value))
    demand = after.throughput.demand if after is not None and after.throughput is not None else None
    ceiling = wording.usable(demand)
    if ceiling is not None:
        rows.append(("the consumer could take", 0.0, ceiling.value))
    scale = plots.Scale(0.0, 1.05 * max(end for _, _, end in rows))
    drawn = []
    for label, begin, end in rows:
        left, right = sorted((scale.at(begin), scale.at(end)))
        said = wording.rate(end) if not begin else f"{wording.number(begin)} to {wording.rate(end)}"
        class_ = "s-none" if label.startswith(("before", "the consumer")) else "s-augment"
        drawn.append(
            PlotRow(label=name(label), said=el("span", said), shapes=plots.segment(left, right - left, class_, said), title=said)
        )
    chart = plots.chart(drawn, scale, axis="samples a second", ticks=[wording.number(tick) for tick in scale.ticks])
    return el("figure", el("figcaption", "What each kept step added, as it was measured when it was kept"), chart)


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


def _row(label: str, gain: Interval, scale: plots.Scale, class_: str) -> PlotRow:
    shapes = join((plots.baseline(scale, 1.0), plots.bar(scale, gain, base=1.0, class_=class_)))
    said = wording.times_between(gain)
    return PlotRow(label=name(label), said=el("span", said), shapes=shapes, title=f"{label}: {said}")


def _kept(fixed: Fixed) -> Markup:
    if not fixed.applied:
        return Markup("")
    rows = [[name(one.id), sentence(one.title), sentence(one.same.sentence), *_cells(one)] for one in fixed.applied]
    heads = ("Remedy", "What it does", "Samples", "Predicted", "Measured", "Part of it", "Costs")
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
