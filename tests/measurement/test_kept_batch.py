"""Steps that change their batch: every one is given a batch as it came, in the arms that have only one batch."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.measurement import experiments
from pipefix.measurement.consumer import UserStep
from pipefix.measurement.kept_batch import MOST_BYTES, KeptBatch
from tests.doubles.ticks import PROBE, Ticks
from tests.measurement import planted


class Graph:
    """A batch class of a library's, which is no container."""

    def __init__(self) -> None:
        self.edges = torch.ones(3)


def pops(batch: Any) -> None:
    batch.pop("labels")


def writes(batch: Any) -> None:
    batch["pixels"].mul_(2)


def writes_past_autograd(batch: Any) -> None:
    batch["pixels"].data.add_(1)


def writes_in_numpy(batch: Any) -> None:
    batch["weights"] += 1


def removes_in_object(batch: Any) -> None:
    del batch["graph"].edges


@pytest.mark.parametrize("step", [pops, writes, writes_past_autograd, writes_in_numpy, removes_in_object])
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_every_step_has_the_batch_that_came(step: Callable[[Any], None], kind: Any) -> None:
    kept_batch = KeptBatch(
        kind({"pixels": torch.ones(2, 3), "labels": torch.zeros(2), "weights": np.ones(2), "graph": Graph(), "names": ["a", "b"]})
    )
    for after_learning in (False, True):
        for _ in range(2):
            step(kept_batch())
        batch = kept_batch()
        assert type(batch) is kind
        assert (batch["pixels"] == 1).all() and "labels" in batch and (batch["weights"] == 1).all()
        assert batch["graph"].edges.sum() == 3
        if not after_learning:
            kept_batch.learn(step)
            assert kept_batch.changed == (step not in (pops, removes_in_object)), "what is left as it is need not be copied"


def test_what_steps_leave_as_it_is_is_not_copied() -> None:
    batch = {"pixels": torch.ones(2, 3), "labels": [1, 2]}
    kept_batch = KeptBatch(batch)
    assert kept_batch()["pixels"] is not batch["pixels"]
    kept_batch.learn(lambda batch: batch["pixels"].sum())
    copied = kept_batch()
    assert copied["pixels"] is batch["pixels"]
    assert copied["labels"] is not batch["labels"]


def test_copies_are_few_where_batches_are_large() -> None:
    kept_batch = KeptBatch([torch.empty(MOST_BYTES // 8, dtype=torch.uint8)])
    assert kept_batch.most == 8
    kept_batch.changed = False
    assert kept_batch.most > 1000


class Labelled(Dataset[Any]):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        pixels, _ = planted.picture(self.paths[index])
        return {"pixels": pixels, "labels": index}


def train_step(batch: Any) -> None:
    batch.pop("labels")
    batch["pixels"].mul_(1e3)
    assert batch["pixels"].isfinite().all() and batch["pixels"].max() < 1e6, "it drifts"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_probe_with_such_a_step(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ticks().given_to(PROBE, monkeypatch)
    loader = DataLoader(Labelled(planted.files(tmp_path)), batch_size=4, num_workers=workers)
    run = pipefix.probe(loader, step=train_step, budget=2.0, trial_workers=())  # fake clock
    names = {arm.name for arm in run.arms}
    assert names >= {experiments.ALONE, experiments.FLOOR.name, experiments.NO_COLLATE.name}


def test_a_tensor_of_one_element_is_no_stand_in(tmp_path: Path) -> None:
    """Such as a batch of one label."""
    numbers: list[float] = []
    running = planted.pool(
        DataLoader([torch.tensor([float(n)]) for n in range(8)], batch_size=None, num_workers=1),
        UserStep(lambda batch: numbers.append(float(batch))),
    )
    try:
        running.turn_to(experiments.PLAIN)
        running.keep_batch()
        for _ in range(4):
            running.next(consume=True)
    finally:
        running.close()
    assert numbers == [1.0, 2.0, 3.0, 4.0]
