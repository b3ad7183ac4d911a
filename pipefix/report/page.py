"""Renders a document as one HTML page that opens offline: it asks the network for nothing, and its policy forbids it to.

Whatever is not the template's own is text from outside, cleaned and escaped. Without its script the page is complete and printable.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from pipefix.report.document import Bars, Document, Images
from pipefix.vocabulary.printable import printable_lines
from pipefix.vocabulary.stage import Stage


def page(document: Document) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    allowed = ["default-src 'none'", f"style-src '{_digest(style)}'", f"script-src '{_digest(script)}'"]
    if any(isinstance(block, Images) for section in document.sections for block in section.blocks):
        allowed.append("img-src data:")
    data = document.data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _template().render(
        document=document, sections=[section for section in document.sections if section.only != "terminal"],
        policy="; ".join([*allowed, "base-uri 'none'", "form-action 'none'"]),
        style=Markup(style), script=Markup(script), data=Markup(data),
    )  # fmt: skip


@functools.cache
def _template() -> jinja2.Template:
    house = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, undefined=jinja2.StrictUndefined, finalize=_clean, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    house.filters |= {"hue": _hue, "kind": lambda block: type(block).__name__, "parted": _parted}
    house.globals["at"] = _at
    return house.get_template("page.html")


def _clean(value: Any) -> Any:
    """What a string from outside may hold besides printable characters is shown as an escape."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return printable_lines(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _hue(stage: str) -> str:
    """The class of a stage's colour; stages that no version knows have one of their own."""
    return f"s-{stage}" if stage in {*map(str, Stage), "none", "wait"} else "s-other"


def _at(bars: Bars, figure: float) -> float:
    """Where on the axis a figure lies, in per cent; what is beyond every figure lies at the end."""
    low, high = bars.span
    if math.isnan(figure) or high <= low:
        return 0.0
    return min(max((figure - low) / (high - low), 0.0), 1.0) * 98


def _parted(text: str) -> tuple[str, str]:
    """A figure, and the bracket behind it."""
    figure, opening, rest = text.partition(" (")
    return (figure, opening.strip() + rest) if rest.endswith(")") else (text, "")


def _asset(name: str) -> str:
    return files("pipefix.report").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
