"""Where the time of a sample goes: each stage with its share, the sampler, and what belongs to neither."""

from __future__ import annotations

from collections.abc import Iterator

from pipefix.report.document import Bar, BarPart, Bars, Block, Paragraph, Table, chart
from pipefix.report.runfile import GainFigures, Run, StageFigures
from pipefix.vocabulary import quantity

SHOWN = 0.02
"""Part of the time from which on the sampler has a row of its own."""


def stages(run: Run) -> list[Block]:
    """The table and its chart; nothing where no stage was measured."""
    if not run.stages:
        return []
    bars = [_stage(stage, run) for stage in run.stages]
    left, sampling = unattributed_share(run), _sampler_share(run)
    total, rest = quantity.usable(run.sample_s), run.unattributed_s
    if sampling and total is not None and rest is not None:
        rest = max(0.0, rest - sampling * total.value)
        takes, free = quantity.seconds_between(run.sampler_s), dash(if_free(run.sampler_gain))
        cells = ["sampler", quantity.percent(sampling), takes, "-", "-", free]
        bars.append(Bar(cells=cells, value=quantity.exactly(sampling), stage="none", title="The sampler, in the training process"))
        left = (left or 0.0) - sampling
    cells = ["unattributed", dash(quantity.percent(left)), dash(quantity.seconds(rest)), "-", "-", "-"]
    bars.append(Bar(cells=cells, value=quantity.exactly(left or 0.0), stage="none", title="What belongs to no stage"))
    if total is not None:
        parts = list(_together(run, sampling, left))
        cells = ["delivered", "-", quantity.seconds_between(total), "-", "-", "-"]
        bars.append(Bar(cells=cells, value=None if parts else quantity.exactly(0.0), parts=parts, title="All stages together"))
    columns = ["stage", "share", "wall/sample", "CPU", "bytes", "if it were free"]
    drawn = chart(columns, bars, "lrrrrr", "Stages", ["bytes", "CPU", "if it were free"], inline=True)
    lead = [f"One sample is delivered every {quantity.seconds_between(total)}."] if total is not None else []
    if any(stage.hidden for stage in run.stages):
        lead.append("A hidden stage runs beside something slower and costs nothing now.")
    return [drawn, *([Paragraph(" ".join(lead), "soft")] if lead else [])]


def _stage(stage: StageFigures, run: Run) -> Bar:
    if stage.declined is not None:
        return Bar(cells=[stage.stage], note=f"declined: {stage.declined}")
    share = share_interval(stage)
    cpu, percent = quantity.seconds(stage.cpu_s.value if stage.cpu_s else None), quantity.percent(stage.share)
    figures = (percent, quantity.seconds_between(stage.wall_s), cpu, quantity.size(stage.bytes), if_free(stage.marginal_gain))
    cells = [stage.stage, *map(dash, figures if not stage.hidden else ("hidden", *figures[1:]))]
    marked = run.verdict is not None and stage.stage == run.verdict.stage
    title = f"{stage.stage}: {quantity.percent_between(share) if share is not None else cells[1]}"
    return Bar(cells=cells, value=share or quantity.exactly(0.0), stage=stage.stage, marked=marked, title=title)


def _together(run: Run, sampling: float, left: float | None) -> Iterator[BarPart]:
    """The whole of a sample's delivered time in its parts, one behind the other."""
    at = 0.0
    shares = [(stage.stage, share.value) for stage in run.stages if (share := share_interval(stage)) is not None]
    for name, part in [*shares, ("sampler", sampling), ("unattributed", left or 0.0)]:
        if 0 < part < 2:
            kind = "none" if name in ("sampler", "unattributed") else name
            yield BarPart(at, at + part, kind, f"{name}: {quantity.percent(part)}")
            at += part


def share_interval(stage: StageFigures) -> quantity.Interval | None:
    """The share with the wall clock's relative interval around it; None where it costs nothing now, or is not known."""
    if stage.hidden or stage.share is None or not quantity.known(stage.share):
        return None
    wall = quantity.usable(stage.wall_s)
    if wall is None or wall.value <= 0:
        return quantity.exactly(stage.share)
    return quantity.Interval(stage.share, stage.share * wall.low / wall.value, stage.share * wall.high / wall.value)


def if_free(gain: GainFigures | None) -> str:
    """What a free stage would win: measured, or at most what its part of the time leaves where no arm ran."""
    return f"at most {quantity.times(gain.at_most)}" if gain is not None and gain.at_most else quantity.times_between(gain)


def unattributed_share(run: Run) -> float | None:
    """The part of the delivered time that belongs to no stage."""
    total = quantity.usable(run.sample_s)
    if run.unattributed_s is None or not quantity.known(run.unattributed_s) or total is None or total.value <= 0:
        return None
    return run.unattributed_s / total.value


def _sampler_share(run: Run) -> float:
    """The part of it that the sampler takes; 0 where that is next to nothing, or runs beside something slower."""
    left, total, sampler = unattributed_share(run), quantity.usable(run.sample_s), quantity.usable(run.sampler_s)
    if left is None or total is None or sampler is None:
        return 0.0
    share = min(left, sampler.value / total.value)
    return share if share >= SHOWN and sampler.value <= (1 + SHOWN) * left * total.value else 0.0


def dash(text: str) -> str:
    """In the place of a figure that is not known."""
    return "-" if text == quantity.UNKNOWN else text


_ONE_SCALE = "Seconds of a delivered sample by stage, drawn to one scale; a stage that runs beside something slower is left out."


def side_by_side(before: Run | None, after: Run | None) -> list[Block]:
    """The stages of two runs drawn to one scale, with a table behind."""
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
    return [Paragraph(_ONE_SCALE, "soft"), Bars(table=table, bars=bars)]


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
