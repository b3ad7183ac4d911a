"""Trials in forked processes, where CUDA is awake in the process that forks and cannot be used in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import trials
from tests.gpu.conftest import FakeDevice


def test_a_fused_call_is_tried_for_loaders_that_pin_and_move(colours: Path, fake_device: FakeDevice) -> None:
    found = fake_device(trials.fused_call, str(colours))
    assert {name: why for name, why in found.items() if why} == {}


@pytest.mark.parametrize(("first", "can"), [("nothing", True), ("is_available", False), ("tensor", False)])
def test_a_process_that_has_asked_for_cuda_runs_no_trials(first: str, can: bool, fake_device: FakeDevice) -> None:
    """A forked trial would find CUDA unusable: `torch.cuda.is_available()` is enough for that."""
    before, after = fake_device(trials.forks, first)
    assert before is None
    assert (after is None) is can


def test_without_a_device_asking_for_one_changes_nothing(fake_device: FakeDevice) -> None:
    assert fake_device(trials.forks, "is_available", FAKE_DEVICES=0) == [None, None]


def test_importing_pipefix_leaves_the_driver_asleep(fake_device: FakeDevice) -> None:
    assert fake_device.owner == 0


def test_a_forked_process_cannot_use_a_driver_that_is_awake(fake_device: FakeDevice) -> None:
    """Of the fake device itself: what is tested here rests on it."""
    assert "Cannot re-initialize CUDA in forked subprocess" in fake_device(trials.driver_in_a_fork)
