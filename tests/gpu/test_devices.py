"""NVML is asked about the device that the job uses, not about a neighbour's."""

from __future__ import annotations

import pytest

from tests.gpu import devices
from tests.gpu.conftest import FakeDevice

MIB, GIB = 2**20, 2**30
NVML = {"FAKE_DEVICES": 4, **{f"FAKE_NVML_USED_MIB_{device}": 1000 * (device + 1) for device in range(4)}}


@pytest.mark.parametrize(
    ("visible", "device"),
    [(None, 0), ("1", 1), ("3,1", 3), ("GPU-1212", 2), (" 2 ,0", 2), ("1,GPU-1212", 1)],
)
def test_the_first_device_that_cuda_may_see_is_watched(visible: str | None, device: int, fake_device: FakeDevice) -> None:
    found = fake_device(devices.told, visible, None, **NVML)
    assert found["free"] == 80 * GIB - 1000 * (device + 1) * MIB
    assert found["used"] == 1000 * (device + 1) * MIB


def test_while_a_job_runs_its_own_device_is(fake_device: FakeDevice) -> None:
    found = fake_device(devices.told, None, 2, **NVML)
    assert found["used"] == 3000 * MIB


def test_each_device_in_use_has_its_copies_and_the_models_own_is_its_own(fake_device: FakeDevice) -> None:
    found = fake_device(devices.copies, FAKE_DEVICES=3)
    assert found["names"] == ["bytes", "pageable", "pageable to cuda:0", "pinned", "pinned to cuda:0", "pinning"]
    assert found["rows"][0] == "copy from pinned memory"
    assert found["rows"][-1] == "copy from pinned memory to cuda:0"
    assert (found["resident"], found["model"], found["moved"]) == ("cuda:2", "cuda:2", "cuda:2")
    assert found["current"] == [1, "True"], "the device and its stream are as before"


@pytest.mark.parametrize("visible", [None, "0", "GPU-1010", "MIG-00000000-0000-0000-0000-000000000000"])
def test_of_a_device_in_instances_the_jobs_own_counts(visible: str | None, fake_device: FakeDevice) -> None:
    settings = {"FAKE_NVML_MIG": 2, "FAKE_NVML_USED_MIB_0": 9000, "FAKE_NVML_USED_MIB_0_0": 30, "FAKE_NVML_USED_MIB_0_1": 40}
    found = fake_device(devices.told, visible, None, **settings)
    assert found["free"] == 10 * GIB - 30 * MIB
    assert found["used"] == 30 * MIB
    assert "nvml_utilisation" not in found["figures"]


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-ff"])
def test_where_cuda_sees_no_device_that_is_said(visible: str, fake_device: FakeDevice) -> None:
    found = fake_device(devices.told, visible, None, **NVML)
    assert found["free"] is None
    assert f"CUDA_VISIBLE_DEVICES={visible}" in found["why"]
