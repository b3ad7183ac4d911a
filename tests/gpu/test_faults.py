"""A device that fails is told as such, with what to do: never as a bug of pipefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import faults
from tests.gpu.conftest import FakeDevice


@pytest.mark.parametrize(("step", "verb"), [("assertion", "tune"), ("too much", "probe")])
def test_what_a_step_does_wrong_on_the_device(step: str, verb: str, tmp_path: Path, fake_device: FakeDevice) -> None:
    faults.is_told(fake_device, tmp_path, step, verb)
