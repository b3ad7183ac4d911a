"""A stand-in for the library behind the commands: it keeps what it was asked, and answers as told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import pipefix
from pipefix.report.runfile import Run, read
from pipefix.report.shown import shown

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Library:
    """What the commands find in place of the library's functions."""

    answer: Any
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    """What happens while the call is under way."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.append((args, kwargs))
        if kwargs.get("progress"):
            kwargs["progress"]("reading samples", 0.5)
        self.meanwhile()
        return self.answer


@pytest.fixture
def a_run() -> Run:
    return read(ROOT / "fixtures" / "runs" / "decode-bound-workers.json")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, a_run: Run) -> Library:
    stand_in = Library(answer=shown(a_run))
    for name in ("probe", "doctor", "fix", "undo", "swap", "tune"):
        monkeypatch.setitem(vars(pipefix), name, stand_in.call)
    return stand_in


@pytest.fixture(autouse=True)
def targets_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are given names of files that nobody made: what becomes of a name is not the subject."""
    monkeypatch.setattr("pipefix.cli.main.named", lambda target: None)
