"""What a process holds from the outside: children, threads, descriptors, shared memory, temporary files."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

PATIENCE = 1500
"""Looks, a twentieth of a second apart: only what stays is found after so many."""


class Residue(NamedTuple):
    children: frozenset[int]
    threads: frozenset[str]
    descriptors: frozenset[str]
    shared: frozenset[str]
    temporary: frozenset[str]


def held() -> Residue:
    gc.collect()
    children: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
            children.update(map(int, (task / "children").read_text().split()))
    return Residue(
        frozenset(children),
        frozenset(thread.name for thread in threading.enumerate()),
        frozenset(_descriptors()),
        frozenset(name for name in os.listdir("/dev/shm") if _is_ours(name)),
        frozenset(os.listdir(tempfile.gettempdir())),
    )


_ours = {os.getpid()}


def note_forks(patches: pytest.MonkeyPatch) -> None:
    """From now on whoever this process forks counts as its own, after its end too."""
    fork = os.fork

    def noted() -> int:
        child = fork()
        if child:
            _ours.add(child)
        return child

    patches.setattr(os, "fork", noted)


def _is_ours(name: str) -> bool:
    """Whether a name in shared memory bears the number of this process or of one that it has forked."""
    return any(part.isdecimal() and int(part) in _ours for part in name.replace("-", "_").split("_"))


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue  # the listing's own
    return found


def settled(before: Residue) -> Residue:
    """What is held once the processes that are ending have ended; what was held before is left out."""
    for _ in range(PATIENCE):
        left = Residue(*(after - old for after, old in zip(held(), before, strict=True)))
        if not any(left):
            break
        threading.Event().wait(0.05)
    return left


NOTHING = Residue(frozenset(), frozenset(), frozenset(), frozenset(), frozenset())
