"""A run that skipped most of its planted cases is no green run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.conftest import LEAST_JUDGED, too_few

pytestmark = pytest.mark.beside


@pytest.mark.parametrize(("judged", "skipped"), [(10, 0), (7, 3), (0, 0), (1, 0)])
def test_enough(judged: int, skipped: int) -> None:
    assert too_few(judged, skipped) is None


@pytest.mark.parametrize(("judged", "skipped"), [(0, 10), (6, 4), (0, 1)])
def test_too_few_are_named(judged: int, skipped: int) -> None:
    told = too_few(judged, skipped)
    assert told is not None
    assert told.startswith(f"{judged} of {judged + skipped} planted cases")
    assert f"{LEAST_JUDGED:.0%}" in told


def test_the_gate_tries_nothing_twice(root: Path) -> None:
    gate = (root / "scripts" / "test").read_text(encoding="utf-8")
    assert "last-failed" not in gate and "rerun" not in gate
