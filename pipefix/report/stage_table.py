"""The table of stages for the terminal: bar, share, clocks, bytes and what a free stage would win."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pipefix.report import wording
from pipefix.report.columns import Paint, bar, cells, clip, left, right, wrap
from pipefix.report.runfile import Run, StageFigures

_WIDEST_BAR = 24
_NARROWEST_BAR = 6
_WIDEST_NAME = 16
_LOSABLE = ("bytes", "CPU", "if it were free")
"""Columns left out, in this order, where the width does not hold them all."""


class _Row(msgspec.Struct, frozen=True):
    name: str
    filled: float
    """Part of the bar."""
    figures: dict[str, str]
    """By column title; a title that is missing is a dash."""
    marked: bool = False


def _share(stage: StageFigures) -> str:
    return "hidden" if stage.hidden else wording.percent(stage.share)


def if_free(stage: StageFigures) -> str:
    """What a free stage would win: measured, or at most what its part of the time leaves where no arm ran."""
    if stage.marginal_gain is None and wording.known(stage.gain_at_most):
        return f"at most {wording.times(stage.gain_at_most)}"
    return wording.times_between(stage.marginal_gain)


_COLUMNS: dict[str, Callable[[StageFigures], str]] = {
    "share": _share,
    "wall/sample": lambda stage: wording.seconds_between(stage.wall_s),
    "CPU": lambda stage: wording.seconds(stage.cpu_s.value if stage.cpu_s else None),
    "bytes": lambda stage: wording.size(stage.bytes),
    "if it were free": if_free,
}


def stage_table(run: Run, paint: Paint) -> Iterator[str]:
    if not run.stages:
        return
    rows = [_row(stage, run) for stage in run.stages if stage.declined is None]
    rows.append(_unattributed(run))
    names = min(max(cells(paint.text(stage.stage)) for stage in run.stages), _WIDEST_NAME)
    names = max(names, cells("unattributed"))
    widths, drawn = _fit(rows, paint.width - 2 - names)
    head = "".join("  " + right(title, wide) for title, wide in widths.items())
    yield paint.ink(clip(" " * (2 + names + 2 + drawn) + head, paint.width), "dim")
    measured = iter(rows)
    for stage in run.stages:
        if stage.declined is not None:
            yield from _declined(stage, paint, names)
        else:
            yield _line(next(measured), names, drawn, widths, paint)
    yield _line(next(measured), names, drawn, widths, paint)
    if wording.usable(run.sample_s) is not None:
        yield clip(f"  delivered: one sample every {wording.seconds_between(run.sample_s)}", paint.width)


def _row(stage: StageFigures, run: Run) -> _Row:
    filled = 0.0 if stage.hidden or stage.share is None or not wording.known(stage.share) else stage.share
    figures = {title: show(stage) for title, show in _COLUMNS.items()}
    return _Row(stage.stage, filled, _known(figures), run.verdict is not None and stage.stage == run.verdict.stage)


def _unattributed(run: Run) -> _Row:
    share = unattributed_share(run)
    return _Row(
        "unattributed", share or 0.0, _known({"share": wording.percent(share), "wall/sample": wording.seconds(run.unattributed_s)})
    )


def unattributed_share(run: Run) -> float | None:
    """Part of the delivered time that belongs to no stage."""
    total = wording.usable(run.sample_s)
    if run.unattributed_s is None or not wording.known(run.unattributed_s) or total is None or total.value <= 0:
        return None
    return run.unattributed_s / total.value


def _known(figures: dict[str, str]) -> dict[str, str]:
    return {title: figure for title, figure in figures.items() if figure != wording.UNKNOWN}


def _fit(rows: list[_Row], room: int) -> tuple[dict[str, int], int]:
    """The columns that somebody has a figure for and that fit, their widths, and the cells left for the bar."""
    titles = [title for title in _COLUMNS if any(title in row.figures for row in rows)]
    widths = {title: max(len(title), *(cells(row.figures.get(title, "-")) for row in rows)) for title in titles}
    for lost in ("", *_LOSABLE):
        widths.pop(lost, None)
        drawn = room - 2 - sum(wide + 2 for wide in widths.values())
        if drawn >= _NARROWEST_BAR:
            break
    return widths, min(max(drawn, 0), _WIDEST_BAR)


def _line(row: _Row, names: int, drawn: int, widths: dict[str, int], paint: Paint) -> str:
    figures = "".join("  " + right(row.figures.get(title, "-"), wide) for title, wide in widths.items())
    text = left(paint.text(row.name), names) + "  " + bar(row.filled, drawn, unicode=paint.unicode) + figures
    return "  " + paint.ink(clip(text, paint.width - 2), *(("bold", "red") if row.marked else ()))


def _declined(stage: StageFigures, paint: Paint, names: int) -> Iterator[str]:
    for number, row in enumerate(wrap(paint.text(f"declined: {stage.declined}"), paint.width - 4 - names)):
        yield "  " + left("" if number else paint.text(stage.stage), names) + "  " + paint.ink(row, "dim")
