"""Loaders that supply batches at a planted pace, for a step of a known length."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from pipefix.report.tune_report import Certificate

STEP_S = 0.02
BATCH = 4


class Paced(Dataset[Any]):
    """Every sample takes so long, asleep."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


def as_list(samples: list[int]) -> list[int]:
    return samples


def ratios(count: int) -> Iterator[float]:
    """Supply over demand, from a quarter to three times, spread evenly in logarithms and out of order."""
    for number in range(count):
        place = (number * 0.618034) % 1.0
        yield round(0.25 * 12**place, 3)


def planted_stall(ratio: float) -> float:
    return max(0.0, 1 - ratio)


def loader_of(ratio: float, workers: int) -> DataLoader[Any]:
    return DataLoader(Paced(workers * STEP_S / BATCH / ratio), batch_size=BATCH, num_workers=workers, collate_fn=as_list)


LONGEST_DRAIN = 600
"""Batches that a plain loop takes at most before what was made in advance is believed to be gone."""


def drained(ratio: float, workers: int) -> int:
    """Batches after which a plain loop has used up what was made in advance, where less is made than it takes."""
    ahead = 2 * workers
    return 4 * workers + (min(LONGEST_DRAIN, round(ahead / (1 - ratio))) if ratio < 1 else 0) // workers * workers


def plain_stall(ratio: float, workers: int, seconds: float) -> float:
    """Share of a plain loop's time that it waits for batches; what was made before it began, and what lasts of it, is left out."""
    waited = stepped = 0.0
    loader = loader_of(ratio, workers)
    iterator = iter(loader)
    until = time.perf_counter() + 60
    settled = drained(ratio, workers)
    for number in range(10**9):
        asked_s = time.perf_counter()
        next(iterator)
        got = time.perf_counter()
        time.sleep(STEP_S)
        done = time.perf_counter()
        if number == settled:
            until = done + seconds
        if number > settled:
            waited, stepped = waited + got - asked_s, stepped + done - got
            if done > until and (number - settled) % workers == 0:
                break
    del iterator
    return waited / (waited + stepped)


def certified(ratio: float, workers: int, budget: float) -> Certificate:
    """What `pipefix.tune` says of the settings as they are."""
    import pipefix

    return pipefix.tune(loader_of(ratio, workers), step_ms=1e3 * STEP_S, trials=1, budget=budget).certificate
