"""Figures that the device tests found, printed together at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_figures: list[tuple[str, str]] = []

Note = Callable[[str, str], None]


@pytest.fixture
def note() -> Note:
    """Say a figure in the summary: ``note("copy from pinned memory", "24 GB/s")``."""

    def add(name: str, value: str) -> None:
        _figures.append((name, value))

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _figures:
        return
    terminalreporter.section("figures of this device")
    width = max(len(name) for name, _ in _figures)
    for name, value in _figures:
        terminalreporter.write_line(f"{name:<{width}}  {value}")
