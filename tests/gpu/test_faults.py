"""A device that fails is told as such, with what to do: never as a bug of pipefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu import faults
from tests.gpu.conftest import FakeDevice

VERBS: dict[str, list[Any]] = {"probe": ["--budget", "60s"], "tune": ["--budget", "60s", "--trials", "2"]}
"""With more time than is spent: all is over when the step fails, which it does in its fifth call at the latest."""


@pytest.mark.parametrize(
    ("step", "said", "advice", "verb"),
    [
        ("assertion", "device-side assert triggered", "CUDA_LAUNCH_BLOCKING=1", "tune"),
        ("too much", "CUDA out of memory", "--batch-size N", "probe"),
    ],
)
def test_what_a_step_does_wrong_on_the_device(
    step: str, said: str, advice: str, verb: str, tmp_path: Path, fake_device: FakeDevice
) -> None:
    found = fake_device(faults.run, str(tmp_path), step, verb, *VERBS[verb], FAKE_GIB=1)
    assert found["code"] == 3, found["said"]
    assert "The consumer (train_step) raised" in found["said"]
    assert said in found["said"]
    assert advice in found["said"]
