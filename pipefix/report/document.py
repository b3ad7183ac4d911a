"""What a report is made of: blocks of plain data, which `terminal` prints and `page` draws. Knows nothing of runs.

Text in a block is text from anywhere: both renderers show it as the characters it is, never as markup or as a terminal's code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from pipefix.vocabulary.quantity import Interval

COLOURS = {"input-bound": "bad", "step-bound": "good", "balanced": "good", "inconclusive": "warn"}
"""Of the kinds of verdict."""


class Paragraph(msgspec.Struct, frozen=True, tag=True):
    text: str
    style: str = ""
    """strong, soft, good, bad, warn, note or to-do; several with blanks between them."""


class CommandLine(msgspec.Struct, frozen=True, tag=True):
    """What to paste: never broken, with a button to copy it on the page."""

    text: str


class Points(msgspec.Struct, frozen=True, tag=True):
    texts: list[str]


class Table(msgspec.Struct, frozen=True, tag=True):
    """Words in columns; a column whose letter in ``align`` is r holds figures."""

    columns: list[str]
    rows: list[list[str]]
    align: str = ""
    optional: list[str] = []
    """Columns left out, in this order, on a terminal that does not hold them all."""
    caption: str = ""


class BarPart(msgspec.Struct, frozen=True):
    """A part of a bar, or of a lane in time."""

    begin: float
    end: float
    stage: str
    title: str = ""
    top: float = 0.0
    """Where it begins and ends in the height of the bar, 0 being its upper edge."""
    bottom: float = 1.0


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a chart and of the table behind it."""

    cells: list[str]
    """Its name, then its figures: the first two of these stand beside the bar."""
    value: Interval | None = None
    points: list[float] = []
    """Every block's figure; `value` is then their median."""
    parts: list[BarPart] = []
    stage: str = ""
    modelled: bool = False
    """Nothing of the kind ran: it is drawn pale."""
    marked: bool = False
    title: str = ""
    note: str = ""
    """Why there is nothing to draw."""


class Bars(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A chart and the table behind it."""

    table: Table
    """Its columns; the rows are the bars' cells."""
    bars: list[Bar]
    start: float = 0.0
    """Where the bars begin: 0 for amounts, 1 for ratios."""
    inline: bool = False
    """Whether a terminal has room for the bars too."""
    first: int | None = None
    """A terminal shows the first so many alone."""
    ends: tuple[str, str] | None = None
    """What the two ends of the axis are called, where the figures beside the bars do not say it."""

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest figure of the chart."""
        figures = [self.start]
        for bar in self.bars:
            figures += [bar.value.value, bar.value.low, bar.value.high] if bar.value is not None else []
            figures += [*bar.points, *(part.end for part in bar.parts)]
        known = [figure for figure in figures if math.isfinite(figure) and abs(figure) < 1e300]
        return min(known), max(known)


class Timeline(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Columns side by side, of a strong lower and a pale upper part. On pages only."""

    columns: list[tuple[float, float]]
    titles: list[str] = []
    top: str
    """What the highest column reaches."""
    ends: list[str]
    """Below: from the first to the last column."""
    title: str


class Image(msgspec.Struct, frozen=True):
    caption: str
    png: str
    """In base64."""


class Images(msgspec.Struct, frozen=True, tag=True):
    """On pages only."""

    rows: list[list[Image]]


class Field(msgspec.Struct, frozen=True):
    """A label and what belongs to it."""

    label: str
    blocks: list[Paragraph | CommandLine | Points]


class Fields(msgspec.Struct, frozen=True, tag=True):
    rows: list[Field]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One of a list: a head, a figure at its end, and what is to be said of it."""

    text: str
    style: str = ""
    tag: str = ""
    """A word before it, such as how severe it is; it gives its colour."""
    figure: str = ""
    certain: bool = False
    """The figure is of what really ran."""
    blocks: list[Paragraph | CommandLine] = []


class Items(msgspec.Struct, frozen=True, tag=True):
    items: list[Item]
    numbered: bool = False


Block: TypeAlias = Paragraph | CommandLine | Points | Table | Bars | Timeline | Images | Fields | Items


class Section(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    blocks: Sequence[Block]
    only: str = ""
    """page or terminal, where it is for one of them."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    command: str = ""
    """What was typed: pipefix probe; empty where no head is to be shown."""
    target: str = ""
    created: str = ""
    about: list[str] = []
    """What was looked at, and on what."""
    warning: str = ""
    kind: str = ""
    """good, bad or warn: the colour of the card."""
    badge: str = ""
    """The kind of the verdict."""
    card: list[Field] = []
    """What a person reads first."""
    card_last: bool = False
    """A terminal shows it last, where the eyes are when a long text has run through."""
    tiles: list[tuple[str, str]] = []
    """The figures of the page's card: what, and how much."""
    sections: list[Section] = []
    after: list[Paragraph] = []
    """Below everything, on the terminal."""
    version: str = ""
    data: str = "{}"
    """The run file, as JSON, that the page holds."""


def filled(*listed: tuple[str, Sequence[Block], str]) -> list[Section]:
    """Sections of a title, blocks, and the one renderer that they are for (empty: both); those without blocks are left out."""
    return [Section(title=title, blocks=blocks, only=only) for title, blocks, only in listed if blocks]


def untitled(*blocks: Block) -> Section:
    """Blocks below no title."""
    return Section(title="", blocks=list(blocks))


def chart(columns: list[str], bars: list[Bar], align: str, caption: str, optional: Sequence[str] = (), **how: Any) -> Bars:
    """These bars, and the table of their cells behind them; where a bar has no figures, it says why."""
    rows = [bar.cells if len(bar.cells) > 1 else [*bar.cells, bar.note, *[""] * (len(columns) - 2)] for bar in bars]
    return Bars(table=Table(columns, rows, align, list(optional), caption), bars=bars, **how)


def field(label: str, text: str, style: str = "") -> Field:
    return Field(label, [Paragraph(text, style)])


def fields(pairs: Sequence[tuple[str, str]]) -> list[Block]:
    """Labels with a sentence or a figure each; nothing where there are none."""
    return [Fields([field(label, text) for label, text in pairs])] if pairs else []


def points(texts: Sequence[str]) -> list[Points]:
    return [Points(list(texts))] if texts else []


def to_do(text: str | None) -> list[Paragraph | CommandLine]:
    """A command to paste, or what to do in words: those begin with a word that has a capital, and are broken like any text."""
    if not text:
        return []
    first = text.partition(" ")[0]
    return [Paragraph(text, "to-do") if first.isalpha() and first[0].isupper() else CommandLine(text)]


def sentence(text: str) -> str:
    """With its full stop."""
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."
