"""The page's figures as SVG. Lengths are per cent of the space there is, so a figure is sharp and readable at any width.

A figure is a column of rows (label, plot, figure in words) over one axis; rows stack on a telephone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pipefix.report import wording
from pipefix.report.markup import Markup, Piece, el, join
from pipefix.report.runfile import Waits
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import ORDER

ROW = 34
"""Height of a row in pixels."""
_BAR = 14
_SEGMENT = 18
_LOG_FROM = 8.0
"""Figures whose largest is this many times the smallest are drawn on a logarithmic axis."""
_COLUMNS = 400
"""The timeline is drawn with at most so many columns; zooming in shows each batch."""
_KNOWN = frozenset(str(stage) for stage in ORDER)


def hue(stage: str) -> str:
    """The style class that colours a stage."""
    return f"s-{stage}" if stage in _KNOWN else "s-other"


class Scale(msgspec.Struct, frozen=True):
    """From a figure to a place on the axis, in per cent."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return 0.0 if high <= low else min(max((value - low) / (high - low), 0.0), 1.0) * 100

    @property
    def ticks(self) -> list[float]:
        if self.log:
            decade = math.floor(math.log10(self.low))
            found = [m * 10.0**d for d in range(decade, math.ceil(math.log10(self.high)) + 1) for m in (1, 2, 5)]
            kept = [tick for tick in found if self.low <= tick <= self.high * 1.0001]
            return kept if len(kept) <= 6 else [tick for tick in kept if f"{tick:e}"[0] == "1"] or kept[::2]
        step = _nice((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _nice(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    if rough <= 0 or not math.isfinite(rough):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def spanning(values: Sequence[float], *, base: float) -> Scale:
    """An axis from ``base`` (0 for amounts, 1 for ratios) that holds all values, logarithmic where they differ much."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    high = max([*finite, base], default=base)
    low = min([*finite, base]) if base > 0 else 0.0
    smallest = min(finite, default=high)
    if finite and high / smallest >= _LOG_FROM and (base > 0 or len(finite) > 1):
        return Scale(low if base > 0 else smallest / 1.3, high * 1.15, True)
    step = _nice((high - low) / 4 or 1.0)
    return Scale(low * 0.98 if low < base else low, max(math.ceil(high / step - 1e-9) * step, low + step))


class PlotRow(msgspec.Struct, frozen=True, kw_only=True):
    label: Markup
    said: Markup
    """The figure in words, at the right."""
    shapes: Markup = Markup("")
    title: str = ""
    """Shown while the pointer rests on the plot."""
    note: Markup = Markup("")
    """Instead of a plot: why there is none."""


def chart(rows: Sequence[PlotRow], scale: Scale, *, axis: str, ticks: Sequence[str]) -> Markup:
    """Rows over an axis. ``ticks`` are the texts of the scale's ticks."""
    places = [_percent(scale.at(tick)) for tick in scale.ticks]
    grid = join(el("line", x1=place, x2=place, y1=0, y2="100%", class_="grid") for place in places)
    made: list[Piece] = []
    for row in rows:
        if row.note:
            made.append(
                el("div", el("span", row.label, class_="label"), el("span", row.note, class_="note"), class_="row declined")
            )
            continue
        plot = el(
            "svg", grid, row.shapes, el("title", row.title) if row.title else None, height=ROW, class_="plot", aria_hidden="true"
        )
        made.append(el("div", el("span", row.label, class_="label"), plot, el("span", row.said, class_="said"), class_="row"))
    if any(not row.note for row in rows):
        made.append(_axis(scale, ticks, f"{axis} (logarithmic)" if scale.log else axis))
    return el("div", made, class_="chart")


def _axis(scale: Scale, ticks: Sequence[str], axis: str) -> Markup:
    texts = []
    for tick, said in zip(scale.ticks, ticks, strict=True):
        place = scale.at(tick)
        anchor = "start" if place < 4 else "end" if place > 94 else "middle"
        texts.append(el("text", said, x=_percent(place), y=13, text_anchor=anchor))
    drawn = el("svg", texts, height=18, class_="plot axis", aria_hidden="true")
    return el("div", el("span", class_="label"), drawn, el("span", axis, class_="said"), class_="row axis-row")


def _percent(value: float) -> str:
    return f"{value:.3f}%"


def bar(scale: Scale, interval: Interval, *, base: float, class_: str) -> Markup:
    """A bar from the base to the estimate, and a whisker from one end of the interval to the other."""
    from_, to = sorted((scale.at(base), scale.at(interval.value)))
    top = (ROW - _BAR) / 2
    drawn = el("rect", x=_percent(from_), width=_percent(max(to - from_, 0.15)), y=top, height=_BAR, rx=2, class_=f"bar {class_}")
    return join((drawn, whisker(scale, interval)))


def whisker(scale: Scale, interval: Interval) -> Markup:
    low, high = (_percent(scale.at(end)) for end in (_finite(interval.low, scale.low), _finite(interval.high, scale.high)))
    if low == high:
        return Markup("")
    middle, top, bottom = ROW / 2, ROW / 2 - 5, ROW / 2 + 5
    lines = [el("line", x1=low, x2=high, y1=middle, y2=middle)]
    lines += [el("line", x1=end, x2=end, y1=top, y2=bottom) for end in (low, high)]
    return el("g", lines, class_="whisker")


def _finite(value: float, instead: float) -> float:
    return value if math.isfinite(value) else instead


def baseline(scale: Scale, value: float) -> Markup:
    place = _percent(scale.at(value))
    return el("line", x1=place, x2=place, y1=0, y2="100%", class_="baseline")


def dots(scale: Scale, values: Sequence[float], middle: float | None) -> Markup:
    """Every value a dot, set apart a little so that equal ones are seen; the median a tall line."""
    drawn = []
    for number, value in enumerate(values):
        lift = (number * 7) % 5 - 2
        drawn.append(el("circle", cx=_percent(scale.at(value)), cy=ROW / 2 + 3 * lift, r=3.2, class_="dot"))
    if middle is not None:
        place = _percent(scale.at(middle))
        drawn.append(el("line", x1=place, x2=place, y1=3, y2=ROW - 3, class_="median"))
    return join(drawn)


def segment(at: float, width: float, class_: str, words: str) -> Markup:
    """A part of a row's bar, in per cent of the axis, with its words on hover."""
    y = (ROW - _SEGMENT) / 2
    return el("rect", el("title", words), x=_percent(at), width=_percent(width), y=y, height=_SEGMENT, class_=f"part {class_}")


class BarPart(msgspec.Struct, frozen=True):
    size: float
    class_: str
    title: str


def stacked(parts: Sequence[BarPart], whole: float, *, height: int, label: str | None) -> Markup:
    """One bar of several parts, each with its words on hover."""
    at, drawn = 0.0, []
    for part in parts:
        if not math.isfinite(part.size) or part.size <= 0 or whole <= 0:
            continue
        width = min(part.size / whole * 100, 100 - at)
        rect = el(
            "rect", el("title", part.title), x=_percent(at), width=_percent(width), y=0, height="100%", class_=f"part {part.class_}"
        )
        drawn.append(rect)
        at += width
    role = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return el("svg", drawn, height=height, class_="stacked", **role)


def histogram(edges: Sequence[float], counts: Sequence[int], label: str) -> Markup:
    """Counts as columns between their bounds, which lie in equal steps on the axis."""
    most, width = max(counts), 1000 / len(counts)
    drawn = []
    for number, count in enumerate(counts):
        words = f"{wording.seconds(edges[number])} to {wording.seconds(edges[number + 1])}: {wording.counted(count, 'sample')}"
        high = 100 * count / most
        place = {"x": width * number, "y": 100 - high, "width": 0.9 * width, "height": high}
        drawn.append(el("rect", el("title", words), **place, class_="s-decode"))
    svg = el("svg", drawn, viewBox="0 0 1000 100", preserveAspectRatio="none", class_="timeline", role="img", aria_label=label)
    middle = len(counts) // 2
    ends = [el("span", wording.seconds(edge)) for edge in (edges[0], edges[middle], edges[-1])]
    scale = el("div", el("span", wording.number(most)), el("span", "0"), class_="t-scale", aria_hidden="true")
    return el("div", scale, svg, el("div", ends, class_="t-foot", aria_hidden="true"), class_="t-plot")


def timeline(waits: Waits) -> Markup:
    """Wait (below) and step (on top) of each batch; the page's script redraws it when it is zoomed."""
    pairs = timeline_pairs(waits)
    size = max(1, math.ceil(len(pairs) / _COLUMNS))
    groups = [pairs[at : at + size] for at in range(0, len(pairs), size)]
    columns = [max(group, key=lambda pair: pair[0]) for group in groups]
    top = max((wait + step for wait, step in columns), default=0.0) or 1.0
    paths = {"wait": "", "step": ""}
    for number, (wait, step) in enumerate(columns):
        x, y = 1000 * number / len(columns), 100 * wait / top
        wide = 1000 / len(columns) * (0.82 if len(columns) < 150 else 1.0)
        paths["wait"] += f"M{x:.2f} 100h{wide:.2f}V{100 - y:.2f}h-{wide:.2f}z"
        if step > 0:
            high = 100 * step / top
            paths["step"] += f"M{x:.2f} {100 - y:.2f}h{wide:.2f}v-{high:.2f}h-{wide:.2f}z"
    shapes = [el("path", d=path, class_=f"t-{kind}") for kind, path in paths.items()]
    drawn = el(
        "svg", shapes, el("line", x1=0, x2=0, y1=0, y2=100, class_="cursor"), viewBox="0 0 1000 100", preserveAspectRatio="none",
        class_="timeline", role="img", tabindex=0, aria_label=f"The consumer's wait for each of {len(pairs)} batches"
    )  # fmt: skip
    scale = el("div", el("span", wording.seconds(top), id="t-top"), el("span", "0"), class_="t-scale", aria_hidden="true")
    ends = (el("span", "batch 1", id="t-first"), el("span", f"batch {len(pairs):,}", id="t-last"))
    foot = el("div", ends, class_="t-foot", aria_hidden="true")
    return el("div", scale, drawn, foot, class_="t-plot")


def timeline_pairs(waits: Waits) -> list[tuple[float, float]]:
    """Wait and step of each batch, unknown ones as nothing."""
    steps = list(waits.step_s) + [0.0] * (len(waits.wait_s) - len(waits.step_s))
    return [
        (wait if math.isfinite(wait) and wait > 0 else 0.0, step if math.isfinite(step) and step > 0 else 0.0)
        for wait, step in zip(waits.wait_s, steps, strict=False)
    ]
