"""`FastLoader(threads_per_worker=N)`: threads read the samples of a batch, where nothing is drawn."""

from __future__ import annotations

import random
import shlex
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, get_worker_info

from pipefix.loader.fast_loader import FastLoader
from tests.loader import pipelines
from tests.loader.likeness import assert_same


class Meeting(Dataset[Any]):
    """From index 4 on samples are there when as many threads as ``parties`` ask for one."""

    def __init__(self, parties: int) -> None:
        self.parties, self.met = parties, threading.Barrier(parties)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index >= 4:
            self.met.wait()
        info = get_worker_info()
        return index, threading.current_thread().name.startswith("pipefix-sample"), torch.get_num_threads(), info is not None

    def __getstate__(self) -> Any:
        return {"parties": self.parties}

    def __setstate__(self, state: Any) -> None:
        self.__init__(**state)  # type: ignore[misc]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", [False, True])
def test_threads_read_the_samples_of_a_batch_from_its_second_on(workers: int, part: bool) -> None:
    dataset: Any = Subset(Meeting(4), range(12)) if part else Meeting(4)
    loader: Any = FastLoader(dataset, batch_size=4, num_workers=workers, threads_per_worker=4)
    batches = list(loader)
    assert torch.cat([batch[0] for batch in batches]).tolist() == list(range(12))
    assert [batch[1].tolist() for batch in batches] == [[False] * 4, [True] * 4, [True] * 4]
    assert all(batch[3].tolist() == [workers > 0] * 4 for batch in batches)
    assert all(batch[2].tolist() == [1] * 4 for batch in batches[1:]), "each computes with one thread"
    assert "4 threads read the samples of a batch, unless samples draw random numbers." in loader.explain()


def test_what_the_dataset_reads_at_once_is_asked_for_at_once() -> None:
    class Together(pipelines.Tensors):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [(threading.current_thread() is threading.main_thread(), len(indices)) for _ in indices]

    batches = list(FastLoader(Together(12), batch_size=4, threads_per_worker=4))
    assert all(main.all() and sizes.tolist() == [4] * 4 for main, sizes in batches)


class Draws(pipelines.Tensors):
    """A sample that draws from somewhere, from index ``begin`` on."""

    def __init__(self, draw: Callable[[], Any], begin: int = 0) -> None:
        super().__init__(16, (2,))
        self.draw, self.begin = draw, begin

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + (float(self.draw()) if index >= self.begin else 0.0)


_OF_THIS_MODULE = random.Random(5)
SOURCES: dict[str, Callable[[], Any]] = {
    "torch": lambda: Draws(partial(torch.rand, ())),
    "NumPy": lambda: Draws(np.random.rand),
    "Python": lambda: Draws(random.random),
    "the dataset's own": lambda: Draws(np.random.default_rng(3).random),
    "enclosed": lambda: Draws((lambda generator: lambda: generator.random())(random.Random(3))),
    "its module's": lambda: Draws(lambda: _OF_THIS_MODULE.random()),
    "below others": lambda: ConcatDataset([Draws(random.random), pipelines.Tensors(4, (2,))]),
}


@pytest.mark.parametrize("source", SOURCES)
def test_samples_that_draw_are_read_one_after_the_other_as_by_data_loader(source: str) -> None:
    passes = []
    for kind, options in ((DataLoader, {}), (FastLoader, {"threads_per_worker": 4})):
        torch.manual_seed(3), np.random.seed(3), random.seed(3), _OF_THIS_MODULE.seed(3)
        passes.append(list(kind(SOURCES[source](), batch_size=4, **options)))
    assert_same(passes[1], passes[0])


def test_draws_that_begin_late_are_told_and_are_the_last_by_threads() -> None:
    names = set()

    def draw() -> float:
        names.add(threading.current_thread().name.partition("_")[0])
        return random.random()

    with pytest.warns(UserWarning, match=r"threads_per_worker=2: samples of a later batch drew random numbers") as warned:
        batches = list(FastLoader(Draws(draw, begin=7), batch_size=4, threads_per_worker=2))
    assert len(batches) == 4 and len(warned) == 1
    assert names == {"pipefix-sample", "MainThread"}


def test_samples_with_random_numbers_of_their_own_are_read_one_after_the_other() -> None:
    loader: Any = FastLoader(Draws(random.random), batch_size=4, rng="sample", threads_per_worker=4)
    torch.manual_seed(3)
    batches = list(loader)
    torch.manual_seed(3)
    assert_same(batches, list(FastLoader(Draws(random.random), batch_size=4, rng="sample")))
    assert "threads read" not in loader.explain()


HANGING = """
import signal, threading
from pipefix.loader.policy import sample_threads
sample_threads.LEAVING_S = 0.01
main, heard = threading.main_thread(), threading.Event()
def interrupt(*_):
    if not heard.is_set():
        heard.set()
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
def read(index):
    if threading.current_thread() is not main:
        while not heard.is_set():  # one that comes right before the main thread begins to wait does not end its waiting
            signal.pthread_kill(main.ident, signal.SIGINT)
        threading.Event().wait()
threads = sample_threads.SampleThreads(2, [])
list(threads.map(read, [0]))
try:
    list(threads.map(read, [1]))
except KeyboardInterrupt:
    print("the end")
"""


def test_a_sample_that_hangs_does_not_keep_the_process_from_ending(preloaded: str) -> None:
    """After Ctrl-C the process waited for it, in silence."""
    ended = subprocess.run([*shlex.split(preloaded), "-c", HANGING], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr


def test_threads_of_the_programs_own_compute_as_before() -> None:
    """Those that began after the first samples were read by threads had one thread of torch's each."""
    own = torch.get_num_threads()
    torch.set_num_threads(own + 1)
    try:
        list(FastLoader(pipelines.Tensors(8), batch_size=4, threads_per_worker=2))
        with ThreadPoolExecutor(1) as others:
            assert others.submit(torch.get_num_threads).result() == own + 1
    finally:
        torch.set_num_threads(own)
