"""The stages of two runs drawn to one scale, with their figures as a table below."""

from __future__ import annotations

from pipefix.report import plots, wording
from pipefix.report.markup import Markup, Piece, el, join, name, table
from pipefix.report.plots import BarPart, hue
from pipefix.report.runfile import Run, StageFigures


def side_by_side(before: Run | None, after: Run | None) -> Markup:
    runs = [(label, run) for label, run in (("before", before), ("after", after)) if run is not None and _seconds(run)]
    if not runs:
        return Markup("")
    longest = max(sum(value for _, value in _seconds(run)) for _, run in runs)
    bars: list[Piece] = []
    for label, run in runs:
        found = _seconds(run)
        whole = sum(value for _, value in found)
        parts = [BarPart(value, hue(stage), f"{stage}: {wording.seconds(value)}") for stage, value in found]
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
