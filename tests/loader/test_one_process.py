"""`FastLoader(engine="subprocess")`: threads of one worker process make the samples."""

from __future__ import annotations

import itertools
import os
import queue
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torchvision.datasets import ImageFolder

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.threads.one_process import Ahead
from tests.loader import pipelines
from tests.loader.likeness import assert_same
from tests.loader.test_fused_loader import TRAIN, folder, stacked  # noqa: F401 - a fixture

LONG = 600
"""Seconds that no sample takes."""


class Apart(FastLoader[Any]):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, engine="subprocess", **options)


class Where(Dataset[Any]):
    """Samples tell who made them."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        seen = (info.id, info.num_workers, type(info.dataset) is Where) if info is not None else (-1, 0, False)
        return index, os.getpid(), threading.current_thread().name, torch.get_num_threads(), seen


def test_threads_of_one_other_process_make_the_samples() -> None:
    loader = Apart(Where(), batch_size=4, num_workers=3)
    batches = list(loader)
    assert torch.cat([batch[0] for batch in batches]).tolist() == list(range(24))
    assert len({int(pid) for batch in batches for pid in batch[1]} - {os.getpid()}) == 1
    assert {name for batch in batches for name in batch[2]} <= {"pipefix-0", "pipefix-1", "pipefix-2"}
    assert {int(count) for batch in batches for count in batch[3]} == {1}
    assert all(one.tolist() == [[0] * 4, [1] * 4, [True] * 4][place] for batch in batches for place, one in enumerate(batch[4]))
    said = "One worker process, whose 3 threads make the samples, batches handed over through reusable shared memory."
    assert loader.explain().startswith(said)
    assert loader.num_workers == 3 and loader.stats().workers == 1


class Meeting(Dataset[Any]):
    """The first sample is done only when all that may be under way with it are."""

    def __init__(self) -> None:
        self.others: Any = None

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> float:
        if index == 0:
            while len(_done) < 11:
                time.sleep(0.001)
        elif index < 12:
            _done.append(index)
        return float(index)


_done: list[int] = []


def test_a_slow_sample_holds_up_neither_its_batch_nor_those_behind_it() -> None:
    _done.clear()
    loader = Apart(Meeting(), batch_size=4, num_workers=2, prefetch_factor=2)
    loader._threadable._known = (loader.dataset, loader.collate_fn, None)  # made alone, the first would wait for ever
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]


def test_batches_are_dataloaders() -> None:
    dataset = pipelines.Tensors(26)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True}
    torch.manual_seed(3)
    theirs: Any = DataLoader(dataset, **options, num_workers=1, persistent_workers=True)
    own = [batch for _ in range(2) for batch in theirs]
    torch.manual_seed(3)
    loader = Apart(dataset, **options, num_workers=2, persistent_workers=True)
    made = [batch for _ in range(2) for batch in loader]
    assert_same(made, own)


@pytest.mark.parametrize("options", [{"batch_size": None}, {"batch_size": 5, "drop_last": True}, {"batch_sampler": [[3, 1], [2]]}])
def test_batches_of_every_kind(options: dict[str, Any]) -> None:
    made, own = (list(kind(pipelines.Tensors(12), num_workers=2, **options)) for kind in (Apart, DataLoader))
    assert_same(made, own)


class AtOnce(pipelines.Tensors):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def test_what_a_dataset_reads_at_once() -> None:
    made, own = (list(kind(AtOnce(12), batch_size=4, num_workers=2)) for kind in (Apart, DataLoader))
    assert_same(made, own)


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise KeyError("five is missing")
        if index == 11 and get_worker_info() is None:
            raise OSError("not here")
        return torch.full((3,), float(index))


def test_errors_are_the_users_own_and_iteration_goes_on() -> None:
    iterator = iter(Apart(Broken(), batch_size=4, num_workers=2))
    assert next(iterator)[0, 0] == 0
    with pytest.raises(KeyError, match=r"(?s)Caught KeyError in DataLoader worker process 0.*five is missing"):
        next(iterator)
    assert next(iterator)[0, 0] == 8
    with pytest.raises(StopIteration):
        next(iterator)


def test_bad_samples_are_left_out_and_noted(tmp_path: Path) -> None:
    note = tmp_path / "bad.jsonl"
    loader = Apart(Broken(), batch_size=4, num_workers=2, on_bad="skip", max_bad=0.5, quarantine=str(note))
    assert [len(batch) for batch in loader] == [4, 3, 4]
    assert "five is missing" in note.read_text()


def refuse(samples: list[Any]) -> Any:
    raise ArithmeticError(f"no batch of {len(samples)}")


def test_a_collate_function_runs_in_the_worker() -> None:
    with pytest.raises(ArithmeticError, match="no batch of 4"):
        list(Apart(pipelines.Tensors(8), batch_size=4, num_workers=2, collate_fn=Late(refuse)))


class Late:
    """Called well once, before threads begin."""

    def __init__(self, then: Any) -> None:
        self.then = then

    def __call__(self, samples: list[Any]) -> Any:
        return torch.stack(samples) if get_worker_info() is None else self.then(samples)


def test_where_an_epoch_stands() -> None:
    loader = Apart(pipelines.Tensors(40), batch_size=4, shuffle=True, num_workers=3)
    torch.manual_seed(5)
    whole = list(loader)
    again = Apart(pipelines.Tensors(40), batch_size=4, shuffle=True, num_workers=3)
    torch.manual_seed(5)
    first = list(itertools.islice(again, 4))
    rest: Any = Apart(pipelines.Tensors(40), batch_size=4, shuffle=True, num_workers=1)
    rest.load_state_dict(again.state_dict())
    assert_same(first + list(rest), whole)


def test_an_epoch_that_is_left_is_followed_by_another() -> None:
    loader = Apart(pipelines.Tensors(40), batch_size=4, num_workers=2, persistent_workers=True)
    next(iter(loader))
    assert_same(list(loader), list(DataLoader(pipelines.Tensors(40), batch_size=4)))


class Fatal(pipelines.Tensors):
    def __getitem__(self, index: int) -> Any:
        if index == 9 and get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_the_worker_is_killed() -> None:
    with pytest.raises(RuntimeError, match=r"worker .*exited unexpectedly.*SIGKILL|worker .*SIGKILL|killed by signal: Killed"):
        list(Apart(Fatal(24), batch_size=4, num_workers=3))


class Draws(pipelines.Tensors):
    def __init__(self, length: int, draw: Any) -> None:
        super().__init__(length)
        self.draw = draw

    def __getitem__(self, index: int) -> Any:
        self.draw()
        return super().__getitem__(index)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(4))


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (Draws(12, partial(torch.rand, 1)), {}, "samples draw random numbers, which threads would share"),
        (Draws(12, np.random.rand), {}, "samples draw random numbers, which threads would share"),
        (Draws(12, random.random), {"rng": "sample"}, "samples draw random numbers, which threads would share"),
        (pipelines.Tensors(12), {"sample_timeout": LONG}, "sample_timeout interrupts worker processes"),
        (Stream(), {}, "the dataset is a stream"),
    ],
    ids=["torch", "numpy", "python", "timeout", "stream"],
)
def test_declined_with_a_reason_and_made_by_processes(dataset: Any, options: dict[str, Any], why: str) -> None:
    loader = Apart(dataset, batch_size=4, num_workers=2, **options)
    assert len(list(loader)) == (3 if not isinstance(dataset, Stream) else 2)
    assert loader.explain().startswith(f"No threads: {why}")
    assert "2 worker processes" in loader.explain()


def numbered(worker: int) -> None:
    get_worker_info().dataset.begun = worker


class Begun(pipelines.Tensors):
    begun = -1

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + self.begun


def test_worker_init_fn_is_called_in_the_process() -> None:
    made = list(Apart(Begun(8), batch_size=4, num_workers=2, worker_init_fn=numbered))
    assert_same(made, list(DataLoader(pipelines.Tensors(8), batch_size=4)))


class TestFused:
    @pytest.mark.parametrize("options", [{}, {"collate_fn": stacked}, {"persistent_workers": True}], ids=["plain", "own", "stays"])
    def test_batches_are_the_same(self, options: dict[str, Any], folder: Path) -> None:  # noqa: F811
        dataset = ImageFolder(str(folder), TRAIN)
        torch.manual_seed(7)
        loader = Apart(dataset, fuse="exact", num_workers=2, batch_size=4, shuffle=True, **options)
        made = [batch for _ in range(2) for batch in loader]
        torch.manual_seed(7)
        stays = {"num_workers": 1, "persistent_workers": True} if "persistent_workers" in options else {}
        own: Any = FastLoader(dataset, rng="sample", batch_size=4, shuffle=True, **stays)
        for one, other in zip(made, [batch for _ in range(2) for batch in own], strict=True):
            assert torch.equal(one[0], other[0])
            assert list(map(int, one[1])) == other[1].tolist()
        assert loader.explain().startswith("2 threads of one worker process make batches by fused calls. ")

    def test_a_picture_that_is_gone(self, folder: Path, tmp_path: Path) -> None:  # noqa: F811
        dataset = ImageFolder(str(folder), TRAIN)
        dataset.samples[5] = (str(tmp_path / "gone.jpg"), 0)
        with pytest.raises(FileNotFoundError, match=r"gone\.jpg"):
            list(Apart(dataset, fuse="exact", num_workers=2, batch_size=4))


class Failing:
    """A reader that cannot begin."""

    def begin(self, asked: Any) -> Any:
        return ("begun", asked)


def test_what_comes_out_of_the_queue_keeps_its_order() -> None:
    ahead = Ahead(_Queue([(0, [1]), (1, [2]), None]))
    ahead.reader = Failing()
    assert [ahead.get(1), ahead.get(1), ahead.get(1)] == [(0, ("begun", [1])), (1, ("begun", [2])), None]
    with pytest.raises(queue.Empty):
        ahead.get(0.001)


class _Queue:
    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages

    def get(self, timeout: float) -> Any:
        return self.get_nowait()

    def get_nowait(self) -> Any:
        if not self.messages:
            raise queue.Empty
        return self.messages.pop(0)


COLLATING, STACKED = threading.Event(), threading.Event()


class Stacks(Dataset[Any]):
    """Samples that are stacked by `default_collate`; those of the second batch while the first one is collated."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if get_worker_info() is None:
            return torch.zeros(2, 2000), True  # tried before the threads begin
        if index >= 4:
            COLLATING.wait()
        made = torch.utils.data.default_collate([torch.full((2000,), index)] * 2)
        if index == 7:
            STACKED.set()
        # In a worker torch stacks into memory of the tensor's own; in a slot it would be written again with the slot's next batch.
        return made, made.is_shared()


def collate_meanwhile(samples: list[Any]) -> Any:
    if get_worker_info() is not None:
        COLLATING.set()
        STACKED.wait()
    return torch.utils.data.default_collate(samples)


def test_samples_that_are_stacked_while_a_batch_is_collated_lie_in_memory_of_their_own() -> None:
    COLLATING.clear()
    STACKED.clear()
    loader = Apart(Stacks(), batch_size=4, num_workers=4, collate_fn=collate_meanwhile)
    for number, (samples, own_memory) in enumerate(loader):
        assert own_memory.all()
        assert samples[:, 0, 0].tolist() == list(range(4 * number, 4 * number + 4))
