"""For tests of real trials: what processes they start, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    mine, descendants = {os.getpid()}, []
    for name in sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int):
        fields = usage._stat(int(name))
        if fields is not None and fields[0] != "Z" and int(fields[1]) in mine:
            mine.add(int(name))
            descendants.append(int(name))
    return descendants


def state(pid: int) -> str:
    fields = usage._stat(pid)
    return fields[0] if fields is not None else ""


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z")


def shared_memory_of(processes: set[int]) -> set[str]:
    """Names in /dev/shm of what these processes made; whatever others make there meanwhile is not looked at."""
    return {name for name in os.listdir("/dev/shm") if name.split("_")[:2] in [["torch", str(pid)] for pid in processes]}


def managers() -> list[int]:
    """Torch's processes that remove shared memory when those who made it are gone; they leave the session of who started them."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if b"torch_shm_manager" in command_line(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ended(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        select.select([process], [], [], 75)
        os.close(process)


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
    for pid in set(managers()) - known if shared_memory_of(own) else ():
        ended(pid)
    assert not shared_memory_of(own)
