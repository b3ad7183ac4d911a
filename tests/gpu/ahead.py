"""How early copies to the device begin, and which thread pins what they are made from."""

from __future__ import annotations

import multiprocessing
import threading
import time
import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader

from pipefix.loader.device import Carrier
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement import experiments
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.worker_probe import close_fetchers
from tests.measurement import planted

STEP_S = 0.004


class Counted:
    """Makes batches, and counts them for all processes."""

    def __init__(self) -> None:
        self.made = multiprocessing.Value("i", 0)

    def __call__(self, samples: list[Any]) -> torch.Tensor:
        with self.made.get_lock():
            self.made.value += 1
        return torch.stack(samples)

    def wait(self, count: int) -> None:
        """However busy the machine is, so many are made while the step runs."""
        until = time.monotonic() + 10
        while self.made.value < count and time.monotonic() < until:
            time.sleep(0.001)


def begun(engine: str, workers: int, pin: bool, count: int) -> dict[str, int]:
    """Of ``count`` batches: how many copies began before the step asked for the batch, and how often the training thread pinned."""
    warnings.simplefilter("ignore")
    asked, ahead, pinned = [0], [0], [0]
    begin, pin_memory, copied = Carrier.begin, torch.Tensor.pin_memory, [0]

    def noted(self: Carrier, batch: Any) -> Any:
        copied[0] += 1
        ahead[0] += copied[0] > asked[0]
        return begin(self, batch)

    def pinned_by(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        pinned[0] += threading.current_thread() is threading.main_thread()
        return pin_memory(tensor, *args)

    Carrier.begin, torch.Tensor.pin_memory = noted, pinned_by  # type: ignore[method-assign, assignment]
    data = [torch.full((256,), float(number)) for number in range(4 * count)]
    collate = Counted()
    loader: FastLoader[Any] = FastLoader(
        data, batch_size=4, num_workers=workers, engine=engine, pin_memory=pin, device="cuda", collate_fn=collate
    )
    batches, seen = iter(loader), 0
    while True:
        asked[0] += 1
        if next(batches, None) is None:
            break
        seen += 1
        collate.wait(min(count, seen + 2))
        time.sleep(STEP_S)
    return {"batches": seen, "ahead": ahead[0], "pinned": pinned[0]}


def memory_of_epochs() -> list[int]:
    """Bytes that torch keeps reserved after each of six epochs."""
    torch.zeros(1, device="cuda")
    loader: FastLoader[Any] = FastLoader([torch.zeros(1 << 20)] * 8, batch_size=4, device="cuda")
    reserved = []
    for _ in range(6):
        for batch in loader:
            torch.cuda._sleep(1000)
            del batch
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    return reserved


def kept_batch(workers: int) -> list[bool]:
    """Whether batches are pinned in the arms that run without a loader, and in the others."""
    keeps: list[bool] = []

    class Keeps(Consumer):
        present = True

        def __call__(self, batch: Any) -> None:
            keeps.append(batch.is_pinned())

    running = planted.pool(DataLoader([torch.zeros(16)] * 64, batch_size=4, num_workers=workers, pin_memory=True), Keeps())
    try:
        running.record(2, 10.0)
        keeps.append(running.keep_batch()().is_pinned())
        for arm in (experiments.PLAIN, experiments.REAL, experiments.SAMPLES, experiments.PREBUILT):
            running.block(arm, 0.02)
    finally:
        running.close()
        close_fetchers()
    return keeps
