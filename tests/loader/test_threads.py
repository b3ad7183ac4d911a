"""`FastLoader(engine="threads")`: what only threads do, and when they are not taken. What every loader promises is asked of them in
the suites for all (`ways`)."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, default_collate, get_worker_info

from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.iterator import InProcessLoaderIterator
from pipefix.loader.threads import pool
from pipefix.loader.threads.iterator import ThreadsLoaderIterator
from pipefix.loader.threads.sample_batches import Pinned
from pipefix.loader.workers.iterator import ProcessesLoaderIterator
from tests.loader import pipelines
from tests.loader.likeness import assert_same
from tests.loader.ways import ByThreads


class Made(Dataset[torch.Tensor]):
    """Samples of a function; what was asked for, and by which thread, is noted."""

    def __init__(self, make: Callable[[int], Any] = float, length: int = 12) -> None:
        self.make, self.length = make, length
        self.asked: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.asked.append((index, threading.current_thread().name))
        return self.make(index) if threading.current_thread().name.startswith("pipefix-") else float(index)


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("pipefix-")]


def test_threads_of_this_process_make_the_samples(children: Callable[[], list[Any]]) -> None:
    dataset = Made(lambda index: (index, torch.get_num_threads(), get_worker_info() is None))
    loader = ByThreads(dataset, batch_size=4, num_workers=3)
    gc.collect()  # workers of loaders that nobody has any more
    batches = list(loader)
    assert torch.cat([batch[0] for batch in batches]).tolist() == list(range(12))
    assert all(batch[1].tolist() == [1] * 4 and batch[2].all() for batch in batches)
    assert {name for _, name in dataset.asked[2:]} <= {"pipefix-0", "pipefix-1", "pipefix-2"}
    assert not children()
    assert loader.explain() == "3 threads of this process make the samples: no process is started, and nothing travels."
    assert "12 samples" in str(loader.stats())


def test_a_slow_sample_holds_nobody_up() -> None:
    """It is done only when all those after it, of its batch and of the next ones, are."""
    others = threading.Semaphore(0)

    def make(index: int) -> float:
        if index == 0:
            assert all(others.acquire() for _ in range(11))
        else:
            others.release()
        return float(index)

    loader = ByThreads(Made(make), batch_size=4, num_workers=2)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_the_caller_finds_the_batch_collated_and_pinned() -> None:
    names = []

    def collate(samples: list[float]) -> Any:
        names.append(threading.current_thread().name)
        return default_collate(samples)

    list(ByThreads(Made(), batch_size=4, num_workers=2, collate_fn=collate))
    assert len(names) == 4 and all(name.startswith("pipefix-") for name in names[1:]), "the first was looked at beforehand"
    assert Pinned(pipelines.wrap)([torch.ones(2)]).pinned


def test_what_the_dataset_reads_at_once_is_one_task() -> None:
    class Together(Made):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [(threading.current_thread().name, len(indices)) for _ in indices]

    batches = list(ByThreads(Together(), batch_size=4, num_workers=2))
    assert all(len(set(names)) == 1 and sizes.tolist() == [4] * 4 for names, sizes in batches)


def test_a_part_of_a_dataset_is_read_sample_by_sample() -> None:
    met = threading.Barrier(2)

    def make(index: int) -> float:
        met.wait()
        return float(index)

    whole = Made(make)
    batches = list(ByThreads(Subset(whole, range(4, 8)), batch_size=2, num_workers=2))
    assert [batch.tolist() for batch in batches] == [[4, 5], [6, 7]]


class TestErrors:
    def test_it_is_the_users_own_with_its_traceback_and_the_first_of_its_batch(self) -> None:
        errors = {index: KeyError(f"sample {index}") for index in (5, 6)}

        def make(index: int) -> float:
            if index in errors:
                raise errors[index]
            return float(index)

        iterator = iter(ByThreads(Made(make), batch_size=4, num_workers=2))
        next(iterator)
        with pytest.raises(KeyError) as caught:
            next(iterator)
        assert caught.value is errors[5] and caught.traceback[-1].name == "make"
        assert next(iterator).tolist() == [8, 9, 10, 11]

    def test_what_ends_a_process_is_raised_here(self) -> None:
        def make(index: int) -> float:
            if index == 5:
                raise SystemExit(3)
            return float(index)

        iterator = iter(ByThreads(Made(make), batch_size=4, num_workers=2))
        next(iterator)
        with pytest.raises(SystemExit):
            next(iterator)
        assert next(iterator).tolist() == [8, 9, 10, 11]

    def test_a_sample_that_raises_stop_iteration_ends_the_epoch(self) -> None:
        def make(index: int) -> float:
            return next(iter(())) if index == 5 else float(index)

        iterator = iter(ByThreads(Made(make), batch_size=4, num_workers=2))
        assert [batch.tolist() for batch in iterator] == [[0, 1, 2, 3]]
        assert list(iterator) == []

    def test_of_collating_and_of_indices_that_are_none(self) -> None:
        iterator = iter(ByThreads(Made(), batch_sampler=[[0], 7, [], [1]], num_workers=2))
        assert next(iterator).tolist() == [0]
        for kind in (TypeError, IndexError):
            with pytest.raises(kind):
                next(iterator)
        assert next(iterator).tolist() == [1]

    def test_timeout(self) -> None:
        go = threading.Event()
        iterator = iter(ByThreads(Made(lambda index: go.wait() and float(index)), batch_size=4, num_workers=1, timeout=0.05))
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
            next(iterator)
        go.set()


class TestThreads:
    def test_they_end_with_their_epoch_or_their_iterator(self) -> None:
        before = own_threads()
        loader = ByThreads(Made(), batch_size=4, num_workers=2)
        ended, left = iter(loader), iter(loader)
        mine = [thread for thread in own_threads() if thread not in before]
        assert len(mine) == 4
        assert len(list(ended)) == 3
        next(left)
        del left
        gc.collect()
        for thread in mine:
            thread.join()

    def test_they_leave_before_the_interpreter_does(self) -> None:
        asked = threading.Event()
        iterator = iter(ByThreads(Made(lambda index: asked.set() or float(index), length=400), batch_size=4, num_workers=2))
        assert asked.wait() and len(own_threads()) >= 2
        pool._leave()
        assert not own_threads()
        del iterator

    def test_persistent_ones_live_on(self) -> None:
        loader = ByThreads(Made(length=40), batch_size=4, num_workers=2, persistent_workers=True)
        iterator = iter(loader)
        next(iterator)
        threads = iterator._pool
        assert iter(loader) is iterator and [batch[0].item() for batch in loader] == list(range(0, 40, 4))
        assert [batch[0].item() for batch in loader] == list(range(0, 40, 4)) and iterator._pool is threads
        iterator._end()

    def test_as_much_is_under_way_as_in_data_loader(self) -> None:
        dataset = Made(length=100)
        iterator = iter(ByThreads(dataset, batch_size=2, num_workers=2, prefetch_factor=3))
        assert len(iterator._under_way) == 6
        next(iterator)
        assert len(iterator._under_way) == 6

    def test_more_than_there_are_cores_are_not_warned_of(self, recwarn: pytest.WarningsRecorder) -> None:
        assert len(list(ByThreads(Made(), batch_size=4, num_workers=64))) == 3
        assert not recwarn.list


class Draws(pipelines.Tensors):
    """A sample that draws from somewhere."""

    def __init__(self, draw: Callable[[], Any], length: int = 16) -> None:
        super().__init__(length, (2,))
        self.draw = draw

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + float(self.draw())


class Late(Draws):
    """Its generator is made by the first sample."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.rng: Any = None

    def __getitem__(self, index: int) -> torch.Tensor:
        self.rng = self.rng or np.random.default_rng(3)
        return super().__getitem__(index) + self.rng.random()


_OF_THIS_MODULE = random.Random(5)
SOURCES: dict[str, Callable[[], Any]] = {
    "torch": lambda: Draws(partial(torch.rand, ())),
    "NumPy": lambda: Draws(np.random.rand),
    "Python": lambda: Draws(random.random),
    "the dataset's own": lambda: Draws(np.random.default_rng(3).random),
    "enclosed": lambda: Draws((lambda generator: lambda: generator.random())(random.Random(3))),
    "its module's": lambda: Draws(lambda: _OF_THIS_MODULE.random()),
    "made late": Late,
    "below others": lambda: ConcatDataset([pipelines.Tensors(4, (2,)), Subset(Draws(random.random), range(4))]),
}
DRAWN = "samples draw random numbers, which threads would share"


class TestDraws:
    @pytest.mark.parametrize("rng", ["torch", "sample"])
    @pytest.mark.parametrize("source", SOURCES)
    def test_samples_that_draw_are_made_by_processes(self, source: str, rng: str) -> None:
        dataset = SOURCES[source]()
        torch.manual_seed(3), np.random.seed(3), random.seed(3)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), _OF_THIS_MODULE.getstate()
        loader = ByThreads(dataset, batch_size=4, num_workers=1, rng=rng)
        assert loader.explain() == f"No threads: {DRAWN}. Nothing has been loaded yet."
        loader._decide()
        assert not loader._by_threads
        after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate(), _OF_THIS_MODULE.getstate()
        assert_same(after, before)

    def test_they_are_then_what_they_would_have_been(self) -> None:
        made = []
        for kind in (DataLoader, ByThreads):
            torch.manual_seed(3)
            loader = kind(Draws(np.random.default_rng(3).random), batch_size=4, num_workers=1, shuffle=True)
            made.append(list(loader))
        assert_same(made[1], made[0])
        assert f"No threads: {DRAWN}." in loader.explain() and "1 worker processes" in loader.explain()

    def test_a_collate_function_that_draws(self) -> None:
        loader = ByThreads(pipelines.Tensors(), batch_size=4, num_workers=1, collate_fn=mixed)
        assert "No threads: collate_fn draws random numbers, which threads would share." in loader.explain()

    def test_samples_with_numbers_of_their_own_that_draw_none(self) -> None:
        loader = ByThreads(pipelines.Tensors(), batch_size=4, num_workers=2, rng="sample", shuffle=True)
        torch.manual_seed(3)
        made = list(loader)
        torch.manual_seed(3)
        assert_same(made, list(FastLoader(pipelines.Tensors(), batch_size=4, rng="sample", shuffle=True)))
        assert "2 threads" in loader.explain()

    def test_it_is_looked_at_once(self) -> None:
        dataset = Made()
        loader = ByThreads(dataset, batch_size=4, num_workers=2)
        loader.explain(), list(loader), list(loader)
        assert [index for index, name in dataset.asked if not name.startswith("pipefix-")] == [0, 11]


def mixed(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples)[torch.randperm(len(samples))]


def init(worker: int) -> None:
    assert get_worker_info() is not None


class Keyed(Dataset[float]):
    """Asked for by names."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, name: str) -> float:
        return {"a": 1.0, "b": 2.0}[name]


class TestDeclined:
    """Each reason is a sentence, and the loader goes on with worker processes."""

    @pytest.mark.parametrize(
        ("dataset", "options", "why"),
        [
            (pipelines.Stream(8), {}, "the dataset is a stream, or made of data pipes: its samples are not asked for by index"),
            (pipelines.Tensors(8), {"worker_init_fn": init}, "worker_init_fn is called in worker processes"),
            (pipelines.Tensors(8), {"sample_timeout": 60}, "sample_timeout interrupts worker processes"),
            (
                pipelines.Tensors(8),
                {"multiprocessing_context": "fork"},
                "multiprocessing_context chooses how worker processes are started",
            ),
            (
                Keyed(),
                {"sampler": ["a", "b"]},
                "no sample could be made alone, to see whether it draws random numbers (KeyError: 0)",
            ),
        ],
    )
    def test_by_what_needs_processes(self, dataset: Any, options: dict[str, Any], why: str) -> None:
        loader = ByThreads(dataset, batch_size=2, num_workers=1, **options)
        assert loader.explain() == f"No threads: {why}. Nothing has been loaded yet."
        assert len(list(loader)) == len(loader)
        assert loader.explain().startswith(f"No threads: {why}. 1 worker processes")

    def test_by_a_cache(self, tmp_path: Path) -> None:
        convert(pipelines.Tensors(8), recipe_of("lmdb", "sample"), tmp_path / "cache", target="tensors", workers=1)
        loader = ByThreads(ConcatDataset([CachedDataset(tmp_path / "cache")]), batch_size=4, num_workers=1)
        assert loader.explain().startswith("No threads: CachedDataset reads for one thread of a process.")

    def test_nobody_is_given_threads_who_did_not_ask(self) -> None:
        assert type(iter(FastLoader(pipelines.Tensors(8), batch_size=4, num_workers=1))) is ProcessesLoaderIterator

    def test_without_workers_nothing_is_looked_at(self) -> None:
        dataset = Made()
        loader = ByThreads(dataset, batch_size=4)
        assert type(iter(loader)) is InProcessLoaderIterator and not dataset.asked

    def test_an_empty_dataset_and_one_whose_first_sample_is_bad(self) -> None:
        assert list(ByThreads(Made(length=0), batch_size=4, num_workers=1)) == []
        loader = ByThreads(pipelines.Torn(12, bad=(0, 11)), batch_size=4, num_workers=1, on_bad="skip", max_bad=1, quarantine=None)
        assert type(iter(loader)) is ThreadsLoaderIterator
        assert [len(batch) for batch in loader] == [3, 4, 3]

    def test_with_pictures_that_cannot_be_fused(self) -> None:
        loader = ByThreads(pipelines.Tensors(8), batch_size=4, num_workers=1, fuse="exact")
        assert len(list(loader)) == 2
        assert loader.explain() == (
            "Not fused: the dataset has no transforms (an attribute such as transform); in part neither, as engine='threads' would "
            "have threads take turns at your own code. "
            "A thread of this process makes the samples: no process is started, and nothing travels."
        )
