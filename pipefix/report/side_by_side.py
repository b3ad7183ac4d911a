"""Draws the stages of two runs to one scale, seconds of a delivered sample each, with a table behind."""

from __future__ import annotations

from pipefix.report.document import Bar, BarPart, Bars, Block, Paragraph, Table
from pipefix.report.runfile import Run
from pipefix.report.stage_table import share_interval
from pipefix.vocabulary import quantity

_LEAD = "Seconds of a delivered sample by stage, drawn to one scale; a stage that runs beside something slower is left out."


def side_by_side(before: Run | None, after: Run | None) -> list[Block]:
    given = [(label, run) for label, run in (("before", before), ("after", after)) if run is not None]
    runs = [(label, run, stages) for label, run in given if (stages := _stage_seconds(run))]
    if not runs:
        return []
    names = list(dict.fromkeys(stage.stage for _, run, _ in runs for stage in run.stages))
    bars = []
    for label, _, stages in runs:
        parts, at = [], 0.0
        for stage, value in stages:
            parts.append(BarPart(at, at + value, stage, f"{stage}: {quantity.seconds(value)}"))
            at += value
        bars.append(Bar(cells=[label, f"{quantity.seconds(at)} a sample"], parts=parts, title=label))
    rows = [[name, *(_clock(run, name) for _, run, _ in runs)] for name in names]
    heads = ["stage, wall a sample", *(label for label, _, _ in runs)]
    table = Table(heads, [row for row in rows if any(row[1:])], "lrr", caption="Stages before and after")
    return [Paragraph(_LEAD, "soft"), Bars(table=table, bars=bars)]


def _stage_seconds(run: Run) -> list[tuple[str, float]]:
    """What each stage takes of a delivered sample's time."""
    whole = quantity.usable(run.sample_s)
    shares = [(stage.stage, share_interval(stage)) for stage in run.stages] if whole is not None else []
    return [
        (name, share.value * whole.value) for name, share in shares if whole is not None and share is not None and share.value > 0
    ]


def _clock(run: Run, name: str) -> str:
    stage = next((stage for stage in run.stages if stage.stage == name), None)
    if stage is None or quantity.usable(stage.wall_s) is None:
        return ""
    return quantity.seconds_between(stage.wall_s) + (", hidden" if stage.hidden else "")
