"""Writes what a process of the program does as JSON lines, into a file of its own.

A loop writes a line every half second, more often at first and less often later: what a killed program did by then is known.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

clock = time.perf_counter


class Notes:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.silent = False
        """Whether nothing is written, though it is told."""
        self.own_s = 0.0
        """Seconds spent in writing, and in looking at what is written."""
        self._file: int | None = None
        self._which = (0, 0)
        """Device and number of that file, by which it is known: the program may have closed it, and opened its own in its place."""
        self._pid = os.getpid()
        self._epoch = time.time() - time.monotonic()
        """Notes tell the time of day by it, which goes on evenly where somebody sets the machine's clock meanwhile."""
        self._opening = threading.RLock()
        self._rank_told = bool(os.environ.get("RANK"))

    @property
    def begun(self) -> bool:
        """Whether this process has written anything."""
        return self._pid == os.getpid() and self._file is not None

    def forget(self) -> None:
        """In a process forked from this one, which writes to a file of its own."""
        self._file, self._opening = None, threading.RLock()
        self._rank_told = bool(os.environ.get("RANK"))
        self.own_s = 0.0

    def tell_rank(self) -> None:
        """Of a process that was given none by its launcher, once it is known."""
        rank = None if self._rank_told else known_rank()
        if rank:
            self._rank_told = True
            self.write("rank", rank=rank)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """What is done inside takes the program's time."""
        begun, own_s = clock(), self.own_s
        try:
            yield
        finally:
            self.own_s = own_s + clock() - begun

    def write(self, event: str, **figures: Any) -> None:
        if self.silent:
            return
        begun = clock()
        with suppress(OSError):  # a full disk: the program is none the worse
            with self._opening:  # else of two threads that begin one may write before the line that the file begins with
                file = self._file if self._file is not None and self._is_ours(self._file) else self._open()
            line = json.dumps({"event": event, "at": self._now(), **figures}, default=int)  # NumPy's integers
            os.write(file, (line + "\n").encode())
        self.own_s += clock() - begun

    def _now(self) -> float:
        return self._epoch + time.monotonic()

    def _is_ours(self, file: int) -> bool:
        with suppress(OSError):  # the program closed all that it did not open, as one that goes on as a daemon
            return self._pid == os.getpid() and self._which == _which(file)
        return False

    def _open(self) -> int:
        again, self._pid = self.begun, os.getpid()
        name = os.path.join(self.folder, f"events-{platform.node()}-{self._pid}.jsonl")
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
        if not again:
            own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
            machine = {"host": platform.node(), "cores": len(own), "numa_nodes": _numa_nodes(own), **_machine()}
            rank = os.environ.get("RANK")
            here = {"event": "process", "at": self._now(), "pid": self._pid, "argv": _command(), "rank": rank, **machine}
            os.write(file, (json.dumps(here) + "\n").encode())
        self._which, self._file = _which(file), file
        return file


def known_rank() -> str | None:
    """This process's, as its launcher told it, or as torch.distributed knows by now: ``mp.spawn``, srun, Lightning."""
    distributed = None if os.environ.get("RANK") else sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank())
    return os.environ.get("RANK")


def _command() -> list[str]:
    """This program and its arguments, as they are given to `pipefix run`."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name == "__main__":
        return [*map(str, sys.argv)]
    return ["-m", spec.name.removesuffix(".__main__"), *map(str, sys.argv[1:])]


def _which(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _machine() -> dict[str, Any]:
    """What training ranks may differ in."""
    facts: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # not on Linux
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            facts["processor"] = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), None)
        facts["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return facts


def _numa_nodes(cores: set[int]) -> str | None:
    """Those that the cores lie on, as Linux numbers them: "0", or "0, 1"; None where that is unknown."""
    folder = "/sys/devices/system/node"
    nodes: list[str] = []
    with suppress(OSError):
        nodes = [name for name in sorted(os.listdir(folder)) if name.startswith("node") and name[4:].isdigit()]
    own = [node for node in nodes if any(os.path.exists(f"{folder}/{node}/cpu{core}") for core in cores)]
    return ", ".join(node[4:] for node in own) or None
