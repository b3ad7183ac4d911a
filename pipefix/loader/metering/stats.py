"""What an epoch has shown so far, in figures and in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, IterDataPipe

from pipefix.loader.metering.meter import Meter, samples_in, size_of
from pipefix.vocabulary.quantity import percent

QUICK = 200_000
"""Nanoseconds from batch to batch below which metering each would be felt, where they are made in this process."""
FEW = 16
"""Batches by which that is told."""


class Mark(NamedTuple):
    """A meter's sums at a moment."""

    batches: int = 0
    samples: int = 0
    wait_ns: int = 0
    step_ns: int = 0
    start_ns: int = 0

    @classmethod
    def of(cls, meter: Meter) -> Mark:
        return cls(meter.batches, meter.samples, meter.wait_ns, meter.step_ns, meter.start_ns)


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
    workers: int
    alive: int
    """Workers whose process runs."""
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
        told = (
            f"Epoch {self.epoch}: {self.batches} batches of {self.samples} samples in {whole:.3g} s, "
            f"{percent(self.waiting)} of the time waiting for them, the first after {self.start_s:.2g} s"
        )
        lost = f"; {self.workers - self.alive} of {self.workers} workers are gone" if self.alive < self.workers else ""
        return told + lost + ("." if self.metered else "; those after were too quick to be metered each.")


class Course:
    """An epoch on a loader's meter. It outlives its iterator."""

    def __init__(self, meter: Meter, epoch: int, loader: Any = None, rest: Any = None) -> None:
        """``rest``: what is left of the sampler's order, where the epoch was dealt anew (`ranks.RemainingOrder`)."""
        self.meter, self.epoch = meter, epoch
        self.begun = Mark.of(meter)
        self.metered = True
        self.may_stop = False
        """Metering may be left off where it would be felt."""
        self._size = None if loader is None else size_of(loader)
        self._last, self._left = (0, 0) if loader is None else last_batch(loader, rest)
        self._few = FEW
        self._workers: Sequence[Any] = ()
        self._counts: tuple[int, int] | None = None
        """Of workers, and of those that were there when all of them were ended."""

    def got(self, batch: Any, number: int = -1) -> None:
        """The consumer has the epoch's batch of this number, from 1."""
        self.meter.got((self._left if number == self._last else self._size) or samples_in(batch))
        self._few -= 1
        if not self._few and self.may_stop and not self.meter.read and self.quick():
            self.metered = False

    def quick(self) -> bool:
        """Whether batches follow each other too quickly to meter them all."""
        now = Mark.of(self.meter)
        spent = now.wait_ns + now.step_ns - self.begun.wait_ns - self.begun.step_ns
        return spent < QUICK * (now.batches - self.begun.batches)

    def made_by(self, workers: Sequence[Any]) -> None:
        self._workers = workers

    def ends(self) -> None:
        """Its workers are about to be ended. Nothing of them is kept."""
        self._counts, self._workers = self._counts or self._alive(), ()

    def _alive(self) -> tuple[int, int]:
        return len(self._workers), sum(worker.is_alive() for worker in self._workers)

    def stats(self) -> Stats:
        batches, samples, wait, step, start = (now - then for now, then in zip(Mark.of(self.meter), self.begun, strict=True))
        workers, alive = self._counts or self._alive()
        return Stats(self.epoch, batches, samples, start / 1e9, wait / 1e9, step / 1e9, workers, alive, self.metered)


def last_batch(loader: Any, rest: Any) -> tuple[int, int]:
    """The number of an epoch's last batch, from 1, and its samples, where it may have fewer than others; else no batch's number."""
    try:
        batches, left = divmod(len(loader.sampler) if rest is None else rest.samples, loader.batch_size)
    except Exception:  # noqa: BLE001 - a sampler of the user's, which nobody else asks for its length
        return 0, 0
    streams = isinstance(loader.dataset, (IterableDataset, IterDataPipe))
    return (batches + 1, left) if left and not (loader.drop_last or streams) else (0, 0)
