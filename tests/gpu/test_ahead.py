"""Copies begin while the step before runs, whatever makes the batches; what they read is pinned beside the training thread."""

from __future__ import annotations

import pytest

from tests.gpu import ahead
from tests.gpu.conftest import FakeDevice


@pytest.mark.parametrize(("engine", "workers", "pin"), [("processes", 2, True), ("torch", 2, False)])
def test_copies_begin_ahead(engine: str, workers: int, pin: bool, fake_device: FakeDevice) -> None:
    found = fake_device(ahead.begun, engine, workers, pin, 20)
    assert found["batches"] == 20
    assert found["ahead"] > 0, "how many depends on how soon the next batch is there; tests/system/gpu asks"
    assert found["pinned"] == 0


def test_each_epoch_uses_the_memory_of_the_one_before(fake_device: FakeDevice) -> None:
    reserved = fake_device(ahead.memory_of_epochs)
    assert reserved[-1] == reserved[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_that_a_probe_keeps_stay_pinned(workers: int, fake_device: FakeDevice) -> None:
    pinned = fake_device(ahead.kept_batch, workers)
    assert pinned
    assert all(pinned)
