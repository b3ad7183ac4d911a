"""The meter of a loader: seconds that its consumer waits and works, and the costs of making its batches.

The latest steps are kept by the thread that trains, without a lock; whoever wants figures reads them from another thread. What
happens in workers comes by shared memory (`record`) from the batches that a `StageClock` looked at.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple

from torch.utils.data import default_collate

from pipefix.hooks.torch_internals import makes_streams
from pipefix.loader.metering.cost_record import CostRecord, TimedBatch, Totals, samples_in
from pipefix.vocabulary.quantity import counted, percent, seconds

LENGTH = 4096
"""Steps that are kept: at 200 a second, those of twenty seconds."""
RECORDS = 8
"""Iterators whose makers are followed at once."""
QUICK = 200_000
"""Nanoseconds from batch to batch below which metering each would be felt, where they are made in this process."""
FEW = 16
"""Batches by which that is told."""
_UNKNOWN = -1


@dataclass(slots=True)
class MeteredStep:
    """One batch as its consumer met it. Nanoseconds."""

    at: int
    """When it had the batch."""
    wait: int
    """From asking for it to having it."""
    took: int
    """The processor time of that, in the asking thread: taking over what a worker made."""
    step: int
    """From having it to asking for the next; negative where the next was not asked for (yet)."""
    samples: int
    first: bool
    """The first of an epoch: its wait is the loader's start-up."""


class Sums(NamedTuple):
    """A meter's since it was made."""

    batches: int
    samples: int
    wait_ns: int
    """Without the waits for epochs' first batches, which are `start_ns`."""
    step_ns: int
    start_ns: int

    def since(self, before: Sums) -> Sums:
        """What came to them since then."""
        return Sums(*(now - then for now, then in zip(self, before, strict=True)))


class Meter:
    """Call `asked` before a batch is fetched, `got` when it is there, `ended` when the epoch is over."""

    def __init__(self, *, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.clock = clock
        self._steps: deque[tuple[int, MeteredStep]] = deque(maxlen=LENGTH)
        """By number."""
        self.batches = self.samples = self.epochs = 0
        self.wait_ns = self.step_ns = self.start_ns = 0
        """Sums since the meter was made; `start_ns` are the waits for the first batches of epochs."""
        self._asked = self._cpu = 0
        self._running: MeteredStep | None = None
        self._fresh, self._starting = True, 0
        self.workers = False
        self.declined: str | None = None
        self.read = False
        """Whether anybody reads it."""
        self._records: deque[tuple[Callable[[], object] | None, CostRecord]] = deque(maxlen=RECORDS)

    # -- the hot path --------------------------------------------------------------------------------------------------

    def asked(self) -> None:
        """The consumer wants a batch: its step is over."""
        now = self.clock()
        running, self._running = self._running, None
        if running is not None:
            running.step = now - running.at
            self.step_ns += running.step
        self._asked = now
        self._cpu = thread_time_ns()

    def got(self, samples: int) -> None:
        """The consumer has its batch and begins its step."""
        took = thread_time_ns() - self._cpu
        now = self.clock()
        waited = now - self._asked + self._starting
        self._running = MeteredStep(now, waited, took, _UNKNOWN, samples, self._fresh)
        self._steps.append((self.batches, self._running))
        if self._fresh:
            self.start_ns += waited
            self.epochs += 1
            self._fresh, self._starting = False, 0
        else:
            self.wait_ns += waited
        self.samples += samples
        self.batches += 1

    def ended(self) -> None:
        """The epoch is over, or was left: what follows, validation for one, is no step."""
        self._running, self._fresh = None, True

    def started(self, spent: int) -> None:
        """``iter(loader)`` took so many nanoseconds: part of the wait for the epoch's first batch."""
        self.ended()
        self._starting = spent

    # -- makers --------------------------------------------------------------------------------------------------------

    def record(self, workers: int, start_method: str | None = None) -> CostRecord:
        """Where the makers of a new iterator write; `follow` says whose they are. Those of ended iterators are used again."""
        for place, (alive, record) in enumerate(self._records):
            if alive is not None and alive() is None and record.pages == max(1, workers):
                del self._records[place]
                return record
        return CostRecord(workers, start_method, memory=None if workers else bytearray)

    def follow(self, record: CostRecord, alive: Callable[[], object] | None) -> None:
        """Read this; ``alive`` (a weak reference to the iterator) says when it may be used again."""
        self._records.append((alive, record))

    def sums(self) -> Sums:
        return Sums(self.batches, self.samples, self.wait_ns, self.step_ns, self.start_ns)

    # -- reading -------------------------------------------------------------------------------------------------------

    def steps(self, since: int) -> list[MeteredStep]:
        """Those from number ``since`` on that are still kept."""
        return [step for number, step in self._steps.copy() if number >= since]

    def looks(self) -> list[TimedBatch]:
        """Batches that were looked at since this was last asked."""
        return [look for _, record in list(self._records) for look in record.looks()]

    def makers(self) -> Totals:
        return Totals.of_all([record.totals() for _, record in list(self._records)])


def size_of(loader: Any) -> int | None:
    """Samples a batch where the loader itself makes the batches; None where the batch has to tell: the last ones of a stream, and
    all where damaged samples are left out."""
    size = getattr(loader, "batch_size", None)
    batch_tells = getattr(loader, "on_bad", "raise") == "skip" or (makes_streams(loader) and loader.collate_fn is default_collate)
    if isinstance(size, int) and not batch_tells:
        return size
    return None if makes_batches(loader) else 1


def makes_batches(loader: Any) -> bool:
    """Whether what comes out holds several samples."""
    several = getattr(loader, "batch_sampler", loader) is not None
    return several or makes_streams(loader) or hasattr(getattr(loader, "sampler", None), "batch_size")


class Metered:
    """An iterator of any kind, with every step put on the meter."""

    def __init__(self, iterator: Iterator[Any], meter: Meter, size: int | None = None) -> None:
        self._iterator, self._meter, self._size = iterator, meter, size

    def __iter__(self) -> Metered:
        return self

    def __next__(self) -> Any:
        self._meter.asked()
        try:
            batch = next(self._iterator)
        except BaseException:
            self._meter.ended()
            raise
        self._meter.got(self._size or samples_in(batch))
        return batch

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def close(self) -> None:
        """A generator that is left early ends here."""
        self._meter.ended()
        with contextlib.suppress(AttributeError):
            self._iterator.close()  # type: ignore[attr-defined]


# -- what an epoch has shown so far, in figures and in one line --------------------------------------------------------------


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
        whole = seconds(self.start_s + self.waited_s + self.worked_s)
        sentence = (
            f"Epoch {self.epoch}: {counted(self.batches, 'batch')} of {counted(self.samples, 'sample')} in {whole}, "
            f"{percent(self.waiting)} of the time waiting for them, the first after {seconds(self.start_s)}"
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
        own = None if getattr(loader, "batch_size", None) else getattr(loader, "batch_sampler", None)
        self._usual = getattr(own, "batch_size", None)
        self._last = self._left = 0
        """The number of the epoch's last batch, from 1, and its samples, where it may have fewer than others; else no batch's."""
        with contextlib.suppress(Exception):  # a stream's has no length, and one of the user's nobody else asks for it
            batches, left = divmod(len(loader.sampler) if rest is None else rest.samples, loader.batch_size)
            if left and self._size is not None and not loader.drop_last:
                self._last, self._left = batches + 1, left
        self._few = FEW

    def got(self, batch: Any, number: int = -1) -> None:
        """The consumer has the epoch's batch of this number, from 1."""
        self.meter.got((self._left if number == self._last else self._size) or samples_in(batch, self._usual))
        self._few -= 1
        if not self._few and self.may_stop and not self.meter.read and self.quick():
            self.metered = False

    def quick(self) -> bool:
        """Whether batches follow each other too quickly to meter them all."""
        passed = self.meter.sums().since(self.begun)
        return passed.wait_ns + passed.step_ns < QUICK * passed.batches

    def stats(self) -> Stats:
        batches, samples, wait, step, start = self.meter.sums().since(self.begun)
        return Stats(self.epoch, batches, samples, start / 1e9, wait / 1e9, step / 1e9, self.metered)
