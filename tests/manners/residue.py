"""What a process holds from the outside: children, threads, descriptors, shared memory, temporary files."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple


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
        frozenset(name for name in os.listdir("/dev/shm") if not _of_another(name)),
        frozenset(os.listdir(tempfile.gettempdir())),
    )


def _of_another(name: str) -> bool:
    """Whether a name in shared memory bears the number of a process that lives and is not this one."""
    pids = [int(part) for part in name.replace("-", "_").split("_") if part.isdecimal()]
    return any(pid != os.getpid() and Path(f"/proc/{pid}").exists() for pid in pids)


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue  # the listing's own
    return found


def settled(before: Residue, seconds: float = 20.0) -> Residue:
    """What is held once processes that are ending have ended; what was held before is left out."""
    until = time.monotonic() + seconds
    while True:
        now = held()
        left = Residue(*(after - old for after, old in zip(now, before, strict=True)))
        if not any(left) or time.monotonic() > until:
            return left
        time.sleep(0.05)


NOTHING = Residue(frozenset(), frozenset(), frozenset(), frozenset(), frozenset())
