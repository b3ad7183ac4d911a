"""Copies begin while the step before runs, whatever makes the batches; what they read is pinned beside the training thread."""

from __future__ import annotations

import pytest

from tests.gpu import ahead
from tests.gpu.conftest import FakeDevice


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize(("engine", "workers"), [("processes", 1), ("processes", 2), ("processes", 8), ("torch", 3)])
def test_nearly_all_copies_begin_ahead(engine: str, workers: int, pin: bool, fake_device: FakeDevice) -> None:
    found = fake_device(ahead.begun, engine, workers, pin, 100)
    assert found["batches"] == 100
    assert found["ahead"] >= 95
    assert found["pinned"] == 0
