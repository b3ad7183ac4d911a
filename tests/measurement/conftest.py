"""Planted pipelines, with their counters at zero and everything they patched put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipefix.measurement.worker_probe import close_fetchers
from tests.measurement import planted


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[list[str]]:
    """Two dozen tiny files, with the counters at zero."""
    planted.forget_calls()
    yield planted.files(tmp_path)
    close_fetchers()
    planted.forget_calls()
