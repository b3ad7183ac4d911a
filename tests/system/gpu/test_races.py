"""On a fake device whose streams lag as far as they may, each step reads its own batch; and faults that would change that are seen.

Each lag hides faults that the other shows. A step that lags behind reads memory that was given away too early; of copies that lag,
it reads what is not there yet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import races
from tests.gpu.conftest import FakeDevice

LAGS = ("default", "side")


@pytest.mark.parametrize("lag", LAGS)
def test_every_step_reads_its_own_batch(lag: str, fake_device: FakeDevice) -> None:
    found = fake_device(races.walk, FAKE_MODE="race", FAKE_LAG=lag)
    assert found["wrong"] == []
    assert found["combinations"] > 200


@pytest.mark.parametrize("lag", LAGS)
def test_every_step_reads_its_own_fused_batch(lag: str, colours: Path, fake_device: FakeDevice) -> None:
    found = fake_device(races.fused, str(colours), FAKE_MODE="race", FAKE_LAG=lag)
    assert found["wrong"] == []
    assert all("by fused calls" in told for told in found["told"].values()), found["told"]
