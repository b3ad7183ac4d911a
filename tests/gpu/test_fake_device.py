"""The fake device does what tests rely on: times, streams, several devices, errors, forks, and what NVML says of it."""

from __future__ import annotations

import pytest

from tests.gpu import probing
from tests.gpu.conftest import FakeDevice


def test_importing_pipefix_leaves_the_driver_asleep(fake_device: FakeDevice) -> None:
    assert fake_device.owner == 0


def test_work_has_a_place_on_its_streams_time_line(fake_device: FakeDevice) -> None:
    found = fake_device(probing.times)
    assert found["kernel"] > 19.9
    assert found["copy"] > 0.99


def test_in_race_mode_work_waits_until_somebody_waits_for_it(fake_device: FakeDevice) -> None:
    assert fake_device(probing.queries, FAKE_MODE="race", FAKE_LAG="default") == [False, True]
    assert fake_device(probing.queries, FAKE_MODE="race", FAKE_LAG="side") == [True, True]


def test_several_devices(fake_device: FakeDevice) -> None:
    found = fake_device(probing.devices, FAKE_DEVICES=3)
    assert found == {"devices": ["cuda:0", "cuda:1", "cuda:2"], "crossed": [1, 1, 1, 1]}


def test_a_full_device(fake_device: FakeDevice) -> None:
    found = fake_device(probing.too_much, FAKE_GIB=1)
    assert "out of memory" in found["said"]
    assert found["taken"] == found["kept"]


@pytest.mark.parametrize("mode", ["clock", "race"])
def test_an_assertion_in_a_kernel_is_heard_of_later_and_ever_after(mode: str, fake_device: FakeDevice) -> None:
    said = fake_device(probing.asserted, FAKE_MODE=mode)
    assert len(said) == 2
    assert all("device-side assert triggered" in one for one in said)


def test_a_forked_process_cannot_use_a_driver_that_is_awake(fake_device: FakeDevice) -> None:
    said = fake_device(probing.forked)
    assert said.startswith("3 ")
    assert "Cannot re-initialize CUDA in forked subprocess" in said


def test_nvml_knows_devices_and_their_instances(fake_device: FakeDevice) -> None:
    whole, part = fake_device(probing.nvml, FAKE_NVML_MIG=2, FAKE_NVML_USED_MIB_0=700, FAKE_NVML_USED_MIB_0_0=30)
    assert whole.startswith("GPU-1010") and whole.endswith(" 700")
    assert part.startswith("MIG-") and part.endswith(" 30")
