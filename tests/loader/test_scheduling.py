"""Samples given to whichever worker is free: the same batches, in their order, and a slow sample holds up nobody."""

from __future__ import annotations

import gc
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.stealing import work_table
from pipefix.loader.stealing.work_table import MADE, Task, WorkTable
from tests.loader import pipelines
from tests.loader.likeness import assert_same

FREE: dict[str, Any] = {"rng": "sample", "scheduling": "sample"}


class Held(Dataset[Any]):
    """One sample waits until all others of its batch are made, by whomever: files tell."""

    def __init__(self, folder: Path, slow: int, size: int) -> None:
        self.folder, self.slow, self.size = folder, slow, size

    def __len__(self) -> int:
        return 4 * self.size

    def __getitem__(self, index: int) -> Any:
        first = self.slow // self.size * self.size
        if index == self.slow:
            others = [self.folder / str(one) for one in range(first, first + self.size) if one != index]
            while not all(one.exists() for one in others):
                time.sleep(0.001)
        (self.folder / str(index)).touch()
        info = get_worker_info()
        return torch.full((1000,), index), info.id if info is not None else -1, random.random(), f"sample {index}"


class Drawing(Dataset[Any]):
    """Draws from every generator; some samples take longer."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        if index % 13 == 0:
            time.sleep(0.02)
        return index, torch.rand(3), random.random(), float(np.random.rand()), np.full(2000, index)


def mixing(samples: list[Any]) -> Any:
    """A collate function that draws."""
    return default_collate(samples), torch.rand(2), random.random()


class Failing(Drawing):
    def __getitem__(self, index: int) -> Any:
        if index in (7, 8):
            raise KeyError(f"sample {index}")
        return super().__getitem__(index)


def test_a_slow_sample_does_not_hold_up_its_neighbours(tmp_path: Path) -> None:
    """The first of its batch: the others are made meanwhile, by other workers, or it would wait for ever."""
    loader: Any = FastLoader(Held(tmp_path, slow=8, size=8), batch_size=8, num_workers=3, **FREE)
    batches = list(loader)
    assert [batch[0][:, 0].tolist() for batch in batches] == [list(range(first, first + 8)) for first in range(0, 32, 8)]
    assert len(set(batches[1][1].tolist())) > 1
    assert list(batches[1][3]) == [f"sample {index}" for index in range(8, 16)]
    told = re.search(r"Samples are made by whichever worker is free. (\d+) were made for a batch of another's", loader.explain())
    assert told is not None
    assert int(told[1]) >= 7, "more where the machine held up another worker"


def test_batches_are_those_of_any_other_way_of_making_them() -> None:
    made = []
    ways: tuple[dict[str, Any], ...] = (
        {"num_workers": 0},
        {"num_workers": 2, "scheduling": "batch"},
        {"num_workers": 3, "persistent_workers": True},
    )
    for options in ways:
        torch.manual_seed(4)
        order = torch.randperm(60).tolist()
        loader: Any = FastLoader(Drawing(), batch_size=7, sampler=order, rng="sample", collate_fn=mixing, **options)
        made.append([list(loader) for _ in range(2)])
    assert "Samples are made by whichever worker is free" in loader.explain()
    assert_same(made[1], made[0])
    assert_same(made[2], made[0])


def test_an_epoch_that_was_left_can_be_begun_anew() -> None:
    loader: Any = FastLoader(Drawing(), batch_size=4, num_workers=2, persistent_workers=True, **FREE)
    for _ in range(3):
        iterator = iter(loader)
        assert next(iterator)[0].tolist() == [0, 1, 2, 3]
        next(iterator)
    assert [int(batch[0][0]) for batch in loader] == list(range(0, 60, 4))


def test_out_of_order_all_batches_are_there() -> None:
    loader: Any = FastLoader(Drawing(), batch_size=4, num_workers=3, in_order=False, **FREE)
    assert sorted(int(batch[0][0]) for batch in loader) == list(range(0, 60, 4))


def test_an_error_is_the_users_own_and_iteration_goes_on() -> None:
    iterator = iter(FastLoader(Failing(), batch_size=4, num_workers=2, **FREE))
    assert next(iterator)[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match="sample 7") as caught:
        next(iterator)
    assert "Caught KeyError in DataLoader worker process" in str(caught.value)
    with pytest.raises(KeyError, match="sample 8"):
        next(iterator)
    assert [int(batch[0][0]) for batch in iterator] == list(range(12, 60, 4))


def test_bad_samples_are_left_out_and_noted(tmp_path: Path) -> None:
    note = tmp_path / "bad.jsonl"
    loader: Any = FastLoader(Failing(), batch_size=4, num_workers=2, on_bad="skip", max_bad=1.0, quarantine=note, **FREE)
    assert [batch[0].tolist() for batch in loader][1:3] == [[4, 5, 6], [9, 10, 11]]
    assert len(note.read_text().splitlines()) == 2


def test_batches_are_the_callers_for_ever() -> None:
    loader: Any = FastLoader(pipelines.Tensors(256, (1000,)), batch_size=4, num_workers=2, **FREE)
    held = list(loader)
    gc.collect()
    assert [float(batch[0, 0]) for batch in held] == [float(first) for first in range(0, 256, 4)]


class Awaiting(Dataset[Any]):
    """Its sample 5 is done only when that of number ``last`` is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.last = folder, 0

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> int:
        while index == 5 and not (self.folder / str(self.last)).exists():
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
        while iterator._send_idx < 2 + bound:
            assert iterator._data_queue._reader.poll(60), f"{iterator._send_idx} batches were asked for"
            assert not iterator._waits()
    finally:
        (tmp_path / str(dataset.last)).touch()
    assert next(iterator).tolist() == [4, 5]


def boards_ahead(loader: Any) -> int:
    from pipefix.loader.workers.iterator import AHEAD

    return int(AHEAD * loader.prefetch_factor * loader.num_workers)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheduling": "turns"}, "'auto', 'batch', 'sample', but got scheduling='turns'"),
        ({"scheduling": "sample"}, "Add rng='sample', or leave scheduling out"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FastLoader(pipelines.Tensors(), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_workers": 1}, "there are not two workers"),
        ({"num_workers": 2, "engine": "torch"}, "engine='torch' asks for it"),
        ({"num_workers": 2, "batch_size": None}, "there are no batches to share"),
    ],
)
def test_why_workers_take_turns_is_told(options: dict[str, Any], words: str) -> None:
    loader: Any = FastLoader(pipelines.Tensors(8), **FREE, **options)
    list(loader)
    assert f"Batches are made by workers in turn: {words}." in loader.explain()


def test_torchs_random_numbers_keep_torchs_turns() -> None:
    loader: Any = FastLoader(pipelines.Tensors(8), num_workers=2)
    list(loader)
    assert loader._latest is not None and loader._latest.work_table is None
    assert "whichever" not in loader.explain()


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def release(self) -> None:
        self.rung += 1


class TestBoard:
    def table(self, workers: int = 2) -> WorkTable:
        return WorkTable(workers, 4, [Bell() for _ in range(workers)])

    def test_the_first_batch_is_taken_first_and_once(self) -> None:
        table = self.table()
        for number in (5, 3, 4):
            table.post(number, f"batch {number}", 2)
        taken = [table.take(0), table.take(1), table.take(0), table.take(1)]
        assert [table.asked(place)[:2] for place in taken if place is not None] == [(n, f"batch {n}") for n in (3, 4, 5)]
        assert taken[3] is None

    def test_each_sample_is_claimed_once(self) -> None:
        table = self.table()
        table.post(0, None, 3)
        place = table.take(0)
        assert place is not None
        assert [table.claim(place) for _ in range(4)] == [0, 1, 2, None]

    def test_help_comes_when_a_sample_takes_far_longer_than_is_usual(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 1_000_000_000
        monkeypatch.setattr(work_table, "perf_counter_ns", lambda: now)
        table = self.table()
        table.post(0, "asked", 3)
        place = table.take(0)
        assert place is not None and table.claim(place) == 0
        since = table.begins(0)
        now += 1_000_000
        assert table.task(1) is None, "nothing is usual yet"
        table.made(0, since)
        assert table.claim(place) == 1
        table.begins(0)
        now += 3_000_000
        assert table.task(1) is None
        now += 2_000_000
        assert table.task(1) == Task(place, 2, "asked")
        assert table.task(1) is None and table.claim(place) is None
        table.deliver(1, Task(place, 2, "asked"), (7, 64, 128))
        assert table.delivered(place, 2) == (MADE, 7, 64, 128)
        assert table.helped() == 1 and table.bells[0].rung

    def test_what_is_withdrawn_is_not_begun(self) -> None:
        table = self.table()
        table.post(0, None, 1)
        table.withdraw()
        assert table.take(0) is None
        table.post(1, None, 1)
        assert table.take(0) is not None

    def test_places_are_used_again(self) -> None:
        table = self.table(workers=1)
        for number in range(20):
            table.post(number, number, 1)
            assert table.take(0) is not None
            table.leave(0)

    def test_a_batch_too_large_to_ask_for_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"scheduling='batch'"):
            self.table().post(0, "x" * work_table.ROOM, 1)

    def test_an_idle_worker_is_rung_for(self) -> None:
        table = self.table()
        table.idle(1, now=True)
        table.post(0, None, 1)
        assert (table.bells[0].rung, table.bells[1].rung) == (0, 1)

    def test_whether_a_worker_is_idle_and_whether_there_is_a_batch_change_under_one_lock(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else a worker that looks for the last time and a batch that is posted may each miss the other."""
        table = self.table()
        asked: list[tuple[int, int]] = []

        class Lock:
            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                asked.append((table.words[table._of(1) + work_table.IDLE], len(table._in_state(work_table.POSTED))))

        monkeypatch.setattr(table, "_locked", Lock)
        table.idle(1, now=True)
        table.post(0, None, 1)
        # Idle was set under the lock; under it again the batch came, and the one to be rung for counts as idle no more.
        assert asked == [(1, 0), (0, 1)]
