"""What every page has: one file that opens anywhere, offline. It asks the network for nothing, and its policy forbids it to."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files

from pipefix.report.markup import Markup, Piece, el, join, name, text


def document(title: str, main: Iterable[Piece], footer: str, *, style: str = "", pictures: bool = False, data: str = "{}") -> str:
    """The whole page.

    Args:
        title: of the window.
        main: the page's content.
        footer: its last line.
        style: rules beside those of ``page.css``.
        pictures: whether it holds pictures, as ``data:`` addresses.
        data: JSON that the page's script reads; without the script the page is complete all the same.
    """
    style = _asset("page.css") + style
    script = _asset("page.js")
    allowed = ["default-src 'none'", f"style-src '{_digest(style)}'", f"script-src '{_digest(script)}'"]
    allowed += ["img-src data:"] if pictures else []
    policy = "; ".join([*allowed, "base-uri 'none'", "form-action 'none'"])
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="generator" content="pipefix"><meta name="color-scheme" content="light dark">'),
        el("title", title),
        Markup(f"<style>{style}</style>"),
    )
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    body = el(
        "body",
        el("a", "Skip to the figures", href="#figures", class_="skip"),
        el("main", main, id="figures"),
        el("footer", el("p", footer)),
        Markup(f'<script type="application/json" id="run">{data}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def section(anchor: str, title: str, body: Piece) -> Markup:
    return el("section", el("h2", title, id=f"{anchor}-title"), body, id=anchor, aria_labelledby=f"{anchor}-title")


def command(line: str) -> Markup:
    """A command that can be copied; its words are broken only where one is wider than the page."""
    words = [piece if piece.isspace() else el("span", piece) for piece in re.split(r"(\s+)", line) if piece]
    button = el("button", "Copy", type="button", class_="tool copy", aria_label="Copy this command")
    return el("div", el("pre", el("code", words), tabindex=0), button, class_="command")


def header(brand: str, title: str, *below: Piece, saves: bool = False) -> Markup:
    """The page's head. ``saves``: its data is a run file, which can be taken out of it."""
    buttons = [("theme", "Theme: system"), ("save", "Save run file"), ("print", "Print")]
    tools = [el("button", words, type="button", id=name_, class_="tool") for name_, words in buttons if saves or name_ != "save"]
    top = el("div", el("h1", el("span", brand, class_="brand"), name(title)), el("div", tools, class_="tools"), class_="top")
    return el("header", top, *below)


def labelled(label: str, *body: Piece) -> Markup:
    """A row of a card."""
    return join((el("dt", label), el("dd", *body)))


def tiles(figures: Iterable[tuple[str, str]]) -> Markup | None:
    """Labels with their figures; what a figure has in brackets is shown smaller."""
    made = []
    for label, said in figures:
        figure, opening, rest = said.partition(" (")
        small = el("span", f"({rest}", class_="interval") if opening else None
        made.append(
            el("div", el("span", label, class_="tile-label"), el("span", figure, class_="tile-figure"), small, class_="tile")
        )
    return el("div", made, class_="tiles") if made else None


def _asset(file: str) -> str:
    return files("pipefix.report").joinpath(file).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
