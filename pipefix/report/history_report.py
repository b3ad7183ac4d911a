"""The document of ``pipefix log``: what was done in a folder, and what it saves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from pipefix.report.document import Document, Paragraph, Section, fields, untitled
from pipefix.vocabulary import quantity


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done."""

    at: str
    """ISO 8601; empty where the file does not say."""
    what: str
    """probe, run, fix or plan."""
    target: str
    said: str
    where: str = ""
    """The file that tells it."""


def report(done: Sequence[Done], saved_s: float | None, *, epochs: int | None = None, price: float | None = None) -> Document:
    """``saved_s``: seconds of each epoch."""
    if not done:
        nothing = "Nothing was done here: there is no run file, no plan and no log of pipefix fix."
        return Document(sections=[untitled(Paragraph(nothing))])
    sections = []
    for target, deeds in itertools.groupby(done, key=lambda deed: deed.target):
        rows = [(f"{deed.at[:16].replace('T', ' '):<16}  {deed.what:<5}", deed.said) for deed in deeds]
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
