"""What workers begin with: a dataset that is pickled once where they are not forked, and the threads that a plan gives them."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import subprocess
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.workers import dataset_once
from pipefix.loader.workers.dataset_once import PackedDataset, pack
from tests.loader import pipelines


class Many(pipelines.Tensors):
    """Many names, as datasets hold."""

    def __init__(self) -> None:
        super().__init__(16)
        self.paths = [f"/data/train/class_{number % 100}/{number}.jpg" for number in range(60_000)]
        self.pickled = 0

    def __getstate__(self) -> dict[str, Any]:
        self.pickled += 1
        return self.__dict__

    def __getitem__(self, index: int) -> torch.Tensor:
        assert self.paths[index * 1000].endswith(f"/{index * 1000}.jpg")
        return super().__getitem__(index)


def test_it_is_pickled_once_for_all_workers() -> None:
    dataset = Many()
    before = len(os.listdir("/proc/self/fd"))
    loader = FastLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="forkserver", on_bad="skip")
    assert [float(batch[0, 0]) for batch in loader] == [0.0, 4.0, 8.0, 12.0]
    assert dataset.pickled == 1
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 6  # multiprocessing's own: its server and its tracker


class Collating(Many):
    """Notes in itself what its own way to collate asks for."""

    def __getitem__(self, index: int) -> torch.Tensor:
        self.latest = index
        return super().__getitem__(index)

    def collate(self, samples: list[torch.Tensor]) -> int:
        return self.latest


@pytest.mark.parametrize("kind", [DataLoader, FastLoader])
def test_a_dataset_that_collates_is_the_one_that_is_read(kind: Any) -> None:
    dataset = Collating()
    options = {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "forkserver"}
    assert list(kind(Subset(dataset, range(8)), collate_fn=dataset.collate, **options)) == [3, 7]


def test_small_datasets_and_those_that_hold_tensors_go_torchs_way() -> None:
    dataset = Many()
    assert isinstance(pack(dataset), PackedDataset)
    assert pack(pipelines.Tensors()) is None
    dataset.table = torch.zeros(10)  # type: ignore[attr-defined]
    assert pack(dataset) is None
    dataset.table = multiprocessing.Lock()  # type: ignore[attr-defined]
    assert pack(dataset) is None
    dataset.table = lambda: None  # type: ignore[attr-defined]
    assert pack(dataset) is None


def test_a_system_that_refuses_files_in_memory_goes_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vm.memfd_noexec=2 says so, or a container's seccomp profile."""

    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert pack(Many()) is None


def test_tensors_of_a_dataset_are_still_shared() -> None:
    dataset = pipelines.Counting()
    loader = FastLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context="forkserver")
    assert len(list(loader)) == 4
    assert int(dataset.count) == 16


class Frozen(pipelines.Tensors):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(gc.get_freeze_count())


@pytest.mark.parametrize(("method", "frozen"), [("fork", True), ("forkserver", False)])
def test_only_what_was_inherited_is_kept_from_being_freed(method: str, frozen: bool) -> None:
    """A worker that is spawned frees all at its end: nanobind prints what is left."""
    (batch,) = FastLoader(Frozen(1), num_workers=1, multiprocessing_context=method)
    assert bool(batch) is frozen


def test_a_users_choice_of_modules_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from multiprocessing import forkserver

    class Server:
        _forkserver_pid: int | None = None
        _preload_modules = ["__main__"]

    chosen: list[Any] = []
    monkeypatch.setattr(forkserver, "_forkserver", Server)
    monkeypatch.setattr(forkserver, "set_forkserver_preload", chosen.append)
    dataset_once.preload(pipelines.Tensors(), pipelines.wrap)
    assert chosen == [["__main__", *dataset_once.PRELOADED, "tests.loader.pipelines"]]
    Server._preload_modules = ["mine"]
    dataset_once.preload()
    Server._preload_modules, Server._forkserver_pid = ["__main__"], 7
    dataset_once.preload()
    assert len(chosen) == 1


CAPPED = """
import os
os.environ["OMP_NUM_THREADS"] = os.environ["NUMEXPR_NUM_THREADS"] = "9"
import cv2, torch
from functools import partial
from pipefix.loader.workers.start import FirstInWorker, cap_threads
torch.set_num_threads(4)
FirstInWorker(partial(cap_threads, 2), print)(7)
print(torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], os.environ["NUMEXPR_NUM_THREADS"], cv2.getNumThreads())
"""


def test_threads_are_capped_and_then_the_users_own_is_called(preloaded: str) -> None:
    """In a process of its own, for it is not taken back."""
    process = subprocess.run([*preloaded.split(), "-c", CAPPED], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == ["7", "2 2 2 2"]
