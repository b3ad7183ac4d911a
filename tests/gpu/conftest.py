"""Figures that the device tests found, printed together at the end of the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

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
    kept = os.environ.get("PIPEFIX_FIGURES")
    if kept:
        rows = "\n".join(f"| {name} | {value} |" for name, value in _figures)
        device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no device"
        Path(kept).write_text(f"# Figures of a device\n\n`scripts/gpu_check`, {device}.\n\n| figure | value |\n|---|---|\n{rows}\n")
