"""HTML from pieces. Whatever is not `Markup` is text from outside and is escaped; there is no other way in."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from pipefix.vocabulary.terminal import printable_lines

_VOID = frozenset(("meta", "br", "hr", "line", "rect", "circle", "path"))
"""Elements that hold nothing: HTML's own, and the SVG shapes, which are closed by a slash."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Piece: TypeAlias = "str | Iterable[Piece] | None"
Value: TypeAlias = str | int | float | bool | None


def text(raw: str) -> Markup:
    """Text from outside: control characters and direction overrides shown, the rest escaped."""
    return Markup(html.escape(printable_lines(raw), quote=True))


def name(raw: str) -> Markup:
    """A name from outside, kept from turning the direction of the text around it."""
    return Markup(f"<bdi>{text(raw)}</bdi>")


def sentence(raw: str) -> Markup:
    """A sentence from outside: it runs left to right as ours do, whatever names are in it."""
    return Markup(f'<bdi dir="ltr">{text(raw)}</bdi>')


def join(pieces: Iterable[Piece]) -> Markup:
    return Markup("".join(map(_piece, pieces)))


def _piece(piece: Piece) -> str:
    if piece is None:
        return ""
    if isinstance(piece, Markup):
        return piece
    return text(piece) if isinstance(piece, str) else join(piece)


def el(tag: str, /, *children: Piece, **attributes: Value) -> Markup:
    """``el("p", "a < b", class_="x")``: None and False leave an attribute out; a trailing underscore is dropped."""
    written = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}/>") if not children else Markup(f"<{tag}{written}>{join(children)}</{tag}>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {key}"
    return f' {key}="{text(f"{value:.6g}" if isinstance(value, float) else str(value))}"'


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[Piece]], *, class_: str | None = None) -> Markup:
    """A plain table with a caption; the first cell of a row is its head."""
    body = []
    for row in rows:
        first, *rest = row
        body.append(el("tr", el("th", first, scope="row"), [el("td", cell) for cell in rest]))
    head = el("tr", [el("th", title, scope="col") for title in heads])
    made = el("table", el("caption", caption), el("thead", head), el("tbody", body), class_=class_)
    return el("div", made, class_="scroll", tabindex=0, role="region", aria_label=f"Table: {caption}")


def behind(summary: str, *children: Piece) -> Markup:
    """Something to unfold."""
    return el("details", el("summary", summary), *children)
