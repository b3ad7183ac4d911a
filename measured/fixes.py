"""How `pipefix fix` times a loader: by pipelines whose paces are known."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from measured.row import Row, about, at_most
from pipefix.fixes.speedup import WholeLoader, epoch_starts
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import PLAIN
from pipefix.subject.load import load


class Numbers(Dataset[int]):
    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


class Step(Consumer):
    present = True

    def __call__(self, batch: Any) -> None:
        time.sleep(0.02)


def starts_slowly(_worker: int) -> None:
    time.sleep(0.05)


def rates(loader: DataLoader[Any], consumer: Consumer, seconds: float) -> float:
    whole = WholeLoader(load(loader), consumer)
    found = []
    try:
        for _ in range(5):
            found.append(whole.block(PLAIN, seconds).rate)
            whole.rest()
    finally:
        whole.close()
    return statistics.median(found)


def rows() -> Iterator[Row]:
    slow = DataLoader(Numbers(40, 0.02), batch_size=4, collate_fn=list, num_workers=2, prefetch_factor=4)
    note = "200 where a stock of batches hides them"
    yield about("fixes: workers too slow for a step", rates(slow, Step(), 0.1), "samples/s", 100, 0.4, note=note)
    three = DataLoader(Numbers(10, 0.002), batch_size=2, collate_fn=list, num_workers=3)
    yield about("fixes: three workers, 2 ms a sample", rates(three, Consumer(), 0.1), "samples/s", 1500, 0.6)
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 1, "worker_init_fn": starts_slowly}
    anew, kept = (load(DataLoader(Numbers(48, 0.001), persistent_workers=stay, **options)) for stay in (False, True))
    ratio = min(epoch_starts(kept)) / min(epoch_starts(anew))
    yield at_most("fixes: an epoch's start with kept workers", ratio, "of anew", 1.0)
