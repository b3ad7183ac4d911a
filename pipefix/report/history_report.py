"""The document of ``pipefix log``: what was done in a folder, and what it saves."""

from __future__ import annotations

import datetime
import itertools

import msgspec

from pipefix.report.document import Document, Paragraph, Section, fields, untitled
from pipefix.vocabulary import quantity


class Done(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    """ISO 8601; empty where the file does not say."""
    what: str
    """probe, run, fix or plan."""
    target: str
    said: str
    where: str = ""
    """The file that tells it."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    done: list[Done]
    """The earliest first."""
    saved_of_an_epoch_s: float | None
    """Seconds that the steps which fix kept save of each epoch; None where the files do not tell."""


_UNTOLD = (
    "What fix kept saves cannot be told: nothing that it kept is in effect, it was interrupted before the whole was measured, or "
    "no run file here tells how long an epoch is."
)
_NOTHING = "What fix kept saves nothing of an epoch: with all of it, the pipeline was last measured to be no quicker than without."


def report(history: History, *, epochs: int | None = None, price: float | None = None) -> Document:
    """``epochs`` that are to come, and the price of an hour of the machine."""
    if not history.done:
        nothing = "Nothing was done here: there is no run file, no plan and no log of pipefix fix."
        return Document(sections=[untitled(Paragraph(nothing))])
    sections = []
    for target, deeds in itertools.groupby(history.done, key=lambda deed: deed.target):
        rows = [(f"{_local(deed.at):<16}  {deed.what:<5}", deed.said) for deed in deeds]
        sections.append(Section(title=target or "an unnamed target", blocks=fields(rows)))
    saved = history.saved_of_an_epoch_s
    if saved is not None and saved > 0:
        sections.append(untitled(Paragraph(_worth(saved, epochs, price))))
    elif epochs is not None or price is not None:
        sections.append(untitled(Paragraph(_UNTOLD if saved is None else _NOTHING)))
    return Document(sections=sections)


def _local(at: str) -> str:
    """A moment by the clock of who reads it: the files name it by UTC or by the clock of another machine."""
    try:
        return datetime.datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return at[:16]


def _worth(saved_s: float, epochs: int | None, price: float | None) -> str:
    """``What fix kept saves 42.0 s an epoch, 1.1 h in 90 epochs, and 2.63 at 2.50 an hour.``"""
    phrases = [f"What fix kept saves {quantity.seconds(saved_s)} an epoch"]
    if epochs:
        phrases.append(f"{quantity.seconds(epochs * saved_s)} in {quantity.counted(epochs, 'epoch')}")
    if price is not None:
        phrases.append(f"which is {(epochs or 1) * saved_s / 3600 * price:,.2f} at {price:,.2f} an hour")
    return ", ".join(phrases) + "."
