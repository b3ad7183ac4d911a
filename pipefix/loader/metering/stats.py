"""What an epoch has shown so far, in figures and in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset, IterDataPipe

from pipefix.loader.metering.cost_record import samples_in
from pipefix.loader.metering.meter import Meter, size_of
from pipefix.vocabulary.quantity import percent

QUICK = 200_000
"""Nanoseconds from batch to batch below which metering each would be felt, where they are made in this process."""
FEW = 16
"""Batches by which that is told."""


@dataclass(frozen=True)
class Stats:
    """Of the latest epoch."""

    epoch: int
    batches: int
    samples: int
    start_s: float
    """The wait for the first batch."""
    waited_s: float
    """For all others."""
    worked_s: float
    """What the consumer did between batches."""
    metered: bool = True
    """False where batches follow each other so quickly that metering them all would be felt: figures are of the first ones."""

    @property
    def waiting(self) -> float:
        """The share of its time that the consumer waited, the epoch's start left out."""
        return self.waited_s / ((self.waited_s + self.worked_s) or 1.0)

    def __str__(self) -> str:
        if not self.batches:
            return "No batch has been loaded yet."
        whole = self.start_s + self.waited_s + self.worked_s
        sentence = (
            f"Epoch {self.epoch}: {self.batches} batches of {self.samples} samples in {whole:.3g} s, "
            f"{percent(self.waiting)} of the time waiting for them, the first after {self.start_s:.2g} s"
        )
        return sentence + ("." if self.metered else "; those after were too quick to be metered each.")


class Course:
    """An epoch on a loader's meter. It outlives its iterator."""

    def __init__(self, meter: Meter, epoch: int, loader: Any = None, rest: Any = None) -> None:
        """``rest``: what is left of the sampler's order, where the epoch was dealt anew (`ranks.RemainingOrder`)."""
        self.meter, self.epoch = meter, epoch
        self.begun = meter.sums()
        self.metered = True
        self.may_stop = False
        """Metering may be left off where it would be felt."""
        self._size = None if loader is None else size_of(loader)
        self._last, self._left = (0, 0) if loader is None else last_batch(loader, rest)
        self._few = FEW

    def got(self, batch: Any, number: int = -1) -> None:
        """The consumer has the epoch's batch of this number, from 1."""
        self.meter.got((self._left if number == self._last else self._size) or samples_in(batch))
        self._few -= 1
        if not self._few and self.may_stop and not self.meter.read and self.quick():
            self.metered = False

    def quick(self) -> bool:
        """Whether batches follow each other too quickly to meter them all."""
        now = self.meter.sums()
        spent = now.wait_ns + now.step_ns - self.begun.wait_ns - self.begun.step_ns
        return spent < QUICK * (now.batches - self.begun.batches)

    def stats(self) -> Stats:
        batches, samples, wait, step, start = self.meter.sums().since(self.begun)
        return Stats(self.epoch, batches, samples, start / 1e9, wait / 1e9, step / 1e9, self.metered)


def last_batch(loader: Any, rest: Any) -> tuple[int, int]:
    """The number of an epoch's last batch, from 1, and its samples, where it may have fewer than others; else no batch's number."""
    try:
        batches, left = divmod(len(loader.sampler) if rest is None else rest.samples, loader.batch_size)
    except Exception:  # noqa: BLE001 - a sampler of the user's, which nobody else asks for its length
        return 0, 0
    streams = isinstance(loader.dataset, (IterableDataset, IterDataPipe))
    return (batches + 1, left) if left and not (loader.drop_last or streams) else (0, 0)
