"""Verbs on the fake device: a step that a `FastLoader` feeds has batches where, and as, the loader would have brought them."""

from __future__ import annotations

from pathlib import Path

from tests.gpu import verbs
from tests.gpu.conftest import FakeDevice


def test_the_audit_hears_what_a_step_waits_for(tmp_path: Path, fake_device: FakeDevice) -> None:
    lines = {"blocking-copies": 11, "step-waits": 13}
    verbs.is_heard(fake_device, tmp_path, ", non_blocking=True", "losses.append(inputs[0, 0].item())", lines)


def test_products_in_full_precision_are_counted(fake_device: FakeDevice) -> None:
    assert fake_device(verbs.full_precision) == [400, 0, 0]
