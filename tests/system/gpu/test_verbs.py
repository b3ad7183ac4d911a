"""Verbs on the fake device: a step that a `FastLoader` feeds has batches where, and as, the loader would have brought them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import verbs
from tests.gpu.conftest import FakeDevice


def test_a_probe_brings_batches_to_the_loaders_device_and_augments_them(tmp_path: Path, fake_device: FakeDevice) -> None:
    found = fake_device(verbs.probed, str(tmp_path), 1)
    assert found["consumer"] == "train_step"
    assert found["verdict"] == "step-bound"


def test_so_do_trials_of_settings_and_the_tuner_leaves_the_driver_asleep(tmp_path: Path, fake_device: FakeDevice) -> None:
    found = fake_device(verbs.tuned, str(tmp_path), 1)
    assert found["trials"]
    assert all(status == "run" for status, _ in found["trials"]), found["trials"]
    assert found["owner"] == 0


def test_parts_of_a_step_take_as_long_as_they_do_on_the_device_and_the_criterion_goes_there(fake_device: FakeDevice) -> None:
    found = fake_device(verbs.model_step)
    assert found["present"], found["why"]
    assert found["criterion"] == "cuda:0"
    assert found["split"]["forward"] >= 0.005
    assert found["split"]["backward"] >= 0.010


def test_what_a_step_waits_for_its_copy_is_told_apart_from_the_step(tmp_path: Path, fake_device: FakeDevice) -> None:
    # 8 MB at 0.4 and 4 GB/s.
    pageable = fake_device(verbs.copied, str(tmp_path), False, FAKE_PAGEABLE_GBS=0.4, FAKE_PINNED_GBS=4)
    pinned = fake_device(verbs.copied, str(tmp_path), True, FAKE_PAGEABLE_GBS=0.4, FAKE_PINNED_GBS=4)
    assert pageable["walls"]["transfer"] == pytest.approx(0.020, rel=0.15)
    assert pageable["walls"]["step"] == pytest.approx(0.010, rel=0.2)
    assert pinned["walls"]["transfer"] == pytest.approx(0.002, rel=0.4)
    assert not pageable["hidden"]
    assert "from ordinary memory" in pageable["pinning"][0]
    assert pageable["speedup"][0] == pytest.approx(30 / 12, rel=0.2)
    assert pageable["verdict"] == ["input-bound", "transfer"]


@pytest.mark.parametrize(
    ("how", "then", "lines"),
    [
        ("", "losses.append(inputs)", {"blocking-copies": 11}),
        (", non_blocking=True", "losses.append(inputs)", {"blocking-copies": 11}),
        ("", "inputs[0].cpu(), inputs.max().tolist()", {"blocking-copies": 11, "step-waits": 13}),
    ],
)
def test_the_audit_hears_what_a_step_waits_for(
    how: str, then: str, lines: dict[str, int], tmp_path: Path, fake_device: FakeDevice
) -> None:
    verbs.is_heard(fake_device, tmp_path, how, then, lines)


def test_dali_without_a_driver_that_it_can_use_is_no_bug_of_pipefix(colours: Path, fake_device: FakeDevice) -> None:
    pytest.importorskip("nvidia.dali")
    found = fake_device(verbs.swapped, str(colours), "dali")
    assert found["code"] == 2, found["said"]
    assert "DALI cannot use the device 'cuda'" in found["said"]
    assert "nvidia-smi" in found["said"]


def test_fix_pins_what_steps_wait_for(tmp_path: Path, fake_device: FakeDevice) -> None:
    found = fake_device(verbs.pinned_by_fix, str(tmp_path), FAKE_PAGEABLE_GBS=0.2, FAKE_PINNED_GBS=4)
    assert [kind for kind, _ in found["outcomes"]] == ["Applied"], found
    assert "pin_memory = true" in found["plan"]
    assert found["gains"][0] > 2  # 40 ms and 10 ms a batch against 2 ms and 10 ms


def test_copies_that_begin_early_hide_behind_the_step_before(fake_device: FakeDevice) -> None:
    """Copies of 16 ms beside steps of 20 ms: 36 ms a batch in the step, 20 ms ahead of it."""
    found = fake_device(verbs.early, FAKE_PAGEABLE_GBS=0.5, FAKE_PINNED_GBS=0.5)
    assert found["in the step"] >= 16 * 0.036
    assert found["ahead"] < 0.8 * found["in the step"]


def test_a_watched_loop_tells_of_its_device(tmp_path: Path, fake_device: FakeDevice) -> None:
    found = fake_device(verbs.watched, str(tmp_path))
    assert "gpu_utilisation" in str(found)
    assert "gpu_memory_bytes" in str(found)
