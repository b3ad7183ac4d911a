"""Batches made by whichever worker is free (``rng="sample"``): the same ones, in their order, and a slow one holds up no other."""

from __future__ import annotations

import gc
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Sampler, default_collate

from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
from tests.loader.likeness import assert_same
from tests.loader.pipelines import Drawing

FREE: dict[str, Any] = {"rng": "sample"}


def mixing(samples: list[Any]) -> Any:
    """A collate function that draws."""
    return default_collate(samples), torch.rand(2), random.random()


def test_batches_are_those_of_any_other_way_of_making_them() -> None:
    passes = []
    ways: tuple[dict[str, Any], ...] = (
        {"num_workers": 0},
        {"num_workers": 2, "engine": "torch"},
        {"num_workers": 3, "persistent_workers": True},
    )
    for options in ways:
        torch.manual_seed(4)
        order = torch.randperm(40).tolist()
        loader: Any = FastLoader(Drawing(), batch_size=7, sampler=order, rng="sample", collate_fn=mixing, **options)
        passes.append([list(loader) for _ in range(2)])
    assert "Whichever worker is free makes the next batch." in loader.explain()
    assert_same(passes[1], passes[0])
    assert_same(passes[2], passes[0])


def test_an_epoch_that_was_left_can_be_begun_anew(tmp_path: Path) -> None:
    """Also while one worker is in the midst of a batch of it: it is not taken for the new epoch's."""
    dataset = Awaiting(tmp_path)
    dataset.last = 1  # which is made with the first batch
    loader: Any = FastLoader(dataset, batch_size=2, num_workers=2, persistent_workers=True, **FREE)
    for _ in range(4):
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    assert [int(batch[0]) for batch in loader] == list(range(0, 80, 2))


def test_one_queue_is_everybodys_and_a_killed_worker_holds_up_no_end() -> None:
    loader: Any = FastLoader(pipelines.Tensors(400), batch_size=4, num_workers=3, **FREE)
    iterator: Any = iter(loader)
    next(iterator)
    assert len({id(index_queue) for index_queue in iterator._index_queues}) == 1
    workers = list(iterator._workers)
    with suppress(RuntimeError):  # told by torch as soon as it hears of it, unless the others have made all batches by then
        workers[0].kill()
        list(iterator)
    del iterator
    gc.collect()
    assert not any(worker.is_alive() for worker in workers)


def test_a_workers_death_is_not_told_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which read that it was to leave, and died of it: its traceback, of an AssertionError, stood beside the true error."""
    iterator: Any = iter(FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=2, **FREE))
    said: list[Any] = []
    with monkeypatch.context() as shared_queue:
        shared_queue.setattr(iterator._index_queues[0], "put", said.append)
        iterator._mark_worker_as_unavailable(0)
    assert not said and iterator._workers_status == [False, True]
    iterator._workers_status[0] = True  # it lives, and is told at the end


class Awaiting(Dataset[Any]):
    """Its sample 5 is done only when that of number ``last`` is, and its sample 0 when that of number ``first`` is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.first, self.last = folder, 0, 0

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> int:
        awaited = {0: self.first, 5: self.last}.get(index, 0)
        while awaited and not (self.folder / str(awaited)).exists():
            time.sleep(0.001)
        (self.folder / str(index)).touch()
        return index


def test_how_many_are_under_way_is_bounded(tmp_path: Path) -> None:
    """Batch 2 waits until all that may be asked for with it were made."""
    dataset = Awaiting(tmp_path)
    loader: Any = FastLoader(dataset, batch_size=2, num_workers=2, **FREE)
    bound = boards_ahead(loader)
    dataset.last = 2 * (2 + bound) - 1
    iterator: Any = iter(loader)
    most = []
    for _ in range(6):
        next(iterator)
        most.append(iterator._send_idx - iterator._rcvd_idx)
    assert bound - 1 <= max(most) <= bound


def test_workers_go_on_also_where_batches_arrive_before_anybody_waits(tmp_path: Path) -> None:
    dataset = Awaiting(tmp_path)
    loader: Any = FastLoader(dataset, batch_size=2, num_workers=2, **FREE)
    bound = boards_ahead(loader)
    dataset.last = len(dataset) - 1  # batch 2 does not come
    iterator: Any = iter(loader)
    try:
        next(iterator), next(iterator)
        asks_for(2 + bound, iterator)
    finally:
        (tmp_path / str(dataset.last)).touch()
    assert next(iterator).tolist() == [4, 5]


def test_workers_go_on_also_where_the_first_batch_comes_when_later_ones_have(tmp_path: Path) -> None:
    """Two of three workers had nothing to do from then on, until the third had made batch 2."""
    dataset = Awaiting(tmp_path)
    loader: Any = FastLoader(dataset, batch_size=2, num_workers=3, **FREE)
    bound = boards_ahead(loader)
    dataset.first, dataset.last = 2 * bound - 1, len(dataset) - 1  # of the last batch that may be asked for with the first
    iterator: Any = iter(loader)
    try:
        assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        asks_for(2 + bound, iterator)
    finally:
        (tmp_path / str(dataset.last)).touch()
    assert next(iterator).tolist() == [4, 5]


class BreaksOff(Sampler[int]):
    """It fails when it is asked for its fifth index."""

    def __iter__(self) -> Any:
        yield from range(4)
        raise KeyError("the fifth")


def test_a_sampler_that_raises_loses_no_batch_that_has_arrived(tmp_path: Path) -> None:
    """It was asked when a batch had come before its turn: that one was waited for from then on, for ever."""
    dataset = Awaiting(tmp_path)
    dataset.first = len(dataset)  # until this test says so
    iterator: Any = iter(FastLoader(dataset, sampler=BreaksOff(), num_workers=2, timeout=60, **FREE))
    try:
        with pytest.raises(KeyError, match="the fifth"):
            next(iterator)
    finally:
        (tmp_path / str(dataset.first)).touch()
    assert [int(batch) for batch in iterator] == [0, 1, 2, 3]


def asks_for(batches: int, iterator: Any) -> None:
    """Go on until so many were asked for, though the batch that comes next is not there."""
    while iterator._send_idx < batches:
        assert iterator._data_queue._reader.poll(60), f"{iterator._send_idx} batches were asked for"
        assert not iterator._has_arrived()


def boards_ahead(loader: Any) -> int:
    from pipefix.loader.workers.iterator import AHEAD

    return int(AHEAD * loader.prefetch_factor * loader.num_workers)


def test_torchs_random_numbers_keep_torchs_turns() -> None:
    loader: Any = FastLoader(pipelines.Tensors(8), num_workers=2)
    list(loader)
    assert "Whichever" not in loader.explain()
