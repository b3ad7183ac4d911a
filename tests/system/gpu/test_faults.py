"""A device that fails is told as such, with what to do: never as a bug of pipefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import faults
from tests.gpu.conftest import FakeDevice


@pytest.mark.parametrize("verb", faults.VERBS)
@pytest.mark.parametrize("step", faults.TOLD)
def test_what_a_step_does_wrong_on_the_device(step: str, verb: str, tmp_path: Path, fake_device: FakeDevice) -> None:
    faults.is_told(fake_device, tmp_path, step, verb)


def test_without_room_for_a_batch_its_copy_is_not_measured(tmp_path: Path, fake_device: FakeDevice) -> None:
    found = fake_device(faults.run, str(tmp_path), "nothing", "probe", "--budget", "4s", "--full", FAKE_GIB=0.004)
    assert found["code"] == 0, found["said"]
    assert "the device has no room for a batch" in " ".join(found["said"].split())
