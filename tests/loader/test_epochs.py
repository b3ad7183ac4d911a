"""Epochs of workers that live on: left early, gone on with, begun anew."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
from tests.loader.likeness import assert_same

STAYING: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": True}


def seeded(kind: Any, **options: Any) -> Any:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    arguments = {name: option() if callable(option) else option for name, option in options.items()}
    return kind(pipelines.Mixed(), **{**STAYING, **arguments})


# Seeds of workers come from it, so that loaders at the same time have the same.
SEEDED_ALIKE: dict[str, Any] = {"generator": lambda: torch.Generator().manual_seed(3)}


@pytest.mark.parametrize("rng", ["torch", "sample"])
def test_an_epoch_that_is_left_early_changes_nothing(rng: str) -> None:
    loader = seeded(FastLoader, rng=rng, **SEEDED_ALIKE)
    expected = seeded(DataLoader, **SEEDED_ALIKE)
    for stop in (7, 5, 1, 7, 6):
        for number, (batch, expected_batch) in enumerate(zip(loader, expected, strict=True), 1):
            assert_same(batch["image"], expected_batch["image"])
            if rng == "torch":
                assert_same(batch, expected_batch)
            if number == stop:
                break


def test_a_position_is_told_of_the_epoch_that_has_begun() -> None:
    loader = seeded(FastLoader)
    list(loader)
    assert loader.state_dict()["batches"] == 0 and loader.state_dict()["epoch"] == 1
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 1)
    rest = [batch["image"] for batch in iterator]
    reseeded = seeded(FastLoader)
    reseeded.load_state_dict(state)
    assert_same([batch["image"] for batch in reseeded], rest)
