"""Workers that are not forked: each promise that the gate asks of forked ones, under every start method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.slots.portable import prepare
from tests.loader import pipelines
from tests.loader.likeness import assert_same
from tests.loader.test_contract import epochs
from tests.loader.test_dying import workers_go
from tests.loader.test_shared_queue import FREE
from tests.loader.test_slots import nothing_is_left_behind
from tests.loader.test_starting import Many

METHODS = pytest.mark.parametrize("method", ["forkserver", "spawn"])


@pytest.mark.parametrize("persistent", [False, True])
@METHODS
def test_batches_are_the_same(method: str, persistent: bool) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": 2, "persistent_workers": persistent}
    expected, _ = epochs(DataLoader, pipelines.Mixed(), **options)
    made, _ = epochs(FastLoader, pipelines.Mixed(), multiprocessing_context=method, **options)
    assert_same(made, expected)


@METHODS
def test_of_threads(method: str) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": 1, "persistent_workers": True}
    expected, _ = epochs(DataLoader, pipelines.Tensors(26), **options)
    made, _ = epochs(FastLoader, pipelines.Tensors(26), threads_per_worker=2, multiprocessing_context=method, **options)
    assert_same(made, expected)


@METHODS
def test_of_whoever_is_free(method: str) -> None:
    made = []
    for options in ({}, {"num_workers": 3, "multiprocessing_context": method, "persistent_workers": True}):
        torch.manual_seed(4)
        loader: Any = FastLoader(pipelines.Drawing(), batch_size=7, **{**FREE, **options})
        made.append([list(loader) for _ in range(2)])
    assert_same(*made)


@METHODS
def test_of_the_portable_hand_over(method: str) -> None:
    loader = prepare(DataLoader(pipelines.Tensors(80), batch_size=4, num_workers=2, multiprocessing_context=method))
    assert [float(batch[0, 0]) for batch in loader] == [4.0 * number for number in range(20)]


@METHODS
def test_the_dataset_is_pickled_once(method: str) -> None:
    dataset = Many()
    loader = FastLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=method)
    assert [float(batch[0, 0]) for batch in loader] == [0.0, 4.0, 8.0, 12.0]
    assert dataset.pickled == 1


@pytest.mark.parametrize(("method", "rng"), [("forkserver", "torch"), ("spawn", "sample")])
def test_workers_go_when_the_training_process_has_gone(method: str, rng: str, tmp_path: Path, preloaded: str) -> None:
    workers_go(method, rng, tmp_path, preloaded.split())


@METHODS
def test_nothing_is_left_behind_when_all_is_killed(method: str, preloaded: str) -> None:
    nothing_is_left_behind(method, preloaded.split())
