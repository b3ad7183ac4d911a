"""What is true of known costs, and when a pipeline is no longer what was planted."""

from __future__ import annotations

import pytest

from measured.planted.truth import drifted, supply_s, truth_of

COSTS = {"storage": 1.0, "decode": 3.0, "augment": 1.5, "collate": 0.5}


@pytest.mark.parametrize(
    ("more", "workers", "kind", "stage", "dominance"),
    [
        ({}, 0, "input-bound", "decode", 2.0),
        ({"step": 2.0}, 0, "input-bound", "decode", 1.5),
        ({"step": 4.5}, 0, "step-bound", "step", 1.5),
        ({"augment": 2.9}, 0, "balanced", None, 3.0 / 2.9),
        ({}, 2, "input-bound", "decode", 2.0),
        ({"step": 2.0}, 2, "input-bound", "decode", 1.5),
        ({"step": 2.0}, 1, "input-bound", "decode", 2.0),
        ({"step": 4.5}, 2, "step-bound", "step", 1.5),
        ({"step": 3.1}, 2, "balanced", None, 3.1 / 3.0),
        ({"ipc": 0.5}, 2, "input-bound", "decode", 2.0),
        ({"ipc": 6.0, "step": 1.0}, 2, "input-bound", "ipc", 4.0),
        ({"ipc": 6.0, "step": 5.0}, 2, "input-bound", "ipc", 1.2),
    ],
)
def test_the_slower_station_limits(more: dict[str, float], workers: int, kind: str, stage: str | None, dominance: float) -> None:
    truth = truth_of(COSTS | more, workers)
    assert (truth.kind, truth.stage) == (kind, stage)
    assert truth.dominance == pytest.approx(dominance)


def test_supply_is_shared_by_workers_but_handed_over_one_by_one() -> None:
    assert supply_s(COSTS, 0) == pytest.approx(6.0)
    assert supply_s(COSTS, 2) == pytest.approx(3.0)
    assert supply_s(COSTS | {"ipc": 4.0}, 2) == pytest.approx(4.0)


def test_a_measured_supply_counts_more_than_the_sum() -> None:
    assert truth_of(COSTS | {"step": 4.0}, 2, supply=6.0).stage == "decode"


def test_drift_is_told_by_label_and_by_dominance() -> None:
    assert drifted("decode", truth_of(COSTS, 0)) is None
    assert "augment ahead" in (drifted("decode", truth_of(COSTS | {"augment": 4.0}, 0)) or "")
    assert "ahead by 1.07x only" in (drifted("decode", truth_of(COSTS | {"augment": 2.8}, 0)) or "")
    assert drifted("balanced", truth_of(COSTS | {"augment": 2.95}, 0)) is None
    assert "ran with decode ahead" in (drifted("balanced", truth_of(COSTS, 0)) or "")
