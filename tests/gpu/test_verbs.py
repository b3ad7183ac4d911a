"""Verbs on the fake device: a step that a `FastLoader` feeds has batches where, and as, the loader would have brought them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import verbs
from tests.gpu.conftest import FakeDevice


@pytest.mark.parametrize(
    ("how", "then", "minded"),
    [
        (", non_blocking=True", "losses.append(inputs[0, 0].item())", {"blocking-copies": "11", "step-waits": "13"}),
    ],
)
def test_the_audit_hears_what_a_step_waits_for(
    how: str, then: str, minded: dict[str, str], tmp_path: Path, fake_device: FakeDevice
) -> None:
    found = fake_device(verbs.heard, str(tmp_path), how, then)
    ours = {"blocking-copies", "step-waits", "full-precision"}
    assert ours & found.keys() == minded.keys()
    for rule, line in minded.items():
        assert f"train_step at job.py:{line}" in found[rule]


def test_products_in_full_precision_are_counted(fake_device: FakeDevice) -> None:
    assert fake_device(verbs.full_precision) == [400, 0, 0]
