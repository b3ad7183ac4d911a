"""Planted pipelines, with their counters at zero and everything they patched put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipefix.measurement.worker_probe import close_fetchers
from tests.doubles.ticks import MEASUREMENT, Ticks
from tests.measurement import planted


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_fetchers()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """A clock that only work moves."""
    clock = Ticks(0.0).given_to(MEASUREMENT, monkeypatch)
    monkeypatch.setattr(planted, "burn", clock.passes)
    return clock


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[list[str]]:
    """Two dozen tiny files, with the counters at zero."""
    planted.forget_calls()
    yield planted.files(tmp_path)
    planted.forget_calls()
