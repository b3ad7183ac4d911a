"""For tests of real trials: what processes they start, and what is left of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import Dataset

from pipefix.tuning import usage


class Wide(Dataset[Any]):
    """Samples of a few tensors each, a batch large enough to be felt."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.full((3000,), float(index)) for _ in range(20)]


def children() -> list[int]:
    """Processes that descend from this one."""
    return [child.pid for child in psutil.Process().children(recursive=True) if alive(child.pid)]


def state(pid: int) -> str:
    fields = usage._stat(pid)
    return fields[0] if fields is not None else ""


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z")


def shared_memory_of(processes: set[int]) -> set[str]:
    """Names in /dev/shm of what these processes made; whatever others make there meanwhile is not looked at."""
    return {name for name in os.listdir("/dev/shm") if name.split("_")[:2] in [["torch", str(pid)] for pid in processes]}


def managers() -> list[psutil.Process]:
    """Torch's processes that remove shared memory when those who made it are gone; they leave the session of who started them."""
    return [
        process for process in psutil.process_iter(["cmdline"]) if "torch_shm_manager" in " ".join(process.info["cmdline"] or [])
    ]


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The trials of a test leave no process, and none of the shared memory that their processes made."""
    before, known, own, real = set(children()), set(managers()), set(), usage.group

    def noting(leader: int) -> list[int]:
        processes = real(leader)
        own.update(processes)
        return processes

    monkeypatch.setattr(usage, "group", noting)
    yield
    assert set(children()) <= before
    if shared_memory_of(own):
        psutil.wait_procs(set(managers()) - known, timeout=75)
    assert not shared_memory_of(own)
