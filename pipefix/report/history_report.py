"""The document of ``pipefix log``: what was done in a folder, and what it saves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pipefix.report.document import Document, Paragraph, Section, fields, untitled
from pipefix.vocabulary import quantity


def report(
    done: Sequence[tuple[str, str, str, str]], saved_s: float | None, *, epochs: int | None = None, price: float | None = None
) -> Document:
    """``done``: when, what, on which target, and what came of it. ``saved_s``: seconds of each epoch."""
    if not done:
        nothing = "Nothing was done here: there is no run file, no plan and no log of pipefix fix."
        return Document(sections=[untitled(Paragraph(nothing))])
    sections = []
    for target, lines in itertools.groupby(done, key=lambda line: line[2]):
        rows = [(f"{at[:16].replace('T', ' '):<16}  {kind:<5}", text) for at, kind, _, text in lines]
        sections.append(Section(title=target or "an unnamed target", blocks=fields(rows)))
    if saved_s is not None and saved_s > 0:
        sections.append(untitled(Paragraph(worth(saved_s, epochs, price))))
    return Document(sections=sections)


def worth(saved_s: float, epochs: int | None, price: float | None) -> str:
    """``What fix kept saves 42.0 s an epoch, 1.1 h in 90 epochs, and 2.63 at 2.50 an hour.``"""
    phrases = [f"What fix kept saves {quantity.seconds(saved_s)} an epoch"]
    if epochs:
        phrases.append(f"{quantity.seconds(epochs * saved_s)} in {epochs:,} epochs")
    if price is not None:
        phrases.append(f"which is {(epochs or 1) * saved_s / 3600 * price:,.2f} at {price:,.2f} an hour")
    return ", ".join(phrases) + "."
