"""The trial of hand-overs: decided by evidence of the epoch itself, told, and without any change to the batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.slots import batch_in_slot
from pipefix.loader.slots.comparison import ENOUGH, SLOTS, TORCH, UNDECIDED, WARM, HandoverTrial
from tests.loader import pipelines
from tests.loader.likeness import assert_same


def told(slots: float, others: float) -> HandoverTrial:
    trial = HandoverTrial()
    for turn in range(2 * (WARM + ENOUGH)):
        trial.add(SLOTS if turn % 2 else TORCH, turn, slots if turn % 2 else others)
    return trial


@pytest.mark.parametrize(("slots", "others", "verdict"), [(1e-3, 2e-3, SLOTS), (2e-3, 1e-3, TORCH), (1e-3, 1e-3, SLOTS)])
def test_the_cheaper_way_is_taken(slots: float, others: float, verdict: int) -> None:
    assert told(slots, others).verdict == verdict


def test_the_first_batches_and_too_few_decide_nothing() -> None:
    trial = HandoverTrial()
    for turn in range(WARM):
        trial.add(SLOTS, turn, 1.0)
    assert not trial.costs[SLOTS]
    for turn in range(WARM, WARM + 100):
        trial.add(SLOTS, turn, 1.0)
    assert trial.verdict == UNDECIDED
    assert "still being compared" in trial.sentence()


def test_the_sentence_has_both_figures() -> None:
    assert told(0.0012, 0.0034).sentence() == "Measured: 1.2 ms a batch through slots, 3.4 ms in DataLoader's way."


def test_batches_are_the_same_whichever_way_they_take() -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": 2}
    torch.manual_seed(3)
    expected = list(DataLoader(pipelines.Tensors(400, (64, 64)), **options))
    torch.manual_seed(3)
    loader = FastLoader(pipelines.Tensors(400, (64, 64)), **options)
    made = list(loader)
    assert_same(made, expected)
    assert loader._latest is not None
    assert loader._latest.handed["tried"] >= ENOUGH
    assert loader._latest.trial.verdict != UNDECIDED
    assert "Measured:" in loader.explain()


def test_no_sample_is_read_twice(tmp_path: Any) -> None:
    note = tmp_path / "read"
    list(FastLoader(pipelines.Noting(str(note), 200), batch_size=4, num_workers=2))
    assert sorted(map(int, note.read_text().split())) == list(range(200))


def test_where_torchs_way_is_cheaper_it_is_taken_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_in_slot.Arrival, "seconds", property(lambda self: 1.0, lambda self, value: None), raising=False)
    loader = FastLoader(pipelines.Tensors(400, (64,)), batch_size=4, num_workers=1)
    first = [float(batch[0, 0]) for batch in loader]
    assert first == [4.0 * number for number in range(100)]
    assert loader.explain().startswith("As DataLoader does it: it is quicker here. Measured: 1e+03 ms a batch through slots")
    assert [float(batch[0, 0]) for batch in loader] == first
    assert loader._latest is not None and loader._latest.arena is None


def test_a_small_dev_shm_is_never_tried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_in_slot, "shared_memory_left", lambda: 1 << 20)
    loader = FastLoader(pipelines.Tensors(100, (64, 64)), batch_size=4, num_workers=1)
    assert len(list(loader)) == 25
    assert loader._latest is not None and not loader._latest.handed["tried"]


def test_engine_processes_tries_nothing() -> None:
    loader = FastLoader(pipelines.Tensors(200), batch_size=4, num_workers=1, engine="processes")
    assert sum(len(batch) for batch in loader) == 200
    assert loader.explain() == "1 worker processes, batches handed over through reusable shared memory."


def test_a_disturbance_does_not_decide() -> None:
    trial = HandoverTrial()
    for turn in range(WARM, WARM + 2 * ENOUGH):
        trial.add(SLOTS if turn % 2 else TORCH, turn, (1e-3 if turn < WARM + ENOUGH else 50e-3) if turn % 2 else 2e-3)
    assert trial.verdict == SLOTS
