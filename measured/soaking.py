"""Epochs for as long as one likes, a worker killed every so often: what is delivered is counted, and what is left behind."""

from __future__ import annotations

import gc
import math
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from pipefix.loader.fast_loader import FastLoader

SAMPLES, BATCH, WORKERS = 1200, 16, 3
WAYS: tuple[dict[str, Any], ...] = (
    {"rng": "sample", "persistent_workers": True},
    {"rng": "torch"},
    {"threads_per_worker": 2},
    {"rng": "torch", "persistent_workers": True, "engine": "processes"},
)
"""Each has its turn, a few epochs long."""
LATE_S = 0.1
"""In which the word of a worker's death comes: within the loop, whose error it is."""
EPOCHS = 3
GROWTH = 32 << 20
"""Bytes of memory that a process may have more at the end than after its first epochs: its allocator's room."""


class Payload(Dataset[Any]):
    """What a sample is follows from its number; it takes about a millisecond, most of it waiting."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.001)
        return index, torch.full((64, 64), float(index))


@dataclass
class Left:
    """What this process holds."""

    files: Counter[str]
    """What its open descriptors lead to."""
    shared: frozenset[str]
    """In /dev/shm, of this process and of workers it had: other programs have files there, too."""
    threads: int
    memory: int
    """Bytes that it wrote: its own, and of memory it shares. Pages of files are others' as well, or not, as others come and go."""

    @classmethod
    def now(cls, workers: set[int]) -> Left:
        gc.collect()
        theirs = {str(pid) for pid in (os.getpid(), *workers)}
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
        memory = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Anonymous:", "Pss_Shmem:")))
        shared = frozenset(name for name in os.listdir("/dev/shm") if theirs & set(name.replace("-", "_").split("_")))
        return cls(_open_files(), shared, threading.active_count(), memory)


def _open_files() -> Counter[str]:
    """Pipes and sockets by their kind: each has a number of its own."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that this folder was read by
            found[os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0]] += 1
    return found


@dataclass
class Told:
    epochs: int = 0
    kills: int = 0
    raised: int = 0
    """Deaths that the loop was told of."""
    samples: int = 0
    wrong: list[str] = field(default_factory=list)
    workers: set[int] = field(default_factory=set)
    before: Left | None = None
    """After the first turn of each way."""
    after: Left | None = None
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and bytes, after each round of ways."""


class Killer(threading.Thread):
    """Kills one of an iterator's workers every so often."""

    def __init__(self, every: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.every, self.random = every, random.Random(seed)
        self.iterator: Any = None
        self.kills = 0
        self.killing = threading.Lock()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(self.every * self.random.uniform(0.5, 1.5)):
            with self.killing:
                workers = getattr(self.iterator, "_workers", [])
                living = [worker.pid for worker in workers if worker.is_alive()]
                if living:
                    os.kill(self.random.choice(living), signal.SIGKILL)
                    self.kills += 1
                del workers

    def rest(self) -> None:
        """From here on it kills nobody, and who it has killed is known to be dead."""
        with self.killing:
            self.iterator = None
        time.sleep(LATE_S)


def soak(
    seconds: float, *, every: float, seed: int = 0, kills: float = math.inf, progress: Callable[[Told], None] = lambda _: None
) -> Told:
    """Epochs for so long, or until so many workers were killed.

    A worker's death is an error in the loop, which goes on from where it stood.
    """
    told = Told()
    begun = time.monotonic()
    killer = Killer(every, seed)
    killer.start()
    try:
        while (time.monotonic() - begun < seconds and told.kills < kills) or told.after is told.before:
            for number, way in enumerate(WAYS):
                loader = FastLoader(Payload(), BATCH, shuffle=True, num_workers=WORKERS, **way)
                for _ in range(EPOCHS):
                    one_epoch(loader, killer, told)
                killer.iterator = None
                del loader
                told.kills = killer.kills
                if told.before is None and number < len(WAYS) - 1:
                    continue
                told.after = Left.now(told.workers)
                told.before = told.before or told.after
                told.memory.append((time.monotonic() - begun, told.after.memory))
                progress(told)
                if told.after is not told.before and (time.monotonic() - begun >= seconds or told.kills >= kills):
                    break
    finally:
        killer.over.set()
        killer.join()
    return told


def one_epoch(loader: Any, killer: Killer, told: Told) -> None:
    """Where a batch was taken and how the loader then stands are noted in one step: torch's error comes between any two."""
    done: tuple[tuple[Any, ...], dict[str, Any]] = ((), loader.state_dict())
    while True:
        iterator = None
        try:
            iterator = killer.iterator = iter(loader)
            told.workers.update(worker.pid for worker in iterator._workers)
            for batch in iterator:
                done = (*done[0], batch), loader.state_dict()
            killer.rest()
            break
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            told.raised += 1
            killer.iterator = None
            # The error holds the frames that hold the iterator.
            error.__traceback__ = None
            del iterator
        if len(done[0]) == len(loader):
            break
        loader.load_state_dict(done[1])
    numbers = Counter(int(number) for batch in done[0] for number in batch[0])
    if numbers != Counter(range(SAMPLES)):
        lost = [number for number in range(SAMPLES) if not numbers[number]]
        doubled = [number for number, count in numbers.items() if count > 1]
        told.wrong.append(f"epoch {told.epochs}: lost {lost}, doubled {doubled}")
    if any(not bool((sample == float(number)).all()) for batch in done[0] for number, sample in zip(*batch, strict=True)):
        told.wrong.append(f"epoch {told.epochs}: a sample is not its own")
    told.epochs += 1
    told.samples += sum(numbers.values())


def left(told: Told) -> list[str]:
    """What there is more of at the end."""
    before, after = told.before, told.after
    assert before is not None
    assert after is not None
    until = time.monotonic() + 10
    while (after.shared - before.shared or after.files.total() > before.files.total()) and time.monotonic() < until:
        time.sleep(0.2)
        after = Left.now(told.workers)
    found = []
    if after.files.total() > before.files.total():
        found.append(f"open files: {dict(after.files - before.files)}")
    if after.shared - before.shared:
        found.append(f"in /dev/shm: {', '.join(sorted(after.shared - before.shared))}")
    if after.threads > before.threads:
        found.append(f"{after.threads - before.threads} threads")
    if after.memory > before.memory + GROWTH:
        found.append(f"{(after.memory - before.memory) / 1e6:.0f} MB of memory")
    return found
