"""Batches of the next epoch, asked for before it begins: the same as if they had not been."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, WeightedRandomSampler

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.workers import iterator as workers
from pipefix.loader.workers.next_epoch import DRAWN, FIXED, kind_of
from tests.loader import pipelines
from tests.loader.likeness import assert_same

STAYING: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": True}


def seeded(kind: Any, **options: Any) -> Any:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    return kind(pipelines.Mixed(), **{**STAYING, **{name: made() if callable(made) else made for name, made in options.items()}})


def test_in_order_epochs_are_torchs_and_begin_ahead() -> None:
    expected, loader = seeded(DataLoader), seeded(FastLoader)
    batches = [list(expected) for _ in range(3)]
    torch.manual_seed(5)
    assert_same([list(loader) for _ in range(3)], batches)
    assert "2 epochs began with batches that had been asked for before." in loader.explain()


ORDERS: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle": True},
    "a generator": {"shuffle": True, "generator": lambda: torch.Generator().manual_seed(3)},
    "weights": {"sampler": lambda: WeightedRandomSampler([0.1] * 23, 40)},
    "ranks": {"sampler": lambda: DistributedSampler(range(23), num_replicas=2, rank=1)},
    "whoever is free": {"shuffle": True, "scheduling": "sample"},
}


def epochs(loader: Any, between: Any) -> Any:
    made = []
    for number in range(4):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(number)
        made.append(list(loader))
        between()
    return made, torch.rand(1), random.random(), float(np.random.rand())


@pytest.mark.parametrize(("name", "undisturbed"), [*((name, True) for name in ORDERS), ("shuffled", False), ("a generator", False)])
def test_a_drawn_order_is_as_if_it_had_been_drawn_later(name: str, undisturbed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody draws between epochs, so that what was foreseen does not come true."""

    def between() -> Any:
        return None if undisturbed else (torch.rand(1), loader.generator and loader.generator.manual_seed(9))

    loader = seeded(FastLoader, rng="sample", **ORDERS[name])
    made = epochs(loader, between)
    assert loader._latest.foreseen == (3 if undisturbed else 0)
    monkeypatch.setattr(workers, "kind_of", lambda _: None)
    loader = seeded(FastLoader, rng="sample", **ORDERS[name])
    assert_same(made, epochs(loader, between))


# Seeds of workers come from it, so that loaders at the same time have the same.
SEEDED_ALIKE: dict[str, Any] = {"generator": lambda: torch.Generator().manual_seed(3)}


@pytest.mark.parametrize("rng", ["torch", "sample"])
def test_an_epoch_that_is_left_early_changes_nothing(rng: str) -> None:
    loader = seeded(FastLoader, rng=rng, **SEEDED_ALIKE)
    expected = seeded(DataLoader, **SEEDED_ALIKE)
    for stop in (7, 5, 1, 7, 6):
        for number, (one, other) in enumerate(zip(loader, expected, strict=True), 1):
            assert_same(one["image"], other["image"])
            if rng == "torch":
                assert_same(one, other)
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
    other = seeded(FastLoader)
    other.load_state_dict(state)
    assert_same([batch["image"] for batch in other], rest)


class OfAnother(RandomSampler):
    """A sampler that may count how it is used."""


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, FIXED),
        ({"sampler": lambda: DistributedSampler(range(23), num_replicas=2, rank=0, shuffle=False)}, FIXED),
        ({"shuffle": True}, None),
        ({"shuffle": True, "rng": "sample"}, DRAWN),
        ({"sampler": lambda: OfAnother(range(23)), "rng": "sample"}, None),
        ({"persistent_workers": False}, None),
        ({"in_order": False}, None),
        ({"batch_size": None}, FIXED),
        ({"batch_size": 1, "batch_sampler": lambda: BatchSampler(range(23), 2, False)}, None),
    ],
)
def test_what_can_be_foreseen(options: dict[str, Any], kind: str | None) -> None:
    assert kind_of(seeded(FastLoader, **options)) == kind


def test_streams_are_not_foreseen() -> None:
    assert kind_of(FastLoader(pipelines.Stream(), **STAYING)) is None
